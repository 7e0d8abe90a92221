"""A small shop in an in-memory SQLite database: one world per task."""

from __future__ import annotations

import sqlite3
from collections.abc import Mapping, Sequence
from functools import lru_cache
from typing import Any

from agentgym.scenarios.customer_support.language import ARTICLES
from agentgym.scenarios.wording import read_data

TODAY = "2026-06-15"

# category -> reason -> days after delivery within which a refund is possible
REFUND_WINDOWS: dict[str, dict[str, int]] = {
    "electronics": {"damaged": 60, "wrong_item": 30, "not_needed": 14},
    "clothing": {"damaged": 60, "wrong_item": 45, "not_needed": 30},
    "furniture": {"damaged": 90, "wrong_item": 30, "not_needed": 14},
    "kitchen": {"damaged": 60, "wrong_item": 30, "not_needed": 21},
    "toys": {"damaged": 60, "wrong_item": 30, "not_needed": 30},
    "sports": {"damaged": 60, "wrong_item": 30, "not_needed": 21},
}

_SCHEMA = read_data("agentgym.scenarios.customer_support", "schema.sql")

# A single query, because every episode runs it: a table's name, its values, a count.
_EFFECTS = """
SELECT 'orders', order_id, status, address, 1 FROM orders
UNION ALL SELECT 'refunds', order_id, amount, NULL, count(*) FROM refunds GROUP BY 2, 3
UNION ALL SELECT 'replacements', order_id, NULL, NULL, count(*) FROM replacements
    GROUP BY 2
UNION ALL SELECT 'escalations', reason, NULL, NULL, count(*) FROM escalations GROUP BY 2
UNION ALL SELECT 'password_resets', email, NULL, NULL, count(*) FROM password_resets
    GROUP BY 2
UNION ALL SELECT 'invoices_sent', order_id, email, NULL, count(*) FROM invoices_sent
    GROUP BY 2, 3
UNION ALL SELECT 'subscriptions', email, channel, subscribed, 1 FROM subscriptions
"""

Rows = Mapping[str, Sequence[tuple[Any, ...]]]
"""Rows by table: everything that differs between the worlds of tasks."""


class World:
    """The shop of one episode."""

    def __init__(self, image: bytes) -> None:
        # Tools run in a worker thread, one call at a time.
        self.db = sqlite3.connect(":memory:", check_same_thread=False)
        self.db.deserialize(image)

    @classmethod
    def image(cls, rows: Rows) -> bytes:
        """Creates a database with the shop's policies, articles and the given rows."""
        db = sqlite3.connect(":memory:")
        db.deserialize(_template())
        with db:
            for table, values in rows.items():
                if values:
                    marks = ",".join("?" * len(values[0]))
                    db.executemany(f"INSERT INTO {table} VALUES ({marks})", values)
        image: bytes = db.serialize()
        db.close()
        return image

    def row(self, query: str, *values: Any) -> tuple[Any, ...] | None:
        """Returns the first row of a query."""
        row: tuple[Any, ...] | None = self.db.execute(query, values).fetchone()
        return row

    def record(self, query: str, *values: Any) -> dict[str, Any] | None:
        """The first row of a query, by the names of its columns."""
        return next(iter(self.records(query, *values)), None)

    def records(self, query: str, *values: Any) -> list[dict[str, Any]]:
        """All rows of a query, by the names of its columns."""
        cursor = self.db.execute(query, values)
        names = [column[0] for column in cursor.description]
        return [dict(zip(names, row, strict=True)) for row in cursor]

    def rows(self, query: str, *values: Any) -> list[tuple[Any, ...]]:
        """Returns all rows of a query."""
        return self.db.execute(query, values).fetchall()

    def write(self, statement: str, *values: Any) -> None:
        """Runs a statement and commits it."""
        with self.db:
            self.db.execute(statement, values)

    def effects(self) -> frozenset[tuple[Any, ...]]:
        """Returns everything that agents can change, as comparable facts."""
        return frozenset(self.rows(_EFFECTS))

    def close(self) -> None:
        """Closes the database."""
        self.db.close()


@lru_cache(maxsize=1)
def _template() -> bytes:
    db = sqlite3.connect(":memory:")
    db.executescript(_SCHEMA)
    with db:
        db.executemany(
            "INSERT INTO policies VALUES (?, ?, ?)",
            [
                (category, reason, days)
                for category, windows in REFUND_WINDOWS.items()
                for reason, days in windows.items()
            ],
        )
        db.executemany(
            "INSERT INTO knowledge_base VALUES (?, ?, ?)",
            [(a.topic, a.title, a.body) for a in ARTICLES],
        )
    image: bytes = db.serialize()
    db.close()
    return image

"""A draft of a task: its customer and the rows of its world."""

from __future__ import annotations

import datetime
from dataclasses import dataclass, field
from typing import Any

from agentgym.scenarios.customer_support.knowledge import CARRIERS
from agentgym.scenarios.customer_support.language import Speaker
from agentgym.scenarios.customer_support.world import TODAY


@dataclass(slots=True)
class Draft:
    """A task under construction."""

    speaker: Speaker
    email: str
    rows: dict[str, list[tuple[Any, ...]]] = field(default_factory=dict)
    answers: dict[str, str] = field(default_factory=dict)
    mentioned: str = ""
    """Text after the request that is needed to understand it."""
    complete: bool = False
    """Whether requests must be complete (true for two requests in one message)."""

    def add(self, table: str, *values: Any) -> None:
        """Adds a row of the world."""
        self.rows.setdefault(table, []).append(values)

    def order(
        self,
        *,
        status: str = "delivered",
        delivered_days: int = 5,
        parcel: str = "",
        in_stock: bool = True,
        charges: int = 1,
        owner: str = "",
    ) -> tuple[str, str, float, float, str]:
        """Adds an order; returns its number, product, price, total and category."""
        rng, speaker = self.speaker.rng, self.speaker
        order_id = speaker.order_id()
        product, category = speaker.product()
        price = round(rng.uniform(8, 400), 2)
        fee = rng.choice([2.95, 3.9, 4.9, 5.95, 7.5])
        total = round(price + fee, 2)
        delivered = days_ago(delivered_days) if status == "delivered" else None
        placed = days_ago(delivered_days + rng.randint(3, 9))
        self.add(
            "orders",
            order_id,
            owner or self.email,
            status,
            placed,
            delivered,
            speaker.address(),
            fee,
            total,
        )
        self.add("items", order_id, product, category, price, int(in_stock))
        for number in range(charges):
            self.add("payments", f"P-{order_id}-{number + 1}", order_id, total)
        if status != "processing":
            parcel = parcel or ("delivered" if status == "delivered" else "in_transit")
            self.add(
                "shipments",
                order_id,
                rng.choice(CARRIERS),
                parcel,
                speaker.address().split(", ")[1],
                days_ago(-rng.randint(1, 4)),
            )
        return order_id, product, price, total, category


def days_ago(days: int) -> str:
    """A date of the shop's calendar."""
    day = datetime.date.fromisoformat(TODAY) - datetime.timedelta(days=days)
    return day.isoformat()

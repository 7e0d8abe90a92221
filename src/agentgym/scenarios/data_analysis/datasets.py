"""Datasets: generated from a seed, written in their format, and read by DuckDB.

A file exists only while DuckDB reads it. The data stays in a separate in-memory
database that can't access files or the network; the least used ones are dropped.
"""

from __future__ import annotations

import datetime
import itertools
import json
import math
import tempfile
import zlib
from collections import OrderedDict
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import cache, lru_cache
from pathlib import Path
from typing import Any, Literal, TypeVar

import duckdb
import numpy as np

from agentgym.core.task import Split
from agentgym.scenarios.wording import split_of, word_lists

DATASETS: dict[Split, int] = {"train": 8, "validation": 3, "heldout": 4}
"""Number of datasets per domain in a split."""
_NUMBERS: dict[Split, int] = {"train": 1000, "validation": 4000, "heldout": 7000}
_OPEN = 80
"""Maximum number of datasets in memory, about 6 MB each."""
_REMEMBERED = 512

Format = Literal["csv", "jsonl", "parquet"]
Kind = Literal["number", "category", "date", "code", "flag"]
Rows = dict[str, list[Any]]
_T = TypeVar("_T")

_READERS = {
    "csv": "read_csv(?, header=true)",
    "jsonl": "read_json(?, format='newline_delimited')",
    "parquet": "read_parquet(?)",
}


@dataclass(frozen=True, slots=True)
class Domain:
    """One kind of dataset; `data/names.txt` has the names of its columns.

    Attributes:
        stem: The beginning of its files' names.
        rows: Fewest and most rows.
        gaps: Share of missing values in columns that have any.
        mixed: Whether it also has a column of codes and one of booleans.
    """

    stem: str
    format: Format
    rows: tuple[int, int]
    gaps: float = 0.0
    mixed: bool = False


DOMAINS = {
    "sales": Domain("sales", "csv", (240, 420)),
    "behaviour": Domain("events", "jsonl", (240, 420)),
    "series": Domain("series", "csv", (360, 540)),
    "mixed": Domain("survey", "csv", (240, 420), gaps=0.12, mixed=True),
    "logistics": Domain("shipments", "parquet", (300, 480)),
}
_NAMES = word_lists("agentgym.scenarios.data_analysis", "names.txt")
_CATEGORIES = ("item", "place", "group")


@cache
def values(kind: str, split: Split) -> list[str]:
    """The values of category columns of a kind; splits share none."""
    pairs = itertools.product(_NAMES[f"{kind}/first"], _NAMES[f"{kind}/second"])
    return split_of([f"{a} {b}" for a, b in pairs], split)


@cache
def columns(domain: str, split: Split) -> tuple[list[str], dict[str, list[str]], str]:
    """Names for a domain's number columns, category columns and date column.

    Splits share no names.
    """

    def names(kind: str) -> list[str]:
        return split_of(_NAMES[f"{domain}/{kind}"], split)

    return names("numbers"), {k: names(k) for k in _CATEGORIES}, names("dates")[0]


@dataclass(frozen=True, slots=True)
class DatasetSpec:
    """Identifies a dataset; equal specs mean equal data."""

    split: Split
    domain: str
    number: int

    @property
    def file(self) -> str:
        """The file's name; its number depends on the split."""
        domain = DOMAINS[self.domain]
        return f"{domain.stem}_{_NUMBERS[self.split] + self.number}.{domain.format}"

    @property
    def seed(self) -> int:
        """The seed that generates it."""
        return zlib.crc32(f"{self.split} {self.domain} {self.number}".encode())


class Table:
    """A dataset in a separate in-memory database.

    Attributes:
        kinds: The kind of each column, in the order of the file.
        sizes: Size of each column's values in bytes.
        file_bytes: Size of the file in bytes.
    """

    def __init__(self, rows: Rows, kinds: dict[str, Kind], file: str) -> None:
        """Writes rows to a file and reads it back.

        Args:
            rows: Values by column.
            kinds: The kind of each column.
            file: Name of the file; its extension determines the format.
        """
        self.file = file
        self.kinds = kinds
        self.rows = len(next(iter(rows.values())))
        self.sizes = {name: _size(kinds[name], found) for name, found in rows.items()}
        self._known: OrderedDict[Any, Any] = OrderedDict()
        # One thread, not eight: there may be dozens of these databases.
        self._database = duckdb.connect(
            ":memory:", config={"threads": 1, "async_threads": 1}
        )
        format_ = file.rpartition(".")[2]
        with tempfile.TemporaryDirectory(prefix="agentgym-data-") as folder:
            path = Path(folder) / file
            self._write(rows, path, format_)
            self.file_bytes = path.stat().st_size
            self._database.execute(
                f"CREATE TABLE data AS SELECT * FROM {_READERS[format_]}", [str(path)]
            )
        self._database.execute("SET enable_external_access = false")
        self._database.execute("SET lock_configuration = true")

    def fetch(self, sql: str, values: Sequence[Any] = ()) -> list[tuple[Any, ...]]:
        """Returns the rows of a query; pass values separately, they are bound."""
        return self._database.execute(sql, list(values)).fetchall()

    def remember(self, key: Any, compute: Callable[[], _T]) -> _T:
        """Returns the cached or newly computed value for a key: data never changes."""
        if key in self._known:
            self._known.move_to_end(key)
            known: _T = self._known[key]
            return known
        found = compute()
        self._known[key] = found
        if len(self._known) > _REMEMBERED:
            self._known.popitem(last=False)
        return found

    def close(self) -> None:
        """Closes the database."""
        self._database.close()

    def _write(self, rows: Rows, path: Path, format_: str) -> None:
        lines = list(zip(*rows.values(), strict=True))
        if format_ == "csv":
            text = [",".join(rows), *(",".join(map(_cell, line)) for line in lines)]
            path.write_text("\n".join(text) + "\n", encoding="utf-8")
        elif format_ == "jsonl":
            records = (
                dict(zip(rows, map(_plain, line), strict=True)) for line in lines
            )
            path.write_text("".join(json.dumps(r) + "\n" for r in records), "utf-8")
        else:
            types = ", ".join(f'"{n}" {_SQL_TYPES[self.kinds[n]]}' for n in rows)
            marks = ", ".join("?" * len(rows))
            self._database.execute(f"CREATE TABLE made ({types})")
            self._database.execute("BEGIN")
            self._database.executemany(f"INSERT INTO made VALUES ({marks})", lines)
            self._database.execute("COMMIT")
            quoted = str(path).replace("'", "''")
            self._database.execute(f"COPY made TO '{quoted}' (FORMAT parquet)")
            self._database.execute("DROP TABLE made")


_SQL_TYPES: dict[Kind, str] = {
    "number": "DOUBLE",
    "category": "VARCHAR",
    "date": "DATE",
    "code": "VARCHAR",
    "flag": "BOOLEAN",
}
_WIDTHS: dict[Kind, int] = {"number": 8, "date": 4, "flag": 1}


def _size(kind: Kind, found: Sequence[Any]) -> int:
    width = _WIDTHS.get(kind)
    if width is not None:
        return width * len(found)
    return sum(len(str(value).encode()) for value in found if value is not None)


def _plain(value: Any) -> Any:
    return value.isoformat() if isinstance(value, datetime.date) else value


def _cell(value: Any) -> str:
    if value is None:
        return ""
    return str(value).lower() if isinstance(value, bool) else str(_plain(value))


@lru_cache(maxsize=_OPEN)
def open_table(spec: DatasetSpec) -> Table:
    """Returns a dataset; generates and reads it if it isn't cached."""
    rows, kinds = draw(spec)
    return Table(rows, kinds, spec.file)


def draw(spec: DatasetSpec) -> tuple[Rows, dict[str, Kind]]:
    """Generates a dataset: values by column, and the kind of each column."""
    rng = np.random.default_rng(spec.seed)
    domain = DOMAINS[spec.domain]
    numbers, categories, date = columns(spec.domain, spec.split)
    count = int(rng.integers(*domain.rows))
    rows: Rows = {date: list(_dates(rng, count))}
    kinds: dict[str, Kind] = {date: "date"}
    effects = []
    for kind, names in categories.items():
        name = names[int(rng.integers(len(names)))]
        pool = values(kind, spec.split)
        size = int(rng.integers(4, 8))
        some = [pool[i] for i in rng.permutation(len(pool))[:size]]
        drawn = rng.choice(size, count, p=_odds(rng, size))
        rows[name], kinds[name] = [some[i] for i in drawn], "category"
        effects.append(rng.normal(0.0, 0.25, size)[drawn])
    names = [numbers[i] for i in rng.permutation(len(numbers))[:4]]
    for name, found in zip(
        names, _measures(rng, count, effects, rows[date]), strict=True
    ):
        rows[name], kinds[name] = found, "number"
    if domain.mixed:
        _make_mixed(rng, rows, kinds, domain.gaps, _NUMBERS[spec.split])
    return rows, kinds


def _odds(rng: np.random.Generator, size: int) -> Any:
    odds = rng.uniform(0.5, 1.5, size)
    odds[int(rng.integers(size))] += 1.5
    return odds / odds.sum()


def _dates(rng: np.random.Generator, count: int) -> Iterator[datetime.date]:
    first = datetime.date(2021 + int(rng.integers(4)), int(rng.integers(1, 7)), 1)
    days = np.sort(rng.integers(0, 365, count))
    return (first + datetime.timedelta(days=int(day)) for day in days)


def _measures(
    rng: np.random.Generator,
    count: int,
    effects: Sequence[np.ndarray[Any, Any]],
    dates: Sequence[datetime.date],
) -> Iterator[list[float]]:
    """Four correlated columns of numbers, with outliers and an abnormal month."""
    months = np.array([day.year * 12 + day.month for day in dates])
    base = rng.normal(size=count)
    for weight in (0.9, 0.55, -0.7, 0.1):
        noise = rng.normal(size=count)
        signal = weight * base + math.sqrt(1 - weight * weight) * noise
        level = 10 ** rng.uniform(1.0, 3.0)
        found = level * (1.0 + 0.12 * signal + sum(0.2 * e for e in effects))
        found[months == rng.choice(np.unique(months)[1:-1])] *= rng.choice([0.72, 1.35])
        extreme = rng.permutation(count)[: int(rng.integers(3, 9))]
        found[extreme] *= rng.choice([0.2, 2.6], len(extreme))
        yield [round(float(value), 2) for value in np.abs(found)]


def _make_mixed(
    rng: np.random.Generator,
    rows: Rows,
    kinds: dict[str, Kind],
    gaps: float,
    first_code: int,
) -> None:
    count = len(next(iter(rows.values())))
    for name, kind in kinds.items():
        if kind != "date":
            lost = rng.random(count) < gaps * rng.uniform(0.3, 1.7)
            rows[name] = [
                None if gone else value
                for gone, value in zip(lost, rows[name], strict=True)
            ]
    rows["Record Code"] = [f"R-{first_code + i}" for i in rng.permutation(count)]
    rows["Is Confirmed"] = [bool(flag) for flag in rng.random(count) < 0.7]
    kinds["Record Code"], kinds["Is Confirmed"] = "code", "flag"

"""One analysis: the files at hand, what has been found, and what it cost."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

from agentgym.core.tools import ToolError
from agentgym.scenarios.data_analysis.charts import Chart, Series
from agentgym.scenarios.data_analysis.datasets import DatasetSpec, Table


@dataclass(frozen=True, slots=True)
class Filter:
    """Rows to keep."""

    column: str
    condition: str
    value: str | float


@dataclass(frozen=True, slots=True)
class Finding:
    """What a tool computed.

    Attributes:
        result: What the agent is told; `value` is the finding itself.
        columns: That had to be read.
        series: What a chart of it shows; None if there is nothing to draw.
    """

    result: Mapping[str, Any]
    columns: tuple[str, ...]
    series: Series | None = None


@dataclass(slots=True)
class World:
    """One analysis: the files at hand, what has been done, what it cost.

    Attributes:
        files: The datasets that can be loaded, by the names of their files.
        finding: What was computed last on the table.
        answer: What the user was told.
    """

    files: Mapping[str, DatasetSpec]
    table: Table | None = None
    filters: tuple[Filter, ...] = ()
    finding: Finding | None = None
    charts: list[Chart] = field(default_factory=list)
    answer: str | float | None = None
    rows_scanned: int = 0
    bytes_scanned: int = 0

    def loaded(self) -> Table:
        """The table at work.

        Raises:
            ToolError: None has been loaded.
        """
        if self.table is None:
            raise ToolError("no data is loaded; call load_data first")
        return self.table

    def count(self, rows: int, size: int) -> dict[str, str]:
        """Adds to what was scanned; returns it as part of a result.

        As text: no number that is part of an answer.
        """
        self.rows_scanned += rows
        self.bytes_scanned += size
        return {"scanned": f"{rows} rows, {size} bytes"}

    def find(
        self, key: tuple[Any, ...], compute: Callable[[Table], Finding]
    ) -> dict[str, Any]:
        """Computes something on the rows that the filters leave, and counts it."""
        table = self.loaded()
        found = table.remember((key, self.filters), lambda: compute(table))
        self.finding = found
        read = {*found.columns, *(f.column for f in self.filters)}
        size = sum(table.sizes[name] for name in read)
        return {**found.result, **self.count(table.rows, size)}

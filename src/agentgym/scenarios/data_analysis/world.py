"""The state of an analysis: its files, results and scanned data."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

from agentgym.core.tools import ToolError
from agentgym.scenarios.data_analysis.charts import Chart, Series
from agentgym.scenarios.data_analysis.datasets import DatasetSpec, Table


@dataclass(frozen=True, slots=True)
class Filter:
    """A condition for rows to keep."""

    column: str
    condition: str
    value: str | float


@dataclass(frozen=True, slots=True)
class Finding:
    """A tool's result.

    Attributes:
        result: The result for the agent; `value` is the finding itself.
        columns: The columns that were read.
        series: The data for a chart; None if there is nothing to draw.
    """

    result: Mapping[str, Any]
    columns: tuple[str, ...]
    series: Series | None = None


@dataclass(slots=True)
class World:
    """The state of one analysis.

    Attributes:
        files: The available datasets, by file name.
        finding: The last result.
        answer: The answer to the user.
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
        """The loaded table.

        Raises:
            ToolError: No table is loaded.
        """
        if self.table is None:
            raise ToolError("no data is loaded; call load_data first")
        return self.table

    def count(self, rows: int, size: int) -> dict[str, str]:
        """Adds to the scanned data; returns it as part of a result.

        As text, so that no policy takes it for a number of the answer.
        """
        self.rows_scanned += rows
        self.bytes_scanned += size
        return {"scanned": f"{rows} rows, {size} bytes"}

    def find(
        self, key: tuple[Any, ...], compute: Callable[[Table], Finding]
    ) -> dict[str, Any]:
        """Computes something on the rows that pass the filters, and counts the scan."""
        table = self.loaded()
        found = table.remember((key, self.filters), lambda: compute(table))
        self.finding = found
        read = {*found.columns, *(f.column for f in self.filters)}
        size = sum(table.sizes[name] for name in read)
        return {**found.result, **self.count(table.rows, size)}

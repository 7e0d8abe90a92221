"""The analyst's tools. They really compute, with DuckDB and pandas.

No text from a call becomes part of SQL: columns are checked against the table's schema,
operators and functions come from the tables below, and values are bound. The tools'
definitions, as a model sees them, are in `data/tools.json`.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import pandas as pd

from agentgym.core.tools import ToolError
from agentgym.scenarios.data_analysis.charts import Chart, ChartKind, Series, draw_chart
from agentgym.scenarios.data_analysis.datasets import (
    DatasetSpec,
    Kind,
    Table,
    open_table,
)
from agentgym.scenarios.planned import read_tools

_OPERATORS = {
    "equals": "=",
    "differs": "IS DISTINCT FROM",
    "above": ">",
    "below": "<",
}
_FUNCTIONS = {"sum": "sum", "mean": "avg", "maximum": "max"}
_STATISTICS: dict[str, Callable[[Any], float]] = {
    "mean": lambda s: s.mean(),
    "median": lambda s: s.median(),
    "sum": lambda s: s.sum(),
    "minimum": lambda s: s.min(),
    "maximum": lambda s: s.max(),
    "standard_deviation": lambda s: s.std(),
}
MONTH = "month"
"""The alternative to columns for grouping rows."""
_GROUPS_SHOWN = 5
_FEWEST = 3
"""Minimum number of values for a statistic."""


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


# The tools -------------------------------------------------------------------------


def load_data(world: World, file: str) -> dict[str, Any]:
    """Opens a file and drops all filters."""
    spec = world.files.get(file)
    if spec is None:
        raise ToolError(f"no file '{file}'; files: {', '.join(sorted(world.files))}")
    table = open_table(spec)
    world.table, world.filters, world.finding = table, (), None
    names: dict[str, list[str]] = {}
    for name, kind in table.kinds.items():
        names.setdefault(_PLURALS[kind], []).append(name)
    return {
        "file": file,
        **{kind: ", ".join(some) for kind, some in names.items()},
        **world.count(table.rows, table.file_bytes),
    }


def describe(world: World, column: str, aspect: str) -> dict[str, Any]:
    """Counts missing or distinct values of a column, or finds the most common one."""

    def compute(table: Table) -> Finding:
        name, (where, bound) = _column(table, column), _where(world)
        if aspect == "most_common":
            rows = table.fetch(
                f"SELECT {name}, count(*) AS n FROM data{where} GROUP BY 1 "
                f"HAVING {name} IS NOT NULL ORDER BY n DESC, 1 LIMIT 2",
                bound,
            )
            if not rows:
                raise ToolError("no values to describe")
            times = [row[1] for row in rows]
            result = {"value": _plain(rows[0][0]), "times": times[0]}
            result |= {"next_times": times[1]} if len(times) > 1 else {}
            return Finding(result, (column,))
        what = f"count(*) - count({name})"
        if aspect == "distinct":
            what = f"count(DISTINCT {name})"
        value = table.fetch(f"SELECT {what} FROM data{where}", bound)[0][0]
        return Finding({"value": value}, (column,))

    return world.find(("describe", column, aspect), compute)


def filter_data(
    world: World, column: str, condition: str, value: str | float
) -> dict[str, Any]:
    """Keeps the rows that meet a condition, for all following calls."""
    table = world.loaded()
    _column(table, column)
    numeric = isinstance(value, int | float)
    if numeric is not (table.kinds[column] == "number"):
        wanted = "a number" if not numeric else "a text"
        raise ToolError(f"'{column}' is compared with {wanted}, not with {value!r}")
    if condition in ("above", "below") and not numeric:
        raise ToolError(f"'{column}' has no order; use equals or differs")
    before = world.filters
    world.filters = (*before, Filter(column, condition, value))

    def compute(table: Table) -> Finding:
        where, bound = _where(world)
        kept = table.fetch(f"SELECT count(*) FROM data{where}", bound)[0][0]
        percent = round(100.0 * kept / table.rows, 2)
        return Finding({"value": percent, "rows_left": kept}, ())

    return world.find(("filter_data",), compute)


def aggregate_data(
    world: World, group_by: str, column: str, function: str, order: str
) -> dict[str, Any]:
    """Groups rows and names the group with the highest or lowest figure."""

    def compute(table: Table) -> Finding:
        name = _number(table, column)
        monthly = group_by == MONTH
        grouped = _dates(table) if monthly else group_by
        by = _column(table, grouped)
        if monthly:
            by = f"strftime({by}, '%Y-%m')"
        where, bound = _where(world)
        direction = "DESC" if order == "highest" else "ASC"
        rows = table.fetch(
            f"SELECT {by} AS part, {_FUNCTIONS[function]}({name}) AS figure "
            f"FROM data{where} GROUP BY part HAVING part IS NOT NULL "
            f"AND figure IS NOT NULL ORDER BY figure {direction}, part",
            bound,
        )
        if not rows:
            raise ToolError("no rows to group")
        figures = [(_plain(part), round(float(figure), 4)) for part, figure in rows]
        result = {
            "value": figures[0][0],
            "figure": figures[0][1],
            "axis": MONTH if monthly else "category",
            "groups": [
                {"group": part, "figure": figure}
                for part, figure in figures[1:_GROUPS_SHOWN]
            ],
        }
        drawn = sorted(figures) if monthly else figures
        label = f"{function} of {column}"
        series = Series(
            group_by,
            label,
            tuple(str(part) for part, _ in drawn),
            tuple(figure for _, figure in drawn),
        )
        return Finding(result, (grouped, column), series)

    return world.find(("aggregate_data", group_by, column, function, order), compute)


def calculate_stats(world: World, column: str, statistic: str) -> dict[str, Any]:
    """Calculates one statistic of a column."""

    def compute(table: Table) -> Finding:
        numbers = _frame(world, table, column)[column].dropna()
        _enough(numbers)
        value = round(float(_STATISTICS[statistic](numbers)), 4)
        series = Series(column, "count", tuple(numbers.tolist()))
        return Finding({"value": value, "axis": "number"}, (column,), series)

    return world.find(("calculate_stats", column, statistic), compute)


def detect_outliers(world: World, column: str, method: str) -> dict[str, Any]:
    """Counts extreme values, or finds the abnormal month."""

    def compute(table: Table) -> Finding:
        if method == "month":
            return _odd_month(world, table, column)
        numbers = _frame(world, table, column)[column].dropna()
        _enough(numbers)
        if method == "iqr":
            first, third = numbers.quantile(0.25), numbers.quantile(0.75)
            low, high = first - 1.5 * (third - first), third + 1.5 * (third - first)
        else:
            spread = 3.0 * numbers.std()
            low, high = numbers.mean() - spread, numbers.mean() + spread
        value = int(((numbers < low) | (numbers > high)).sum())
        result = {"value": value, "low": round(low, 4), "high": round(high, 4)}
        series = Series(column, "count", tuple(numbers.tolist()))
        return Finding(result, (column,), series)

    return world.find(("detect_outliers", column, method), compute)


def run_correlation(
    world: World, column: str, method: str, other: str | None = None
) -> dict[str, Any]:
    """Correlates two columns, or finds the column that correlates best with one."""

    def compute(table: Table) -> Finding:
        _number(table, column)
        others = [other] if other is not None else _numbers_but(table, column)
        found: list[tuple[str, float]] = []
        for name in others:
            frame = _frame(world, table, column, name).dropna()
            _enough(frame)
            if method == "spearman":
                frame = frame.rank()
            value = float(np.corrcoef(frame[column], frame[name])[0, 1])
            if not np.isfinite(value):
                raise ToolError(f"'{column}' or '{name}' does not vary")
            found.append((name, round(value, 4)))
        if other is None:
            found.sort(key=lambda pair: -abs(pair[1]))
            listed = [{"other": n, "coefficient": c} for n, c in found[1:]]
            result = {"value": found[0][0], "coefficient": found[0][1], "less": listed}
            return Finding(result, (column, *others))
        frame = _frame(world, table, column, other).dropna()
        series = Series(
            column, other, tuple(frame[column].tolist()), tuple(frame[other].tolist())
        )
        return Finding({"value": found[0][1], "axis": "pair"}, (column, other), series)

    if other == column:
        raise ToolError("a column always correlates with itself; name another one")
    return world.find(("run_correlation", column, other, method), compute)


def plot_chart(world: World, kind: ChartKind) -> dict[str, Any]:
    """Draws the last result."""
    finding = world.finding
    if finding is None or finding.series is None:
        raise ToolError("nothing to draw; aggregate, correlate or calculate first")
    series = finding.series
    table = world.loaded()
    try:
        chart = table.remember((kind, series), lambda: draw_chart(kind, series))
    except ValueError as error:
        raise ToolError(str(error)) from None
    world.charts.append(chart)
    shown = chart.shown
    return {
        "chart": f"chart {len(world.charts)}",
        "kind": shown.kind,
        "x_axis": shown.x_label,
        "y_axis": shown.y_label,
        "series": shown.series,
        "points": shown.points,
        "png_bytes": len(chart.png),
    }


def answer(world: World, value: str | float) -> dict[str, Any]:
    """Answers the user."""
    world.answer = value
    return {"sent": True}


# Shared helpers --------------------------------------------------------------------

_PLURALS: dict[Kind, str] = {
    "number": "numbers",
    "category": "categories",
    "date": "dates",
    "code": "codes",
    "flag": "flags",
}


def _column(table: Table, name: str) -> str:
    """A column's quoted name for SQL, after checking it against the schema."""
    if name not in table.kinds:
        raise ToolError(f"no column '{name}'; columns: {', '.join(table.kinds)}")
    escaped = name.replace('"', '""')
    return f'"{escaped}"'


def _number(table: Table, name: str) -> str:
    quoted = _column(table, name)
    if table.kinds[name] != "number":
        raise ToolError(f"'{name}' holds no numbers")
    return quoted


def _dates(table: Table) -> str:
    for name, kind in table.kinds.items():
        if kind == "date":
            return name
    raise ToolError("the data has no dates")


def _numbers_but(table: Table, column: str) -> list[str]:
    return [n for n, kind in table.kinds.items() if kind == "number" and n != column]


def _where(world: World) -> tuple[str, list[Any]]:
    """The filters as SQL, and the values to bind."""
    table = world.loaded()
    tests = [
        f"{_column(table, f.column)} {_OPERATORS[f.condition]} ?" for f in world.filters
    ]
    bound = [f.value for f in world.filters]
    return (f" WHERE {' AND '.join(tests)}" if tests else ""), bound


def _frame(world: World, table: Table, *names: str) -> pd.DataFrame:
    """Columns of numbers, with the rows that pass the filters."""
    picked = ", ".join(_number(table, name) for name in names)

    def compute() -> pd.DataFrame:
        where, bound = _where(world)
        rows = table.fetch(f"SELECT {picked} FROM data{where}", bound)
        return pd.DataFrame(rows, columns=list(names), dtype=float)

    return table.remember((names, world.filters), compute)


def _odd_month(world: World, table: Table, column: str) -> Finding:
    """The month whose mean is farthest from the median month, in both directions."""
    dates = _dates(table)
    where, bound = _where(world)
    rows = table.fetch(
        f"SELECT strftime({_column(table, dates)}, '%Y-%m') AS month, "
        f"median({_number(table, column)}) FROM data{where} "
        "GROUP BY month ORDER BY month",
        bound,
    )
    months = pd.Series({m: v for m, v in rows if m is not None and v is not None})
    _enough(months)
    off = (months - months.median()).abs()
    most = off.nlargest(2).round(4).tolist()
    result = {"value": str(off.idxmax()), "deviation": most[0]}
    result["next_deviation"] = most[1]
    series = Series(
        MONTH, column, tuple(map(str, months.index)), tuple(map(float, months))
    )
    return Finding(result, (dates, column), series)


def _enough(values: Any) -> None:
    if len(values) < _FEWEST:
        raise ToolError(f"only {len(values)} values are left; that says nothing")


def _plain(value: Any) -> Any:
    return value if isinstance(value, str | int | float) else str(value)


TOOLS = read_tools("agentgym.scenarios.data_analysis", globals())

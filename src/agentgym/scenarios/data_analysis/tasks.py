"""Generates tasks: a question, files, the best plan and its results."""

from __future__ import annotations

import random
from collections.abc import Mapping
from typing import Any

from agentgym.core.task import Difficulty, Split, Task
from agentgym.core.tools import ToolError
from agentgym.scenarios.data_analysis import tools
from agentgym.scenarios.data_analysis.charts import BINS, ChartKind, Series, Shown
from agentgym.scenarios.data_analysis.datasets import (
    DATASETS,
    DOMAINS,
    DatasetSpec,
    Kind,
    Table,
    open_table,
)
from agentgym.scenarios.data_analysis.plan import SYSTEM_PROMPT, Goal
from agentgym.scenarios.data_analysis.tools import TOOLS, World
from agentgym.scenarios.planned import Milestone, opening
from agentgym.scenarios.wording import Phrasebook, read_json

_PACKAGE = "agentgym.scenarios.data_analysis"
_FUNCTIONS = {tool.name: tool.function for tool in TOOLS}
WORDS: dict[str, dict[str, list[str]]] = read_json(_PACKAGE, "words.json")
"""Words for a tool's enum values, by slot: technical terms that all splits use."""
_TRIES = 50
_DECOY, _OPENER, _FILTER, _CHART = 0.2, 0.4, 0.35, 0.35
_KINDS = (
    "stat top month correlation strongest outliers anomaly missing distinct common "
    "share_equals share_above share_below"
).split()
_WEIGHTS = [4, 4, 3, 3, 1, 2, 2, 1, 1, 1, 1, 1, 1]
_FILTERABLE = frozenset({"stat", "top", "month", "correlation", "outliers"})
_CHARTS: dict[str, ChartKind] = {
    "stat": "histogram",
    "top": "bar",
    "month": "line",
    "correlation": "scatter",
}
"""The right chart for questions that may ask for one."""


class _Unsuitable(Exception):
    """The data has no clear answer to a question."""


def make_task(split: Split, rng: random.Random, id: str) -> Task:
    """Generates a task of a split."""
    for _ in range(_TRIES):
        try:
            return _draw(split, rng, id)
        except _Unsuitable:
            continue
    raise AssertionError("no question fits any dataset")


def _draw(split: Split, rng: random.Random, id: str) -> Task:
    kind = rng.choices(_KINDS, _WEIGHTS)[0]
    names = list(DOMAINS)
    domain = rng.choice(
        [name for name in names if kind != "missing" or DOMAINS[name].gaps]
    )
    spec = DatasetSpec(split, domain, rng.randrange(DATASETS[split]))
    table = open_table(spec)
    files = {spec.file: spec}
    while len(files) < 4:
        other = DatasetSpec(split, rng.choice(names), rng.randrange(DATASETS[split]))
        files[other.file] = other

    columns = _Columns(table, rng)
    slots, call = _ask(kind, columns, rng)
    phrases = Phrasebook(_PACKAGE, "questions", split, rng)
    what = [phrases.say(kind, **slots)]
    plan = [Milestone("load_data", {"file": spec.file})]
    if kind in _FILTERABLE and rng.random() < _FILTER:
        key, slots, keep = _restrict(columns, rng)
        what.insert(rng.random() < 0.7, phrases.say(key, **slots))
        plan.append(keep)
    plan.append(call)
    chart = _CHARTS.get(kind)
    if chart is not None and rng.random() < _CHART:
        what.append(phrases.say("chart"))
        plan.append(Milestone("plot_chart", {"kind": chart}))

    where = [phrases.say("file", file=spec.file)]
    decoy = rng.random() < _DECOY
    if decoy:
        other_file = rng.choice([name for name in files if name != spec.file])
        where.append(phrases.say("decoy", other=other_file))
    request = phrases.request(where, what, _OPENER)

    goal = _solve(plan, files)
    return Task(
        id=id,
        messages=opening(SYSTEM_PROMPT, request),
        world=files,
        goal=goal,
        best_steps=len(goal.plan) + 1,
        difficulty=_difficulty(len(goal.plan), decoy),
        split=split,
        tags=(kind, domain),
    )


def _difficulty(calls: int, decoy: bool) -> Difficulty:
    """Based on the length of the plan and whether the message mentions another file."""
    if calls >= 5:
        return "hard"
    return "medium" if calls == 4 or decoy else "easy"


class _Columns:
    """Draws different columns of a table."""

    def __init__(self, table: Table, rng: random.Random) -> None:
        self.table = table
        self._rng = rng
        self._left = list(table.kinds)

    def take(self, kind: Kind) -> str:
        """A column of a kind."""
        fitting = [name for name in self._left if self.table.kinds[name] == kind]
        if not fitting:
            raise _Unsuitable
        name = self._rng.choice(fitting)
        self._left.remove(name)
        return name

    def value(self, column: str) -> str:
        """One of a category's values."""
        rows = self.table.remember(
            ("values", column),
            lambda: self.table.fetch(
                f'SELECT DISTINCT "{column}" FROM data WHERE "{column}" IS NOT NULL '
                "ORDER BY 1"
            ),
        )
        return str(self._rng.choice(rows)[0])

    def limit(self, column: str) -> float:
        """A round number in the middle of a column's values."""
        share = self._rng.choice((0.3, 0.4, 0.5, 0.6, 0.7))
        low: float = self.table.remember(
            ("quantile", column, share),
            lambda: self.table.fetch(
                f'SELECT quantile_cont("{column}", ?) FROM data', [share]
            )[0][0],
        )
        return round(low) if low >= 20 else round(low, 1)


def _ask(
    kind: str, columns: _Columns, rng: random.Random
) -> tuple[dict[str, str], Milestone]:
    """The values for a question's slots, and the call that answers it."""
    slots: dict[str, str] = {}
    arguments: dict[str, Any] = {}

    def choose(slot: str, parameter: str) -> None:
        arguments[parameter] = rng.choice(list(WORDS[slot]))
        slots[slot] = rng.choice(WORDS[slot][arguments[parameter]])

    if kind.startswith("share_"):
        slots, arguments = _condition(kind.removeprefix("share_"), columns, rng)
        return slots, Milestone("filter_data", arguments)
    if kind in ("missing", "distinct", "common"):
        name = columns.take(
            "category" if kind != "missing" or rng.random() < 0.5 else "number"
        )
        slots = {"column": name, "cat": name}
        aspect = "most_common" if kind == "common" else kind
        return slots, Milestone("describe", {"column": name, "aspect": aspect})
    slots["num"] = arguments["column"] = columns.take("number")
    if kind == "stat":
        choose("stat", "statistic")
        return slots, Milestone("calculate_stats", arguments)
    if kind in ("top", "month"):
        choose("agg", "function")
        choose("dir", "order")
        by = columns.take("category") if kind == "top" else tools.MONTH
        slots["cat"] = arguments["group_by"] = by
        return slots, Milestone("aggregate_data", arguments)
    if kind == "correlation":
        choose("corr", "method")
        slots["num2"] = arguments["other"] = columns.take("number")
        return slots, Milestone("run_correlation", arguments)
    if kind == "strongest":
        return slots, Milestone("run_correlation", {**arguments, "other": None})
    if kind == "anomaly":
        return slots, Milestone("detect_outliers", {**arguments, "method": "month"})
    choose("rule", "method")
    return slots, Milestone("detect_outliers", arguments)


def _restrict(
    columns: _Columns, rng: random.Random
) -> tuple[str, dict[str, str], Milestone]:
    condition = rng.choice(("equals", "equals", "differs", "above", "below"))
    slots, arguments = _condition(condition, columns, rng)
    return f"filter_{condition}", slots, Milestone("filter_data", arguments)


def _condition(
    condition: str, columns: _Columns, rng: random.Random
) -> tuple[dict[str, str], dict[str, Any]]:
    value: str | float
    if condition in ("equals", "differs"):
        column = columns.take("category")
        value = columns.value(column)
        slots = {"cat": column, "value": value}
    else:
        column = columns.take("number")
        value = columns.limit(column)
        slots = {"num": column, "limit": f"{value:g}"}
    return slots, {"column": column, "condition": condition, "value": value}


def _solve(plan: list[Milestone], files: Mapping[str, DatasetSpec]) -> Goal:
    """Runs the plan and adds the answer.

    Raises:
        _Unsuitable: The result isn't clear or depends on too few rows.
    """
    world = World(files)
    value: Any = None
    charts: tuple[Shown, ...] = ()
    for number, step in enumerate(plan):
        if step.tool == "plot_chart":
            assert world.finding is not None and world.finding.series is not None
            charts = _right_charts(step.arguments["kind"], world.finding.series)
            continue
        function = _FUNCTIONS[step.tool]
        assert function is not None
        arguments = dict(step.arguments)
        if step.tool == "run_correlation":
            arguments.setdefault("method", "pearson")
        try:
            result = function(world, **arguments)
        except ToolError:
            raise _Unsuitable from None
        if number == 0:
            loaded = world.rows_scanned, world.bytes_scanned
            continue
        if not _is_clear(step.tool, result):
            raise _Unsuitable
        value = result["value"]
    return Goal(
        (*plan, Milestone("answer", {"value": value})),
        world.rows_scanned - loaded[0],
        world.bytes_scanned - loaded[1],
        charts,
        *loaded,
    )


def _right_charts(kind: ChartKind, data: Series) -> tuple[Shown, ...]:
    """The contents of right charts of the data; two columns may be swapped."""
    points = BINS if kind == "histogram" else len(data.x)
    sides = [(data.x_label, data.y_label)]
    if kind == "scatter":
        sides.append((data.y_label, data.x_label))
    return tuple(Shown(kind, x, y, 1, points) for x, y in sides)


def _is_clear(tool: str, result: Mapping[str, Any]) -> bool:
    if tool == "filter_data":
        return bool(15 <= result["value"] <= 90)
    if "groups" in result:
        second = result["groups"][0]["figure"] if result["groups"] else 0.0
        first = result["figure"]
        return bool(abs(first - second) > 0.005 * abs(first))
    if "next_times" in result:
        return bool(result["times"] > result["next_times"])
    if "next_deviation" in result:
        return bool(result["deviation"] > 1.3 * result["next_deviation"])
    if "less" in result:
        second = abs(result["less"][0]["coefficient"])
        return bool(abs(result["coefficient"]) > second + 0.05)
    return True

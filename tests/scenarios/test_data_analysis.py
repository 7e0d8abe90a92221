"""The analyst's tools against known answers, its judge, its charts and its bounds."""

from __future__ import annotations

import datetime
import gc
import io
import itertools
import json
import random
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from gymnasium.utils.env_checker import check_env
from PIL import Image

from agentgym.core.task import DIFFICULTIES, SPLITS, Split, Task
from agentgym.core.tools import FailureKind, ToolCall, ToolError, ToolRunner, tool_map
from agentgym.errors import MissingExtraError
from agentgym.policies.calls.candidates import described_values
from agentgym.scenarios import planned
from agentgym.scenarios.checker import check_scenario
from agentgym.scenarios.checker.bench import play
from agentgym.scenarios.data_analysis import charts, datasets, tools
from agentgym.scenarios.data_analysis.charts import (
    CHART_KINDS,
    ChartKind,
    Series,
    Shown,
    draw_chart,
)
from agentgym.scenarios.data_analysis.datasets import (
    DATASETS,
    DOMAINS,
    DatasetSpec,
    Table,
    draw,
    open_table,
)
from agentgym.scenarios.data_analysis.environment import DataAnalysisEnvironment
from agentgym.scenarios.data_analysis.plan import wrong_arguments
from agentgym.scenarios.data_analysis.scenario import DataAnalysis
from agentgym.scenarios.data_analysis.tools import TOOLS, World
from agentgym.scenarios.planned import Milestone

REGIONS = ["north ridge", "south ridge", "north ridge", "east ridge", "north ridge"]
REGIONS += ["south ridge", None, "east ridge"]
PRICES = [10.0, 20.0, 30.0, 40.0, 50.0, 60.0, 70.0, 400.0]
UNITS = [8.0, 7.0, 6.0, 5.0, 4.0, 3.0, 2.0, 1.0]
MARGINS = [1.0, 2.0, 3.0, 4.0, 5.0, None, 7.0, 8.0]
DAYS = [
    datetime.date(2024, m, d)
    for m, d in zip([1] * 3 + [2] * 3 + [3] * 2, range(1, 9), strict=True)
]
ROWS: dict[str, list[Any]] = {
    "Order Date": DAYS,
    "Sales Region": REGIONS,
    "Unit Price": PRICES,
    "Units Sold": UNITS,
    "Gross Margin": MARGINS,
}
KINDS: dict[str, datasets.Kind] = {
    "Order Date": "date",
    "Sales Region": "category",
    "Unit Price": "number",
    "Units Sold": "number",
    "Gross Margin": "number",
}


@pytest.fixture(scope="module", params=["csv", "jsonl", "parquet"])
def table(request: pytest.FixtureRequest) -> Iterator[Table]:
    made = Table(ROWS, KINDS, f"sales_0001.{request.param}")
    yield made
    made.close()


@pytest.fixture
def world(table: Table) -> World:
    return World({}, table)


def value(result: dict[str, Any]) -> Any:
    json.dumps(result, allow_nan=False)
    return result["value"]


# Tools, on data of all three formats ------------------------------------------------


def test_every_format_is_read_as_it_was_written(world: World) -> None:
    columns = ", ".join(f'"{name}"' for name in ROWS)
    rows = world.loaded().fetch(f"SELECT {columns} FROM data")
    assert rows == list(zip(*ROWS.values(), strict=True))


def test_describe(world: World) -> None:
    assert value(tools.describe(world, "Sales Region", "missing")) == 1
    assert value(tools.describe(world, "Gross Margin", "missing")) == 1
    assert value(tools.describe(world, "Sales Region", "distinct")) == 3
    found = tools.describe(world, "Sales Region", "most_common")
    assert (found["value"], found["times"], found["next_times"]) == (
        "north ridge",
        3,
        2,
    )


@pytest.mark.parametrize(
    ("column", "condition", "wanted", "kept"),
    [
        ("Sales Region", "equals", "north ridge", 3),
        ("Sales Region", "differs", "north ridge", 5),
        ("Unit Price", "above", 40, 4),
        ("Unit Price", "below", 40.0, 3),
        ("Unit Price", "equals", 400, 1),
    ],
)
def test_filter_data(
    world: World, column: str, condition: str, wanted: Any, kept: int
) -> None:
    found = tools.filter_data(world, column, condition, wanted)
    assert found["rows_left"] == kept
    assert value(found) == 100 * kept / 8


def test_filters_add_up_and_loading_drops_them() -> None:
    spec = DatasetSpec("train", "sales", 0)
    world = World({spec.file: spec})
    tools.load_data(world, spec.file)
    names = [n for n, kind in world.loaded().kinds.items() if kind == "number"]
    first = tools.filter_data(world, names[0], "above", 0)["rows_left"]
    second = tools.filter_data(world, names[1], "below", 0)["rows_left"]
    assert first > second == 0
    tools.load_data(world, spec.file)
    assert world.filters == ()


def test_aggregate_data(world: World) -> None:
    found = tools.aggregate_data(world, "Sales Region", "Unit Price", "sum", "highest")
    # 40 + 400 against 10 + 30 + 50 and 20 + 60; the row without a region is in none.
    assert (found["value"], found["figure"]) == ("east ridge", 440.0)
    assert [g["figure"] for g in found["groups"]] == [90.0, 80.0]
    found = tools.aggregate_data(world, "Sales Region", "Unit Price", "mean", "lowest")
    assert (found["value"], found["figure"]) == ("north ridge", 30.0)
    found = tools.aggregate_data(world, "month", "Units Sold", "maximum", "lowest")
    assert (found["value"], found["figure"]) == ("2024-03", 2.0)


def test_aggregate_data_after_a_filter(world: World) -> None:
    tools.filter_data(world, "Unit Price", "below", 100)
    found = tools.aggregate_data(world, "Sales Region", "Unit Price", "sum", "highest")
    assert (found["value"], found["figure"]) == ("north ridge", 90.0)


@pytest.mark.parametrize(
    ("statistic", "expected"),
    [
        ("mean", 85.0),
        ("median", 45.0),
        ("sum", 680.0),
        ("minimum", 10.0),
        ("maximum", 400.0),
        ("standard_deviation", round(float(np.std(PRICES, ddof=1)), 4)),
    ],
)
def test_calculate_stats(world: World, statistic: str, expected: float) -> None:
    assert value(tools.calculate_stats(world, "Unit Price", statistic)) == expected


def test_statistics_leave_gaps_out(world: World) -> None:
    assert value(tools.calculate_stats(world, "Gross Margin", "sum")) == 30.0


def test_detect_outliers(world: World) -> None:
    # Quartiles 27.5 and 62.5: fences at -25 and 115.
    found = tools.detect_outliers(world, "Unit Price", "iqr")
    assert (found["value"], found["low"], found["high"]) == (1, -25.0, 115.0)
    assert value(tools.detect_outliers(world, "Unit Price", "zscore")) == 0
    # Medians of the months are 20, 50 and 235.
    assert value(tools.detect_outliers(world, "Unit Price", "month")) == "2024-03"


def test_run_correlation(world: World) -> None:
    pearson = float(np.corrcoef(PRICES, UNITS)[0, 1])
    found = tools.run_correlation(world, "Unit Price", "pearson", "Units Sold")
    assert value(found) == pytest.approx(pearson, abs=1e-4)
    found = tools.run_correlation(world, "Unit Price", "spearman", "Units Sold")
    assert value(found) == -1.0
    assert (
        value(tools.run_correlation(world, "Units Sold", "pearson")) == "Gross Margin"
    )


def test_answer_is_what_the_user_was_told(world: World) -> None:
    assert tools.answer(world, "north ridge") == {"sent": True}
    assert world.answer == "north ridge"


def test_load_data_lists_columns_by_kind_and_counts_the_file() -> None:
    spec = DatasetSpec("train", "mixed", 1)
    world = World({spec.file: spec})
    found = tools.load_data(world, spec.file)
    table = world.loaded()
    assert found["file"] == spec.file
    for name, kind in table.kinds.items():
        assert name in found[tools._PLURALS[kind]].split(", ")
    assert (world.rows_scanned, world.bytes_scanned) == (table.rows, table.file_bytes)


def test_what_is_scanned_is_counted_by_the_columns_that_are_read(world: World) -> None:
    found = tools.calculate_stats(world, "Unit Price", "mean")
    assert found["scanned"] == "8 rows, 64 bytes"
    tools.filter_data(world, "Sales Region", "equals", "north ridge")
    tools.calculate_stats(world, "Unit Price", "mean")
    region = sum(len(name) for name in REGIONS if name)
    assert world.rows_scanned == 24
    assert world.bytes_scanned == 64 + region + 64 + region


def test_an_equal_query_is_computed_once_and_counted_twice() -> None:
    world = World({}, Table(ROWS, KINDS, "sales_0001.csv"))
    first = tools.aggregate_data(world, "month", "Unit Price", "sum", "highest")
    world.loaded().close()
    assert first == tools.aggregate_data(world, "month", "Unit Price", "sum", "highest")
    assert world.rows_scanned == 16


@pytest.mark.parametrize(
    ("name", "arguments", "message"),
    [
        (
            "describe",
            {"column": "Net Loss", "aspect": "missing"},
            "no column 'Net Loss'",
        ),
        (
            "calculate_stats",
            {"column": "Sales Region", "statistic": "mean"},
            "holds no numbers",
        ),
        (
            "filter_data",
            {"column": "Sales Region", "condition": "equals", "value": 3},
            "compared with a text",
        ),
        (
            "filter_data",
            {"column": "Unit Price", "condition": "equals", "value": "north ridge"},
            "compared with a number",
        ),
        (
            "filter_data",
            {"column": "Sales Region", "condition": "above", "value": "north ridge"},
            "has no order",
        ),
        (
            "run_correlation",
            {"column": "Unit Price", "method": "pearson", "other": "Unit Price"},
            "always correlates with itself",
        ),
        ("plot_chart", {"kind": "bar"}, "nothing to draw"),
    ],
)
def test_calls_that_make_no_sense_are_refused_in_one_line(
    world: World, name: str, arguments: dict[str, Any], message: str
) -> None:
    before = world.filters
    result = ToolRunner().run(tool_map(TOOLS), ToolCall(name, arguments), world)
    assert result.failure is FailureKind.TOOL_ERROR
    told = json.loads(result.content)["message"]
    assert message in told and "\n" not in told
    assert world.filters == before


def test_too_few_values_are_refused(world: World) -> None:
    tools.filter_data(world, "Unit Price", "above", 60)
    for call in (
        lambda: tools.calculate_stats(world, "Unit Price", "mean"),
        lambda: tools.detect_outliers(world, "Unit Price", "iqr"),
        lambda: tools.run_correlation(world, "Unit Price", "pearson", "Units Sold"),
    ):
        with pytest.raises(ToolError, match="only 2 values are left"):
            call()
    with pytest.raises(ToolError, match="no data is loaded"):
        tools.describe(World({}), "Unit Price", "missing")


# Injections --------------------------------------------------------------------------

EVIL = [
    'Unit Price"; DROP TABLE data; --',
    "Unit Price' OR '1'='1",
    "\" UNION SELECT * FROM read_csv('/etc/passwd') --",
    "Unit Price) FROM data; COPY data TO '/tmp/stolen.csv'; --",
    "read_csv('/etc/passwd')",
    "*",
    "",
]
PATHS = [
    "../../etc/passwd",
    "/etc/passwd",
    "sales_1000.csv/../../secret",
    "file:///etc/passwd",
    "https://example.com/a.csv",
    "sales_*.csv",
    "sales_1000.csv\x00.txt",
    "sales_9999.csv",
]


def run_raw(world: World, name: str, **arguments: Any) -> Any:
    """Past the schema, as if that let everything through."""
    function = tool_map(TOOLS)[name].function
    assert function is not None
    return function(world, **arguments)


@pytest.mark.parametrize("text", EVIL)
def test_sql_in_the_name_of_a_column_is_refused(world: World, text: str) -> None:
    for name, arguments in (
        ("describe", {"column": text, "aspect": "missing"}),
        ("calculate_stats", {"column": text, "statistic": "mean"}),
        ("detect_outliers", {"column": text, "method": "iqr"}),
        ("filter_data", {"column": text, "condition": "equals", "value": 1}),
        ("run_correlation", {"column": text, "method": "pearson"}),
        (
            "aggregate_data",
            {"group_by": text, "column": text, "function": "sum", "order": "highest"},
        ),
    ):
        call = ToolCall(name, arguments)
        checked = ToolRunner().run(tool_map(TOOLS), call, world)
        assert checked.failure is FailureKind.BAD_ARGUMENTS, name
        with pytest.raises(ToolError, match="no column"):
            run_raw(world, name, **arguments)
    assert len(world.loaded().fetch("SELECT * FROM data")) == 8


@pytest.mark.parametrize("text", EVIL)
def test_sql_in_a_value_is_only_a_text_that_nothing_equals(
    world: World, text: str
) -> None:
    call = ToolCall(
        "filter_data", {"column": "Sales Region", "condition": "equals", "value": text}
    )
    if text:
        checked = ToolRunner().run(tool_map(TOOLS), call, world)
        assert checked.failure is FailureKind.BAD_ARGUMENTS
    found = run_raw(world, "filter_data", **call.arguments)
    assert found["rows_left"] == 0
    assert len(world.loaded().fetch("SELECT * FROM data")) == 8


@pytest.mark.parametrize("text", ["; DROP TABLE data", "sum); --", "mean"])
def test_operators_and_functions_are_never_taken_from_a_call(
    world: World, text: str
) -> None:
    with pytest.raises(KeyError):
        run_raw(world, "filter_data", column="Unit Price", condition=text, value=1)
    world.filters = ()
    if text != "mean":
        with pytest.raises(KeyError):
            run_raw(
                world,
                "aggregate_data",
                group_by="month",
                column="Unit Price",
                function=text,
                order="highest",
            )


@pytest.mark.parametrize("path", PATHS)
def test_only_files_at_hand_are_opened(path: str) -> None:
    spec = DatasetSpec("train", "sales", 0)
    world = World({spec.file: spec})
    result = ToolRunner().run(
        tool_map(TOOLS), ToolCall("load_data", {"file": path}), world
    )
    assert result.failure in (FailureKind.BAD_ARGUMENTS, FailureKind.TOOL_ERROR)
    with pytest.raises(ToolError, match="no file"):
        tools.load_data(world, path)
    assert world.table is None


def test_the_database_itself_reaches_no_file(world: World, tmp_path: Path) -> None:
    secret = tmp_path / "secret.csv"
    secret.write_text("a\n1\n")
    fetch = world.loaded().fetch
    for sql in (
        f"SELECT * FROM read_csv('{secret}')",
        f"COPY data TO '{tmp_path / 'stolen.csv'}'",
        "SET enable_external_access = true",
        "INSTALL httpfs",
    ):
        with pytest.raises(Exception, match=r"(?i)disabled|locked|permission|cannot"):
            fetch(sql)
    assert list(tmp_path.iterdir()) == [secret]


# Charts ------------------------------------------------------------------------------

GROUPS = Series("Sales Region", "sum of Unit Price", ("a b", "c d"), (3.0, 5.0))
PAIR = Series("Unit Price", "Units Sold", (1.0, 2.0, 3.0), (3.0, 2.0, 1.0))
ONE = Series("Unit Price", "count", tuple(float(i % 7) for i in range(60)))


def pixels(png: bytes) -> Any:
    with Image.open(io.BytesIO(png)) as image:
        assert image.format == "PNG"
        return np.asarray(image.convert("RGB"), dtype=int)


@pytest.mark.parametrize(
    ("kind", "data", "shown"),
    [
        ("bar", GROUPS, Shown("bar", "Sales Region", "sum of Unit Price", 1, 2)),
        ("line", GROUPS, Shown("line", "Sales Region", "sum of Unit Price", 1, 2)),
        ("scatter", PAIR, Shown("scatter", "Unit Price", "Units Sold", 1, 3)),
        ("histogram", ONE, Shown("histogram", "Unit Price", "count", 1, 12)),
    ],
)
def test_a_chart_shows_what_it_should(
    kind: ChartKind, data: Series, shown: Shown
) -> None:
    chart = draw_chart(kind, data)
    assert chart.shown == shown
    assert chart.png == draw_chart(kind, data).png
    image = pixels(chart.png)
    assert image.shape == (180, 240, 3)
    # Matplotlib's first colour is the one the data is drawn in.
    blue = (np.abs(image - (31, 119, 180)).sum(axis=2) < 30).sum()
    inside = image.shape[0] * image.shape[1]
    least, most = {
        "bar": (0.2, 0.6),
        "histogram": (0.1, 0.6),
        "line": (0.001, 0.05),
        "scatter": (0.0001, 0.05),
    }[kind]
    assert least < blue / inside < most


def test_charts_of_different_data_differ() -> None:
    images = [draw_chart(kind, PAIR).png for kind in CHART_KINDS]
    assert all(a != b for a, b in itertools.combinations(images, 2))


def test_a_chart_does_not_depend_on_those_drawn_before(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    many = Series(
        "month", "b", tuple(f"2024-{m:02}" for m in range(1, 13)), (3e5,) * 12
    )
    cases = [(k, d) for d in (GROUPS, PAIR, many) for k in CHART_KINDS]
    first = [draw_chart(kind, data) for kind, data in cases]
    with monkeypatch.context() as broken:
        broken.setattr(charts, "read_axes", lambda axes: 1 / 0)
        for kind, data in cases:
            with pytest.raises(ZeroDivisionError):
                draw_chart(kind, data)
    again = [draw_chart(kind, data) for kind, data in reversed(cases)]
    assert again == first[::-1]


def test_a_chart_that_cannot_be_drawn_is_refused(world: World) -> None:
    tools.calculate_stats(world, "Unit Price", "mean")
    for kind in ("line", "bar", "scatter"):
        with pytest.raises(ToolError, match="needs two sides"):
            tools.plot_chart(world, kind)
    with pytest.raises(ValueError, match="needs numbers"):
        draw_chart("histogram", Series("Sales Region", "", ("a b", "c d")))


def test_plot_chart_draws_what_was_computed_last(world: World) -> None:
    tools.aggregate_data(world, "month", "Unit Price", "sum", "highest")
    found = tools.plot_chart(world, "line")
    assert (found["kind"], found["x_axis"]) == ("line", "month")
    assert (found["y_axis"], found["points"]) == ("sum of Unit Price", 3)
    tools.run_correlation(world, "Unit Price", "pearson", "Units Sold")
    found = tools.plot_chart(world, "scatter")
    assert (found["x_axis"], found["y_axis"]) == ("Unit Price", "Units Sold")
    assert found["chart"] == "chart 2"
    assert found["png_bytes"] == len(world.charts[1].png)
    pixels(world.charts[1].png)


# Tasks and the judge -----------------------------------------------------------------


@pytest.fixture(scope="module")
def scenario() -> DataAnalysis:
    return DataAnalysis()


def tasks_of(scenario: DataAnalysis, split: Split, count: int = 60) -> list[Task]:
    return scenario.tasks(split, 0, count)


def message(step: Milestone) -> dict[str, Any]:
    given = {name: value for name, value in step.arguments.items() if value is not None}
    if step.tool == "run_correlation":
        given.setdefault("method", "pearson")
    call = ToolCall(step.tool, given).to_openai()
    return {"role": "assistant", "content": None, "tool_calls": [call]}


CLOSING = {"role": "assistant", "content": "Done."}


@pytest.mark.parametrize("split", SPLITS)
def test_the_plan_of_every_task_solves_it(scenario: DataAnalysis, split: Split) -> None:
    environment = scenario.create_environment()
    for task in tasks_of(scenario, split):
        course = [*map(message, task.goal.plan), CLOSING]
        trajectory = play(environment, task, course)
        assert (trajectory.success, trajectory.outcome) == (True, 1.0), task
        assert len(trajectory.steps) == task.best_steps
        figures = scenario.measure(trajectory)
        assert set(figures.values()) == {(1.0, 1.0)}
        assert ("chart_fit" in figures) is bool(task.goal.charts)
    environment.close()


def test_needless_scans_lower_the_outcome_and_the_efficiency(
    scenario: DataAnalysis,
) -> None:
    environment = scenario.create_environment()
    task = next(t for t in tasks_of(scenario, "train") if t.tags[0] == "stat")
    plan = list(task.goal.plan)
    column = plan[-2 if plan[-2].tool == "calculate_stats" else -3].arguments["column"]
    detour = Milestone("describe", {"column": column, "aspect": "missing"})
    course = [plan[0], detour, *plan[1:]]
    trajectory = play(environment, task, [*map(message, course), CLOSING])
    assert trajectory.success
    reached, _ = scenario.measure(trajectory)["query_efficiency"]
    assert 0.3 < reached < 0.9
    assert trajectory.outcome == pytest.approx(1.0 - 0.5 * (1.0 - reached))
    failures = [step.failure for step in trajectory.steps]
    assert failures[1] is FailureKind.WRONG_TOOL
    environment.close()


def test_a_wrong_filter_is_undone_by_loading_again(scenario: DataAnalysis) -> None:
    environment = scenario.create_environment()
    task = next(t for t in tasks_of(scenario, "train") if t.tags[0] == "top")
    plan = list(task.goal.plan)
    wrong = Milestone(
        "filter_data",
        {"column": plan[-2 if not task.goal.charts else -3].arguments["column"]}
        | {"condition": "above", "value": 0},
    )
    for course, solved in (
        ([plan[0], wrong, *plan], True),
        ([plan[0], wrong, *plan[1:]], False),
    ):
        trajectory = play(environment, task, [*map(message, course), CLOSING])
        assert trajectory.success is solved
    environment.close()


def test_a_wrong_answer_ends_it(scenario: DataAnalysis) -> None:
    environment = scenario.create_environment()
    task = tasks_of(scenario, "train")[0]
    course = [*task.goal.plan[:-1], Milestone("answer", {"value": "wrong"})]
    trajectory = play(environment, task, [*map(message, course), CLOSING])
    assert trajectory.success is False
    assert len(trajectory.steps) == len(course)
    assert scenario.measure(trajectory)["insight_accuracy"] == (0.0, 1.0)
    assert "query_efficiency" not in scenario.measure(trajectory)
    environment.close()


def test_a_chart_that_does_not_suit_is_wrong(scenario: DataAnalysis) -> None:
    environment = scenario.create_environment()
    task = next(
        t for t in tasks_of(scenario, "train") if t.goal.charts and t.tags[0] == "month"
    )
    course = [
        Milestone("plot_chart", {"kind": "bar"}) if m.tool == "plot_chart" else m
        for m in task.goal.plan
    ]
    trajectory = play(environment, task, map(message, course))
    wrong = [step for step in trajectory.steps if not step.correct]
    assert wrong[0].failure is FailureKind.BAD_ARGUMENTS
    assert environment.world.charts[0].shown.kind == "bar"
    environment.close()


def test_correlation_is_right_both_ways(scenario: DataAnalysis) -> None:
    environment = scenario.create_environment()
    task = next(
        t
        for t in tasks_of(scenario, "train")
        if t.tags[0] == "correlation" and t.goal.charts
    )
    course = []
    for step in task.goal.plan:
        given = dict(step.arguments)
        if step.tool == "run_correlation":
            given["column"], given["other"] = given["other"], given["column"]
        course.append(message(Milestone(step.tool, given)))
    assert play(environment, task, [*course, CLOSING]).success
    environment.close()


def test_every_value_that_tools_list_is_computed_and_described() -> None:
    listed = {
        f"{tool.name}.{name}": dict(described_values(schema))
        for tool in TOOLS
        for name, schema in tool.properties.items()
        if described_values(schema)
    }
    assert listed["filter_data.condition"].keys() == tools._OPERATORS.keys()
    assert listed["aggregate_data.function"].keys() == tools._FUNCTIONS.keys()
    assert listed["calculate_stats.statistic"].keys() == tools._STATISTICS.keys()
    assert listed["plot_chart.kind"].keys() == set(CHART_KINDS)
    assert all(about for values in listed.values() for about in values.values())


def test_of_a_pair_of_columns_only_the_wrong_one_is_blamed() -> None:
    due = Milestone("run_correlation", {"column": "A", "other": "B", "method": "m"})
    for column, other, wrong in [
        ("A", "B", set()),
        ("B", "A", set()),
        ("A", "C", {"other"}),
        ("C", "B", {"column"}),
        ("B", "C", {"other"}),
        ("C", "A", {"column"}),
        ("C", "D", {"column", "other"}),
    ]:
        given = {"column": column, "other": other, "method": "m"}
        call = ToolCall("run_correlation", given)
        assert wrong_arguments(due, call) == wrong, given


def test_the_judge_tells_which_arguments_are_wrong(scenario: DataAnalysis) -> None:
    environment = scenario.create_environment()
    task = next(
        t
        for t in tasks_of(scenario, "train")
        if t.tags[0] == "top" and t.goal.plan[1].tool == "aggregate_data"
    )
    load, right = task.goal.plan[:2]
    wrong = {**right.arguments, "group_by": "month", "order": "highest"}
    if right.arguments["order"] == "highest":
        wrong["order"] = "lowest"
    environment.reset_task(task)
    loaded = environment.act(message(load)).verdict
    assert (loaded.correct, loaded.wrong_arguments) == (True, frozenset())
    verdict = environment.act(message(Milestone("aggregate_data", wrong))).verdict
    assert verdict.failure is FailureKind.BAD_ARGUMENTS
    assert verdict.wrong_arguments == {"group_by", "order"}
    other = Milestone("describe", {"column": wrong["column"], "aspect": "missing"})
    assert environment.act(message(other)).verdict.wrong_arguments is None
    environment.close()


def test_what_follows_a_mistake_stays_close_to_it(scenario: DataAnalysis) -> None:
    environment = scenario.create_environment()
    task = next(t for t in tasks_of(scenario, "train") if len(t.goal.plan) == 3)
    plan = list(task.goal.plan)
    right = play(environment, task, [*map(message, plan), CLOSING])
    early = Milestone("plot_chart", {"kind": "bar"})
    late = play(
        environment, task, [*map(message, [plan[0], early, *plan[1:]]), CLOSING]
    )
    assert right.success and late.success
    good, mended = (scenario.broadcast_rewards(t) for t in (right, late))
    assert mended[0] > max(mended[1:])
    assert mended[2] - mended[1] < 0.5 * (good[1] - mended[1])
    environment.close()


@pytest.mark.parametrize("split", SPLITS)
def test_tasks_have_all_kinds_and_difficulties(
    scenario: DataAnalysis, split: Split
) -> None:
    tasks = tasks_of(scenario, split, 300)
    assert {task.tags[1] for task in tasks} == set(DOMAINS)
    assert len({task.tags[0] for task in tasks}) == 13
    assert {task.difficulty for task in tasks} == set(DIFFICULTIES)
    for task in tasks:
        calls = len(task.goal.plan)
        assert (task.difficulty == "hard") == (calls >= 5)
    used = {step.tool for task in tasks for step in task.goal.plan}
    assert used == {tool.name for tool in TOOLS}


def test_the_contract_is_kept(scenario: DataAnalysis) -> None:
    environment: DataAnalysisEnvironment = scenario.create_environment()
    check_env(environment, skip_render_check=True)
    environment.close()
    assert [c for c in check_scenario(scenario) if not c.ok] == []


def test_the_same_seed_is_the_same_in_another_process(scenario: DataAnalysis) -> None:
    program = (
        "from agentgym.scenarios.data_analysis.scenario import DataAnalysis\n"
        "print([(t.messages, t.goal) for t in DataAnalysis().tasks('heldout', 5, 20)])"
    )
    done = subprocess.run(
        [sys.executable, "-c", program],
        capture_output=True,
        text=True,
        env={"PYTHONPATH": ":".join(sys.path), "PYTHONHASHSEED": "7"},
        check=True,
    )
    here = [(t.messages, t.goal) for t in scenario.tasks("heldout", 5, 20)]
    assert done.stdout.strip() == str(here)


def test_what_is_missing_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(planned, "find_spec", lambda name: None)
    with pytest.raises(MissingExtraError, match=r"agentgym\[analysis\]"):
        DataAnalysis()


# Bounds ------------------------------------------------------------------------------


def test_worlds_leave_no_files_and_datasets_stay_bounded(
    scenario: DataAnalysis, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    open_table.cache_clear()
    tasks = scenario.tasks("validation", 1, 12)
    environment = scenario.create_environment(tasks)
    for task in tasks:
        play(environment, task, [*map(message, task.goal.plan), CLOSING])
    environment.close()
    gc.collect()
    assert list(tmp_path.iterdir()) == []
    info = open_table.cache_info()
    assert 0 < info.currsize <= (info.maxsize or 0)
    assert sum(DATASETS.values()) * len(DOMAINS) <= (info.maxsize or 0)


@pytest.mark.skipif(not Path("/proc/self/task").exists(), reason="counts in /proc")
def test_a_table_has_one_thread_of_its_own_at_most() -> None:
    before = len(list(Path("/proc/self/task").iterdir()))
    table = Table(ROWS, KINDS, "sales_0001.parquet")
    assert len(list(Path("/proc/self/task").iterdir())) <= before + 1
    table.close()


def test_what_a_table_remembers_is_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(datasets, "_REMEMBERED", 3)
    table = Table(ROWS, KINDS, "sales_0001.csv")
    for i in range(5):
        table.remember(i, lambda i=i: i)  # type: ignore[misc]
    assert list(table._known) == [2, 3, 4]
    table.close()


def test_data_belongs_to_one_split() -> None:
    seen: dict[str, set[str]] = {}
    for split in SPLITS:
        names: set[str] = set()
        for domain in DOMAINS:
            for number in range(DATASETS[split]):
                spec = DatasetSpec(split, domain, number)
                rows, kinds = draw(spec)
                names |= {spec.file, *(n for n in rows if n not in _SHARED)}
                for name, kind in kinds.items():
                    if kind in ("category", "code"):
                        names |= {str(v) for v in rows[name] if v is not None}
        seen[split] = names
    for a, b in itertools.combinations(SPLITS, 2):
        assert seen[a] & seen[b] == set()


# In every survey, and in no question.
_SHARED = {"Record Code", "Is Confirmed"}


def test_drawing_is_repeatable_and_datasets_differ() -> None:
    first, second = (draw(DatasetSpec("train", "series", n)) for n in (0, 1))
    assert first == draw(DatasetSpec("train", "series", 0))
    assert first != second


def test_a_world_is_made_in_under_20_milliseconds(scenario: DataAnalysis) -> None:
    tasks = tasks_of(scenario, "train")
    environment = scenario.create_environment(tasks)
    start = time.process_time()
    for task in tasks:
        environment.reset_task(task)
    assert (time.process_time() - start) / len(tasks) < 0.02
    environment.close()


def test_a_task_does_not_depend_on_how_many_are_drawn(scenario: DataAnalysis) -> None:
    few, many = scenario.tasks("train", 3, 4), scenario.tasks("train", 3, 9)
    assert [t.messages for t in few] == [t.messages for t in many[:4]]
    assert random.Random("train-3-0").random() == random.Random("train-3-0").random()

"""Results: what is written can be read, and nothing else can."""

from __future__ import annotations

import dataclasses
import json
import math
import re
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from agentgym.core.result import Interval, TrainingMetrics, TrainingResult, clean
from agentgym.errors import FormatError


def metrics(**values: Any) -> TrainingMetrics:
    return TrainingMetrics(
        **{
            "tool_reliability": 0.9,
            "task_success": 0.8,
            "tool_reliability_interval": Interval(0.85, 0.93),
            "task_success_interval": Interval(0.7, 0.9),
            "avg_tokens_used": 1234.5,
            "avg_response_time": 0.0123,
            "cost_per_solved_task": 0.00025,
            **values,
        }
    )


def result(**values: Any) -> TrainingResult:
    return TrainingResult(
        **{
            "run_id": "r1",
            "model": "shop_v1.0",
            "config": {"scenario": "shop", "sources": {"scenario": "user"}},
            "metrics": metrics(
                cost_reduction=0.5,
                time_savings=0.99,
                per_tool={"look_up": {"calls": 3, "correct": 2}},
                failures={"wrong_tool": 1},
            ),
            "baseline": metrics(tool_reliability=0.1, task_success=0.0),
            "trained_model_path": "models/shop_v1.0",
            "artifacts": {"log": "run.log"},
            "history": [{"episodes": 128, "tool_reliability": 0.4}],
            **values,
        }
    )


def test_save_and_load(tmp_path: Path) -> None:
    path = tmp_path / "result.json"
    saved = result()
    saved.save(path)
    assert TrainingResult.load(path) == saved
    data = json.loads(path.read_text())
    assert (data["format"], data["version"]) == ("agentgym-result", 1)
    assert data["metrics"]["tool_reliability_interval"] == [0.85, 0.93]
    assert data["baseline"].keys() == data["metrics"].keys()


numbers = st.floats() | st.integers(-(10**9), 10**9)


@given(
    st.builds(
        metrics,
        final_reward=st.none() | st.floats(allow_nan=False, allow_infinity=False),
        convergence_episode=st.none() | st.integers(0, 10**9),
        failures=st.dictionaries(st.text(max_size=5), st.integers(0, 99), max_size=3),
        tasks=st.integers(0, 10**6),
    )
)
def test_metrics_round_trip_through_json(made: TrainingMetrics) -> None:
    text = json.dumps(made.to_dict(), allow_nan=False)
    assert TrainingMetrics.from_dict(json.loads(text)) == made


@given(
    st.recursive(
        numbers | st.text() | st.booleans() | st.none(),
        lambda inner: st.lists(inner) | st.dictionaries(st.integers(), inner),
        max_leaves=10,
    )
)
def test_clean_gives_json(value: Any) -> None:
    json.dumps(clean(value), allow_nan=False)


def test_clean_knows_numpy_paths_and_enums() -> None:
    np = pytest.importorskip("numpy")
    assert clean({"a": np.float32(0.5), "b": np.int64(3), "c": np.float64("nan")}) == {
        "a": 0.5,
        "b": 3,
        "c": None,
    }
    assert clean([Path("a") / "b", (1, True)]) == ["a/b", [1, True]]


def test_nothing_that_is_not_finite_gets_into_the_file(tmp_path: Path) -> None:
    path = tmp_path / "result.json"
    made = result(metrics=metrics(final_reward=math.nan), history=[{"loss": math.inf}])
    made.save(path)
    loaded = TrainingResult.load(path)
    assert loaded.metrics.final_reward is None
    assert loaded.history == [{"loss": None}]


def test_every_truncation_is_found(tmp_path: Path) -> None:
    path = tmp_path / "result.json"
    result().save(path)
    whole = path.read_bytes().rstrip()
    for size in range(0, len(whole), 97):
        path.write_bytes(whole[:size])
        with pytest.raises(FormatError, match="isn.t valid JSON"):
            TrainingResult.load(path)


def _changed(**changes: Any) -> dict[str, Any]:
    data = {"format": "agentgym-result", "version": 1, **result().to_dict()}
    return {**data, **changes}


def _without(name: str) -> dict[str, Any]:
    data = _changed()
    del data[name]
    return data


def _metrics(**changes: Any) -> dict[str, Any]:
    return _changed(metrics={**result().metrics.to_dict(), **changes})


@pytest.mark.parametrize(
    ("data", "message"),
    [
        ([], "isn.t an AgentGym training result"),
        ({}, "isn.t an AgentGym training result"),
        (_changed(format="other"), "isn.t an AgentGym training result"),
        (_changed(version=0), "version 0, .* Train again"),
        (_changed(version=2), "version 2, .* Update AgentGym"),
        (_changed(version=None), "version None"),
        (_without("run_id"), "missing fields: run_id"),
        (_changed(surplus=1), "unknown fields: surplus"),
        (_changed(run_id=3), "run_id should be text"),
        (_changed(history={}), "history should be a list"),
        (_changed(metrics=[]), "metrics should be a mapping"),
        (_metrics(tool_reliability="high"), "tool_reliability should be a number"),
        (_metrics(tool_reliability=None), "tool_reliability should be a number"),
        (_metrics(tool_reliability_interval=[1]), "should be two numbers"),
        (_metrics(per_tool=[]), "per_tool should be a mapping"),
        (_metrics(tasks=True), "tasks should be a number"),
        (_changed(baseline={"tasks": 1}), "metrics has missing fields"),
    ],
)
def test_foreign_files_are_refused(tmp_path: Path, data: Any, message: str) -> None:
    path = tmp_path / "result.json"
    path.write_text(json.dumps(data))
    with pytest.raises(FormatError, match=message) as caught:
        TrainingResult.load(path)
    assert str(path) in str(caught.value)
    assert "\n" not in str(caught.value)


def test_a_missing_file_is_told(tmp_path: Path) -> None:
    with pytest.raises(FormatError, match="cannot be read: No such file"):
        TrainingResult.load(tmp_path / "none.json")


def test_from_dict_wants_a_mapping() -> None:
    with pytest.raises(FormatError, match="result should be a mapping"):
        TrainingResult.from_dict([])  # type: ignore[arg-type]


def test_metrics_cannot_be_changed() -> None:
    with pytest.raises(dataclasses.FrozenInstanceError):
        metrics().tasks = 3  # type: ignore[misc]


def printed(made: TrainingResult) -> dict[str, list[str]]:
    """The columns of a printed result, by the first one."""
    lines = [re.split(r"  +", line) for line in str(made).splitlines()]
    return {line[0]: line[1:] for line in lines}


def test_a_printed_result_states_what_savings_are_counted_against() -> None:
    rows = printed(result())
    assert rows["tool reliability"] == ["10.0% [85.0, 93.0]", "90.0% [85.0, 93.0]"]
    # Nothing was solved before: what was spent is only a lower bound.
    assert rows["cost per solved task"] == ["over $0.00025", "$0.00025 (-50%)"]
    assert rows["response time"][1] == "12.3 ms"
    saved = str(result()).splitlines()[-1]
    assert "99.00%" in saved
    assert "against 4 h" in saved


def test_a_printed_result_has_the_scenarios_own_figures() -> None:
    own = {"joy": {"value": 0.5, "low": 0.4, "high": 0.6, "tasks": 9}}
    rows = printed(result(metrics=metrics(measures=own)))
    assert rows["joy"] == ["-", "50.0% [40.0, 60.0]"]


def test_results_from_before_own_figures_are_read() -> None:
    values = metrics().to_dict()
    del values["measures"]
    assert TrainingMetrics.from_dict(values) == metrics()


def test_a_printed_result_leaves_out_what_was_not_measured() -> None:
    made = result(metrics=metrics())
    assert "(" not in printed(made)["cost per solved task"][1]
    assert "Time saved" not in str(made)

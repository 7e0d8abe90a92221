"""Which calls and arguments will do."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from agentgym.core.tools import Tool, ToolCall
from agentgym.scenarios.task_file.expected import (
    CallProgress,
    ExpectedCall,
    matches,
    rule_of,
    rule_problems,
    same,
    samples,
)

JSON = st.recursive(
    st.none()
    | st.booleans()
    | st.integers(-5, 5)
    | st.floats(-5, 5, allow_nan=False)
    | st.text("ab ", max_size=3),
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.dictionaries(st.text("xy", max_size=2), inner, max_size=3)
    ),
    max_leaves=6,
)
TOOLS = {
    name: Tool(
        name,
        "",
        {
            "type": "object",
            "properties": {"x": {}, "y": {"default": 7}},
            "required": ["x"],
        },
    )
    for name in "abc"
}


@pytest.mark.parametrize(
    ("wanted", "right", "wrong"),
    [
        ("Oslo", ["Oslo"], ["oslo", "Oslo ", None]),
        (1, [1, 1.0], [True, "1", 2]),
        (True, [True], [1, "true"]),
        ({"one_of": ["a", 2]}, ["a", 2, 2.0], ["b", None]),
        ({"one_of": [{"near": 3, "within": 1}, "any"]}, [2.5, "any"], [5, "3"]),
        ({"regex": "[A-Z]{2}-[0-9]+"}, ["AB-1"], ["AB-1x", "ab-1", 3]),
        ({"regex": "ab+", "loose": True}, ["ABB"], ["a"]),
        ({"near": 2.5, "within": 0.1}, [2.5, 2.45], [2.7, True, "2.5"]),
        ({"any": True}, [None, 1, {}], []),
        ({"exact": {"any": True}}, [{"any": True}], [{}, 1]),
        ({"one_of": ["New York, NY"], "loose": True}, ["new york ny"], ["york"]),
        ({"city": {"one_of": ["A", "B"]}, "n": 1}, [{"city": "B", "n": 1}], [{}]),
        (
            {"x": {"any": True, "optional": True}},
            [{}, {"x": 3}],
            [{"y": 1}, {"x": 1, "y": 1}],
        ),
        ([{"any": True}, 2], [[1, 2]], [[1], [1, 3], "12"]),
        ({"regex": "a", "other": 1}, [{"regex": "a", "other": 1}], ["a"]),
    ],
)
def test_rules(wanted: Any, right: list[Any], wrong: list[Any]) -> None:
    assert not list(rule_problems(wanted, "x"))
    for value in right:
        assert matches(wanted, value), value
    for value in wrong:
        assert not matches(wanted, value), value


@given(JSON, JSON)
def test_plain_values_match_themselves_alone(one: Any, other: Any) -> None:
    if _is_plain(one):
        assert matches(one, one)
        assert samples(one) == [one]
        assert matches(one, other) == same(one, other) == same(other, one)
    assert matches({"exact": one}, other) == same(one, other)
    assert matches({"one_of": [{"exact": one}, {"exact": other}]}, other)


@given(JSON)
def test_what_is_listed_is_accepted(wanted: Any) -> None:
    if not list(rule_problems(wanted, "")):
        assert all(matches(wanted, value) for value in samples(wanted))


def _is_plain(value: Any) -> bool:
    if isinstance(value, dict):
        return not rule_of(value) and all(map(_is_plain, value.values()))
    return all(map(_is_plain, value)) if isinstance(value, list) else True


@pytest.mark.parametrize(
    ("wanted", "says"),
    [
        ({"one_of": []}, "at least one"),
        ({"one_of": "a"}, "list"),
        ({"regex": "("}, "regex"),
        ({"regex": 3}, "regex"),
        ({"near": "3", "within": 1}, "numbers"),
        ({"near": 3}, "numbers"),
        ({"near": 3, "within": -1}, "within should be at least 0"),
        ({"any": False}, "true"),
        ({"any": True, "optional": "yes"}, "true or false"),
        ({"deep": [{"regex": "("}]}, "regex"),
    ],
)
def test_rules_that_are_wrong(wanted: Any, says: str) -> None:
    assert says in " ".join(rule_problems(wanted, "x"))


def test_nested_too_deeply() -> None:
    value: Any = 1
    for _ in range(40):
        value = [value]
    assert "deep" in " ".join(rule_problems(value, "x"))


def test_defaults_may_be_left_out_or_said() -> None:
    due = ExpectedCall("a", {"x": 1})
    assert due.accepts(ToolCall("a", {"x": 1}), TOOLS["a"])
    assert due.accepts(ToolCall("a", {"x": 1, "y": 7}), TOOLS["a"])
    assert not due.accepts(ToolCall("a", {"x": 1, "y": 8}), TOOLS["a"])
    assert not due.accepts(ToolCall("a", {"x": 1, "z": 8}), TOOLS["a"])
    assert not due.accepts(ToolCall("b", {"x": 1}), TOOLS["b"])
    said = ExpectedCall("a", {"x": 1, "y": 7})
    assert said.accepts(ToolCall("a", {"x": 1}), TOOLS["a"])


def _call(text: str) -> ToolCall:
    return ToolCall(text[0], {"x": int(text[1:])})


def _due(text: str) -> ExpectedCall:
    return ExpectedCall(text[0], {"x": int(text[1:]) if text[1:] else {"any": True}})


def _progress(*courses: list[list[str]]) -> CallProgress:
    return CallProgress([[list(map(_due, step)) for step in c] for c in courses], TOOLS)


def _play(progress: CallProgress, *calls: str) -> list[bool]:
    return [progress.take(_call(call)) for call in calls]


def test_calls_in_order() -> None:
    progress = _progress([["a1"], ["b2"]])
    assert not progress.finished and progress.share == 0
    assert _play(progress, "b2", "a1", "a1", "b2") == [False, True, False, True]
    assert progress.finished and progress.share == 1.0


def test_calls_of_one_step_in_any_order() -> None:
    assert _play(_progress([["a1", "b2"]]), "b2", "a1", "a1") == [True, True, False]
    # The first call fits both; only one way of telling them apart fits all.
    progress = _progress([["a", "a1"], ["b1"]])
    assert _play(progress, "a1", "a5", "b1") == [True, True, True]
    assert progress.finished


def test_any_of_several_courses() -> None:
    progress = _progress([["a1"], ["b1"]], [["a1"], ["c1"]], [["b1"]])
    assert _play(progress, "a1", "b1") == [True, True]
    assert progress.finished
    progress = _progress([["a1"], ["b1"]], [["b1"]])
    # Once a course is begun, the others are closed.
    assert _play(progress, "a1") == [True] and not progress.finished


def test_nothing_is_due() -> None:
    progress = _progress([])
    assert progress.finished and progress.share == 1.0
    assert _play(progress, "a1") == [False]


def test_a_call_is_held_against_the_nearest_one_that_is_due() -> None:
    due = [
        [[ExpectedCall("a", {"x": 1, "y": 2, "z": {"any": True, "optional": True}})]],
        [[ExpectedCall("a", {"x": 3, "y": 4})]],
    ]
    progress = CallProgress(due, TOOLS)
    assert progress.nearly(ToolCall("a", {"x": 1, "y": 2})) == frozenset()
    assert progress.nearly(ToolCall("a", {"x": 3, "y": 2})) == {"x"}
    assert progress.nearly(ToolCall("a", {"x": 3})) == {"y"}
    assert progress.nearly(ToolCall("a", {"x": 3, "y": 4, "w": 1})) == {"w"}
    assert progress.nearly(ToolCall("b", {"x": 1})) is None


def test_what_a_fault_kept_from_running_is_still_due() -> None:
    progress = _progress([["a1"]])
    assert progress.take(_call("a1"), counts=False)
    assert not progress.finished and progress.take(_call("a1")) and progress.finished


@given(st.permutations(["a1", "a2", "b1", "a"]))
def test_any_order_is_found(order: list[str]) -> None:
    progress = _progress([order])
    assert all(_play(progress, "a1", "b1", "a2", "a9"))
    assert progress.finished

"""Tools: schemas, calls, and a runner that nothing takes down."""

from __future__ import annotations

import json
import signal
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any, TypeVar

import pytest
from hypothesis import given
from hypothesis import strategies as st

from agentgym.core.tools import (
    FailureKind,
    Tool,
    ToolCall,
    ToolError,
    ToolRunner,
    parse_calls,
    tool_map,
)
from agentgym.errors import ScenarioError

T = TypeVar("T")

ADD = {
    "type": "object",
    "properties": {"a": {"type": "integer"}, "b": {"type": "integer"}},
    "required": ["a"],
    "additionalProperties": False,
}


@pytest.fixture
def runner() -> Iterator[ToolRunner]:
    made = ToolRunner(timeout=5.0)
    yield made
    made.close()


def tool(function: Any, **settings: Any) -> dict[str, Tool]:
    return {"t": Tool("t", "a tool", function=function, **settings)}


def elsewhere(function: Callable[[], T]) -> T:
    """Calls a function in a thread that is not the main one."""
    with ThreadPoolExecutor(1) as pool:
        return pool.submit(function).result()


def here(function: Callable[[], T]) -> T:
    return function()


def content(text: str) -> dict[str, Any]:
    loaded: dict[str, Any] = json.loads(text)
    return loaded


json_values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text() | st.floats(allow_nan=False),
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.dictionaries(st.text(max_size=5), inner, max_size=3)
    ),
    max_leaves=6,
)


@given(st.text(min_size=1), st.dictionaries(st.text(), json_values, max_size=4))
def test_calls_round_trip(name: str, arguments: dict[str, Any]) -> None:
    call = ToolCall(name, arguments, "call_7")
    assert parse_calls({"tool_calls": [call.to_openai()]}) == [call]


def test_parse_calls_takes_what_models_write() -> None:
    assert parse_calls({}) == []
    assert parse_calls({"tool_calls": None}) == []
    raw = {"function": {"name": "t", "arguments": {"a": 1}}}
    assert parse_calls({"tool_calls": [raw]}) == [ToolCall("t", {"a": 1})]
    empty = {"function": {"name": "t", "arguments": ""}}
    assert parse_calls({"tool_calls": [empty]}) == [ToolCall("t", {})]


@pytest.mark.parametrize(
    "raw",
    [
        "words",
        None,
        {},
        {"function": None},
        {"function": {"arguments": "{}"}},
        {"function": {"name": 3}},
        {"function": {"name": "t", "arguments": "{"}},
        {"function": {"name": "t", "arguments": "[1]"}},
        {"function": {"name": "t", "arguments": "null"}},
        {"function": {"name": "t", "arguments": 7}},
    ],
)
def test_parse_calls_refuses_what_is_no_call(raw: Any) -> None:
    with pytest.raises(ValueError, match=r"needs a function|are no JSON object"):
        parse_calls({"tool_calls": [raw]})


def test_definitions_round_trip() -> None:
    made = Tool("add", "Adds two numbers", ADD)
    again = Tool.from_openai(made.to_openai())
    assert again.to_openai() == made.to_openai()
    assert Tool.from_openai(made.to_openai()["function"]).name == "add"
    assert made.required == {"a"}
    assert set(made.properties) == {"a", "b"}


def test_definitions_without_parameters_take_none() -> None:
    made = Tool.from_openai({"name": "stop"})
    assert (made.description, made.properties, made.required) == ("", {}, frozenset())


@pytest.mark.parametrize("wrong", [{}, {"function": 3}, {"function": {"name": 1}}])
def test_definitions_need_a_name(wrong: dict[str, Any]) -> None:
    with pytest.raises(ScenarioError, match="must have a function with a name"):
        Tool.from_openai(wrong)


@pytest.mark.parametrize("wrong", [{"type": "array"}, 5])
def test_parameters_are_an_object_schema(wrong: Any) -> None:
    with pytest.raises(ScenarioError, match="JSON schema of type object"):
        Tool("t", "a tool", wrong)


def test_a_broken_schema_is_named() -> None:
    broken = Tool("t", "a tool", {"type": "object", "properties": {"a": {"type": 5}}})
    with pytest.raises(ScenarioError, match="Tool 't': invalid JSON schema"):
        broken.check_arguments({})


def test_arguments_are_checked() -> None:
    add = Tool("add", "Adds", ADD)
    assert add.check_arguments({"a": 1, "b": 2}) is None
    assert add.check_arguments({"a": "1"}) == "a: '1' is not of type 'integer'"
    assert "required" in (add.check_arguments({}) or "")
    assert "not an allowed property" in (add.check_arguments({"a": 1, "c": 1}) or "")


def test_two_tools_of_one_name_are_refused() -> None:
    one = Tool("t", "a tool")
    assert tool_map([one]) == {"t": one}
    with pytest.raises(ScenarioError, match="Two tools are named 't'"):
        tool_map([one, Tool("t", "another")])


def test_runner_runs(runner: ToolRunner) -> None:
    tools = tool(lambda a, b=1: {"sum": a + b}, parameters=ADD)
    result = runner.run(tools, ToolCall("t", {"a": 2}), None)
    assert result.ok
    assert content(result.content) == {"sum": 3}
    assert result.latency > 0


def test_runner_gives_the_world_to_those_who_take_it(runner: ToolRunner) -> None:
    tools = tool(lambda world: world["name"], takes_world=True)
    assert runner.run(tools, ToolCall("t", {}), {"name": "x"}).content == '"x"'


def test_the_main_thread_runs_tools_itself(runner: ToolRunner) -> None:
    tools = tool(threading.get_ident)
    idents = {runner.run(tools, ToolCall("t", {}), None).content for _ in range(5)}
    assert idents == {str(threading.get_ident())}


def test_another_thread_has_one_worker_for_many_calls(runner: ToolRunner) -> None:
    tools = tool(threading.get_ident)

    def run() -> set[str]:
        calls = [runner.run(tools, ToolCall("t", {}), None) for _ in range(5)]
        return {str(threading.get_ident()), *(call.content for call in calls)}

    # Its own, and that of the worker.
    assert len(elsewhere(run)) == 2


def _refuse() -> None:
    raise ToolError("the order is shipped already")


def _exit() -> None:
    raise SystemExit(3)


def _divide() -> float:
    return 1 / 0


@pytest.mark.parametrize(
    ("function", "message"),
    [
        (_refuse, "the order is shipped already"),
        (_divide, "ZeroDivisionError: division by zero"),
        (_exit, "SystemExit: 3"),
        (lambda wanted: wanted, "TypeError: "),
        (lambda: object(), "returned no JSON: "),
        (lambda: {"at": {1, 2}}, "returned no JSON: "),
        (lambda: float("nan"), "returned no JSON: "),
        (lambda: {(1, 2): 3}, "returned no JSON: "),
        (None, "'t' cannot be run here"),
    ],
)
@pytest.mark.parametrize("where", [here, elsewhere])
def test_a_tool_that_fails_is_a_result(
    runner: ToolRunner, function: Any, message: str, where: Callable[..., Any]
) -> None:
    result = where(lambda: runner.run(tool(function), ToolCall("t", {}), None))
    assert result.failure is FailureKind.TOOL_ERROR
    told = content(result.content)
    assert told["error"] == "tool_error"
    assert told["message"].startswith(message)
    # The next call finds the worker alive.
    assert where(lambda: runner.run(tool(lambda: 1), ToolCall("t", {}), None)).ok


def test_wrong_calls_never_reach_the_tool(runner: ToolRunner) -> None:
    tools = tool(lambda **kwargs: pytest.fail("was called"), parameters=ADD)
    unknown = runner.run(tools, ToolCall("u", {}), None)
    assert unknown.failure is FailureKind.UNKNOWN_TOOL
    assert content(unknown.content)["message"] == "no tool 'u'; available: t"
    bad = runner.run(tools, ToolCall("t", {"a": "x"}), None)
    assert bad.failure is FailureKind.BAD_ARGUMENTS
    assert "integer" in content(bad.content)["message"]


def test_a_tool_that_hangs_in_the_main_thread_is_interrupted() -> None:
    before = signal.getsignal(signal.SIGALRM)
    runner = ToolRunner(timeout=0.5, max_hung=2)
    hanging = tool(threading.Event().wait)
    # As often as it likes: nothing is left behind.
    for _ in range(4):
        started = time.perf_counter()
        result = runner.run(hanging, ToolCall("t", {}), None)
        assert result.failure is FailureKind.TIMEOUT
        assert content(result.content)["message"] == "no answer within 0.5 s"
        assert 0.5 <= time.perf_counter() - started < 20
        assert 0.5 <= result.latency < 20
        assert runner.run(tool(lambda: "next"), ToolCall("t", {}), None).ok
    assert runner.hung == 0
    assert signal.getsignal(signal.SIGALRM) is before
    assert signal.getitimer(signal.ITIMER_REAL) == (0.0, 0.0)
    runner.close()


def test_a_tool_that_catches_everything_is_interrupted_again() -> None:
    caught: list[str] = []

    def stubborn() -> None:
        try:
            threading.Event().wait(30)
        except Exception as error:
            caught.append(f"an ordinary {error!r}")
        except BaseException as error:
            caught.append(type(error).__name__)
            threading.Event().wait(30)

    runner = ToolRunner(timeout=0.5)
    started = time.perf_counter()
    result = runner.run(tool(stubborn), ToolCall("t", {}), None)
    assert result.failure is FailureKind.TIMEOUT
    assert time.perf_counter() - started < 20
    assert caught == ["_Expired"]


def test_ctrl_c_in_a_tool_ends_the_run(runner: ToolRunner) -> None:
    def interrupted() -> None:
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        runner.run(tool(interrupted), ToolCall("t", {}), None)
    assert signal.getitimer(signal.ITIMER_REAL) == (0.0, 0.0)


def test_a_tool_that_hangs_in_another_thread_is_left_behind() -> None:
    runner = ToolRunner(timeout=0.5, max_hung=2)
    release = threading.Event()
    hanging = tool(release.wait)

    def run() -> None:
        started = time.perf_counter()
        result = runner.run(hanging, ToolCall("t", {}), None)
        assert result.failure is FailureKind.TIMEOUT
        assert content(result.content)["message"] == "no answer within 0.5 s"
        assert 0.5 <= time.perf_counter() - started < 20
        # A late answer must not be taken for that of another call.
        assert runner.run(tool(lambda: "next"), ToolCall("t", {}), None).ok
        runner.run(hanging, ToolCall("t", {}), None)
        assert runner.hung == 2
        with pytest.raises(
            ScenarioError, match=r"2 tool calls have hung .* Add a timeout"
        ):
            runner.run(hanging, ToolCall("t", {}), None)

    try:
        elsewhere(run)
    finally:
        release.set()
        runner.close()


@pytest.mark.parametrize("where", [here, elsewhere])
def test_late_answers_are_dropped(where: Callable[..., None]) -> None:
    runner = ToolRunner(timeout=0.5)
    release = threading.Event()

    def late() -> str:
        release.wait()
        return "late"

    def run() -> None:
        assert not runner.run(tool(late), ToolCall("t", {}), None).ok
        release.set()
        for n in range(3):
            result = runner.run(tool(lambda n=n: n), ToolCall("t", {}), None)
            assert result.content == str(n)

    try:
        where(run)
    finally:
        release.set()
        runner.close()


def test_a_closed_runner_can_be_used_again(runner: ToolRunner) -> None:
    runner.close()
    runner.close()
    assert runner.run(tool(lambda: 1), ToolCall("t", {}), None).ok

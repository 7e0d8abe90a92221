"""The environment: gymnasium's rules, episodes that end, tools that misbehave."""

from __future__ import annotations

import json
import threading
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import pytest
from gymnasium.utils.env_checker import check_env

from agentgym.core.task import Message, Task
from agentgym.core.tools import (
    FailureKind,
    Tool,
    ToolCall,
    ToolError,
    ToolResult,
    ToolRunner,
)
from agentgym.core.trajectory import Step
from agentgym.errors import ScenarioError
from agentgym.scenarios.customer_support.scenario import CustomerSupport
from agentgym.scenarios.environment import RIGHT, Environment, Verdict
from agentgym.training.rollout import act

NUMBER = {
    "type": "object",
    "properties": {"n": {"type": "integer"}},
    "required": ["n"],
}
RELEASE = threading.Event()


def _raise(world: list[int]) -> None:
    raise KeyError("shelf")


def _count(world: list[int], n: int) -> dict[str, int]:
    if n < 0:
        raise ToolError("cannot count down")
    world.append(n)
    return {"total": sum(world)}


TOOLS = (
    Tool("count", "Counts on", NUMBER, _count, takes_world=True),
    Tool("smash", "Breaks the counter", function=lambda: "broken"),
    Tool("raising", "Raises", function=_raise, takes_world=True),
    Tool("hanging", "Hangs", function=lambda: RELEASE.wait(30)),
    Tool("foreign", "Returns no JSON", function=lambda: {1, 2}),
)


class Counter(Environment):
    """Count to the number the user names, then close."""

    closed = 0

    def tools(self) -> Sequence[Tool]:
        return TOOLS

    def make_world(self, task: Task) -> list[int]:
        return []

    def close_world(self, world: list[int]) -> None:
        self.closed += 1

    def judge_call(self, call: ToolCall, result: ToolResult) -> Verdict:
        if call.name == "smash":
            return Verdict(False, FailureKind.WRONG_TOOL, harmful=True)
        if call.name == "count" and result.failure in (
            None,
            FailureKind.TIMEOUT,
            FailureKind.TOOL_ERROR,
        ):
            return RIGHT
        return Verdict(False, result.failure or FailureKind.WRONG_TOOL)

    def judge_message(self, content: str) -> Verdict:
        done = sum(self.world) >= 3
        return RIGHT if done else Verdict(False, FailureKind.NO_CALL)

    def reply(self, content: str) -> str | None:
        return "Three." if content.endswith("?") else None

    def outcome(self) -> tuple[bool, float]:
        total = sum(self.world)
        return total == 3, min(total, 3) / 3


TASKS = [Task(f"t{i}", ({"role": "user", "content": f"Go {i}"},)) for i in range(9)]

Make = Callable[..., Counter]


@pytest.fixture
def make() -> Iterator[Make]:
    """Makes environments and closes them in the end."""
    made: list[Counter] = []

    def create(**settings: Any) -> Counter:
        made.append(Counter(TASKS, **settings))
        made[-1].reset_task(TASKS[0])
        return made[-1]

    yield create
    RELEASE.set()
    for environment in made:
        environment.close()
    RELEASE.clear()


def call(name: str, **arguments: Any) -> Message:
    return {
        "role": "assistant",
        "content": None,
        "tool_calls": [ToolCall(name, arguments).to_openai()],
    }


def say(text: str) -> Message:
    return {"role": "assistant", "content": text}


@pytest.mark.filterwarnings("ignore")
def test_gymnasium_accepts_the_environments() -> None:
    check_env(Counter(TASKS), skip_render_check=True)
    shop = CustomerSupport().create_environment()
    check_env(shop, skip_render_check=True)
    assert shop.state_space is shop.observation_space


def test_the_same_seed_gives_the_same_episode() -> None:
    def run(seed: int) -> list[Any]:
        scenario = CustomerSupport(tool_failure_rate=0.5)
        environment = scenario.create_environment(max_steps=6)
        seen: list[Any] = [environment.reset(seed=seed)]
        done = False
        while not done:
            action = json.dumps(call("lookup_order", order_id="A-1000"))
            step = environment.step(action)
            seen.append(step)
            done = step[2] or step[3]
        environment.close()
        return seen

    assert run(5) == run(5)
    assert run(5)[0] != run(6)[0]


def test_an_episode_from_reset_to_end(make: Make) -> None:
    environment = make()
    observation, info = environment.reset(seed=1, options={"task": TASKS[4]})
    assert json.loads(observation) == [{"role": "user", "content": "Go 4"}]
    assert info["task_id"] == "t4"
    _, reward, terminated, truncated, info = environment.step(
        json.dumps(call("count", n=3))
    )
    assert (reward, terminated, truncated, info["failure"]) == (1.0, False, False, None)
    assert info["messages"][-1]["content"] == '{"total": 3}'
    observation, reward, terminated, truncated, _ = environment.step(
        json.dumps(say("Done."))
    )
    assert (reward, terminated, truncated) == (2.0, True, False)
    assert environment.observation_space.contains(observation)
    with pytest.raises(ScenarioError, match="Call reset first"):
        environment.step(json.dumps(say("Hello?")))


def test_acting_before_reset_and_without_tasks() -> None:
    environment = Counter([])
    with pytest.raises(ScenarioError, match="Call reset first"):
        environment.act(say("Hello."))
    with pytest.raises(ScenarioError, match="no tasks to draw from"):
        environment.reset(seed=0)


@pytest.mark.parametrize(
    "action",
    [
        "",
        "words",
        "[1, 2]",
        "3",
        "null",
        '"text"',
        '{"tool_calls": ["count"]}',
        '{"tool_calls": [{"function": {"name": 5}}]}',
        '{"tool_calls": [{"function": {"name": "count", "arguments": "{"}}]}',
        '{"tool_calls": [{"function": {"name": "count", "arguments": "[]"}}]}',
    ],
)
def test_invalid_actions_are_failures_not_errors(make: Make, action: str) -> None:
    environment = make()
    observation, reward, terminated, truncated, info = environment.step(action)
    assert info["failure"] is FailureKind.INVALID_CALL
    assert (reward, terminated, truncated) == (-1.0, False, False)
    assert "(invalid call:" in json.loads(observation)[-1]["content"]


def test_patience_ends_an_episode_at_its_last_mistake(make: Make) -> None:
    environment = make(patience=3)
    for expected in (False, False, True):
        outcome = environment.act(call("no_such_tool"))
        assert outcome.verdict.failure is FailureKind.UNKNOWN_TOOL
        assert outcome.done is expected


def test_right_steps_do_not_cost_patience(make: Make) -> None:
    environment = make(patience=1)
    assert not environment.act(call("count", n=1)).done
    assert environment.act(call("count", n="many")).done


def test_episodes_are_cut_off(make: Make) -> None:
    environment = make(max_steps=2)
    assert not environment.act(call("count", n=1)).done
    _, reward, terminated, truncated, _ = environment.step(
        json.dumps(call("count", n=1))
    )
    assert (terminated, truncated) == (False, True)
    assert reward == pytest.approx(1.0 + 2 / 3)


def test_a_harmful_call_ends_the_episode_at_once(make: Make) -> None:
    environment = make(patience=9)
    outcome = environment.act(call("smash"))
    assert outcome.done
    assert outcome.verdict.harmful


def test_questions_are_answered_and_messages_close(make: Make) -> None:
    environment = make(patience=9)
    assert not environment.act(say("How far?")).done
    assert environment.messages[-1] == {"role": "user", "content": "Three."}
    assert environment.act(say("No idea.")).done
    assert environment.outcome() == (False, 0.0)


def test_several_calls_in_one_message(make: Make) -> None:
    environment = make()
    calls = [ToolCall("count", {"n": n}, f"c{n}").to_openai() for n in (1, 2)]
    outcome = environment.act({"content": None, "tool_calls": calls})
    assert [result.content for result in outcome.results] == [
        '{"total": 1}',
        '{"total": 3}',
    ]
    assert [m["tool_call_id"] for m in environment.messages[-2:]] == ["c1", "c2"]
    assert outcome.verdict == RIGHT


def test_one_wrong_call_makes_the_message_wrong(make: Make) -> None:
    environment = make()
    calls = [ToolCall(name, {"n": 1}).to_openai() for name in ("nothing", "count")]
    outcome = environment.act({"content": None, "tool_calls": calls})
    assert outcome.verdict == Verdict(False, FailureKind.UNKNOWN_TOOL)
    assert [result.ok for result in outcome.results] == [False, True]


def test_wrong_arguments_are_told_of_a_single_call(
    make: Make, monkeypatch: pytest.MonkeyPatch
) -> None:
    told = Verdict(False, FailureKind.BAD_ARGUMENTS, wrong_arguments=frozenset({"n"}))
    monkeypatch.setattr(Counter, "judge_call", lambda self, call, result: told)
    environment = make(patience=9)
    one = ToolCall("count", {"n": 1}).to_openai()
    assert environment.act({"tool_calls": [one]}).verdict is told
    step = Step({"tool_calls": [one]})
    act(environment, step)
    assert step.wrong_arguments == {"n"}
    # Of several calls nobody could tell whose argument is meant.
    verdict = environment.act({"tool_calls": [one, one]}).verdict
    assert verdict == Verdict(False, FailureKind.BAD_ARGUMENTS)


def test_a_wrong_argument_is_a_parameter(
    make: Make, monkeypatch: pytest.MonkeyPatch
) -> None:
    told = Verdict(False, FailureKind.BAD_ARGUMENTS, wrong_arguments=frozenset({"m"}))
    monkeypatch.setattr(Counter, "judge_call", lambda self, call, result: told)
    with pytest.raises(ScenarioError, match="wrong argument 'm' for tool 'count'"):
        make().act(call("count", n=1))


def test_harm_is_not_hidden_behind_another_mistake(make: Make) -> None:
    environment = make(patience=9)
    for names in (["nothing", "smash"], ["smash", "nothing"], ["count", "smash"]):
        environment.reset_task(TASKS[0])
        calls = [
            ToolCall(name, {"n": 1} if name == "count" else {}).to_openai()
            for name in names
        ]
        outcome = environment.act({"content": None, "tool_calls": calls})
        assert not outcome.verdict.correct
        assert outcome.verdict.harmful and outcome.done, names
        first = FailureKind.UNKNOWN_TOOL if names[0] == "nothing" else None
        assert outcome.verdict.failure is (first or FailureKind.WRONG_TOOL)


@pytest.mark.parametrize("role", ["user", "system", "tool"])
def test_nobody_speaks_in_the_name_of_another(make: Make, role: str) -> None:
    environment = make()
    environment.act({**call("count", n=1), "role": role})
    assert environment.messages[1]["role"] == "assistant"
    environment.act({"role": role, "content": "All done."})
    assert environment.messages[-1] == say("All done.")


@pytest.mark.parametrize("patience", [0, -1])
def test_patience_is_at_least_one(patience: int) -> None:
    with pytest.raises(ScenarioError, match="patience must be at least 1"):
        Counter(TASKS, patience=patience)


def test_an_end_at_the_last_step_is_no_cut_off(make: Make) -> None:
    for last in (say("Done."), call("smash"), call("no_such_tool")):
        environment = make(max_steps=2, patience=1)
        environment.step(json.dumps(call("count", n=3)))
        _, _, terminated, truncated, _ = environment.step(json.dumps(last))
        assert (terminated, truncated) == (True, False)


@pytest.mark.parametrize(
    ("name", "failure", "text"),
    [
        ("raising", FailureKind.TOOL_ERROR, "KeyError: 'shelf'"),
        ("hanging", FailureKind.TIMEOUT, "no answer within 0.5 s"),
        ("foreign", FailureKind.TOOL_ERROR, "returned no JSON"),
    ],
)
def test_tools_that_misbehave_are_data(
    make: Make, name: str, failure: FailureKind, text: str
) -> None:
    environment = make(runner=ToolRunner(timeout=0.5))
    outcome = environment.act(call(name))
    assert outcome.results[0].failure is failure
    assert outcome.verdict.failure is failure
    assert text in environment.messages[-1]["content"]
    # The world goes on.
    assert environment.act(call("count", n=3)).results[0].ok


def test_a_tool_may_refuse(make: Make) -> None:
    outcome = make().act(call("count", n=-1))
    assert outcome.results[0].failure is FailureKind.TOOL_ERROR
    assert "cannot count down" in outcome.results[0].content


def test_injected_faults_keep_the_tool_from_running(make: Make) -> None:
    environment = make(tool_failure_rate=0.5, max_steps=400)
    environment.reset_task(TASKS[0], seed=3)
    kinds = [environment.act(call("count", n=1)).results[0] for _ in range(400)]
    failed = [result for result in kinds if not result.ok]
    assert 150 < len(failed) < 250
    late = sum(result.failure is FailureKind.TIMEOUT for result in failed)
    assert 0.35 < late / len(failed) < 0.65
    # Only the calls that got through have counted; none was a mistake.
    assert sum(environment.world) == 400 - len(failed)
    assert all("error" in json.loads(result.content) for result in failed)


def test_faults_do_not_hide_invalid_calls(make: Make) -> None:
    """Judges rely on it: the arguments of a call that a fault stopped are valid."""
    environment = make(tool_failure_rate=0.99, max_steps=50, patience=50)
    environment.reset_task(TASKS[0], seed=3)
    for message, failure in [
        (call("count"), FailureKind.BAD_ARGUMENTS),
        (call("count", n="x"), FailureKind.BAD_ARGUMENTS),
        (call("nothing"), FailureKind.UNKNOWN_TOOL),
    ]:
        outcomes = [environment.act(message) for _ in range(10)]
        assert {outcome.results[0].failure for outcome in outcomes} == {failure}


def test_faults_follow_the_seed(make: Make) -> None:
    def faults(seed: int) -> list[bool]:
        environment = make(tool_failure_rate=0.3, max_steps=50)
        environment.reset_task(TASKS[0], seed=seed)
        return [environment.act(call("count", n=1)).results[0].ok for _ in range(50)]

    assert faults(1) == faults(1)
    assert faults(1) != faults(2)


@pytest.mark.parametrize("rate", [-0.1, 1.0])
def test_a_fault_rate_is_a_share(rate: float) -> None:
    with pytest.raises(ScenarioError, match="tool_failure_rate"):
        Counter(TASKS, tool_failure_rate=rate)


def test_state_keys_name_the_conversation(make: Make) -> None:
    one, other = make(), make()
    assert one.state_key == other.state_key
    one.act(call("count", n=1))
    assert one.state_key != other.state_key
    other.act(call("count", n=1))
    assert one.state_key == other.state_key
    other.reset_task(TASKS[1])
    one.reset_task(TASKS[0])
    assert one.state_key != other.state_key


def test_worlds_are_freed(make: Make) -> None:
    environment = make()
    environment.act(call("count", n=1))
    environment.reset_task(TASKS[1])
    assert environment.closed == 1
    assert environment.world == []
    environment.release()
    environment.release()
    environment.close()
    assert environment.closed == 2


def test_tasks_are_not_changed_by_their_episodes(make: Make) -> None:
    environment = make()
    environment.messages[0]["content"] = "changed"
    environment.act(call("count", n=1))
    assert TASKS[0].messages == ({"role": "user", "content": "Go 0"},)


def test_rendering(make: Make) -> None:
    environment = make(render_mode="ansi")
    environment.act(call("count", n=2))
    environment.act(say("Done."))
    assert environment.render() == (
        'user: Go 0\nagent -> count({"n": 2})\ntool: {"total": 2}\nassistant: Done.'
    )
    assert make().render() is None

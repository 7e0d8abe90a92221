"""The checks: a scenario that keeps every rule, and one that breaks each."""

from __future__ import annotations

import dataclasses
import itertools
import math
import random
import threading
import time
from collections.abc import Iterator, Sequence
from typing import Any

import pytest

from agentgym.core.task import Split, Task
from agentgym.core.tools import (
    FailureKind,
    Tool,
    ToolCall,
    ToolError,
    ToolResult,
    ToolRunner,
)
from agentgym.core.trajectory import Trajectory
from agentgym.scenarios.base import Scenario
from agentgym.scenarios.checker import CheckResult, check_scenario
from agentgym.scenarios.checker.bench import made_up_arguments
from agentgym.scenarios.checker.rules import RULES
from agentgym.scenarios.customer_support.scenario import CustomerSupport
from agentgym.scenarios.environment import RIGHT, Environment, Verdict

LAMPS = ("kitchen", "hall", "attic", "porch", "study", "garage")
RELEASE = threading.Event()
TICKS = itertools.count()


def _switch(world: dict[str, Any], lamp: str) -> dict[str, Any]:
    if lamp not in LAMPS:
        raise ToolError(f"no lamp '{lamp}'")
    world["on"].append(lamp)
    return {"on": world["on"]}


SWITCH = Tool(
    "switch_on",
    "Switches a lamp on",
    {
        "type": "object",
        "properties": {"lamp": {"type": "string"}},
        "required": ["lamp"],
    },
    _switch,
    takes_world=True,
)


class LampsEnvironment(Environment):
    """Switch on the lamp that is named."""

    tool_set: tuple[Tool, ...] = (SWITCH,)

    def tools(self) -> Sequence[Tool]:
        return self.tool_set

    def make_world(self, task: Task) -> Any:
        return {"on": []}

    def judge_call(self, call: ToolCall, result: ToolResult) -> Verdict:
        assert self.task is not None
        if result.ok and call.arguments.get("lamp") == self.task.goal:
            return RIGHT
        return Verdict(False, result.failure or FailureKind.BAD_ARGUMENTS)

    def judge_message(self, content: str) -> Verdict:
        return RIGHT if self.outcome()[0] else Verdict(False, FailureKind.NO_CALL)

    def outcome(self) -> tuple[bool, float]:
        assert self.task is not None
        solved = self.world["on"] == [self.task.goal]
        return solved, float(solved)


class Lamps(Scenario):
    """Keeps every rule."""

    name = "lamps"
    description = "Switch on the lamp that is named"
    difficulty = "easy"
    estimated_time = "no time"
    options = {"brightness": 3}
    environment: type[LampsEnvironment] = LampsEnvironment

    def tasks(self, split: Split, seed: int, count: int) -> list[Task]:
        return [self.task(split, seed, i) for i in range(count)]

    def task(self, split: Split, seed: int, i: int) -> Task:
        rng = random.Random(f"{split} {seed} {i}")
        first = {"train": "Light for", "validation": "Switch on", "heldout": "Lamp in"}
        lamp = rng.choice(LAMPS)
        text = f"{first[split]} room {rng.randrange(10**6)}, called {lamp}"
        return Task(
            f"{split}-{seed}-{i}",
            ({"role": "user", "content": text},),
            goal=lamp,
            best_steps=2,
            split=split,
        )

    def create_environment(
        self,
        tasks: Sequence[Task] = (),
        *,
        max_steps: int = 10,
        runner: ToolRunner | None = None,
    ) -> Environment:
        return self.environment(tasks, max_steps=max_steps, runner=runner)

    def success_criteria(self) -> dict[str, float]:
        return {"tool_reliability": 0.95}


def changed(**attributes: Any) -> Scenario:
    """The good scenario with some things done otherwise."""
    made: Scenario = type("Changed", (Lamps,), attributes)()
    return made


def in_world(**attributes: Any) -> Scenario:
    """The good scenario with an environment that does some things otherwise."""
    return changed(environment=type("World", (LampsEnvironment,), attributes))


def with_tools(*tools: Tool) -> Scenario:
    return in_world(tool_set=tools)


def tool(function: Any = lambda: 1, **attributes: Any) -> Tool:
    values: dict[str, Any] = {"name": "extra", "description": "Does more"}
    return Tool(**{**values, "function": function, **attributes})


def with_tasks(**changes: Any) -> Scenario:
    """Every task changed the same way."""

    def task(self: Lamps, split: Split, seed: int, i: int) -> Task:
        return dataclasses.replace(Lamps.task(self, split, seed, i), **changes)

    return changed(task=task)


def _raise(*args: Any, **kwargs: Any) -> Any:
    raise RuntimeError("out\nof order")


def _drop_runner(
    self: Lamps,
    tasks: Sequence[Task] = (),
    *,
    max_steps: int = 10,
    runner: ToolRunner | None = None,
) -> Environment:
    return LampsEnvironment(tasks)


def _forgetful_close(self: Environment) -> None:
    return None


def _rewards(value: float, surplus: int = 0) -> Any:
    return lambda self, trajectory: [value] * (len(trajectory.steps) + surplus)


def _upside_down(self: Lamps, trajectory: Trajectory) -> list[float]:
    return [-reward for reward in Scenario.broadcast_rewards(self, trajectory)]


def _same_for_every_seed(self: Lamps, split: Split, seed: int, i: int) -> Task:
    return Lamps.task(self, split, 0, i)


def _never_the_same(self: Lamps, split: Split, seed: int, i: int) -> Task:
    return Lamps.task(self, split, next(TICKS), i)


def _id_without_seed(self: Lamps, split: Split, seed: int, i: int) -> Task:
    return dataclasses.replace(Lamps.task(self, split, seed, i), id=f"{split}-{i}")


def _one_wording(self: Lamps, split: Split, seed: int, i: int) -> Task:
    task = Lamps.task(self, "train", seed, i)
    return dataclasses.replace(task, split=split)


def _half_as_many(self: Lamps, split: Split, seed: int, count: int) -> list[Task]:
    return Lamps.tasks(self, split, seed, count // 2)


BAD_SCHEMA = {"type": "object", "properties": {"a": {"type": "nothing"}}}
NO_PROPERTY = {"type": "object", "properties": {}, "required": ["a"]}

BROKEN: list[tuple[str, Any, str]] = [
    ("name_is_identifier", lambda: changed(name="My lamps"), "Use lower-case"),
    ("described", lambda: changed(description=" "), "description is ' '"),
    ("described", lambda: changed(difficulty="so so"), "easy, medium, hard"),
    ("described", lambda: changed(estimated_time=None), "estimated_time is None"),
    (
        "settings_are_read",
        lambda: changed(options={"seed": 1}),
        "contains seed",
    ),
    (
        "settings_are_read",
        lambda: changed(training_defaults=lambda self: {"episode": 1}),
        "Did you mean 'episodes'",
    ),
    (
        "settings_are_read",
        lambda: changed(training_defaults=lambda self: {"episodes": 0}),
        "episodes: should be greater than 0",
    ),
    (
        "components_known",
        lambda: changed(define_trainable_components=lambda self: {"brain": True}),
        "names brain. Available: tool_selection",
    ),
    (
        "components_known",
        lambda: changed(
            define_trainable_components=lambda self: {"tool_selection": False}
        ),
        "trains nothing",
    ),
    (
        "success_criteria_known",
        lambda: changed(success_criteria=lambda self: {}),
        "is empty",
    ),
    (
        "success_criteria_known",
        lambda: changed(success_criteria=lambda self: {"joy": 1.0}),
        "names 'joy', which is not measured",
    ),
    (
        "success_criteria_known",
        lambda: changed(success_criteria=lambda self: {"tool_reliability": 95}),
        "above 0 and at most 1",
    ),
    (
        "success_criteria_known",
        lambda: changed(success_criteria=lambda self: {"final_reward": math.nan}),
        "It should be a number",
    ),
    ("tasks_exist", lambda: changed(tasks=_raise), "RuntimeError: out of order"),
    ("tasks_exist", lambda: changed(tasks=_half_as_many), "as many as asked for"),
    (
        "tasks_exist",
        lambda: changed(task=lambda self, split, seed, i: "a task"),
        "Return Task objects",
    ),
    ("tasks_exist", lambda: with_tasks(messages=()), "has no messages"),
    ("tasks_exist", lambda: with_tasks(split="train"), "has split 'train'"),
    (
        "tasks_open_with_user",
        lambda: in_opening({"role": "assistant", "content": "How can I help?"}),
        "doesn't end with the user",
    ),
    (
        "tasks_open_with_user",
        lambda: in_opening({"role": "user", "content": "  "}),
        "doesn't end with the user",
    ),
    (
        "tasks_open_with_user",
        lambda: in_opening({"role": "robot", "content": "Hello"}),
        "not a message",
    ),
    ("tasks_deterministic", lambda: changed(task=_never_the_same), "random.Random"),
    ("seeds_differ", lambda: changed(task=_same_for_every_seed), "for seeds 0 and 1"),
    ("task_ids_unique", lambda: changed(task=_id_without_seed), "including the seed"),
    ("splits_disjoint", lambda: changed(task=_one_wording), "share the opening"),
    ("best_steps_positive", lambda: with_tasks(best_steps=0), "best_steps 0"),
    (
        "environment_is_made",
        lambda: with_tools(SWITCH, SWITCH),
        "Two tools are named 'switch_on'",
    ),
    (
        "environment_is_made",
        lambda: changed(create_environment=_drop_runner),
        "drops max_steps or runner",
    ),
    (
        "environment_is_made",
        lambda: changed(create_environment=lambda self, *args, **kwargs: "a world"),
        "not an Environment",
    ),
    ("tools_declared", lambda: with_tools(), "has no tools"),
    (
        "tools_declared",
        lambda: with_tools(SWITCH, tool(None)),
        "Tools without a function: extra",
    ),
    (
        "tool_schemas_valid",
        lambda: with_tools(SWITCH, tool(name="a lamp")),
        "letters, digits",
    ),
    (
        "tool_schemas_valid",
        lambda: with_tools(SWITCH, tool(description="")),
        "has no description",
    ),
    (
        "tool_schemas_valid",
        lambda: with_tools(SWITCH, tool(parameters=BAD_SCHEMA)),
        "invalid JSON schema: properties.a.type",
    ),
    (
        "tool_schemas_valid",
        lambda: with_tools(SWITCH, tool(lambda a: a, parameters=NO_PROPERTY)),
        "requires a but has no such property",
    ),
    ("environment_steps", lambda: in_world(make_world=_raise), "out of order"),
    ("environment_steps", lambda: in_world(judge_call=_raise), "out of order"),
    ("environment_steps", lambda: in_world(judge_message=_raise), "out of order"),
    (
        "environment_steps",
        lambda: in_world(outcome=lambda self: (False, 3.0)),
        "how far it got, 0 to 1",
    ),
    ("world_closes", lambda: in_world(close_world=_raise), "out of order"),
    ("world_closes", lambda: in_world(close=_forgetful_close), "super().close()"),
    (
        "tools_run",
        lambda: with_tools(SWITCH, tool(_raise)),
        "raises RuntimeError: out of order",
    ),
    (
        "tool_results_are_json",
        lambda: with_tools(SWITCH, tool(lambda: {1, 2})),
        "doesn't return JSON",
    ),
    (
        "tool_results_are_json",
        lambda: with_tools(SWITCH, tool(lambda: math.nan)),
        "doesn't return JSON",
    ),
    (
        "tools_answer_in_time",
        lambda: with_tools(SWITCH, tool(lambda: RELEASE.wait(30))),
        "doesn't answer within 0.5 s",
    ),
    (
        "environment_deterministic",
        lambda: with_tools(SWITCH, tool(lambda: next(TICKS))),
        "differ after 'extra'",
    ),
    (
        "environment_deterministic",
        lambda: in_world(reply=lambda self, content: f"Yes {next(TICKS)}"),
        "differ after 'no_such_tool'",
    ),
    (
        "gymnasium_accepts",
        lambda: in_world(reset=_reset_without_seed),
        "check_env says",
    ),
    (
        "rewards_are_finite",
        lambda: changed(broadcast_rewards=_rewards(1.0, surplus=1)),
        "Return one for each",
    ),
    (
        "rewards_are_finite",
        lambda: changed(broadcast_rewards=_rewards(math.nan)),
        "Return finite numbers",
    ),
    (
        "step_reward_is_finite",
        lambda: changed(calculate_reward=lambda self, *args: None),
        "calculate_reward returns None",
    ),
    (
        "rewards_tell_good_from_bad",
        lambda: changed(broadcast_rewards=_rewards(1.0)),
        "can't learn from that",
    ),
    (
        "rewards_tell_good_from_bad",
        lambda: changed(broadcast_rewards=_upside_down),
        "solved episodes the higher reward",
    ),
]


def in_opening(message: dict[str, Any]) -> Scenario:
    """A message added to the opening of every task."""

    def task(self: Lamps, split: Split, seed: int, i: int) -> Task:
        made = Lamps.task(self, split, seed, i)
        return dataclasses.replace(made, messages=(*made.messages, message))

    return changed(task=task)


def _reset_without_seed(self: Environment, **kwargs: Any) -> tuple[str, dict[str, Any]]:
    # The generator is not made anew, so that the seed has no effect on it.
    kwargs["seed"] = None
    Environment.reset(self, **kwargs)
    self.reset_task(self.tasks[0])
    return self._observation(), self._info()


@pytest.fixture(autouse=True)
def _let_go() -> Iterator[None]:
    yield
    RELEASE.set()
    RELEASE.clear()


def failing(results: list[CheckResult]) -> dict[str, str]:
    return {r.rule: r.explanation for r in results if r.ok is False}


def test_a_good_scenario_keeps_every_rule() -> None:
    results = check_scenario(Lamps())
    assert failing(results) == {}
    assert [r.rule for r in results] == [rule.__name__ for rule in RULES]
    assert all(r.ok for r in results)
    # A solved episode was found, so that the rewards were really compared.
    assert "Not shown" not in results[-1].explanation


def test_customer_support_keeps_every_rule() -> None:
    assert [r for r in check_scenario(CustomerSupport()) if not r.ok] == []


@pytest.mark.parametrize(
    ("rule", "make", "message"),
    BROKEN,
    ids=[f"{b[0]}-{i}" for i, b in enumerate(BROKEN)],
)
def test_each_rule_is_broken_alone(rule: str, make: Any, message: str) -> None:
    # Only tools that hang need to wait for it.
    results = check_scenario(
        make(), tool_timeout=0.5 if rule == "tools_answer_in_time" else 30
    )
    found = failing(results)
    assert list(found) == [rule]
    assert message in found[rule]
    assert "\n" not in found[rule]
    for result in results:
        if result.ok is None:
            assert result.explanation == f"Not checked. Fix {rule} first."


def test_every_rule_has_a_scenario_that_breaks_it() -> None:
    assert {rule for rule, _, _ in BROKEN} == {rule.__name__ for rule in RULES}


def test_a_tool_that_hangs_is_reported_within_the_time_limit() -> None:
    hanging = with_tools(SWITCH, tool(lambda: RELEASE.wait(30)))
    started = time.perf_counter()
    results = check_scenario(hanging, tool_timeout=0.1)
    assert time.perf_counter() - started < 25
    assert list(failing(results)) == ["tools_answer_in_time"]


def test_what_could_not_be_tried_is_told() -> None:
    impossible = tool(
        lambda a: a,
        parameters={
            "type": "object",
            "properties": {"a": {"type": "string", "pattern": "^§{3}$"}},
            "required": ["a"],
        },
    )
    results = {r.rule: r for r in check_scenario(with_tools(SWITCH, impossible))}
    assert results["tools_run"].ok
    assert "Not tried" in results["tools_run"].explanation
    assert "extra" in results["tools_run"].explanation


def test_rewards_are_not_compared_if_nothing_can_be_solved() -> None:
    unsolvable = in_world(outcome=lambda self: (False, 0.0))
    results = check_scenario(unsolvable)
    assert results[-1].ok
    assert "no solved episode was found" in results[-1].explanation


@pytest.mark.parametrize(
    "schema",
    [
        {"type": "string"},
        {"type": "string", "minLength": 40},
        {"type": "string", "format": "email"},
        {"type": "string", "format": "date"},
        {"type": "string", "pattern": r"^A-\d{4}$"},
        {"type": "string", "enum": ["red", "green"]},
        {"const": 4},
        {"type": "integer", "minimum": 3, "maximum": 5},
        {"type": "number", "exclusiveMinimum": 0, "maximum": 0.5},
        {"type": "boolean"},
        {"type": ["string", "null"]},
        {"type": "null"},
        {"type": "array", "items": {"type": "integer"}, "minItems": 2},
        {"type": "array"},
        {
            "type": "object",
            "properties": {"b": {"type": "boolean"}},
            "required": ["b"],
        },
        {"default": "as usual"},
    ],
)
def test_arguments_can_be_made_up(schema: dict[str, Any]) -> None:
    made = tool(
        parameters={"type": "object", "properties": {"a": schema}, "required": ["a"]}
    )
    messages = [{"role": "user", "content": "Order A-1234 of me@shop.test, please"}]
    arguments = next(made_up_arguments(made, messages))
    assert made.check_arguments(arguments) is None

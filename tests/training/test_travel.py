"""Groups played one by one, together, in another order or elsewhere: same weights."""

from __future__ import annotations

import subprocess
import sys
import zlib
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from agentgym.core.rewards import assign_advantages
from agentgym.core.task import Task
from agentgym.core.trajectory import Group, GroupPlan
from agentgym.errors import FormatError
from agentgym.policies.base import Policy
from agentgym.policies.planner.policy import PlannerPolicy
from agentgym.scenarios.registry import ScenarioRegistry
from agentgym.training.checkpoint import pack, unpack
from agentgym.training.evaluation import evaluate
from agentgym.training.rollout import Rollout
from agentgym.training.sampler import Sampler
from agentgym.training.travel import (
    pack_groups,
    pack_plans,
    unpack_groups,
    unpack_plans,
)

INTEGRATION = Path(__file__).parents[1] / "integration"
BOTH = frozenset({"tool_selection", "parameter_selection"})

Play = Callable[[Policy, Rollout, Sequence[GroupPlan]], list[Group]]


@pytest.fixture(autouse=True)
def _tiny(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.syspath_prepend(str(INTEGRATION))


def tiny_policy() -> Policy:
    from tiny_policy import TinyPolicy

    made: Policy = TinyPolicy()
    return made


def weights_after(
    make: Callable[[], Policy],
    scenario_name: str,
    play: Play,
    *,
    between: Callable[[Policy, Rollout], None] = lambda policy, rollout: None,
    iterations: int = 3,
    exploration: float = 0.3,
    **options: Any,
) -> Any:
    """All that a short training changes, optimiser included."""
    policy = make()
    scenario = ScenarioRegistry.load(scenario_name, **options)
    rollout = Rollout(scenario, max_steps=8)
    sampler = Sampler(scenario, 0, revisit=0.3)
    for _ in range(iterations):
        plans = sampler.plan(
            5, 8, exploration=exploration, max_mistakes=1, baseline_tokens=700.0
        )
        groups = play(policy, rollout, plans)
        sampler.note(plans, groups)
        assign_advantages(groups, "state", 0.95)
        policy.learn(groups, learning_rate=0.01, entropy=0.02, trainable=BOTH)
        between(policy, rollout)
    rollout.close()
    return as_bytes(policy.state())


def as_bytes(tree: Any) -> Any:
    """Arrays as bytes, so that not a bit may differ."""
    if isinstance(tree, dict):
        return {key: as_bytes(value) for key, value in tree.items()}
    return tree.tobytes() if isinstance(tree, np.ndarray) else tree


def together(
    policy: Policy, rollout: Rollout, plans: Sequence[GroupPlan]
) -> list[Group]:
    return rollout.groups(policy, plans)


def one_by_one(
    policy: Policy, rollout: Rollout, plans: Sequence[GroupPlan]
) -> list[Group]:
    rollout.introduce(policy, plans)
    return [group for plan in plans for group in rollout.groups(policy, [plan])]


def backwards(
    policy: Policy, rollout: Rollout, plans: Sequence[GroupPlan]
) -> list[Group]:
    return rollout.groups(policy, plans[::-1])[::-1]


def in_small_batches(
    policy: Policy, rollout: Rollout, plans: Sequence[GroupPlan]
) -> list[Group]:
    rollout.at_once = 7
    return rollout.groups(policy, plans)


class Elsewhere:
    """Another policy and another scenario, which get nothing but bytes."""

    def __init__(self, make: Callable[[], Policy], scenario_name: str) -> None:
        self._policy = make()
        self._scenario = ScenarioRegistry.load(scenario_name)
        self._rollout = Rollout(self._scenario, max_steps=8)

    def __call__(
        self, policy: Policy, rollout: Rollout, plans: Sequence[GroupPlan]
    ) -> list[Group]:
        rollout.introduce(policy, plans)
        weights, packed = pack(policy.weights()), pack_plans(plans)
        groups: list[Group] = []
        for plan in plans:
            self._policy.load_state(unpack(weights, "weights"))
            sampler = Sampler(self._scenario, 9)
            same = unpack_plans(packed, sampler)[plan.position]
            assert same.source == plan.source
            played = self._rollout.groups(self._policy, [same])
            data = pack_groups(played, self._policy)
            groups += unpack_groups(data, [plan], policy)
        return groups


class Subprocess:
    """The same in a process of its own."""

    def __init__(self, policy_path: str, scenario_name: str) -> None:
        self._process = subprocess.Popen(
            [sys.executable, "play_child.py", policy_path, scenario_name],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            cwd=INTEGRATION,
        )
        self.received = 0

    def __call__(
        self, policy: Policy, rollout: Rollout, plans: Sequence[GroupPlan]
    ) -> list[Group]:
        from play_child import receive, send

        assert self._process.stdin is not None and self._process.stdout is not None
        rollout.introduce(policy, plans)
        send(self._process.stdin, pack(policy.weights()))
        send(self._process.stdin, pack_plans(plans))
        data = receive(self._process.stdout)
        assert data is not None, "the process ended early"
        self.received += len(data)
        return unpack_groups(data, plans, policy)

    def close(self) -> None:
        assert self._process.stdin is not None and self._process.stdout is not None
        self._process.stdin.close()
        self._process.stdout.close()
        assert self._process.wait(30) == 0


@pytest.fixture
def process() -> Iterator[Callable[[str, str], Subprocess]]:
    made: list[Subprocess] = []

    def start(policy_path: str, scenario_name: str) -> Subprocess:
        made.append(Subprocess(policy_path, scenario_name))
        return made[-1]

    yield start
    for one in made:
        one.close()


POLICIES = {
    "tiny_scenario:Tiny": ("tiny_policy:TinyPolicy", tiny_policy),
    "customer_support": (
        "agentgym.policies.planner.policy:PlannerPolicy",
        PlannerPolicy,
    ),
}


@pytest.mark.parametrize("scenario", POLICIES)
def test_how_groups_are_played_does_not_matter(
    scenario: str, process: Callable[[str, str], Subprocess]
) -> None:
    path, make = POLICIES[scenario]
    expected = weights_after(make, scenario, together)
    child = process(path, scenario)
    for play in (
        one_by_one,
        backwards,
        in_small_batches,
        Elsewhere(make, scenario),
        child,
    ):
        assert weights_after(make, scenario, play) == expected, play
    assert child.received > 0
    assert weights_after(make, scenario, together, exploration=0.2) != expected


def test_tools_that_come_and_go() -> None:
    """Tasks hold closures here, each desk has its tools, and soon they share rows."""
    name = "service_desks"
    expected = weights_after(PlannerPolicy, name, together, iterations=2)
    elsewhere = Elsewhere(PlannerPolicy, name)
    assert weights_after(PlannerPolicy, name, elsewhere, iterations=2) == expected
    assert "<tool>" in expected["slots"]["tool"]


def test_evaluations_and_forgotten_caches_change_nothing() -> None:
    def between(policy: Policy, rollout: Rollout) -> None:
        evaluate(policy, rollout, rollout.scenario.tasks("validation", 0, 6))
        evaluate(policy, rollout, rollout.scenario.tasks("train", 2, 6))

    def forgetful(
        policy: Policy, rollout: Rollout, plans: Sequence[GroupPlan]
    ) -> list[Group]:
        assert isinstance(policy, PlannerPolicy)
        rollout.introduce(policy, plans)
        groups = []
        for plan in plans:
            groups += rollout.groups(policy, [plan])
            policy._states.clear()
            policy._reader.__init__()  # type: ignore[misc]
            policy._forget_tools()
        return groups

    name = "customer_support"
    expected = weights_after(PlannerPolicy, name, together)
    assert weights_after(PlannerPolicy, name, together, between=between) == expected
    assert weights_after(PlannerPolicy, name, forgetful) == expected


def test_faults_are_those_of_the_group() -> None:
    def play(order: Play) -> Any:
        return weights_after(
            PlannerPolicy, "customer_support", order, tool_failure_rate=0.3
        )

    assert play(together) == play(backwards) == play(one_by_one)


def test_a_group_comes_back_whole() -> None:
    scenario = ScenarioRegistry.load("customer_support")
    rollout, policy = Rollout(scenario, max_steps=8), PlannerPolicy()
    plans = Sampler(scenario, 4).plan(6, 8, exploration=0.5, baseline_tokens=900.0)
    groups = rollout.groups(policy, plans)
    groups[0].trajectories[0].failure_text = "ouch"
    data = pack_groups(groups, policy)
    again = unpack_groups(data, plans, policy)
    for one, other in zip(groups, again, strict=True):
        assert other.task is one.task
        for a, b in zip(one.trajectories, other.trajectories, strict=True):
            assert b.task is a.task and b.baseline_tokens == 900.0
            assert b.to_dict() == a.to_dict()
            for left, right in zip(a.steps, b.steps, strict=True):
                assert right.message == left.message and right.calls == left.calls
                assert right.wrong_arguments == left.wrong_arguments
                assert right.state_key == left.state_key
                assert (right.trace is None) == (left.trace is None)
    assert pack_groups(again, policy) == data
    # Small: what siblings have in common is there once.
    assert len(data) < 1000 * sum(len(group.trajectories) for group in groups)
    rollout.close()


def test_bytes_of_something_else() -> None:
    scenario = ScenarioRegistry.load("tiny_scenario:Tiny")
    sampler = Sampler(scenario, 0)
    for data in (b"", b"{}", zlib.compress(b"[[1]]"), zlib.compress(b"{}")):
        with pytest.raises(FormatError, match="can't read these groups or plans"):
            unpack_groups(data, sampler.plan(1, 2), tiny_policy())
    for data in (b"x", zlib.compress(b'[{"size": 1}]')):
        with pytest.raises(FormatError, match="can't read these groups or plans"):
            unpack_plans(data, sampler)


def test_a_plan_that_does_not_say_how_its_task_was_drawn() -> None:
    with pytest.raises(ValueError, match="how its task was drawn"):
        pack_plans([GroupPlan(Task("one", ()), 4)])

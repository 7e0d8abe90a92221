"""The sampler: what went wrong is met again first, in order, within a bound."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from typing import Any

import pytest

from agentgym.core.task import Difficulty, Split, Task, TaskSource
from agentgym.core.trajectory import Group, GroupPlan, Step, Trajectory
from agentgym.errors import ScenarioError
from agentgym.scenarios.base import Scenario
from agentgym.training.sampler import MOST, Sampler, draw_tasks

LEVELS: tuple[Difficulty, ...] = ("easy", "easy", "medium", "hard")


class Numbered(Scenario):
    """Tasks that are named after how they were drawn."""

    name = "numbered"
    description = "Tasks with numbers"
    difficulty = "easy"
    estimated_time = "no time"
    limit = 10_000

    def tasks(self, split: Split, seed: int, count: int) -> list[Task]:
        return [
            Task(f"{split}-{seed}-{i}", (), difficulty=LEVELS[i % 4], split=split)
            for i in range(min(count, self.limit))
        ]

    def create_environment(self, *arguments: Any, **options: Any) -> Any:
        raise NotImplementedError

    def success_criteria(self) -> dict[str, float]:
        return {}


def group(plan: GroupPlan, *solved: bool) -> Group:
    episodes = [Trajectory(plan.task, [Step({})], success=s) for s in solved]
    return Group(plan.task, episodes)


def play(
    sampler: Sampler, tasks: int, solves: Callable[[str], bool]
) -> Sequence[GroupPlan]:
    plans = sampler.plan(tasks, 4)
    sampler.note(plans, [group(plan, solves(plan.task.id)) for plan in plans])
    return plans


def ids(plans: Sequence[GroupPlan]) -> list[str]:
    return [plan.task.id for plan in plans]


def never(name: str) -> bool:
    return False


def test_each_iteration_has_new_tasks_and_says_how_they_are_drawn() -> None:
    sampler = Sampler(Numbered(), seed=0)
    ahead = sampler.ahead(2)
    assert ids(play(sampler, 2, never)) == ["train-1-0", "train-1-1"]
    plans = sampler.plan(2, 8, exploration=0.3, branch=False)
    assert ids(plans) == ["train-2-0", "train-2-1"] == [task.id for task in ahead]
    for position, plan in enumerate(plans):
        assert (plan.position, plan.version, plan.seed) == (position, 1, (0, 1))
        assert (plan.size, plan.exploration, plan.branch) == (8, 0.3, False)
        assert plan.source == TaskSource("train", 2, 2, position)
        assert sampler.task(plan.source) == plan.task
        plain = json.loads(json.dumps(plan.to_dict()))
        assert GroupPlan.from_dict(plain, Sampler(Numbered(), 5).task) == plan


def test_what_was_not_solved_is_met_again_after_a_rest() -> None:
    sampler = Sampler(Numbered(), 0, revisit=0.5)
    play(sampler, 4, never)
    # Places of earlier tasks stay empty until some have rested.
    assert [len(play(sampler, 4, str.isdigit)) for _ in range(2)] == [2, 2]
    assert ids(sampler.plan(4, 4))[2:] == ["train-1-0", "train-1-1"]


def test_what_was_solved_only_fills_up() -> None:
    sampler = Sampler(Numbered(), 0, revisit=0.5)
    play(sampler, 4, lambda name: name == "train-1-0")
    play(sampler, 2, never)
    play(sampler, 2, never)
    assert ids(sampler.plan(4, 4))[2:] == ["train-1-1", "train-1-0"]


def test_only_those_who_started_from_the_beginning_count() -> None:
    sampler = Sampler(Numbered(), 0, revisit=0.5)
    plans = sampler.plan(4, 4)
    first, second = (group(plan, True) for plan in plans)
    fork = Trajectory(first.task, [Step({}, replayed=True)], success=False)
    first.trajectories.append(fork)
    second.trajectories[0].success = False
    sampler.note(plans, [first, second])
    play(sampler, 2, never)
    play(sampler, 2, never)
    assert ids(sampler.plan(2, 4))[1:] == ["train-1-1"]


def test_a_resumed_run_meets_the_same_tasks() -> None:
    def solves(name: str) -> bool:
        return int(name.split("-")[1]) % 3 == 0

    whole = Sampler(Numbered(), 3, revisit=0.4)
    for _ in range(9):
        play(whole, 7, solves)
    resumed = Sampler(Numbered(), 3, revisit=0.4)
    resumed.load_state(json.loads(json.dumps(whole.state())))
    for _ in range(6):
        assert play(resumed, 7, solves) == play(whole, 7, solves)
    assert resumed.state() == whole.state()


def test_the_oldest_are_forgotten() -> None:
    sampler = Sampler(Numbered(), 0, revisit=0.5)
    play(sampler, 2 * (MOST + 10), never)
    play(sampler, 2, lambda name: True)
    play(sampler, 2, lambda name: True)
    assert len(sampler.state()["unsolved"]) == MOST
    assert ids(sampler.plan(2, 4))[1:] == ["train-1-10"]


# Tasks of a difficulty


@pytest.mark.parametrize("difficulty", ["easy", "medium", "hard"])
def test_tasks_of_a_difficulty_can_be_asked_for(difficulty: Difficulty) -> None:
    """Of a scenario that knows nothing of it."""
    sampler = Sampler(Numbered(), 0, revisit=0.5)
    plans = sampler.plan(20, 4, difficulty=difficulty)
    assert len(plans) == 10
    assert {plan.task.difficulty for plan in plans} == {difficulty}
    other = Sampler(Numbered(), 0)
    assert [other.task(plan.source) for plan in plans if plan.source] == [
        plan.task for plan in plans
    ]


def test_a_scenario_with_few_tasks_of_a_difficulty() -> None:
    scenario = Numbered()
    scenario.limit = 6
    assert len(draw_tasks(scenario, "train", 0, 5, "hard")) == 1
    scenario.limit = 3
    with pytest.raises(ScenarioError, match="has no hard tasks in the split 'train'"):
        draw_tasks(scenario, "train", 0, 5, "hard")


@pytest.mark.parametrize(
    "name", ["customer_support", "data_analysis", "code_review", "service_desks"]
)
def test_built_in_scenarios_have_tasks_of_each_difficulty(name: str) -> None:
    from agentgym.scenarios.registry import ScenarioRegistry

    scenario = ScenarioRegistry.load(name)
    levels = {task.difficulty for task in scenario.tasks("train", 0, 64)}
    for level in sorted(levels):
        drawn = draw_tasks(scenario, "train", 1, 4, level)
        assert [task.difficulty for task in drawn] == [level] * 4
        again = draw_tasks(scenario, "train", 1, 4, level)
        assert [t.id for t in again] == [t.id for t in drawn]

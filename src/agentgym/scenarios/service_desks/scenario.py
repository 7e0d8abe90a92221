"""The service_desks scenario: using tools that were not seen in training.

There are 32 desks, from a clinic to a waste office, each with about twelve different
tools. Splits share no tools, so this measures how well an agent uses unseen tools.
Tools return what the task says, as in a task file.
"""

from __future__ import annotations

import random
from typing import Any

from agentgym.core.task import Split, Task
from agentgym.core.trajectory import Trajectory
from agentgym.errors import ScenarioError
from agentgym.scenarios.planned import ConfiguredScenario
from agentgym.scenarios.service_desks.desk import desk_names, load_desk
from agentgym.scenarios.service_desks.tasks import make_line
from agentgym.scenarios.task_file.line import TaskLine, read_task
from agentgym.scenarios.task_file.scenario import TaskFileEnvironment, make_task

_TOGETHER = 4
"""Desks in one iteration: a policy reads a desk's tools once for all its tasks."""


class ServiceDesks(ConfiguredScenario):
    """Requests at desks that each have different tools."""

    name = "service_desks"
    description = "32 desks with 380 tools, from clinic to town hall; unseen tools"
    difficulty = "hard"
    estimated_time = "two minutes"
    options = {"tool_failure_rate": 0.0, "patience": 1}
    measures = ("asking",)

    def tasks(self, split: Split, seed: int, count: int) -> list[Task]:
        """See `Scenario`. Splits share no desks, phrasings or names."""
        desks = _desks(split, seed)
        return [
            _task(desks[i % len(desks)], split, f"{split}-{seed}-{i}")
            for i in range(count)
        ]

    def environment(self) -> type[TaskFileEnvironment]:
        """An environment with the tools of the task's desk."""
        return TaskFileEnvironment

    def measure(self, trajectory: Trajectory) -> dict[str, tuple[float, float]]:
        """How often the agent asks for a value that the request lacks."""
        line: TaskLine = trajectory.task.goal
        if not line.answers or not trajectory.steps:
            return {}
        first = trajectory.steps[0]
        return {"asking": (float(first.correct is True and not first.calls), 1.0)}

    def success_criteria(self) -> dict[str, float]:
        """The targets of a training."""
        return {"tool_reliability": 0.9}

    def training_defaults(self) -> dict[str, Any]:
        """Large batches, to learn what holds for all tools."""
        return {"episodes": 20_000, "eval_every": 5_000, "batch_size": 48}


def _desks(split: Split, seed: int) -> list[str]:
    """In training, a few desks per seed; consecutive iterations cover all of them."""
    names = desk_names(split)
    if split != "train":
        return names
    turns = -(-len(names) // _TOGETHER)
    round_, turn = divmod(seed, turns)
    order = random.Random(f"desks {round_}").sample(names, len(names))
    return order[turn * _TOGETHER : (turn + 1) * _TOGETHER]


def _task(desk: str, split: Split, name: str) -> Task:
    line, problems = read_task(
        make_line(load_desk(desk), split, random.Random(f"{desk} {name}"), name)
    )
    if line is None:
        raise ScenarioError(f"Desk '{desk}' created an invalid task: it {problems[0]}.")
    return make_task(line, split)

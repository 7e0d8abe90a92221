"""The scenario of service desks: learning to use tools, whichever they are.

Thirty-two desks, from a clinic to a waste office, each with about twelve tools of its
own. Those of the splits differ, so what is measured is how well an agent uses tools
that it has never seen. Tools answer what the task says, as in a tasks file.
"""

from __future__ import annotations

import random
from typing import Any

from agentgym.core.task import Split, Task
from agentgym.core.trajectory import Trajectory
from agentgym.errors import ScenarioError
from agentgym.scenarios.generated import ConfiguredScenario
from agentgym.scenarios.service_desks.desk import desk_names, load_desk
from agentgym.scenarios.service_desks.tasks import make_line
from agentgym.scenarios.task_file.line import TaskLine, read_task
from agentgym.scenarios.task_file.scenario import TaskFileEnvironment, make_task

_TOGETHER = 4
"""Desks of one iteration: a policy reads their tools once for all their tasks."""


class ServiceDesks(ConfiguredScenario):
    """Requests at desks with tools of their own."""

    name = "service_desks"
    description = "32 desks with 380 tools, from clinic to town hall: unseen tools"
    difficulty = "hard"
    estimated_time = "two minutes"
    options = {"tool_failure_rate": 0.0, "patience": 1}
    measures = ("asking",)

    def tasks(self, split: Split, seed: int, count: int) -> list[Task]:
        """Requests; splits share no desk, no wording and no name."""
        desks = _desks(split, seed)
        return [
            _task(desks[i % len(desks)], split, f"{split}-{seed}-{i}")
            for i in range(count)
        ]

    def environment(self) -> type[TaskFileEnvironment]:
        """One that offers the tools of the task's desk."""
        return TaskFileEnvironment

    def measure(self, trajectory: Trajectory) -> dict[str, tuple[float, float]]:
        """Whether a request that lacks something is met with a question for it."""
        line: TaskLine = trajectory.task.goal
        if not line.answers or not trajectory.steps:
            return {}
        first = trajectory.steps[0]
        return {"asking": (float(first.correct is True and not first.calls), 1.0)}

    def success_criteria(self) -> dict[str, float]:
        """What to strive for."""
        return {"tool_reliability": 0.9}

    def training_defaults(self) -> dict[str, Any]:
        """Many tasks in an update: what holds for all tools is to be learned."""
        return {"episodes": 20_000, "eval_every": 5_000, "batch_size": 48}


def _desks(split: Split, seed: int) -> list[str]:
    """In training a few at a time, every desk once in a round of iterations."""
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
        raise ScenarioError(f"Desk '{desk}' makes a task that {problems[0]}.")
    return make_task(line, split)

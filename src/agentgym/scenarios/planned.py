"""Base classes for scenarios with environment settings and for generated tasks."""

from __future__ import annotations

import random
from abc import abstractmethod
from collections.abc import Callable, Mapping, Sequence
from typing import Any, ClassVar

from agentgym.core.task import Message, Split, Task
from agentgym.core.tools import Tool, ToolRunner
from agentgym.scenarios.base import Scenario
from agentgym.scenarios.environment import Environment
from agentgym.scenarios.wording import read_json


class ConfiguredScenario(Scenario):
    """A scenario that names its environment class and passes settings to it."""

    options = {"tool_failure_rate": 0.0, "patience": 2}
    max_steps: ClassVar[int] = 10
    """Default limit of decisions in an episode."""

    @abstractmethod
    def environment(self) -> type[Environment]:
        """The class of the environment."""

    def create_environment(
        self,
        tasks: Sequence[Task] = (),
        *,
        max_steps: int | None = None,
        runner: ToolRunner | None = None,
        render_mode: str | None = None,
    ) -> Environment:
        """See `Scenario`."""
        return self.environment()(
            tasks or self.tasks("train", 0, 64),
            max_steps=max_steps or self.max_steps,
            patience=int(self.settings["patience"]),
            tool_failure_rate=float(self.settings["tool_failure_rate"]),
            runner=runner,
            render_mode=render_mode,
        )


class GeneratedScenario(ConfiguredScenario):
    """A scenario that generates each task from its number."""

    @abstractmethod
    def make_task(self, split: Split, rng: random.Random, name: str) -> Task:
        """Returns one task of a split. All randomness must come from `rng`."""

    def tasks(self, split: Split, seed: int, count: int) -> list[Task]:
        """See `Scenario`. The n-th task doesn't depend on `count`."""
        names = [f"{split}-{seed}-{i}" for i in range(count)]
        return [self.make_task(split, random.Random(name), name) for name in names]


def read_tools(package: str, functions: Mapping[str, Callable[..., Any]]) -> list[Tool]:
    """Reads a scenario's tools from `data/tools.json`.

    The file has their definitions, as a model sees them.

    Args:
        package: The package whose `data` folder contains the file.
        functions: What runs each tool, by the tool's name.
    """
    return [
        Tool(**definition, function=functions[definition["name"]], takes_world=True)
        for definition in read_json(package, "tools.json")
    ]


def opening(system_prompt: str, request: str) -> tuple[Message, ...]:
    """The messages that open a task's conversation."""
    return (
        {"role": "system", "content": system_prompt},
        {"role": "user", "content": request},
    )

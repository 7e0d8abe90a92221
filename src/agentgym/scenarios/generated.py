"""Scenarios whose environment has settings, and those that draw tasks by number."""

from __future__ import annotations

import random
from abc import abstractmethod
from collections.abc import Sequence
from typing import ClassVar

from agentgym.core.task import Split, Task
from agentgym.core.tools import ToolRunner
from agentgym.scenarios.base import Scenario
from agentgym.scenarios.environment import Environment


class ConfiguredScenario(Scenario):
    """Says in which environment its tasks are played."""

    options = {"tool_failure_rate": 0.0, "patience": 2}
    max_steps: ClassVar[int] = 10
    """Decisions until an episode is cut off, if nothing else is said."""

    @abstractmethod
    def environment(self) -> type[Environment]:
        """What the tasks are played in."""

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
    """Says how one task is made, too."""

    @abstractmethod
    def make_task(self, split: Split, rng: random.Random, name: str) -> Task:
        """One task of a split, from nothing but the generator."""

    def tasks(self, split: Split, seed: int, count: int) -> list[Task]:
        """See `Scenario`; the n-th task does not depend on the count."""
        names = [f"{split}-{seed}-{i}" for i in range(count)]
        return [self.make_task(split, random.Random(name), name) for name in names]

"""What the built-in scenarios share: drawn tasks, tools from a file, a plan."""

from __future__ import annotations

import json
import random
from abc import abstractmethod
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from importlib.util import find_spec
from typing import Any, ClassVar

from agentgym.core.task import Message, Split, Task
from agentgym.core.tools import FailureKind, Tool, ToolCall, ToolRunner
from agentgym.errors import MissingExtraError
from agentgym.scenarios.base import Scenario
from agentgym.scenarios.environment import RIGHT, Environment, Verdict, questions
from agentgym.scenarios.wording import read_json


class ConfiguredScenario(Scenario):
    """A scenario that names its environment class and passes settings to it."""

    options = {"tool_failure_rate": 0.0, "patience": 2}
    max_steps: ClassVar[int] = 10
    """Default limit of decisions in an episode."""
    extra: ClassVar[str] = ""
    """The extra that installs what the tools work with."""
    needs: ClassVar[Sequence[str]] = ()
    """The modules that come with it."""

    def __init__(self, **options: Any) -> None:
        """Creates the scenario.

        Raises:
            MissingExtraError: The packages that the tools need aren't installed.
        """
        super().__init__(**options)
        if not all(map(find_spec, self.needs)):
            raise MissingExtraError(f"The scenario '{self.name}'", self.extra)

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


@dataclass(frozen=True, slots=True)
class Milestone:
    """One step of a task's plan: a call, or a value to ask the user for."""

    tool: str
    arguments: Mapping[str, Any] = field(default_factory=dict)
    ask: str = ""


class PlannedEnvironment(Environment):
    """An environment that judges calls by a plan."""

    def reset_task(self, task: Task, seed: int = 0) -> None:
        """Starts an episode of the task."""
        super().reset_task(task, seed)
        self._made: set[str] = set()

    @property
    @abstractmethod
    def finished(self) -> bool:
        """Whether everything is done, so that only the final answer is right."""

    def judge_message(self, content: str) -> Verdict:
        """The final answer is right once everything is done."""
        closes = self.finished and not questions(content)
        return RIGHT if closes else Verdict(False, FailureKind.NO_CALL)

    def repeats(self, call: ToolCall) -> bool:
        """Whether the agent made this call before; remembers it."""
        made = f"{call.name} {json.dumps(call.arguments, sort_keys=True)}"
        known = made in self._made
        self._made.add(made)
        return known


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

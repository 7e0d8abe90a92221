"""What a scenario is: tasks, an environment, rewards and targets."""

from __future__ import annotations

import json
from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

from agentgym.core.task import Difficulty, Message, Split, Task
from agentgym.core.tools import FailureKind, ToolRunner
from agentgym.core.trajectory import Step, Trajectory
from agentgym.scenarios.environment import Environment

_DRAWS_OF_DIFFICULTY = 6
"""Times that `Scenario.tasks_of` draws, twice as many tasks each time."""


@dataclass(frozen=True, slots=True)
class RewardScale:
    """Weights of the parts of a reward. Their sum is multiplied by `scale`.

    Attributes:
        outcome: How far the episode got (0 to 1), broadcast to every step.
        call_succeeded: A step whose tool call was right and ran.
        call_failed: A step that was wrong or failed.
        call_misled: The right tool with wrong arguments: half wrong.
        fewer_tokens: The episode solved its task with fewer tokens than the
            untrained policy spends on a task, broadcast.
        fast_answer: The episode solved its task in as few decisions as possible,
            broadcast. Times are reported, never rewarded: a reward that depends on
            the machine's load can't be reproduced.
    """

    outcome: float = 20.0
    call_succeeded: float = 10.0
    call_failed: float = -20.0
    call_misled: float = -10.0
    fewer_tokens: float = 5.0
    fast_answer: float = 3.0
    scale: float = 0.05


class Scenario(ABC):
    """What an agent is trained on. See `docs/writing-a-scenario.md`."""

    name: ClassVar[str]
    description: ClassVar[str]
    difficulty: ClassVar[Difficulty]
    estimated_time: ClassVar[str]
    """How long training takes with the defaults, in words."""
    system_prompt: ClassVar[str] = ""
    rewards: ClassVar[RewardScale] = RewardScale()
    options: ClassVar[Mapping[str, Any]] = {}
    """Settings that only this scenario reads, with defaults."""
    takes_agent_tools: ClassVar[bool] = False
    """Whether tasks can use the tools that an agent brings (`agent_tools`)."""
    measures: ClassVar[Sequence[str]] = ()
    """Names of the scenario's own metrics; `measure` returns them."""

    def __init__(self, **options: Any) -> None:
        self.settings: dict[str, Any] = {**self.options, **options}

    @abstractmethod
    def tasks(self, split: Split, seed: int, count: int) -> Sequence[Task]:
        """Tasks of a split, the same for the same seed.

        Tasks of different splits must share no wording and no entity that an agent
        could memorise. The trainer passes a new seed in every iteration.
        """

    def tasks_of(
        self, difficulty: Difficulty, split: Split, seed: int, count: int
    ) -> Sequence[Task]:
        """Tasks of one difficulty, the same for the same arguments; maybe fewer.

        By default, takes them from `tasks` and draws more until there are enough.
        Override it if your scenario can draw them directly.
        """
        size, found = count, list[Task]()
        for _ in range(_DRAWS_OF_DIFFICULTY):
            drawn = self.tasks(split, seed, size)
            found = [task for task in drawn if task.difficulty == difficulty]
            if len(found) >= count or len(drawn) < size:
                break
            size *= 2
        return found[:count]

    @abstractmethod
    def create_environment(
        self,
        tasks: Sequence[Task] = (),
        *,
        max_steps: int = 10,
        runner: ToolRunner | None = None,
    ) -> Environment:
        """An environment for tasks of this scenario."""

    def broadcast_rewards(self, trajectory: Trajectory) -> list[float]:
        """One reward for each step: the episode's outcome plus the step's own part.

        Raises:
            ValueError: The trajectory wasn't judged. A missing reward is never 0.
        """
        if trajectory.outcome is None or trajectory.success is None:
            raise ValueError("the trajectory has not been judged")
        r = self.rewards
        shared = r.outcome * trajectory.outcome
        if trajectory.success:
            limit = trajectory.baseline_tokens
            if limit is not None and trajectory.tokens < limit:
                shared += r.fewer_tokens
            if len(trajectory.steps) <= trajectory.task.best_steps:
                shared += r.fast_answer
        return [r.scale * (shared + self._bonus(step)) for step in trajectory.steps]

    def _bonus(self, step: Step) -> float:
        if step.failure is FailureKind.BAD_ARGUMENTS:
            return self.rewards.call_misled
        if step.correct is False:
            return self.rewards.call_failed
        # A right call that a fault kept from running is neither praised nor blamed.
        ran = bool(step.calls) and all(result.ok for result in step.results)
        return self.rewards.call_succeeded if ran and step.correct else 0.0

    def calculate_reward(
        self, state: Sequence[Message], action: Message, next_state: Sequence[Message]
    ) -> float:
        """Reward of a single transition.

        Seen alone, a transition shows only whether its tool calls ran: it earns
        `call_succeeded` or `call_failed` for each of them, scaled.
        """
        total = 0.0
        for message in next_state[len(state) :]:
            if message.get("role") != "tool":
                continue
            try:
                content = json.loads(message.get("content") or "")
            except json.JSONDecodeError:
                content = {"error": "no JSON"}
            failed = isinstance(content, dict) and "error" in content
            total += self.rewards.call_failed if failed else self.rewards.call_succeeded
        return self.rewards.scale * total

    def define_trainable_components(self) -> dict[str, bool]:
        """Which components of the agent learn; the others never change."""
        return {
            "tool_selection": True,
            "parameter_selection": True,
            "tool_execution": False,
            "output_generation": False,
        }

    def measure(self, trajectory: Trajectory) -> dict[str, tuple[float, float]]:
        """The scenario's own metrics: what an episode reached, and what was possible.

        A metric is the sum of the former over the sum of the latter, over all
        episodes. Leave out metrics that don't apply to the episode.
        """
        return {}

    @abstractmethod
    def success_criteria(self) -> dict[str, float]:
        """Targets by metric name, for example `{"tool_reliability": 0.95}`."""

    def training_defaults(self) -> dict[str, Any]:
        """Settings tuned for this scenario; the user's settings win."""
        return {}

    def language_model_defaults(self) -> dict[str, Any]:
        """The same for policies that are language models.

        They learn from far fewer episodes, each of which costs far more, so they keep
        their own settings. The length of an episode is the same for all.
        """
        own = self.training_defaults()
        return {name: own[name] for name in ("max_steps",) if name in own}

"""The engine contract: what learns.

An engine gets a `Job`, everything that was resolved and loaded once, and a `Context`,
what it needs of the run around it. It doesn't use the store or start processes: `runs/`
decides where a run lives.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar

from agentgym.core.config import TrainingConfig
from agentgym.core.control import ADJUSTABLE, Control
from agentgym.core.events import EventBus, Warned
from agentgym.policies.registry import create_policy, policy_class, policy_options

if TYPE_CHECKING:
    from agentgym.policies.base import Policy
    from agentgym.scenarios.base import Scenario
    from agentgym.training.checkpoint import Checkpoint, CheckpointFolder
    from agentgym.training.loop import LoopResult
    from agentgym.training.rollout import Rollout
    from agentgym.utils.assets import DownloadProgress

Warn = Callable[[str], None]
"""Shows the user a warning."""


@dataclass(frozen=True, slots=True)
class Job:
    """A training whose settings are resolved, with everything they name loaded once.

    Attributes:
        config: The settings in force.
        scenario: With its options and the tools that the agent brings.
        engine: Carries the job out.
        trainable: Components that learn; the others keep every bit.
        targets: What to reach, by metric name.
        agents: The agents that play, as loaded, by the name the settings give them.
        make_rollout: Opens what plays the episodes; the caller closes it.
    """

    config: TrainingConfig
    scenario: Scenario
    engine: Engine
    trainable: frozenset[str]
    targets: Mapping[str, float]
    agents: Mapping[str, Any]
    make_rollout: Callable[[Warn], Rollout]

    def fetch(self, progress: DownloadProgress | None = None) -> None:
        """Downloads what the policy needs.

        Raises:
            AssetError: It can't be downloaded.
        """
        policy_class(self.config.policy).fetch(policy_options(self.config), progress)

    def make_policy(self) -> Policy:
        """An untrained policy; the same for the same seed."""
        config = self.config
        return create_policy(config.policy, config.seed, policy_options(config))


@dataclass(frozen=True, slots=True)
class Context:
    """What an engine needs of the run around it.

    Attributes:
        events: Receives what happens.
        control: Commands for the run.
        checkpoints: Where to save.
        start: Checkpoint to resume from; None to begin.
    """

    events: EventBus
    control: Control
    checkpoints: CheckpointFolder
    start: Checkpoint | None = None

    def warn(self, text: str) -> None:
        """Sends a warning to every listener."""
        self.events.emit(Warned(text))


class Engine(ABC):
    """Trains: subclass it to add your own training algorithm."""

    name: ClassVar[str]
    training_defaults: ClassVar[Mapping[str, Any]] = {}
    """Settings that win over those of scenario and policy, but not over the user's."""
    resumable: ClassVar[bool] = True
    """Whether an interrupted run can be resumed."""
    adjustable: ClassVar[Sequence[str]] = ADJUSTABLE
    """Settings that can be changed while a run is training."""

    def check(self, config: TrainingConfig) -> None:  # noqa: B027
        """Checks settings before anything starts.

        Args:
            config: Resolved settings.

        Raises:
            ConfigError: A setting is invalid, or this engine doesn't use it.
        """

    @abstractmethod
    def train(self, job: Job, context: Context) -> LoopResult:
        """Trains, and measures the result.

        Raises:
            KeyboardInterrupt: The run was interrupted; its state is saved.
        """

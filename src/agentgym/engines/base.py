"""The engine contract: carry out a training, or go on with one."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, ClassVar

from agentgym.core.config import TrainingConfig
from agentgym.core.control import Control
from agentgym.core.events import Listener
from agentgym.core.result import TrainingResult


class Engine(ABC):
    """Carries out trainings and keeps what comes out."""

    name: ClassVar[str]
    training_defaults: ClassVar[Mapping[str, Any]] = {}
    """Settings that stand where the user set none, whatever scenario and policy say."""
    resumable: ClassVar[bool] = True
    """Whether a run whose process is gone can be gone on with."""

    def check(self, config: TrainingConfig) -> None:  # noqa: B027
        """Finds out what is wrong with settings before anything starts.

        Args:
            config: Resolved settings.

        Raises:
            ConfigError: A setting is wrong, or this engine does not read it.
        """

    @abstractmethod
    def train(
        self,
        config: TrainingConfig,
        *,
        home: Path | None,
        listeners: Sequence[Listener],
        control: Control,
    ) -> TrainingResult:
        """Carries out a new run.

        Args:
            config: What the user asked for; the engine resolves defaults.
            home: Where everything is kept; None for the usual place.
            listeners: Hear every event of the run.
            control: Orders for the run.

        Raises:
            KeyboardInterrupt: The run was interrupted; its state is saved.
        """

    @abstractmethod
    def resume(
        self,
        run_id: str,
        *,
        home: Path | None,
        listeners: Sequence[Listener],
        control: Control,
    ) -> TrainingResult:
        """Goes on with a run whose process is gone; see `train`.

        Raises:
            UsageError: Its engine cannot.
        """

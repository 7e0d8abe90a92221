"""The engine contract: carry out a training, or go on with one."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from pathlib import Path
from typing import ClassVar

from agentgym.core.config import TrainingConfig
from agentgym.core.control import Control
from agentgym.core.events import Listener
from agentgym.core.result import TrainingResult


class Engine(ABC):
    """Runs the loop of `core/trainer.py` somewhere and keeps what comes out."""

    name: ClassVar[str]

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
        """Goes on with a run whose process is gone; see `train`."""

"""Runs that live in this process."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from agentgym.core.control import Control
from agentgym.core.events import Listener
from agentgym.core.result import TrainingResult
from agentgym.engines.base import Job
from agentgym.runs.execute import execute
from agentgym.store import Store


@dataclass(frozen=True, slots=True)
class Here:
    """Carries a run out and returns when it is done.

    Attributes:
        listeners: Receive every event.
        control: Orders for the run.
    """

    listeners: Sequence[Listener] = ()
    control: Control | None = None

    def launch(
        self, store: Store, run_id: str, job: Job | None = None
    ) -> TrainingResult:
        """See `Launcher.launch`; raises what `execute` raises."""
        return execute(
            store, run_id, job, listeners=self.listeners, control=self.control
        )

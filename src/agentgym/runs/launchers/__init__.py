"""Launchers: where a run lives.

A launcher is given a run that the store knows, and sees to it that the run is carried
out: `here`, in this process, or in a `child` that outlives it.
"""

from __future__ import annotations

from typing import Protocol, TypeVar

from agentgym.engines.base import Job
from agentgym.store import Store

T_co = TypeVar("T_co", covariant=True)


class Launcher(Protocol[T_co]):
    """Sees to it that a run is carried out."""

    def launch(self, store: Store, run_id: str, job: Job | None = None) -> T_co:
        """Begins a run, or continues it from its last checkpoint.

        Args:
            store: Keeps the run.
            run_id: The whole id.
            job: The run's job, if it is resolved already.
        """

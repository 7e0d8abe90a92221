"""Writes a run's events into the store, and shows that its process is alive."""

from __future__ import annotations

import contextlib
import threading
from typing import Self

from agentgym.core.events import BaselineMeasured, EvaluationDone, Event, RunFinished
from agentgym.errors import StoreError
from agentgym.runs.view import RunView
from agentgym.store import RunFields, Store

BEAT_SECONDS = 2.0


class RunRecorder:
    """The listener that stores the events of a run of this process.

    Events are in the store when the call returns, so also before the checkpoint that
    follows them. Between entering and leaving, a thread sends heartbeats.

        with RunRecorder(store, run_id) as recorder:
            events.subscribe(recorder, essential=True)

    Attributes:
        attempt: This process's attempt at the run.
        view: What the run has reported so far, in all its attempts.

    Raises:
        UsageError: On entering: another process is running it.
    """

    def __init__(self, store: Store, run_id: str) -> None:
        self.attempt = 0
        self.view = RunView(run_id)
        self._store = store
        self._run_id = run_id
        self._done = threading.Event()
        self._thread = threading.Thread(
            target=self._beat, name="agentgym-heartbeat", daemon=True
        )

    def __enter__(self) -> Self:
        """Starts the attempt."""
        self.attempt = self._store.begin_attempt(self._run_id)
        self.view.read(self._store)
        self._thread.start()
        return self

    def __exit__(self, *problem: object) -> None:
        """Ends the heartbeat."""
        self._done.set()
        self._thread.join()

    def __call__(self, event: Event) -> None:
        """Stores an event."""
        store, run_id, view = self._store, self._run_id, self.view
        view.apply(event)
        if isinstance(event, BaselineMeasured | EvaluationDone) and event.sample:
            store.add_trajectories(run_id, self.attempt, view.iteration, event.sample)
        fields: RunFields = {
            "status": view.status,
            "episodes": view.episodes,
            "error": view.error,
        }
        if isinstance(event, RunFinished):
            fields |= {"model": event.result["model"], "result": event.result}
        store.append_events(run_id, self.attempt, [event], **fields)

    def _beat(self) -> None:
        while not self._done.wait(BEAT_SECONDS):
            # If the database is busy now, the next heartbeat tries again.
            with contextlib.suppress(StoreError):
                if not self._store.beat(self._run_id, self.attempt):
                    return

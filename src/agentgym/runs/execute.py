"""One run, carried out in this process: from its record to its model."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from agentgym.core.config import TrainingConfig
from agentgym.core.control import Control, deferred_interrupt
from agentgym.core.events import (
    INTERRUPTED,
    EventBus,
    Listener,
    RunFailed,
    RunFinished,
    RunStarted,
    RunStopped,
)
from agentgym.core.result import TrainingResult
from agentgym.engines.base import Context, Job
from agentgym.errors import AgentGymError
from agentgym.runs.lifecycle import DONE, running_elsewhere
from agentgym.runs.publish import RESULT, publish, published
from agentgym.runs.recorder import RunRecorder
from agentgym.runs.resolve import resolve
from agentgym.store import Store
from agentgym.store.files import file_errors
from agentgym.training.checkpoint import CheckpointFolder
from agentgym.utils.files import file_lock


def execute(
    store: Store,
    run_id: str,
    job: Job | None = None,
    *,
    listeners: Sequence[Listener] = (),
    control: Control | None = None,
) -> TrainingResult:
    """Begins a run or continues it, trains, measures and publishes.

    A run that has left its result already just gives it.

    Args:
        store: Keeps the run.
        run_id: The whole id.
        job: The run's job, if it is resolved already.
        listeners: Receive every event.
        control: Orders for the run.

    Raises:
        UsageError: Another process is running it.
        FormatError: None of its checkpoints can be read.
        KeyboardInterrupt: The run was interrupted; its state is saved.
    """
    control = control or Control()
    folder = store.runs_dir / run_id
    with _exclusive(store, run_id, folder):
        events = EventBus()
        if (result := published(store, run_id)) is not None:
            with contextlib.ExitStack() as stack:
                if store.get_run(run_id).status not in DONE:
                    # Killed after publishing its model, before it could report that.
                    recorder = stack.enter_context(RunRecorder(store, run_id))
                    events.subscribe(recorder, essential=True)
                _subscribe(events, listeners)
                _finish(events, folder, result)
            return result
        if job is None:
            config = TrainingConfig.from_dict(store.get_run(run_id).config)
            job = resolve(config, resolved=True)
        checkpoints = CheckpointFolder(store.artifacts.within(f"runs/{run_id}"))
        start, warning = checkpoints.load()
        # They were meant for the previous process.
        store.take_commands(run_id)
        at = None if start is None else start.progress.iteration
        context = Context(events, control, checkpoints, start)
        with RunRecorder(store, run_id) as recorder:
            events.subscribe(recorder, essential=True)
            _subscribe(events, listeners)
            with _told(events), _commands(store, run_id, control):
                events.emit(RunStarted(run_id, job.config.to_dict(), at))
                if warning:
                    context.warn(warning)
                trained = job.engine.train(job, context)
                result = publish(store, run_id, job, trained)
                _finish(events, folder, result)
                with file_errors(folder):
                    checkpoints.clear()
        return result


@contextlib.contextmanager
def _exclusive(store: Store, run_id: str, folder: Path) -> Iterator[None]:
    """Keeps other processes from carrying out the same run."""
    with contextlib.ExitStack() as stack:
        with file_errors(folder):
            folder.mkdir(parents=True, exist_ok=True)
            try:
                stack.enter_context(file_lock(folder / "lock", timeout=0))
            except TimeoutError:
                raise running_elsewhere(store.get_run(run_id)) from None
        yield


@contextlib.contextmanager
def _told(events: EventBus) -> Iterator[None]:
    """Tells everyone who listens how a run ends that does not finish."""
    try:
        yield
    except KeyboardInterrupt:
        with contextlib.suppress(AgentGymError):
            events.emit(RunStopped(INTERRUPTED))
        raise
    except Exception as error:
        # The caller needs the first error.
        with contextlib.suppress(AgentGymError):
            events.emit(RunFailed(_one_line(error)))
        raise


@contextlib.contextmanager
def _commands(store: Store, run_id: str, control: Control) -> Iterator[None]:
    """Connects the control to Ctrl-C and to commands from other processes."""
    own = control.source

    def source() -> list[tuple[str, dict[str, Any]]]:
        others = store.take_commands(run_id)
        return [*own(), *others] if own is not None else others

    control.source = source
    try:
        with deferred_interrupt(control):
            yield
    finally:
        control.source = own


def _subscribe(events: EventBus, listeners: Sequence[Listener]) -> None:
    for listener in listeners:
        events.subscribe(listener)


def _finish(events: EventBus, folder: Path, result: TrainingResult) -> None:
    with file_errors(folder):
        result.save(folder / RESULT)
    events.emit(RunFinished(result.to_dict()))


def _one_line(error: Exception) -> str:
    text = " ".join(str(error).split())
    return (
        text if isinstance(error, AgentGymError) else f"{type(error).__name__}: {text}"
    )

"""What can be done to a run, and in which status: the one place for these rules.

    pause   running                         asks the run's process
    stop    running, paused                 asks the run's process
    adjust  running, paused                 asks the run's process
    resume  paused                          asks the run's process
            queued, interrupted, failed     carries the run out, where the launcher says
            finished, stopped               gives its result again
    delete  all but running and paused      removes the run and its files

The command line, `Trainer` and everything else that steers runs calls these functions,
so all of them share the same rules and messages.
"""

from __future__ import annotations

import secrets
import shutil
import time
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, TypeVar

from agentgym.core.control import Control
from agentgym.core.result import TrainingResult
from agentgym.engines import get_engine
from agentgym.errors import UsageError
from agentgym.store.files import file_errors
from agentgym.store.rows import UNDER_WAY

if TYPE_CHECKING:
    from agentgym.core.events import Listener
    from agentgym.engines.base import Job
    from agentgym.runs.launchers import Launcher
    from agentgym.store import RunRow, Store

T = TypeVar("T")

DONE = ("finished", "stopped")
"""Statuses of a run that has its result."""
_BROKEN = ("interrupted", "failed")
_IDLE = ("queued", *_BROKEN, *DONE)
_ALLOWED: Mapping[str, tuple[str, ...]] = {
    "paused": ("running",),
    "stopped": UNDER_WAY,
    "adjusted": UNDER_WAY,
    "resumed": ("paused", *_IDLE),
    "deleted": _IDLE,
}
"""The statuses in which each action on a run is allowed."""
_TICK = 0.1


def submit(store: Store, job: Job, launcher: Launcher[T]) -> T:
    """Enters a new run into the store and launches it."""
    config, run_id = job.config, secrets.token_hex(4)
    store.create_run(
        run_id,
        scenario=config.scenario,
        policy=config.policy,
        engine=config.engine,
        seed=config.seed,
        config=config.to_dict(),
        targets=job.targets,
        status="queued",
    )
    return launcher.launch(store, run_id, job)


def resume(
    store: Store, ref: str, launcher: Launcher[T], job: Job | None = None
) -> T | None:
    """Continues a run; see the table above.

    Args:
        store: Keeps the run.
        ref: Its id, the first characters of it, or "last".
        launcher: Carries it out, if no process does.
        job: The run's job, if it is resolved already.

    Returns:
        What the launcher gives; None for a paused run, whose own process continues.

    Raises:
        RunNotFoundError: No run has that id.
        UsageError: The run is running, or its engine can't resume runs.
    """
    run = check(store, ref, "resumed")
    if run.status == "paused":
        store.send_command(run.id, "resume")
        return None
    return launcher.launch(store, run.id, job)


def pause(store: Store, ref: str) -> RunRow:
    """Asks a run to save and wait after its current iteration.

    Raises:
        UsageError: It is not running.
    """
    return _ask(store, ref, "paused", "pause", {})


def stop(store: Store, ref: str) -> RunRow:
    """Asks a run to end early; what it learned is measured and saved as a model.

    Raises:
        UsageError: It is neither running nor paused.
    """
    return _ask(store, ref, "stopped", "stop", {})


def adjust(store: Store, ref: str, changes: Mapping[str, float]) -> RunRow:
    """Asks a run to continue with other settings; see `control.ADJUSTABLE`.

    Raises:
        ConfigError: A setting can't be changed, or not to that value.
        UsageError: The run is neither running nor paused.
    """
    run = check(store, ref, "adjusted")
    if not changes:
        raise UsageError("Nothing to adjust. Add NAME=VALUE, such as entropy=0.01.")
    Control().adjust(**changes)
    fixed = sorted(set(changes) - set(get_engine(run.engine).adjustable))
    if fixed:
        raise UsageError(
            f"Engine '{run.engine}' can't change {', '.join(fixed)} during training."
        )
    store.send_command(run.id, "adjust", dict(changes))
    return run


def delete(store: Store, ref: str) -> RunRow:
    """Removes a run with its events, episodes and files. Its model stays.

    Raises:
        UsageError: It is running or paused.
    """
    run = check(store, ref, "deleted")
    folder = store.runs_dir / run.id
    store.delete_run(run.id)
    with file_errors(folder):
        store.artifacts.delete(f"runs/{run.id}")
        shutil.rmtree(folder, ignore_errors=True)
    return run


def check(store: Store, ref: str, wanted: str) -> RunRow:
    """Finds a run that allows an action, such as "resumed".

    Raises:
        RunNotFoundError: No run has that id.
        UsageError: It can't; the message says why, and what to do instead.
    """
    run = store.get_run(ref)
    if run.status not in _ALLOWED[wanted]:
        if wanted == "resumed":
            raise running_elsewhere(run)
        raise UsageError(_refusal(run, wanted))
    if wanted == "resumed" and not _resumable(store, run):
        raise UsageError(
            f"Run {run.id} can't be resumed: engine '{run.engine}' doesn't support it. "
            "Train again."
        )
    return run


def settled(store: Store, run_id: str, wanted: str, seconds: float) -> RunRow:
    """Waits until a run is what was asked of it, has ended, or the time is over."""
    deadline = time.monotonic() + seconds
    while True:
        run = store.get_run(run_id)
        waiting = run.status in UNDER_WAY and run.status != wanted
        if not waiting or time.monotonic() > deadline:
            return run
        time.sleep(_TICK)


def outcome(
    store: Store, ref: str, listeners: Sequence[Listener] = ()
) -> TrainingResult:
    """Follows a run in another process until its result.

    Args:
        store: Keeps the run.
        ref: Its id, the first characters of it, or "last".
        listeners: Receive what happens from now on.

    Raises:
        UsageError: It ended without a result.
    """
    run = store.get_run(ref)
    seen = run.last_seq
    while run.status in UNDER_WAY:
        time.sleep(_TICK)
        run = store.get_run(run.id)
        for logged in store.events(run.id, after=seen) if listeners else ():
            seen = logged.seq
            for listener in listeners:
                listener(logged.event)
    if run.result is None:
        why = f": {run.error}" if run.error else "."
        raise UsageError(f"Run {run.id} is {run.status}{why}")
    return TrainingResult.from_dict(run.result)


def running_elsewhere(run: RunRow) -> UsageError:
    """Raises an error if another process is running it."""
    where = f" in process {run.pid} on {run.host}" if run.pid else ""
    return UsageError(
        f"Run {run.id} is already running{where}. Watch it with: agentgym runs watch "
        f"{run.id}"
    )


def _ask(
    store: Store, ref: str, wanted: str, command: str, arguments: dict[str, float]
) -> RunRow:
    run = check(store, ref, wanted)
    store.send_command(run.id, command, arguments)
    return run


def _refusal(run: RunRow, wanted: str) -> str:
    text, advice = f"Run {run.id} can't be {wanted}: it is {run.status}.", ""
    if run.status == wanted == "paused":
        text, advice = f"Run {run.id} is already paused.", "resume"
    elif run.status in UNDER_WAY:
        advice = "stop"
    elif run.status in _BROKEN and get_engine(run.engine).resumable:
        advice = "resume"
    if advice:
        text += f" {advice.capitalize()} it with: agentgym runs {advice} {run.id}"
    return text


def _resumable(store: Store, run: RunRow) -> bool:
    if run.status not in _BROKEN or get_engine(run.engine).resumable:
        return True
    from agentgym.runs.publish import published

    # Killed after publishing its model, before it could report that.
    return published(store, run.id) is not None

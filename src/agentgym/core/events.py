"""What a training reports: typed events, the log entry, and the bus that carries them.

The order within one attempt at a run, where `?` may be missing and `*` may repeat:

    RunStarted  BaselineMeasured?
    (IterationDone  EvaluationDone?  CheckpointSaved?  Adjusted?  (Paused Resumed)?)*
    RunStopped?
    EvaluationDone(split="heldout")  RunFinished

`BaselineMeasured` is missing in a run that was resumed after it. A run that was
stopped early still ends with `RunFinished`; one that was interrupted ends with
`RunStopped` alone and can be resumed. A run that failed ends with `RunFailed`. `Warned`
may come at any time.

A resumed run is a new attempt. Its `RunStarted(resumed_from=k)` revokes what earlier
attempts reported after the checkpoint of iteration k; see `runs.view`.
"""

from __future__ import annotations

import dataclasses
import queue
import threading
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any, ClassVar, Final

INTERRUPTED: Final = "interrupted"
"""Reason of a `RunStopped` after which the run can be resumed."""

_WAITING = 1024


@dataclass(frozen=True, slots=True)
class Event:
    """Something that happened in a run."""

    kind: ClassVar[str] = "event"

    def to_dict(self) -> dict[str, Any]:
        """The event as JSON, `kind` included, without bulky fields."""
        return {"kind": self.kind, **{n: getattr(self, n) for n in _names(type(self))}}

    @staticmethod
    def from_dict(payload: Mapping[str, Any]) -> Event:
        """Reads what `to_dict` wrote, of this version or of a newer one.

        Fields that this version doesn't know are left out. An event that it can't read
        at all becomes an `UnknownEvent`, so readers never break.
        """
        kind = _KINDS.get(str(payload.get("kind")))
        if kind is None:
            return UnknownEvent(dict(payload))
        try:
            return kind(**{n: payload[n] for n in _names(kind) if n in payload})
        except TypeError:
            return UnknownEvent(dict(payload))


@dataclass(frozen=True, slots=True)
class RunStarted(Event):
    """An attempt at a run starts.

    Attributes:
        config: The settings in force (`TrainingConfig.to_dict`).
        resumed_from: Iteration of the checkpoint it resumes from; None if it starts
            from scratch.
    """

    kind: ClassVar[str] = "run_started"
    run_id: str
    config: dict[str, Any]
    resumed_from: int | None = None


@dataclass(frozen=True, slots=True)
class BaselineMeasured(Event):
    """The untrained policy was measured on the validation tasks."""

    kind: ClassVar[str] = "baseline_measured"
    metrics: dict[str, Any]
    sample: tuple[dict[str, Any], ...] = field(
        default=(), repr=False, metadata={"bulky": True}
    )
    """Some trajectories, failures first."""


@dataclass(frozen=True, slots=True)
class IterationDone(Event):
    """One update was made.

    Attributes:
        iteration: Counts from 1.
        episodes: Trained on so far, this iteration included.
        values: mean_reward, success, reliability (all of the episodes sampled for
            this update), loss, entropy, gradient_norm, clipped (0 or 1),
            learning_rate, groups, groups_without_variance, unrewarded, broken,
            episodes_per_second, tokens (a mean for each episode) and failures
            (a count for each kind).
    """

    kind: ClassVar[str] = "iteration_done"
    iteration: int
    episodes: int
    values: dict[str, Any]


@dataclass(frozen=True, slots=True)
class EvaluationDone(Event):
    """The policy was measured, greedily, on a split (`TrainingMetrics.to_dict`)."""

    kind: ClassVar[str] = "evaluation_done"
    iteration: int
    episodes: int
    split: str
    metrics: dict[str, Any]
    sample: tuple[dict[str, Any], ...] = field(
        default=(), repr=False, metadata={"bulky": True}
    )
    """Some trajectories, failures first."""


@dataclass(frozen=True, slots=True)
class CheckpointSaved(Event):
    """The run can be resumed from here."""

    kind: ClassVar[str] = "checkpoint_saved"
    iteration: int
    path: str


@dataclass(frozen=True, slots=True)
class Paused(Event):
    """The run waits for a request to resume."""

    kind: ClassVar[str] = "paused"
    iteration: int


@dataclass(frozen=True, slots=True)
class Resumed(Event):
    """The run continues after a pause."""

    kind: ClassVar[str] = "resumed"
    iteration: int


@dataclass(frozen=True, slots=True)
class Adjusted(Event):
    """Settings were changed; they apply from the next iteration on."""

    kind: ClassVar[str] = "adjusted"
    iteration: int
    changes: dict[str, float]


@dataclass(frozen=True, slots=True)
class Warned(Event):
    """Something is wrong, but the run continues."""

    kind: ClassVar[str] = "warned"
    text: str


@dataclass(frozen=True, slots=True)
class RunStopped(Event):
    """Training ended early.

    With the reason `INTERRUPTED` the attempt is over and the run can be resumed. With
    any other, what was learned is evaluated and saved, and `RunFinished` follows.
    """

    kind: ClassVar[str] = "run_stopped"
    reason: str


@dataclass(frozen=True, slots=True)
class RunFinished(Event):
    """The model is saved (`TrainingResult.to_dict`)."""

    kind: ClassVar[str] = "run_finished"
    result: dict[str, Any]


@dataclass(frozen=True, slots=True)
class RunFailed(Event):
    """The run failed; `error` is the line to show."""

    kind: ClassVar[str] = "run_failed"
    error: str


@dataclass(frozen=True, slots=True)
class UnknownEvent(Event):
    """An event that this version can't read: a newer AgentGym wrote it."""

    kind: ClassVar[str] = "unknown"
    payload: dict[str, Any]

    def to_dict(self) -> dict[str, Any]:
        """The payload as it was read, with its own kind."""
        return dict(self.payload)


@dataclass(frozen=True, slots=True)
class LoggedEvent:
    """An event with its place in the log of its run.

    Attributes:
        attempt: The attempt that reported it, from 1; each resume starts a new one.
        seq: Its place in the run's log: 1, 2, 3, without gaps.
        time: Seconds since 1970, by the writer's clock.
    """

    run_id: str
    attempt: int
    seq: int
    time: float
    event: Event

    def to_dict(self) -> dict[str, Any]:
        """The entry as JSON, with the event under `event`."""
        values = {n: getattr(self, n) for n in ("run_id", "attempt", "seq", "time")}
        return {**values, "event": self.event.to_dict()}

    @classmethod
    def from_dict(cls, values: Mapping[str, Any]) -> LoggedEvent:
        """Reads what `to_dict` wrote."""
        return cls(
            str(values["run_id"]),
            int(values["attempt"]),
            int(values["seq"]),
            float(values["time"]),
            Event.from_dict(values["event"]),
        )


_KINDS: dict[str, type[Event]] = {
    kind.kind: kind
    for kind in (
        RunStarted,
        BaselineMeasured,
        IterationDone,
        EvaluationDone,
        CheckpointSaved,
        Paused,
        Resumed,
        Adjusted,
        Warned,
        RunStopped,
        RunFinished,
        RunFailed,
    )
}


def _names(kind: type[Event]) -> list[str]:
    fields = dataclasses.fields(kind)
    return [field.name for field in fields if not field.metadata.get("bulky")]


Listener = Callable[[Event], None]


class EventBus:
    """Carries events to listeners, in the order in which they subscribed.

    A listener that raises is dropped and reported once as `Warned`: a broken display
    must not end a training. An error of an *essential* listener ends the run.
    """

    def __init__(self) -> None:
        self._listeners: list[tuple[Listener, bool]] = []

    def subscribe(self, listener: Listener, *, essential: bool = False) -> None:
        """Adds a listener."""
        self._listeners.append((listener, essential))

    def emit(self, event: Event) -> None:
        """Sends an event to every listener."""
        warnings = []
        for entry in list(self._listeners):
            listener, essential = entry
            try:
                listener(event)
            except Exception as error:
                if essential:
                    raise
                self._listeners.remove(entry)
                name = getattr(listener, "__qualname__", type(listener).__qualname__)
                warnings.append(
                    Warned(
                        f"The listener {name} failed and was removed: "
                        f"{type(error).__name__}: {error}"
                    )
                )
        for warning in warnings:
            self.emit(warning)


def stream_events(
    work: Callable[[Listener], None], interrupt: Callable[[], None]
) -> Iterator[Event]:
    """Runs work in a thread and yields its events.

    The work waits while too many events are unread. Its exceptions are raised here.

    Args:
        work: Called with the listener to notify.
        interrupt: Called if the iterator is closed before the work is done; the work
            must then end soon.
    """
    events: queue.Queue[Event | None] = queue.Queue(_WAITING)
    left = threading.Event()
    raised: list[BaseException] = []

    def put(event: Event | None) -> None:
        while not left.is_set():
            try:
                return events.put(event, timeout=0.1)
            except queue.Full:
                continue

    def run() -> None:
        try:
            work(put)
        except BaseException as error:
            raised.append(error)
        finally:
            put(None)

    thread = threading.Thread(target=run, name="agentgym-training", daemon=True)
    thread.start()
    done = False
    try:
        while (event := events.get()) is not None:
            yield event
        done = True
    finally:
        left.set()
        if not done:
            interrupt()
        thread.join()
    if raised:
        raise raised[0]

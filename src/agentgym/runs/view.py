"""`RunView`: what a run's events add up to, for everything that shows runs.

It is the one fold of the event stream. Feed it with the events of a run in this
process, or let it read a store:

    view = view_of(store, run_id)
    for news in watch(store, view):
        print(view.phase, view.episodes, view.total)

When an attempt resumes from a checkpoint, the view returns to its state at that
checkpoint. So a run that was interrupted any number of times looks like one that
was never interrupted.
"""

from __future__ import annotations

import copy
import dataclasses
import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any, Generic, TypeVar

from agentgym.core.events import (
    INTERRUPTED,
    Adjusted,
    BaselineMeasured,
    CheckpointSaved,
    EvaluationDone,
    Event,
    IterationDone,
    LoggedEvent,
    Paused,
    Resumed,
    RunFailed,
    RunFinished,
    RunStarted,
    RunStopped,
    Warned,
)
from agentgym.store import Store
from agentgym.store.rows import UNDER_WAY, RunStatus

CURVE = tuple(
    kind.kind
    for kind in (RunStarted, BaselineMeasured, EvaluationDone, RunFinished, RunFailed)
)
"""Kinds of events that are enough for the curve; a small part of the log."""

_MOST = 2_000
"""Points of a curve, or entries of a list, that are kept."""
_MARKS = 8
"""Checkpoints that the view can go back to exactly."""
_FAILURES = 4
_COUNTED = ("groups", "groups_without_variance", "clipped", "broken", "unrewarded")


@dataclass(frozen=True, slots=True)
class Point:
    """The values of one iteration; see `IterationDone`."""

    iteration: int
    episodes: int
    values: dict[str, Any]
    time: float


@dataclass(frozen=True, slots=True)
class Evaluation:
    """One evaluation; that of iteration 0 measured the untrained policy."""

    split: str
    iteration: int
    episodes: int
    metrics: dict[str, Any]
    time: float


@dataclass(frozen=True, slots=True)
class Notice:
    """A warning of the run."""

    iteration: int
    text: str
    time: float


@dataclass(frozen=True, slots=True)
class Adjustment:
    """Settings that were changed during the run."""

    iteration: int
    changes: dict[str, float]
    time: float


@dataclass(frozen=True, slots=True)
class Attempt:
    """One process's attempt at the run."""

    number: int
    resumed_from: int | None
    time: float


T = TypeVar("T", bound=Point | Evaluation)


class Series(Generic[T]):
    """A curve that stays small: long ones keep every second, fourth ... item.

    The first and the newest item are always kept.
    """

    def __init__(self) -> None:
        self._kept: list[T] = []
        self._newest: T | None = None
        self._count = 0
        self._stride = 1

    def add(self, item: T) -> None:
        """Adds an item; it replaces those of the same and of later iterations."""
        if self._newest is not None and self._newest.iteration >= item.iteration:
            self.cut(item.iteration - 1)
        if self._count % self._stride == 0:
            self._kept.append(item)
        self._count += 1
        self._newest = item
        if len(self._kept) > _MOST:
            self._kept = self._kept[::2]
            self._stride *= 2

    def cut(self, iteration: int) -> None:
        """Drops the items of later iterations."""
        self._kept = [item for item in self._kept if item.iteration <= iteration]
        self._count = len(self._kept) * self._stride
        if self._newest is not None and self._newest.iteration > iteration:
            self._newest = self._kept[-1] if self._kept else None

    def items(self) -> list[T]:
        """The kept items, oldest first."""
        if self._newest is None or self._newest is self._kept[-1]:
            return list(self._kept)
        return [*self._kept, self._newest]

    def newest(self) -> T | None:
        """The item that was added last."""
        return self._newest

    def __copy__(self) -> Series[T]:
        """A series that changes on its own."""
        other: Series[T] = Series()
        other.__dict__.update(self.__dict__)
        other._kept = list(self._kept)
        return other


@dataclass
class RunView:
    """Where a run stands.

    Attributes:
        run_id: Its id; "" until it is known.
        targets: What the run should reach, by metric name.
        clock: Seconds since 1970, for events that carry no time.
        seq: The last event of the log that was read.
        attempt: The newest known attempt.
        status: As a row of the store has it; "running" until more is known.
        attempts: All of them, also those whose iterations were made again.
        config: The settings in force, adjustments included.
        error: Why it failed.
        result: `TrainingResult.to_dict`, once it is finished.
        failures: Some episodes that failed in the last evaluation.
        values: Of the newest iteration; see `IterationDone`.
        counts: Sums over all iterations.
        checkpoints: Iterations of the newest ones.
        stop_reason: Why training ended early, if it did.
    """

    run_id: str = ""
    targets: Mapping[str, float] = field(default_factory=dict)
    clock: Callable[[], float] = time.time
    seq: int = 0
    attempt: int = 0
    status: RunStatus = "running"
    attempts: list[Attempt] = field(default_factory=list)
    config: dict[str, Any] = field(default_factory=dict)
    error: str | None = None
    result: dict[str, Any] | None = None
    failures: list[dict[str, Any]] = field(default_factory=list)
    # What a resumption takes back; see _FOLDED.
    iteration: int = 0
    episodes: int = 0
    values: dict[str, Any] = field(default_factory=dict)
    counts: dict[str, int] = field(default_factory=dict)
    checkpoints: list[int] = field(default_factory=list)
    warnings: list[Notice] = field(default_factory=list)
    adjustments: list[Adjustment] = field(default_factory=list)
    stop_reason: str | None = None
    heldout: Evaluation | None = None
    _points: Series[Point] = field(default_factory=Series)
    _evaluations: Series[Evaluation] = field(default_factory=Series)
    _marks: list[tuple[int, dict[str, Any]]] = field(default_factory=list)
    _began: tuple[float, int] | None = None
    _latest: float = 0.0

    @property
    def points(self) -> list[Point]:
        """The iterations, oldest first; a long run's are thinned out."""
        return self._points.items()

    @property
    def evaluations(self) -> list[Evaluation]:
        """Those on the validation tasks, the untrained policy's first."""
        return self._evaluations.items()

    @property
    def baseline(self) -> dict[str, Any] | None:
        """The untrained policy's metrics on the validation tasks."""
        first = self._evaluations.items()[:1]
        return first[0].metrics if first and not first[0].iteration else None

    @property
    def total(self) -> int:
        """Episodes asked for."""
        return int(self.config.get("episodes") or 0)

    @property
    def target(self) -> float | None:
        """Reliability that training aims at; None if unknown."""
        own = self.config.get("target_reliability")
        return own or self.targets.get("tool_reliability")

    @property
    def rate(self) -> float | None:
        """Episodes in a second, evaluations included; None before there are any."""
        if self._began is None:
            return None
        started, before = self._began
        seconds, done = self._latest - started, self.episodes - before
        return done / seconds if seconds > 0 and done > 0 else None

    @property
    def remaining(self) -> float | None:
        """Seconds that training will still take at this rate."""
        rate = self.rate
        return max(0, self.total - self.episodes) / rate if rate else None

    @property
    def phase(self) -> str:
        """What the run is doing now, in words."""
        if self.status != "running":
            return self.status
        if self.stop_reason is not None:
            return self.stop_reason
        if not self.config:
            return "starting"
        newest = self._evaluations.newest()
        resumed = bool(self.attempts) and self.attempts[-1].resumed_from is not None
        if newest is None and not resumed:
            return "measuring the untrained policy"
        measured = newest.metrics if newest is not None else {}
        low = (measured.get("tool_reliability_interval") or (None,))[0]
        reached = low is not None and self.target is not None and low > self.target
        if reached or (self.total and self.episodes >= self.total):
            return "measuring on held-out tasks"
        return "training"

    def apply(self, said: LoggedEvent | Event) -> None:
        """Applies an event to the view.

        Each event of the log is applied once, and none of an attempt that a later one
        has replaced. An event without a place in the log is new.
        """
        if isinstance(said, Event):
            self._fold(said, self.clock())
        elif said.seq > self.seq:
            self.seq = said.seq
            if said.attempt >= self.attempt:
                self.attempt = said.attempt
                self._fold(said.event, said.time)

    def read(self, store: Store, kinds: tuple[str, ...] = ()) -> list[LoggedEvent]:
        """Applies what is new in the store, and returns it.

        Raises:
            RunNotFoundError: The run doesn't exist.
        """
        # The row first: then the events are at least as new.
        row = store.get_run(self.run_id)
        self.run_id, self.targets, self.status = row.id, row.targets, row.status
        self.config = self.config or row.config
        news = store.events(row.id, after=self.seq, kinds=kinds)
        for logged in news:
            self.apply(logged)
        self.episodes = max(self.episodes, row.episodes if not self.attempts else 0)
        begun = row.attempt > self.attempt
        if begun or (row.status == INTERRUPTED and self.status in UNDER_WAY):
            self.status = row.status
        if any(isinstance(logged.event, _MEASURED) for logged in news):
            failed = store.trajectories(row.id, failed=True, limit=_FAILURES)
            self.failures = [episode.data for episode in failed]
        return news

    def to_dict(self) -> dict[str, Any]:
        """The view as JSON."""
        heldout = [self.heldout] if self.heldout else []
        evaluations = [*self.evaluations, *heldout]
        return {
            "run_id": self.run_id,
            "seq": self.seq,
            "status": self.status,
            "phase": self.phase,
            "episodes": self.episodes,
            "total": self.total,
            "config": self.config,
            "targets": dict(self.targets),
            "baseline": self.baseline,
            "points": [dataclasses.asdict(point) for point in self.points],
            "evaluations": [dataclasses.asdict(one) for one in evaluations],
            "attempts": [dataclasses.asdict(attempt) for attempt in self.attempts],
            "checkpoints": self.checkpoints,
            "warnings": [dataclasses.asdict(warning) for warning in self.warnings],
            "adjustments": [dataclasses.asdict(one) for one in self.adjustments],
            "counts": self.counts,
            "error": self.error,
            "result": self.result,
        }

    def _fold(self, event: Event, at: float) -> None:
        match event:
            case RunStarted():
                self._start(event, at)
            case BaselineMeasured():
                self._measure(Evaluation("validation", 0, 0, event.metrics, at))
                self.failures = _failed(event.sample)
                self._began = (at, self.episodes)
            case IterationDone():
                self._iterate(event, at)
            case EvaluationDone(split=split, iteration=i, episodes=episodes):
                self._measure(Evaluation(split, i, episodes, event.metrics, at))
                if split == "validation":
                    self.failures = _failed(event.sample)
            case CheckpointSaved(iteration=iteration):
                self._mark(iteration)
            case Paused():
                self.status = "paused"
            case Resumed():
                self.status = "running"
                self._began = (at, self.episodes)
            case Adjusted(iteration=iteration, changes=changes):
                self.adjustments.append(Adjustment(iteration, changes, at))
                self.config = self.config | changes
                del self.adjustments[:-_MOST]
            case Warned(text=text):
                self.warnings.append(Notice(self.iteration, text, at))
                del self.warnings[:-_MOST]
            case RunStopped(reason=reason):
                if reason == INTERRUPTED:
                    self.status = INTERRUPTED
                else:
                    self.stop_reason = reason
            case RunFinished(result=result):
                self.status = "stopped" if self.stop_reason else "finished"
                self.result = result
            case RunFailed(error=error):
                self.status, self.error = "failed", error

    def _start(self, event: RunStarted, at: float) -> None:
        self._go_back(event.resumed_from)
        self.run_id = event.run_id
        self.config = dict(event.config)
        for adjustment in self.adjustments:
            self.config |= adjustment.changes
        self.status, self.error, self.result = "running", None, None
        self._began = None
        number = max(self.attempt, len(self.attempts) + 1)
        self.attempts.append(Attempt(number, event.resumed_from, at))
        del self.attempts[:-_MOST]

    def _iterate(self, event: IterationDone, at: float) -> None:
        if self._began is None:
            self._began = (at, event.episodes)
        self._latest = at
        self.iteration, self.episodes = event.iteration, event.episodes
        self.values = event.values
        for name in _COUNTED:
            more = int(event.values.get(name) or 0)
            self.counts[name] = self.counts.get(name, 0) + more
        self._points.add(Point(event.iteration, event.episodes, event.values, at))

    def _measure(self, evaluation: Evaluation) -> None:
        self._latest = evaluation.time
        if evaluation.split == "validation":
            self._evaluations.add(evaluation)
        else:
            self.heldout = evaluation

    def _mark(self, iteration: int) -> None:
        """Remembers the state at a checkpoint, to return to it."""
        if self.checkpoints[-1:] != [iteration]:
            self.checkpoints.append(iteration)
            del self.checkpoints[:-_MOST]
        state = {name: copy.copy(getattr(self, name)) for name in _FOLDED}
        self._marks = [*self._marks[1 - _MARKS :], (iteration, state)]

    def _go_back(self, iteration: int | None) -> None:
        """Forgets what came after the checkpoint of that iteration."""
        if iteration is None:
            fresh = RunView()
            for name in _FOLDED:
                setattr(self, name, getattr(fresh, name))
            self._marks = []
            return
        while self._marks and self._marks[-1][0] > iteration:
            self._marks.pop()
        if self._marks and self._marks[-1][0] == iteration:
            for name, value in self._marks[-1][1].items():
                setattr(self, name, copy.copy(value))
            return
        # The checkpoint is older than all marks, or was never announced: the process
        # was killed before it could.
        self._points.cut(iteration)
        self._evaluations.cut(iteration)
        if self.iteration > iteration:
            self.warnings = [w for w in self.warnings if w.iteration <= iteration]
            self.adjustments = [a for a in self.adjustments if a.iteration <= iteration]
            self.checkpoints = [i for i in self.checkpoints if i <= iteration]
            self.stop_reason = self.heldout = None
            points = self._points.items()
            self.counts = {
                name: sum(int(point.values.get(name) or 0) for point in points)
                for name in _COUNTED
            }
            newest = self._points.newest()
            self.iteration = iteration
            self.episodes = newest.episodes if newest else 0
            self.values = newest.values if newest else {}
        self._mark(iteration)


_FOLDED = (
    "iteration",
    "episodes",
    "values",
    "counts",
    "checkpoints",
    "warnings",
    "adjustments",
    "stop_reason",
    "heldout",
    "_points",
    "_evaluations",
)
_MEASURED = (BaselineMeasured, EvaluationDone)


def view_of(store: Store, run_id: str, kinds: tuple[str, ...] = ()) -> RunView:
    """What the store knows of a run.

    Args:
        store: Where it is kept.
        run_id: Its id, the first characters of it, or "last".
        kinds: Kinds of events to read; all by default.

    Raises:
        RunNotFoundError: No run fits, or several do.
    """
    view = RunView(run_id)
    view.read(store, kinds)
    return view


def watch(
    store: Store, view: RunView, seconds: float = 0.5
) -> Iterator[list[LoggedEvent]]:
    """Follows a run until it ends; reads only what is new.

    Args:
        store: Where the run is kept.
        view: Brought up to date before each yield.
        seconds: Time between two reads.

    Yields:
        New events; at first all that the view hasn't seen, possibly none.
    """
    news = view.read(store)
    yield news
    while view.status in UNDER_WAY:
        time.sleep(seconds)
        status = view.status
        if (news := view.read(store)) or view.status != status:
            yield news


def _failed(sample: tuple[dict[str, Any], ...]) -> list[dict[str, Any]]:
    return [episode for episode in sample if not episode.get("success")][:_FAILURES]

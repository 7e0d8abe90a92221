"""The one fold of a run's events."""

from __future__ import annotations

import itertools
import json
import threading
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

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
    UnknownEvent,
    Warned,
)
from agentgym.errors import RunNotFoundError
from agentgym.runs.view import CURVE, RunView, view_of, watch
from agentgym.store import Store

CONFIG = {"scenario": "shop", "policy": "planner", "seed": 7, "episodes": 1000}
FAILED = {"success": False, "task_id": "t", "steps": []}
SOLVED = {"success": True, "task_id": "u", "steps": []}


class FakeClock:
    def __init__(self) -> None:
        self.now = 100.0

    def __call__(self) -> float:
        return self.now


def metrics(reliability: float) -> dict[str, Any]:
    return {
        "tool_reliability": reliability,
        "tool_reliability_interval": [reliability - 0.05, reliability + 0.02],
    }


def values(**more: Any) -> dict[str, Any]:
    plain = {"groups": 16, "groups_without_variance": 3, "clipped": 0}
    return {**plain, "broken": 0, "unrewarded": 0, **more}


def story() -> list[Event]:
    return [
        RunStarted("r1", dict(CONFIG)),
        BaselineMeasured(metrics(0.3), (FAILED, SOLVED)),
        IterationDone(1, 250, values()),
        IterationDone(2, 500, values(clipped=1, broken=2)),
        EvaluationDone(2, 500, "validation", metrics(0.8), (FAILED,)),
    ]


def run_of(*happened: Event, clock: FakeClock | None = None) -> RunView:
    view = RunView(targets={"tool_reliability": 0.95}, clock=clock or FakeClock())
    for event in happened:
        view.apply(event)
    return view


# What is known of a run


def test_a_run_is_folded() -> None:
    view = run_of(*story())
    assert (view.run_id, view.total, view.episodes) == ("r1", 1000, 500)
    assert (view.status, view.phase, view.target) == ("running", "training", 0.95)
    assert view.baseline == metrics(0.3)
    assert [(p.iteration, p.episodes) for p in view.points] == [(1, 250), (2, 500)]
    assert [(e.iteration, e.episodes) for e in view.evaluations] == [(0, 0), (2, 500)]
    assert view.counts == {
        "groups": 32,
        "groups_without_variance": 6,
        "clipped": 1,
        "broken": 2,
        "unrewarded": 0,
    }
    assert view.failures == [FAILED]
    assert view.heldout is None
    view.apply(EvaluationDone(2, 500, "heldout", metrics(0.97)))
    assert view.heldout is not None and view.heldout.metrics == metrics(0.97)
    assert len(view.evaluations) == 2
    assert view.failures == [FAILED], "held-out tasks are shown to nobody"


def test_rate_and_remaining_time_count_from_the_first_episode_on() -> None:
    clock = FakeClock()
    view = run_of(*story()[:2], clock=clock)
    assert view.rate is None
    assert view.remaining is None
    clock.now += 10
    view.apply(IterationDone(1, 250, values()))
    assert view.rate == 25.0
    assert view.remaining == 30.0


def test_a_pause_does_not_count_as_training_time() -> None:
    clock = FakeClock()
    view = run_of(*story()[:3], clock=clock)
    view.apply(Paused(1))
    assert view.phase == view.status == "paused"
    clock.now += 1000
    view.apply(Resumed(1))
    clock.now += 5
    view.apply(IterationDone(2, 500, values()))
    assert view.rate == 50.0


def test_phases_to_the_end() -> None:
    assert RunView().phase == "starting"
    assert run_of(*story()[:1]).phase == "measuring the untrained policy"
    view = run_of(*story())
    view.apply(IterationDone(4, 1000, values()))
    assert view.phase == "measuring on held-out tasks"
    view.apply(RunFinished({"model": "m"}))
    assert (view.phase, view.result) == ("finished", {"model": "m"})
    view = run_of(RunStopped("stopped on request"))
    assert (view.status, view.phase) == ("running", "stopped on request")
    view.apply(RunFinished({}))
    assert view.status == "stopped"
    view = run_of(RunFailed("boom"))
    assert (view.phase, view.error) == ("failed", "boom")
    assert run_of(RunStopped(INTERRUPTED)).phase == INTERRUPTED


def test_training_ends_when_the_interval_is_above_the_target() -> None:
    view = run_of(*story(), EvaluationDone(3, 600, "validation", metrics(0.99)))
    assert view.phase == "training"
    view.config["target_reliability"] = 0.9
    assert view.phase == "measuring on held-out tasks"


def test_a_resumed_run_that_was_not_seen_before_is_training() -> None:
    assert run_of(RunStarted("r", dict(CONFIG), 4)).phase == "training"


def test_adjustments_hold_also_when_the_run_is_resumed() -> None:
    view = run_of(*story(), Adjusted(2, {"episodes": 2000}), CheckpointSaved(2, "x"))
    assert view.total == 2000
    view.apply(Adjusted(2, {"episodes": 3000}))
    view.apply(RunStarted("r1", dict(CONFIG), 2))
    assert view.total == 2000, "what came after the checkpoint is not in force"
    assert [a.changes for a in view.adjustments] == [{"episodes": 2000}]
    assert [(a.number, a.resumed_from) for a in view.attempts] == [(1, None), (2, 2)]


def test_events_of_a_newer_version_are_passed_over() -> None:
    view = run_of(*story(), UnknownEvent({"kind": "new"}))
    assert view.to_dict() == run_of(*story()).to_dict()


def test_the_view_is_json() -> None:
    view = run_of(*story(), Warned("careful"), Adjusted(2, {"entropy": 0.1}))
    told = json.loads(json.dumps(view.to_dict(), allow_nan=False))
    assert told["warnings"] == [{"iteration": 2, "text": "careful", "time": 100.0}]
    assert told["evaluations"][0]["split"] == "validation"
    assert told["total"] == 1000


# Resuming


@pytest.mark.parametrize("announced", [True, False])
def test_what_came_after_the_checkpoint_is_dropped(announced: bool) -> None:
    view = run_of(*story())
    if announced:
        view.apply(CheckpointSaved(2, "x"))
    view.apply(IterationDone(3, 750, values(clipped=1)))
    view.apply(EvaluationDone(3, 750, "validation", metrics(0.9)))
    view.apply(Warned("later"))
    view.apply(RunStarted("r1", dict(CONFIG), 2))
    assert view.phase == "training"
    assert view.episodes == 500
    assert [e.iteration for e in view.evaluations] == [0, 2]
    assert view.counts["clipped"] == 1
    assert view.warnings == []
    assert view.values["broken"] == 2
    assert view.checkpoints == [2]
    view.apply(EvaluationDone(2, 500, "validation", metrics(0.85)))
    assert [e.metrics for e in view.evaluations] == [metrics(0.3), metrics(0.85)]


def test_a_run_that_begins_again_forgets_everything() -> None:
    view = run_of(*story(), CheckpointSaved(2, "x"), RunStarted("r1", dict(CONFIG)))
    assert view.phase == "measuring the untrained policy"
    assert (view.points, view.evaluations, view.checkpoints) == ([], [], [])
    assert (view.counts, view.episodes) == ({}, 0)


def test_a_process_that_was_replaced_is_not_heard() -> None:
    view = RunView()
    for seq, (attempt, event) in enumerate(
        [
            (1, RunStarted("r", dict(CONFIG))),
            (2, RunStarted("r", dict(CONFIG))),
            (1, Warned("I am still here")),
        ],
        start=1,
    ):
        view.apply(LoggedEvent("r", attempt, seq, 0.0, event))
    assert view.warnings == []
    assert view.seq == 3


@st.composite
def whole_logs(draw: st.DrawFn) -> list[Event]:
    """What a run says that is never interrupted, as the training loop does."""
    said: list[Event] = [RunStarted("r", dict(CONFIG)), BaselineMeasured(metrics(0.3))]
    said.append(CheckpointSaved(0, "x"))
    iterations = draw(st.integers(0, 12))
    for i in range(1, iterations + 1):
        if draw(st.booleans()):
            said.append(Warned(f"before {i}"))
        said.append(IterationDone(i, 10 * i, values(clipped=i % 2)))
        match draw(st.sampled_from(["", "", "save", "measure", "adjust", "pause"])):
            case "save":
                said.append(CheckpointSaved(i, "x"))
            case "measure":
                said.append(EvaluationDone(i, 10 * i, "validation", metrics(i / 20)))
                said.append(CheckpointSaved(i, "x"))
            case "adjust":
                said.append(Adjusted(i, {"entropy": i / 100}))
                said.append(CheckpointSaved(i, "x"))
            case "pause":
                said += [CheckpointSaved(i, "x"), Paused(i), Resumed(i)]
    if draw(st.booleans()):
        said += [RunStopped("enough"), CheckpointSaved(iterations, "x")]
    said.append(EvaluationDone(iterations, 10 * iterations, "heldout", metrics(0.9)))
    return [*said, RunFinished({"model": "m"})]


@st.composite
def broken_logs(draw: st.DrawFn, whole: list[Event]) -> list[LoggedEvent]:
    """The log of a run that says `whole`, interrupted and resumed at random places."""
    log: list[LoggedEvent] = []
    attempt, at = 1, 0

    def say(event: Event, place: int) -> None:
        log.append(LoggedEvent("r", attempt, len(log) + 1, float(place), event))

    while True:
        last = attempt > 5 or draw(st.integers(0, 2)) == 0
        until = len(whole) if last else draw(st.integers(at, len(whole) - 1))
        for place in range(at, until):
            say(whole[place], place)
        if last:
            return log
        match draw(st.sampled_from(["kill", "leave", "fail"])):
            case "leave":
                say(RunStopped(INTERRUPTED), -1)
            case "fail":
                say(RunFailed("boom"), -1)
        attempt += 1
        saved = [p for p in range(until) if isinstance(whole[p], CheckpointSaved)]
        numbers = [getattr(whole[p], "iteration", 0) for p in saved]
        upcoming = whole[until]
        if isinstance(upcoming, CheckpointSaved) and upcoming.iteration not in numbers:
            # Killed after it was written, and before it could be announced.
            if draw(st.booleans()):
                saved.append(until)
        elif len(saved) > 1 and numbers[-1] != numbers[-2] and draw(st.booleans()):
            # The newest one is damaged.
            saved.pop()
        if not saved:
            at = 0
            continue
        say(RunStarted("r", dict(CONFIG), getattr(whole[saved[-1]], "iteration", 0)), 0)
        at = saved[-1] + 1


def essence(view: RunView) -> dict[str, Any]:
    told = view.to_dict()
    return {k: v for k, v in told.items() if k not in ("seq", "attempts", "phase")}


@settings(max_examples=400)
@given(st.data())
def test_interruptions_leave_no_trace(data: st.DataObject) -> None:
    whole = data.draw(whole_logs())
    expected = RunView()
    for place, event in enumerate(whole):
        expected.apply(LoggedEvent("r", 1, place + 1, float(place), event))
    log = data.draw(broken_logs(whole))
    found = RunView()
    for logged in log:
        found.apply(logged)
    assert essence(found) == essence(expected)
    assert found.attempts[-1].number == log[-1].attempt
    # Read again from any place, and with what was read before.
    start = data.draw(st.integers(0, len(log)))
    for logged in log[start:]:
        found.apply(logged)
    assert essence(found) == essence(expected)


@settings(max_examples=100)
@given(st.data())
def test_heard_live_is_as_read_from_a_log(data: st.DataObject) -> None:
    whole = data.draw(whole_logs())
    clock = FakeClock()
    read, heard = RunView(), RunView(clock=clock)
    for place, event in enumerate(whole):
        clock.now = float(place)
        read.apply(LoggedEvent("r", 1, place + 1, float(place), event))
        heard.apply(event)
    assert {**heard.to_dict(), "seq": len(whole)} == read.to_dict()


# Memory


def test_a_long_run_is_thinned_out() -> None:
    view = RunView()
    view.apply(RunStarted("r", dict(CONFIG)))
    total = 100_000
    for i in range(1, total + 1):
        view.apply(IterationDone(i, i, {"groups": 1}))
        if i % 10 == 0:
            view.apply(CheckpointSaved(i, "x"))
            view.apply(Warned("again"))
            view.apply(EvaluationDone(i, i, "validation", metrics(0.5)))
    kept = [point.iteration for point in view.points]
    assert 1_000 <= len(kept) <= 2_001
    assert (kept[0], kept[-1]) == (1, total)
    gaps = {b - a for a, b in itertools.pairwise(kept[:-1])}
    assert len(gaps) == 1, "the curve is equally dense everywhere"
    assert len(view.evaluations) <= 2_001
    assert len(view.warnings) <= 2_000
    assert len(view.checkpoints) <= 2_000
    assert view.counts["groups"] == total
    view.apply(RunStarted("r", dict(CONFIG), total - 10))
    assert view.counts["groups"] == total - 10
    assert view.points[-1].iteration == total - 10


# Reading a store


@pytest.fixture
def store(tmp_path: Path) -> Any:
    with Store(tmp_path) as opened:
        opened.create_run(
            "r1",
            scenario="shop",
            policy="planner",
            engine="local",
            seed=7,
            config=dict(CONFIG),
            targets={"tool_reliability": 0.95},
        )
        yield opened


def test_only_what_is_new_is_read(store: Store) -> None:
    attempt = store.begin_attempt("r1")
    view = RunView("r1")
    assert view.read(store) == []
    assert (view.status, view.total, view.target) == ("running", 1000, 0.95)
    for event in story():
        store.append_events("r1", attempt, [event])
        assert [logged.event.kind for logged in view.read(store)] == [event.kind]
        assert view.read(store) == []
    store.add_trajectories("r1", attempt, 2, [FAILED, SOLVED])
    whole = view_of(store, "last")
    assert whole.failures == [FAILED]
    assert whole.to_dict() == view.to_dict()
    with pytest.raises(RunNotFoundError):
        view_of(store, "nope")


def test_the_curve_alone_is_less_to_read(store: Store) -> None:
    attempt = store.begin_attempt("r1")
    store.append_events("r1", attempt, story())
    later = EvaluationDone(4, 900, "validation", metrics(0.9))
    store.append_events("r1", attempt, [IterationDone(3, 600, {}), later])
    assert store.begin_attempt("r1") == 2
    store.append_events("r1", 2, [RunStarted("r1", dict(CONFIG), 2)])
    view = view_of(store, "r1", CURVE)
    assert [e.iteration for e in view.evaluations] == [0, 2]
    assert view.points == []


def test_a_run_is_watched_until_it_ends(store: Store) -> None:
    attempt = store.begin_attempt("r1")
    view = RunView("r1")
    heard: list[list[str]] = []
    followed = watch(store, view, seconds=0.01)
    assert next(followed) == []

    def work() -> None:
        for event in story():
            store.append_events("r1", attempt, [event])
        end = RunFinished({"model": "m"})
        store.append_events("r1", attempt, [end], status="finished")

    worker = threading.Thread(target=work)
    worker.start()
    heard = [[logged.event.kind for logged in news] for news in followed]
    worker.join()
    assert [kind for news in heard for kind in news] == [
        *(event.kind for event in story()),
        "run_finished",
    ]
    assert view.status == "finished"
    assert list(watch(store, view)) == [[]]


def test_a_watched_run_that_is_resumed_is_running_again(store: Store) -> None:
    attempt = store.begin_attempt("r1")
    failed = [*story(), RunFailed("boom")]
    store.append_events("r1", attempt, failed, status="failed", error="boom")
    view = view_of(store, "r1")
    assert (view.status, view.error) == ("failed", "boom")
    attempt = store.begin_attempt("r1")
    view.read(store)
    assert view.status == "running"
    store.append_events("r1", attempt, [RunStarted("r1", dict(CONFIG), 2)])
    view.read(store)
    assert (view.status, view.error, len(view.attempts)) == ("running", None, 2)


def test_a_process_that_died_is_seen(store: Store) -> None:
    attempt = store.begin_attempt("r1")
    store.append_events("r1", attempt, story())
    view = view_of(store, "r1")
    assert view.status == "running"
    store.update_run("r1", heartbeat=0.0)
    assert view.read(store) == []
    assert view.status == INTERRUPTED

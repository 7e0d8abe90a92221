from __future__ import annotations

import json
import threading
from collections.abc import Callable
from typing import Any

import pytest

from agentgym.core.events import (
    Adjusted,
    BaselineMeasured,
    CheckpointSaved,
    EvaluationDone,
    Event,
    EventBus,
    IterationDone,
    Listener,
    LoggedEvent,
    Paused,
    Resumed,
    RunFailed,
    RunFinished,
    RunStarted,
    RunStopped,
    UnknownEvent,
    Warned,
    stream_events,
)


def test_to_dict_is_json_with_its_kind() -> None:
    event = IterationDone(3, 48, {"loss": 0.5, "failures": {"timeout": 1}})
    assert json.loads(json.dumps(event.to_dict())) == {
        "kind": "iteration_done",
        "iteration": 3,
        "episodes": 48,
        "values": {"loss": 0.5, "failures": {"timeout": 1}},
    }


def test_to_dict_leaves_trajectories_out() -> None:
    sample = ({"task_id": "1"},)
    for event in (
        EvaluationDone(1, 2, "validation", {}, sample),
        BaselineMeasured({}, sample),
    ):
        assert event.sample == sample
        assert "sample" not in event.to_dict()
        assert "sample" not in repr(event)


EVENTS = [
    RunStarted("r", {"episodes": 9}, 3),
    BaselineMeasured({"y": 1}),
    IterationDone(3, 48, {"loss": 0.5}),
    EvaluationDone(3, 48, "validation", {"y": 2}),
    CheckpointSaved(3, "x"),
    Paused(3),
    Resumed(3),
    Adjusted(3, {"entropy": 0.1}),
    Warned("careful"),
    RunStopped("enough"),
    RunFinished({"model": "m"}),
    RunFailed("boom"),
    UnknownEvent({"kind": "dreamt", "of": ["sheep"]}),
]


@pytest.mark.parametrize("event", EVENTS, ids=lambda event: event.kind)
def test_events_come_back_from_json(event: Event) -> None:
    assert Event.from_dict(json.loads(json.dumps(event.to_dict()))) == event
    logged = LoggedEvent("r", 2, 7, 1.5, event)
    written = json.loads(json.dumps(logged.to_dict()))
    assert LoggedEvent.from_dict(written) == logged
    assert written["event"] == event.to_dict()


def test_every_kind_can_be_read() -> None:
    names = {cls.__name__ for cls in Event.__subclasses__()}
    assert {type(event).__name__ for event in EVENTS} == names


def test_what_a_newer_version_wrote_does_not_break_readers() -> None:
    more = {"kind": "warned", "text": "careful", "level": 3}
    assert Event.from_dict(more) == Warned("careful")
    for strange in ({"kind": "warned"}, {"kind": "dreamt"}, {"kind": ["x"]}, {}):
        event = Event.from_dict(strange)
        assert isinstance(event, UnknownEvent)
        assert event.to_dict() == strange


def test_kinds_are_unique() -> None:
    kinds = {cls.__name__: cls.kind for cls in Event.__subclasses__()}
    assert len(set(kinds.values())) == len(kinds) == 13


def test_events_cannot_be_changed() -> None:
    event = RunStarted("a", {})
    with pytest.raises(AttributeError):
        event.run_id = "b"  # type: ignore[misc]


def test_listeners_hear_in_order() -> None:
    bus, heard = EventBus(), []
    bus.subscribe(lambda event: heard.append(("first", event)))
    bus.subscribe(lambda event: heard.append(("second", event)))
    event = Warned("x")
    bus.emit(event)
    assert heard == [("first", event), ("second", event)]


def test_a_listener_that_raises_is_reported_once_and_dropped() -> None:
    bus, heard, calls = EventBus(), list[Event](), list[Event]()

    def broken(event: Event) -> None:
        calls.append(event)
        raise ValueError("no display")

    bus.subscribe(heard.append)
    bus.subscribe(broken)
    bus.emit(CheckpointSaved(1, "x"))
    bus.emit(CheckpointSaved(2, "x"))
    assert len(calls) == 1
    warnings = [event.text for event in heard if isinstance(event, Warned)]
    assert len(warnings) == 1
    assert "broken" in warnings[0] and "ValueError: no display" in warnings[0]
    assert len(heard) == 3


def test_all_listeners_broken() -> None:
    bus = EventBus()
    for _ in range(3):
        bus.subscribe(_raise)
    bus.emit(Warned("x"))
    bus.emit(Warned("x"))


def test_an_essential_listener_ends_the_run() -> None:
    bus = EventBus()
    bus.subscribe(_raise, essential=True)
    with pytest.raises(ValueError, match="broken"):
        bus.emit(Warned("x"))


def _raise(event: Event) -> None:
    raise ValueError("broken")


def _stream(work: Callable[[Listener], None], interrupt: Any = None) -> Any:
    return stream_events(work, interrupt or (lambda: None))


def test_stream_yields_in_order_from_another_thread() -> None:
    threads = set()

    def work(tell: Listener) -> None:
        threads.add(threading.current_thread())
        for i in range(3000):  # More than can lie unread.
            tell(CheckpointSaved(i, ""))

    interrupted: list[bool] = []
    events = list(_stream(work, lambda: interrupted.append(True)))
    assert [event.iteration for event in events] == list(range(3000))
    assert threading.current_thread() not in threads
    assert not interrupted


def test_stream_raises_what_the_work_raised() -> None:
    def work(tell: Listener) -> None:
        tell(Warned("first"))
        raise RuntimeError("then this")

    stream = _stream(work)
    assert next(stream) == Warned("first")
    with pytest.raises(RuntimeError, match="then this"):
        next(stream)


def test_closing_a_stream_interrupts_and_waits() -> None:
    asked = threading.Event()
    ended = threading.Event()

    def work(tell: Listener) -> None:
        while not asked.is_set():
            tell(Warned("x"))
        ended.set()
        raise KeyboardInterrupt

    stream = _stream(work, asked.set)
    next(stream)
    stream.close()
    assert ended.is_set()

from __future__ import annotations

import json
import threading
from collections.abc import Callable
from typing import Any

import pytest

from agentgym.core.events import (
    BaselineMeasured,
    CheckpointSaved,
    EvaluationDone,
    Event,
    EventBus,
    IterationDone,
    Listener,
    RunStarted,
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

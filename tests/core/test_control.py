from __future__ import annotations

import os
import signal
import threading
import time
from collections.abc import Callable
from typing import Any

import pytest

from agentgym.core.control import Control, deferred_interrupt
from agentgym.core.events import (
    Adjusted,
    Event,
    EventBus,
    Paused,
    Resumed,
    RunStopped,
    Warned,
)
from agentgym.errors import ConfigError
from agentgym.training.checkpoint import LoopState
from agentgym.training.loop import apply_commands


class Loop:
    """What a trainer would bring to the training."""

    def __init__(self, control: Control) -> None:
        self.control = control
        self.progress = LoopState(
            {"learning_rate": 0.1, "episodes": 100}, iteration=3, episodes=48
        )
        self.heard: list[Event] = []
        self.saved: list[dict[str, float]] = []
        self.bus = EventBus()
        self.bus.subscribe(self.heard.append)

    def apply_commands(self) -> float:
        return apply_commands(self.control, self.progress, self.bus, self._save)

    def _save(self) -> None:
        self.saved.append(dict(self.progress.settings))


def test_nothing_asked_for() -> None:
    loop = Loop(Control())
    assert loop.apply_commands() == 0.0
    assert not loop.heard and not loop.saved


def test_adjusting_is_saved_at_once() -> None:
    loop = Loop(Control())
    loop.control.adjust(learning_rate=0.5)
    loop.control.adjust(episodes=200)
    loop.apply_commands()
    assert loop.progress.settings == {"learning_rate": 0.5, "episodes": 200}
    assert loop.saved == [loop.progress.settings]
    assert loop.heard == [Adjusted(3, {"learning_rate": 0.5, "episodes": 200})]
    loop.apply_commands()
    assert len(loop.heard) == 1


@pytest.mark.parametrize(
    ("changes", "text"),
    [
        ({"learning_rate": 0}, "above 0"),
        ({"learning_rate": float("nan")}, "above 0"),
        ({"learning_rate": float("inf")}, "above 0"),
        ({"exploration": 1}, "below 1"),
        ({"entropy": -0.1}, "at least 0"),
        ({"episodes": 0}, "whole number"),
        ({"episodes": 1.5}, "whole number"),
        ({"episodes": "many"}, "whole number"),
        ({"episodes": True}, "whole number"),
        ({"learning_rat": 1}, "Did you mean 'learning_rate'"),
        ({"seed": 1}, "can't be changed"),
    ],
)
def test_bad_adjustments_change_nothing(changes: dict[str, Any], text: str) -> None:
    control = Control()
    with pytest.raises(ConfigError, match=text):
        control.adjust(entropy=0.1, **changes) if "entropy" not in changes else (
            control.adjust(**changes)
        )
    assert control.take_adjustments() == {}


def test_commands_from_elsewhere() -> None:
    commands: list[tuple[str, dict[str, Any]]] = [
        ("adjust", {"entropy": 0.5}),
        ("adjust", {"entropy": "much"}),
        ("paus", {}),
        ("pause", {"loudly": True}),
        ("stop", {"reason": "enough"}),
    ]
    loop = Loop(Control(lambda: [commands.pop(0)] if commands else []))
    for _ in range(5):
        loop.apply_commands()
    warnings = [event.text for event in loop.heard if isinstance(event, Warned)]
    assert len(warnings) == 3
    assert "entropy must be at least 0" in warnings[0]
    assert "Did you mean 'pause'" in warnings[1]
    assert "loudly" in warnings[2]
    assert loop.progress.settings["entropy"] == 0.5
    assert loop.heard[-1] == RunStopped("enough")


def test_stopping_means_that_all_was_done() -> None:
    loop = Loop(Control())
    loop.control.stop("first")
    loop.control.stop("second")
    loop.apply_commands()
    assert loop.progress.settings["episodes"] == loop.progress.episodes
    assert loop.saved == [loop.progress.settings]
    assert loop.heard == [RunStopped("first")]


def test_interrupting_saves_and_leaves() -> None:
    loop = Loop(Control())
    loop.control.interrupt()
    with pytest.raises(KeyboardInterrupt):
        loop.apply_commands()
    assert len(loop.saved) == 1


def _soon(function: Callable[[], None]) -> None:
    def later() -> None:
        time.sleep(0.3)
        function()

    threading.Thread(target=later).start()


def test_pausing_saves_and_waits_until_resumed() -> None:
    loop = Loop(Control())
    loop.control.request_pause()
    assert loop.control.paused
    _soon(loop.control.resume)
    waited = loop.apply_commands()
    assert 0.2 < waited < 5
    assert loop.heard == [Paused(3), Resumed(3)]
    assert len(loop.saved) == 1


def test_a_pause_hears_commands() -> None:
    orders = ["pause", None, "adjust", "resume"]

    def source() -> list[tuple[str, dict[str, Any]]]:
        order = orders.pop(0)
        if order is None:
            return []
        return [(order, {"entropy": 0.1} if order == "adjust" else {})]

    loop = Loop(Control(source))
    loop.apply_commands()
    assert loop.heard == [Paused(3), Adjusted(3, {"entropy": 0.1}), Resumed(3)]


def test_stopping_and_interrupting_end_a_pause() -> None:
    loop = Loop(Control())
    loop.control.request_pause()
    _soon(loop.control.stop)
    loop.apply_commands()
    assert isinstance(loop.heard[1], RunStopped)

    loop = Loop(Control())
    loop.control.request_pause()
    _soon(loop.control.interrupt)
    with pytest.raises(KeyboardInterrupt):
        loop.apply_commands()


def test_the_first_ctrl_c_waits_for_the_second() -> None:
    control = Control()
    before = signal.getsignal(signal.SIGINT)
    with deferred_interrupt(control):
        os.kill(os.getpid(), signal.SIGINT)
        assert control.interrupted
        with pytest.raises(KeyboardInterrupt):
            os.kill(os.getpid(), signal.SIGINT)
            time.sleep(1)
    assert signal.getsignal(signal.SIGINT) is before


def test_ctrl_c_stays_as_it_is_elsewhere() -> None:
    control = Control()
    seen = []

    def inside() -> None:
        with deferred_interrupt(control):
            seen.append(signal.getsignal(signal.SIGINT))

    thread = threading.Thread(target=inside)
    thread.start()
    thread.join()
    before = signal.signal(signal.SIGINT, signal.SIG_IGN)
    try:
        inside()
    finally:
        signal.signal(signal.SIGINT, before)
    assert seen == [before, signal.SIG_IGN]

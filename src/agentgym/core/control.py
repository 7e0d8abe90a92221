"""Controls a running training: pause, resume, stop, adjust, interrupt."""

from __future__ import annotations

import contextlib
import signal
import threading
from collections.abc import Callable, Iterator, Mapping
from types import FrameType
from typing import Any

from agentgym.errors import ConfigError, did_you_mean

Source = Callable[[], list[tuple[str, dict[str, Any]]]]
"""Brings commands (name, arguments) from elsewhere, such as other processes."""

COMMANDS = ("pause", "resume", "stop", "adjust")
"""What a source may bring."""

_ADJUSTABLE: Mapping[str, tuple[Callable[[float], bool], str]] = {
    "learning_rate": (lambda value: 0 < value < float("inf"), "above 0"),
    "exploration": (lambda value: 0 <= value < 1, "at least 0 and below 1"),
    "entropy": (lambda value: 0 <= value < float("inf"), "at least 0"),
    "episodes": (lambda value: value >= 1 and value % 1 == 0, "a whole number above 0"),
}

ADJUSTABLE = tuple(_ADJUSTABLE)
"""Settings that can be changed while a training runs."""


class Control:
    """Commands for one training, from any thread; handled between iterations.

    Args:
        source: Asked for commands by `poll`, once in every iteration.
    """

    def __init__(self, source: Source | None = None) -> None:
        self.source = source
        self._lock = threading.Lock()
        self.paused = False
        self.stop_reason: str | None = None
        self.interrupted = False
        self._adjustments: dict[str, float] = {}

    # What others ask for -------------------------------------------------------

    def request_pause(self) -> None:
        """Asks to save and wait after the current iteration."""
        self.paused = True

    def resume(self) -> None:
        """Continues a paused training."""
        self.paused = False

    def stop(self, reason: str = "stopped on request") -> None:
        """Asks to end early: what was learned is evaluated and saved as a model."""
        self.stop_reason = self.stop_reason or reason or "stopped on request"

    def interrupt(self) -> None:
        """Asks to save and leave at once; the run can be resumed later."""
        self.interrupted = True

    def adjust(self, **changes: float) -> None:
        """Changes settings from the next iteration on; see `ADJUSTABLE`.

        Raises:
            ConfigError: The setting can't be changed now, or the value isn't valid.
        """
        for name, value in changes.items():
            if name not in _ADJUSTABLE:
                known = ", ".join(ADJUSTABLE)
                raise ConfigError(
                    f"'{name}' can't be changed during training."
                    f"{did_you_mean(name, ADJUSTABLE)} Adjustable: {known}."
                )
            fits, allowed = _ADJUSTABLE[name]
            number = isinstance(value, int | float) and not isinstance(value, bool)
            if not number or not fits(value):
                raise ConfigError(f"{name} must be {allowed}, not {value!r}.")
        with self._lock:
            self._adjustments.update(changes)

    # What the trainer asks -----------------------------------------------------

    def poll(self) -> list[str]:
        """Applies the source's commands; returns an error text for each bad one."""
        complaints = []
        for command, arguments in self.source() if self.source else ():
            try:
                self._apply(command, arguments)
            except (ConfigError, TypeError) as error:
                complaints.append(f"Command '{command}' was ignored: {error}")
        return complaints

    def take_adjustments(self) -> dict[str, float]:
        """Returns the changes requested since the last call."""
        with self._lock:
            taken, self._adjustments = self._adjustments, {}
        return taken

    def _apply(self, command: str, arguments: dict[str, Any]) -> None:
        orders: dict[str, Callable[..., None]] = {
            "pause": self.request_pause,
            "resume": self.resume,
            "stop": self.stop,
            "adjust": self.adjust,
        }
        if command not in orders:
            raise ConfigError(f"unknown command.{did_you_mean(command, COMMANDS)}")
        orders[command](**arguments)


@contextlib.contextmanager
def deferred_interrupt(control: Control) -> Iterator[None]:
    """The first Ctrl-C asks to save and leave; the second interrupts at once.

    An interrupted update would leave weights that belong neither to this iteration
    nor to the last one. Only the main thread receives Ctrl-C; elsewhere this does
    nothing.
    """
    if threading.current_thread() is not threading.main_thread():
        yield
        return

    def on_interrupt(number: int, frame: FrameType | None) -> None:
        if control.interrupted:
            raise KeyboardInterrupt
        control.interrupt()

    before = signal.getsignal(signal.SIGINT)
    if before is not signal.default_int_handler:
        # Another handler decides what Ctrl-C means here.
        yield
        return
    signal.signal(signal.SIGINT, on_interrupt)
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, before)

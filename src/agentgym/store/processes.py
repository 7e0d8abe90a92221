"""Whether the process that a row speaks of is still there."""

from __future__ import annotations

import os
import socket
from pathlib import Path
from typing import Any


def host() -> str:
    """Names this machine."""
    return socket.gethostname()


def birth(pid: int) -> str | None:
    """Tells a process from a later one of the same pid; None where unknown."""
    found = _look_up(pid)
    return None if found is None else found[1]


def columns(pid: int | None) -> dict[str, Any]:
    """What a row remembers of a process on this host."""
    if pid is None:
        return {"pid": None, "host": None, "process": None}
    return {"pid": pid, "host": host(), "process": birth(pid)}


def is_gone(pid: int | None, on_host: str | None, born: str | None) -> bool:
    """Whether the process has certainly ended. False if that is unknown."""
    # On Windows os.kill(pid, 0) would send a control event instead of asking.
    if pid is None or pid <= 0 or on_host != host() or os.name == "nt":
        return False
    try:
        os.kill(pid, 0)
    except (ProcessLookupError, OverflowError):
        return True
    except PermissionError:
        pass  # It exists and belongs to another user.
    found = _look_up(pid)
    if found is None:
        return False
    state, now_born = found
    return state in ("Z", "X") or (born is not None and born != now_born)


def _look_up(pid: int) -> tuple[str, str] | None:
    """State and birth of a process, as Linux tells them."""
    try:
        stat = Path(f"/proc/{pid}/stat").read_bytes()
        boot = Path("/proc/sys/kernel/random/boot_id").read_text().strip()
    except OSError:
        return None
    # The command name in parentheses may hold spaces and parentheses itself.
    fields = stat.rpartition(b")")[2].decode().split()
    return fields[0], f"{boot}:{fields[19]}"

"""Runs code that an agent wrote: with limits, and without a network.

This keeps accidents in. It is no jail for those who mean harm: the code can read what
this user can read, and write where this user may.
"""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from agentgym.agents.commands import kill_with_children
from agentgym.errors import UsageError

_NO_NETWORK = 97
"""Exit code of the launcher where the network cannot be taken away."""

# Runs in a fresh interpreter: between fork and exec a process with threads can do
# next to nothing safely.
_LAUNCHER = f"""
import ctypes, os, resource, sys
seconds, memory, output = map(int, sys.argv[1:4])
libc = ctypes.CDLL(None, use_errno=True)
user, network = 0x10000000, 0x40000000
if not hasattr(libc, "unshare") or (
    libc.unshare(network) and libc.unshare(user | network)
):
    sys.exit({_NO_NETWORK})
for limit, value in (
    (resource.RLIMIT_CPU, seconds),
    (resource.RLIMIT_AS, memory),
    (resource.RLIMIT_FSIZE, output),
    (resource.RLIMIT_CORE, 0),
):
    resource.setrlimit(limit, (value, value))
os.execvp(sys.argv[4], sys.argv[4:])
"""


@dataclass(frozen=True, slots=True)
class Outcome:
    """How it ended.

    Attributes:
        code: Exit code; negative for a signal, None if its time was up.
        output: The end of what it printed.
    """

    code: int | None
    output: str


def run_sandboxed(
    command: Sequence[str],
    folder: Path,
    *,
    seconds: float = 60.0,
    memory: int = 2 << 30,
    output: int = 16 << 20,
) -> Outcome:
    """Runs a command in a folder. Nothing that it started is left afterwards.

    Args:
        command: Its arguments.
        folder: Where it runs.
        seconds: That it may take, by the clock and of processor time.
        memory: Bytes that each of its processes may use.
        output: Bytes that it may print, or write to one file.

    Raises:
        UsageError: This system cannot take the network away from a process.
    """
    limits = [str(max(1, int(seconds))), str(memory), str(output)]
    log = folder / ".agentgym-sandbox"
    with log.open("w+b") as said:
        process = subprocess.Popen(
            [sys.executable, "-I", "-c", _LAUNCHER, *limits, *command],
            cwd=folder,
            stdin=subprocess.DEVNULL,
            stdout=said,
            stderr=subprocess.STDOUT,
            start_new_session=True,
            env={
                "PATH": f"{Path(sys.executable).parent}:/usr/local/bin:/usr/bin:/bin",
                "HOME": str(folder),
                "LANG": "C.UTF-8",
                # Also what leaves the process group is found by this, and ended.
                "AGENTGYM_SANDBOX": str(log),
            },
        )
        code: int | None
        try:
            code = process.wait(seconds)
        except subprocess.TimeoutExpired:
            code = None
        finally:
            kill_with_children(process, str(log))
        said.seek(max(0, said.seek(0, 2) - 4000))
        text = said.read().decode(errors="replace")
    log.unlink()
    if code == _NO_NETWORK:
        raise UsageError(
            "Code that agents write must run without a network, and this system does"
            " not allow that: run as root, or allow user namespaces."
        )
    return Outcome(code, text)

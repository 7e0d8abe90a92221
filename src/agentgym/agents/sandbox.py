"""Runs code that an agent wrote, with resource limits and without a network.

This contains accidents, not attacks: the code has this user's read and write access.
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
"""The launcher's exit code if it can't disable the network."""

# Runs in a fresh interpreter: a process with threads can do almost nothing safely
# between fork and exec.
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
    """The outcome of a command.

    Attributes:
        code: Exit code; negative for a signal, None after a timeout.
        output: The last part of its output.
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
    """Runs a command in a folder, and ends all processes that it started.

    Args:
        command: The command with its arguments.
        folder: The working directory.
        seconds: Limit for wall time and for CPU time.
        memory: Memory limit of each process, in bytes.
        output: Limit for printed output and for each file, in bytes.

    Raises:
        UsageError: This system can't disable the network for a process.
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
                # This also finds and ends processes that left the process group.
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
            "AgentGym runs code from agents without a network, but this system doesn't"
            " allow that. Run as root or enable user namespaces."
        )
    return Outcome(code, text)

"""Runs agents that are programs, and code that agents wrote, in separate processes.

Code that agents wrote runs in a sandbox, with resource limits and without a network.
This contains accidents, not attacks: the code has this user's read and write access.
"""

from __future__ import annotations

import contextlib
import os
import shlex
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Any

from agentgym.agents.gateway import Gateway
from agentgym.agents.manager import AgentContext, AgentFailed, AgentManager
from agentgym.core.tools import FailureKind
from agentgym.errors import UsageError
from agentgym.integrations.base import NO_TELEMETRY

MAX_OUTPUT = 64 << 20
"""Maximum size of an agent's output in bytes."""
_OUTPUT = ".agentgym-output"
_SHOWN = 300
"""Maximum characters of the output in an error message."""
_GRACE = 1.0
"""Seconds between terminating a process and killing it."""
_TICK = 0.02

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


class CommandAgentManager(AgentManager):
    """Runs a command for each task.

    The environment variables `OPENAI_BASE_URL` (and `OPENAI_API_BASE`) contain its
    endpoint, `OPENAI_API_KEY` its key, and `AGENTGYM_SESSION_URL` the URL of the
    episode. In arguments, `{prompt}` is replaced with the user's message. The command
    runs in a temporary folder, so arguments that name existing files are made absolute.
    At the time limit, it is killed with all its children.
    """

    def __init__(
        self,
        command: str | Sequence[str],
        gateway: Gateway,
        *,
        environment: Mapping[str, str] = {},
        **options: Any,
    ) -> None:
        """Creates the manager.

        Args:
            command: A command line in shell syntax, or a list of arguments. It doesn't
                run in a shell.
            gateway: See `AgentManager`.
            environment: Additional environment variables.
            **options: See `AgentManager`.

        Raises:
            UsageError: The command doesn't exist.
        """
        arguments = parse_command(command)
        options.setdefault("kind", Path(arguments[0]).name)
        super().__init__(gateway, **options)
        self._command = arguments
        self._environment = dict(environment)

    def work(self, context: AgentContext) -> str | None:
        """See `AgentManager.work`."""
        run_command(
            [part.replace("{prompt}", context.task.prompt) for part in self._command],
            context,
            context.folder,
            self.time_limit,
            self._environment,
        )
        return None


def parse_command(command: str | Sequence[str]) -> list[str]:
    """Returns a command's arguments, usable from another folder.

    Raises:
        UsageError: The command doesn't exist.
    """
    try:
        arguments = shlex.split(command) if isinstance(command, str) else command
    except ValueError as error:
        raise UsageError(f"Invalid agent command: {error}.") from None
    program = shutil.which(arguments[0]) if arguments else None
    if program is None:
        what = arguments[0] if arguments else ""
        raise UsageError(f"Agent command '{what}' not found.")
    return [
        os.path.abspath(program),
        *(os.path.abspath(a) if os.path.exists(a) else a for a in arguments[1:]),
    ]


def run_command(
    command: Sequence[str],
    context: AgentContext,
    folder: Path,
    time_limit: float,
    environment: Mapping[str, str] = {},
) -> None:
    """Runs an agent's command with its endpoint until it ends.

    Args:
        command: The command with its arguments.
        context: The agent's context.
        folder: The working directory.
        time_limit: Time limit in seconds.
        environment: Additional environment variables.

    Raises:
        AgentFailed: The command failed. All processes that it started are ended.
    """
    with (context.folder / _OUTPUT).open("w+b") as output:
        variables = {**NO_TELEMETRY, **_variables(context), **environment}
        process = _start(command, folder, output, {**os.environ, **variables})
        try:
            code = _wait(process, context, output, time_limit)
        finally:
            # Its child processes may still run after it has ended.
            kill_with_children(process, context.url)
        if code != 0:
            how = f"signal {-code}" if code < 0 else f"exit code {code}"
            said = " ".join(_tail(output, 4 * _SHOWN).split())[-_SHOWN:]
            raise AgentFailed(f"the agent ended with {how}: {said}".rstrip(": "))


def _wait(
    process: subprocess.Popen[bytes],
    context: AgentContext,
    output: IO[bytes],
    time_limit: float,
) -> int:
    end = time.monotonic() + time_limit
    while (left := end - time.monotonic()) > 0 and not context.stopping.is_set():
        # In short waits, to notice when everything must stop.
        with contextlib.suppress(subprocess.TimeoutExpired):
            return process.wait(min(1.0, left))
        if os.fstat(output.fileno()).st_size > MAX_OUTPUT:
            raise AgentFailed(f"the agent wrote more than {MAX_OUTPUT:,} bytes")
    raise AgentFailed(
        f"the agent did not end within {time_limit:g} s", FailureKind.AGENT_TIMEOUT
    )


def _variables(context: AgentContext) -> dict[str, str]:
    return {
        "OPENAI_BASE_URL": context.base_url,
        "OPENAI_API_BASE": context.base_url,
        "OPENAI_API_KEY": context.api_key,
        "AGENTGYM_SESSION_URL": context.url,
        "AGENTGYM_TASK_ID": context.task.id,
    }


def kill_with_children(process: subprocess.Popen[bytes], mark: str) -> None:
    """Ends a session's leading process and all processes that it started.

    This includes processes that left its group, on systems with /proc.
    """
    if process.poll() is None:
        _signal_group(process.pid, signal.SIGTERM)
        with contextlib.suppress(subprocess.TimeoutExpired):
            process.wait(_GRACE)
    _signal_group(process.pid, signal.SIGKILL)
    process.wait()
    end = time.monotonic() + _GRACE
    while (left := _started_with(mark)) and time.monotonic() < end:
        for pid in left:
            with contextlib.suppress(ProcessLookupError, PermissionError):
                os.kill(pid, signal.SIGKILL)
        time.sleep(_TICK)


def _signal_group(group: int, number: int) -> None:
    with contextlib.suppress(ProcessLookupError, PermissionError):
        os.killpg(group, number)


def _started_with(mark: str) -> list[int]:
    """The processes with the mark in their environment, on systems with /proc."""
    found = []
    for entry in Path("/proc").glob("[0-9]*"):
        with contextlib.suppress(OSError):
            if mark.encode() in (entry / "environ").read_bytes():
                found.append(int(entry.name))
    return found


def _start(
    command: Sequence[str], folder: Path, output: IO[bytes], variables: dict[str, str]
) -> subprocess.Popen[bytes]:
    return subprocess.Popen(
        command,
        cwd=folder,
        env=variables,
        stdin=subprocess.DEVNULL,
        stdout=output,
        stderr=subprocess.STDOUT,
        start_new_session=True,
    )


def _tail(output: IO[bytes], size: int) -> str:
    output.seek(max(0, output.seek(0, os.SEEK_END) - size))
    return output.read().decode(errors="replace")


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
        variables = {
            "PATH": f"{Path(sys.executable).parent}:/usr/local/bin:/usr/bin:/bin",
            "HOME": str(folder),
            "LANG": "C.UTF-8",
            # Finds processes that leave the process group, to kill them too.
            "AGENTGYM_SANDBOX": str(log),
        }
        launched = [sys.executable, "-I", "-c", _LAUNCHER, *limits, *command]
        process = _start(launched, folder, said, variables)
        code: int | None
        try:
            code = process.wait(seconds)
        except subprocess.TimeoutExpired:
            code = None
        finally:
            kill_with_children(process, str(log))
        text = _tail(said, 4000)
    log.unlink()
    if code == _NO_NETWORK:
        raise UsageError(
            "AgentGym runs code from agents without a network, but this system doesn't"
            " allow that. Run as root or enable user namespaces."
        )
    return Outcome(code, text)

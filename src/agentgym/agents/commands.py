"""Agents that are programs: any command line, in processes of their own."""

from __future__ import annotations

import contextlib
import os
import shlex
import shutil
import signal
import subprocess
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import IO, Any

from agentgym.agents.gateway import Gateway
from agentgym.agents.manager import AgentContext, AgentFailed, AgentManager
from agentgym.core.tools import FailureKind
from agentgym.errors import UsageError
from agentgym.integrations.base import NO_TELEMETRY

MAX_OUTPUT = 64 << 20
"""Bytes that an agent may print."""
_OUTPUT = ".agentgym-output"
_SHOWN = 300
"""Characters of its output that a failure quotes."""
_GRACE = 1.0
"""Seconds between asking a process to end and ending it."""
_TICK = 0.02


class CommandAgentManager(AgentManager):
    """Runs a command for each task.

    It finds its endpoint in `OPENAI_BASE_URL` (and `OPENAI_API_BASE`), its key in
    `OPENAI_API_KEY`, and the world at `AGENTGYM_SESSION_URL`. In an argument,
    `{prompt}` stands for what the user says. Its current folder is its own, and gone
    afterwards; arguments that name a file here are made absolute for that. At the time
    limit it is killed with all its children.
    """

    def __init__(
        self,
        command: str | Sequence[str],
        gateway: Gateway,
        *,
        environment: Mapping[str, str] = {},
        **options: Any,
    ) -> None:
        """Prepares.

        Args:
            command: A line as for a shell, though none runs it, or its arguments.
            gateway: See `AgentManager`.
            environment: Further variables.
            **options: See `AgentManager`.

        Raises:
            UsageError: There is no such command.
        """
        arguments = parse_command(command)
        options.setdefault("kind", Path(arguments[0]).name)
        super().__init__(gateway, **options)
        self._command = arguments
        self._environment = dict(environment)

    def work(self, place: AgentContext) -> str | None:
        """See `AgentManager.work`."""
        run_command(
            [part.replace("{prompt}", place.task.prompt) for part in self._command],
            place,
            place.folder,
            self.time_limit,
            self._environment,
        )
        return None


def parse_command(command: str | Sequence[str]) -> list[str]:
    """The arguments of a command, such that it can be run in another folder.

    Raises:
        UsageError: There is no such command.
    """
    try:
        arguments = shlex.split(command) if isinstance(command, str) else command
    except ValueError as error:
        raise UsageError(f"The agent's command makes no sense: {error}.") from None
    program = shutil.which(arguments[0]) if arguments else None
    if program is None:
        what = arguments[0] if arguments else ""
        raise UsageError(f"There is no command '{what}' to run as the agent.")
    return [
        os.path.abspath(program),
        *(os.path.abspath(a) if os.path.exists(a) else a for a in arguments[1:]),
    ]


def run_command(
    command: Sequence[str],
    place: AgentContext,
    folder: Path,
    time_limit: float,
    environment: Mapping[str, str] = {},
) -> None:
    """Runs an agent's command to its end, pointed at its endpoint.

    Args:
        command: Its arguments.
        place: What the agent finds.
        folder: Where it runs.
        time_limit: Seconds that it may take.
        environment: Further variables.

    Raises:
        AgentFailed: It did not end well. Nothing that it started is left.
    """
    with (place.folder / _OUTPUT).open("w+b") as output:
        process = subprocess.Popen(
            command,
            cwd=folder,
            env={**os.environ, **NO_TELEMETRY, **_variables(place), **environment},
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=subprocess.STDOUT,
            start_new_session=True,
        )
        try:
            code = _wait(process, place, output, time_limit)
        finally:
            # What it started may still be there when it has ended itself.
            kill_with_children(process, place.url)
        if code != 0:
            how = f"signal {-code}" if code < 0 else f"exit code {code}"
            said = f"the agent ended with {how}: {_tail(output)}"
            raise AgentFailed(said.rstrip(": "))


def _wait(
    process: subprocess.Popen[bytes],
    place: AgentContext,
    output: IO[bytes],
    time_limit: float,
) -> int:
    end = time.monotonic() + time_limit
    while (left := end - time.monotonic()) > 0 and not place.stopping.is_set():
        # In slices, to hear when everything must end.
        with contextlib.suppress(subprocess.TimeoutExpired):
            return process.wait(min(1.0, left))
        if os.fstat(output.fileno()).st_size > MAX_OUTPUT:
            raise AgentFailed(f"the agent wrote more than {MAX_OUTPUT:,} bytes")
    raise AgentFailed(
        f"the agent did not end within {time_limit:g} s", FailureKind.AGENT_TIMEOUT
    )


def _variables(place: AgentContext) -> dict[str, str]:
    return {
        "OPENAI_BASE_URL": place.base_url,
        "OPENAI_API_BASE": place.base_url,
        "OPENAI_API_KEY": place.api_key,
        "AGENTGYM_SESSION_URL": place.url,
        "AGENTGYM_TASK_ID": place.task.id,
    }


def kill_with_children(process: subprocess.Popen[bytes], mark: str) -> None:
    """Ends a process that leads its own session, and all that it started.

    Also what left its process group, where the system tells what it was started with.
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
    """Processes that have the mark in their environment, where there is /proc."""
    found = []
    for entry in Path("/proc").glob("[0-9]*"):
        with contextlib.suppress(OSError):
            if mark.encode() in (entry / "environ").read_bytes():
                found.append(int(entry.name))
    return found


def _tail(output: IO[bytes]) -> str:
    output.seek(0, os.SEEK_END)
    output.seek(max(0, output.tell() - 4 * _SHOWN))
    text = output.read().decode(errors="replace")
    return " ".join(text.split())[-_SHOWN:]

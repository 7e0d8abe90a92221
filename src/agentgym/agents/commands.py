"""Agents that are programs: runs any command in a separate process."""

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
"""Maximum size of an agent's output in bytes."""
_OUTPUT = ".agentgym-output"
_SHOWN = 300
"""Maximum characters of the output in an error message."""
_GRACE = 1.0
"""Seconds between terminating a process and killing it."""
_TICK = 0.02


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
        process = subprocess.Popen(
            command,
            cwd=folder,
            env={**os.environ, **NO_TELEMETRY, **_variables(context), **environment},
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=subprocess.STDOUT,
            start_new_session=True,
        )
        try:
            code = _wait(process, context, output, time_limit)
        finally:
            # Its child processes may still run after it has ended.
            kill_with_children(process, context.url)
        if code != 0:
            how = f"signal {-code}" if code < 0 else f"exit code {code}"
            said = f"the agent ended with {how}: {_tail(output)}"
            raise AgentFailed(said.rstrip(": "))


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


def _tail(output: IO[bytes]) -> str:
    output.seek(0, os.SEEK_END)
    output.seek(max(0, output.tell() - 4 * _SHOWN))
    text = output.read().decode(errors="replace")
    return " ".join(text.split())[-_SHOWN:]

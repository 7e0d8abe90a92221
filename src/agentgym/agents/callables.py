"""Agents that are functions in this process."""

from __future__ import annotations

import asyncio
import contextlib
import inspect
import threading
from collections.abc import Callable, Sequence
from typing import Any

from agentgym.agents.gateway import Gateway
from agentgym.agents.manager import AgentContext, AgentFailed, AgentManager
from agentgym.core.tools import FailureKind
from agentgym.core.trajectory import EpisodePlan, Trajectory
from agentgym.episodes.episode import EnvironmentPool
from agentgym.errors import UsageError
from agentgym.integrations.base import framework_of, switch_off_telemetry
from agentgym.utils.objects import load_object
from agentgym.utils.threads import ThreadForEachCall

Agent = Callable[..., Any]
"""`agent(task, base_url, api_key)`, plain or async; see `AgentTask`. If it returns a
text, that is its final message to the user."""

_GRACE = 1.0
"""Time limit for an agent to end after it was told to stop, in seconds."""
_TICK = 0.2


class CallableAgentManager(AgentManager):
    """Runs a function for each task in a separate thread, with an event loop if async.

    So an agent that blocks or never returns doesn't delay others. Python can't kill a
    thread: a plain function that hangs, or an async one that ignores its cancellation,
    keeps running without an endpoint. It keeps its memory, but doesn't block the
    program's exit. `on_warning` gets a warning each time their number has doubled.
    """

    def __init__(self, agent: Agent, gateway: Gateway, **options: Any) -> None:
        """Creates the manager.

        Args:
            agent: Called as `agent(task, base_url, api_key)`.
            gateway: See `AgentManager`.
            **options: See `AgentManager`.
        """
        options.setdefault("kind", getattr(agent, "__name__", type(agent).__name__))
        super().__init__(gateway, **options)
        self._agent = agent
        self._left: list[_Run] = []
        self._told = 0

    @property
    def left_behind(self) -> int:
        """Number of agents that timed out and are still running."""
        return sum(not run.ended.is_set() for run in self._left)

    def play(
        self,
        episodes: Sequence[EpisodePlan],
        environments: EnvironmentPool | None = None,
    ) -> list[list[Trajectory]]:
        """See `AgentManager.play`."""
        played = super().play(episodes, environments)
        self._left = [run for run in self._left if not run.ended.is_set()]
        count = len(self._left)
        if count >= max(1, 2 * self._told):
            self._told = count
            self.on_warning(
                f"{count} of the agents '{self.kind}' did not end in time. Python"
                " can't kill their threads, so they keep running without an"
                " endpoint. For a hard timeout, use agent_command."
            )
        return played

    def work(self, context: AgentContext) -> str | None:
        """See `AgentManager.work`."""
        run = _Run(self._agent, context)
        thread = threading.Thread(target=run, name="agentgym-callable", daemon=True)
        thread.start()
        left = self.time_limit
        while not run.ended.wait(min(_TICK, left)) and not context.stopping.is_set():
            left -= _TICK
            if left <= 0:
                break
        if not run.ended.is_set():
            run.cancel()
            if not run.ended.wait(_GRACE):
                self._left.append(run)
            raise AgentFailed(
                f"the agent did not end within {self.time_limit:g} s",
                FailureKind.AGENT_TIMEOUT,
            )
        if run.problem is not None:
            name = type(run.problem).__name__
            raise AgentFailed(f"{name}: {run.problem}".rstrip(": ")[:500])
        return run.answer if isinstance(run.answer, str) else None


class _Run:
    def __init__(self, agent: Agent, context: AgentContext) -> None:
        self._agent = agent
        self._context = context
        self._loop: asyncio.AbstractEventLoop | None = None
        self._task: asyncio.Task[Any] | None = None
        self.answer: Any = None
        self.problem: BaseException | None = None
        self.ended = threading.Event()

    def __call__(self) -> None:
        try:
            context = self._context
            answer = self._agent(context.task, context.base_url, context.api_key)
            if inspect.isawaitable(answer):
                answer = asyncio.run(self._await(answer))
            self.answer = answer
        except BaseException as error:
            # Also SystemExit: it ends the agent, not the training.
            self.problem = error
        finally:
            self.ended.set()

    def cancel(self) -> None:
        if self._loop is not None and self._task is not None:
            with contextlib.suppress(RuntimeError):  # It may just have ended.
                self._loop.call_soon_threadsafe(self._task.cancel)

    async def _await(self, answer: Any) -> Any:
        self._task = asyncio.ensure_future(answer)
        self._loop = asyncio.get_running_loop()
        self._loop.set_default_executor(ThreadForEachCall())
        return await self._task


def load_agent(path: str) -> Agent:
    """Loads an agent by `module:name`: a function or a framework's agent.

    It may also be a function without arguments that returns one of these.

    Raises:
        UsageError: It doesn't exist or isn't an agent.
    """
    switch_off_telemetry()
    found: Agent = load_object(path, "Agent")
    if framework := framework_of(found):
        return _of_framework(framework, lambda: found, found, factory=False)
    # A function without required arguments is a factory of agents.
    if _takes(found, 3) and not _takes(found, 0):
        return found
    if _takes(found, 0):
        try:
            made = found()
        except Exception as error:
            text = " ".join(str(error).split())
            raise UsageError(
                f"'{path}' failed: {type(error).__name__}: {text[:300]} (Training never"
                " asks the agent's own model, so any API key works.)"
            ) from error
        if framework := framework_of(made):
            return _of_framework(framework, found, made, factory=True)
        if _takes(made, 3):
            return made  # type: ignore[no-any-return]
    raise UsageError(
        f"'{path}' isn't an agent. It must be a function of (task, base_url, api_key),"
        " an agent of LangChain, AutoGen or CrewAI, or a function without arguments"
        " that returns one of these."
    )


def _of_framework(
    framework: str, make: Callable[[], Any], first: Any, *, factory: bool
) -> Agent:
    from agentgym.integrations.harness import FrameworkAgent

    return FrameworkAgent(framework, make, first, factory=factory)


def _takes(function: Any, count: int) -> bool:
    try:
        inspect.signature(function).bind(*range(count))
    except (TypeError, ValueError):
        return False
    return True

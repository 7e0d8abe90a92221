"""A scenario's world for an existing agent: tools to call and a user to talk to.

The agent runs its own loop. It asks its endpoint what to do, and acts here: it calls
tools and sends messages to the user. Each action is matched with the decision that it
came from, so that the recorded episode looks like one of the built-in loop.
"""

from __future__ import annotations

import asyncio
import contextlib
import dataclasses
import json
import queue
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

from agentgym.core.task import Message, Task
from agentgym.core.tools import FailureKind, Tool, ToolCall, ToolResult, ToolRunner
from agentgym.core.trajectory import Step, Trajectory
from agentgym.episodes.recorder import Exchange
from agentgym.errors import AgentGymError
from agentgym.scenarios.base import Scenario
from agentgym.scenarios.environment import Environment
from agentgym.serving.deciding import Answer
from agentgym.training.rollout import act, finish, guarded, right_steps

OVER = ToolResult(
    json.dumps({"error": "episode_over", "message": "the episode is over"}),
    FailureKind.TOOL_ERROR,
)
"""The answer to an agent that continues after the end of its episode."""


class Episode:
    """One episode. Thread-safe, because an agent may call tools in parallel.

    The first call of a decision runs all its calls; the others then get their stored
    results. A call or message that no decision asked for is the agent's own: it counts,
    but the policy doesn't learn from it.
    """

    def __init__(
        self,
        environment: Environment,
        trajectory: Trajectory,
        sibling: Trajectory | None = None,
    ) -> None:
        """Starts an episode.

        Args:
            environment: Plays this task. Don't use it elsewhere at the same time.
            trajectory: Receives the steps; provides task and seed.
            sibling: An episode to repeat up to its first wrong step.
        """
        self.trajectory = trajectory
        self.forked = sibling is not None
        """Whether it branches off a sibling."""
        self._environment = environment
        right = right_steps(sibling) if sibling else []
        # The agent will repeat its own actions without being told.
        self._script = [step for step in right if step.state_key]
        self._pending: list[Exchange] = []
        self._held: list[tuple[ToolCall, ToolResult]] = []
        self._lock = threading.RLock()
        self._closed = not guarded(
            trajectory, environment.reset_task, trajectory.task, trajectory.seed
        )
        self.problem: AgentGymError | None = None
        """An error that ends the whole training."""

    @property
    def tools(self) -> Sequence[Tool]:
        """The available tools."""
        return self._environment.tool_list

    @property
    def over(self) -> bool:
        """Whether the episode is over, so that the agent's actions have no effect."""
        return self._ended()

    def _ended(self) -> bool:
        return self._closed or self._environment.done

    # For the gateway ---------------------------------------------------------------

    def scripted(self, state_key: str) -> Step | None:
        """The sibling's step to repeat at this state; None if there is none."""
        with self._lock:
            if self._script and self._script[0].state_key == state_key:
                return self._script.pop(0)
            return None

    @property
    def branching(self) -> bool:
        """Whether the next decision is the first one that isn't repeated."""
        with self._lock:
            steps = [step for step in self.trajectory.steps if step.state_key]
            return self.forked and not self._script and all(s.replayed for s in steps)

    def decided(self, exchange: Exchange) -> None:
        """Records that the agent got a decision."""
        with self._lock:
            self._pending.append(exchange)

    # For the agent -----------------------------------------------------------------

    def call(self, name: str, arguments: Mapping[str, Any]) -> ToolResult:
        """Runs a tool, live."""
        call = ToolCall(name, dict(arguments))
        with self._lock:
            for same in (True, False):
                for exchange in reversed(self._pending):
                    found = _find(exchange.step.calls, call, same)
                    if found is not None and not self.over:
                        return self._run(call, exchange, found)
                found = _find([made for made, _ in self._held], call, same)
                if found is not None:
                    return self._held.pop(found)[1]
            return OVER if self.over else self._run(call, None, 0)

    def say(self, content: str) -> str | None:
        """Sends a message to the user; returns the reply, or None at the end."""
        with self._lock:
            if self.over:
                return None
            spoken = [e for e in self._pending if not e.step.calls]
            same = [e for e in spoken if e.step.message.get("content") == content]
            found = same or spoken
            self._act({"content": content}, found[-1] if found else None)
            last = self._environment.messages[-1]
            # Checks again, because this message may have ended the episode.
            return None if self._ended() else str(last["content"])

    def close(self, answer: str | None = None) -> None:
        """Ends and judges the episode.

        Args:
            answer: The agent's final text. If it is None and the last decision was a
                message, that message is the answer.
        """
        with self._lock:
            if self._closed:
                return
            if not self.over and self.trajectory.failure is None:
                last = self._pending[-1] if self._pending else None
                if answer is None and last is not None and not last.step.calls:
                    answer = str(last.step.message.get("content") or "")
                if answer is not None:
                    self.say(answer)
            self._closed = True
            if self.trajectory.failure is None and self.trajectory.steps:
                self._guard(finish, self._environment, self.trajectory)
            with contextlib.suppress(Exception):
                self._environment.release()

    # -------------------------------------------------------------------------------

    def _run(self, call: ToolCall, exchange: Exchange | None, which: int) -> ToolResult:
        calls = list(exchange.step.calls) if exchange else [call]
        # The agent may have added or corrected arguments.
        calls[which] = dataclasses.replace(call, id=calls[which].id)
        if not self._act({"tool_calls": [c.to_openai() for c in calls]}, exchange):
            return OVER
        step = self.trajectory.steps[-1]
        self._held = list(zip(step.calls, step.results, strict=True))
        return self._held.pop(which)[1]

    def _act(self, message: Message, exchange: Exchange | None) -> bool:
        if exchange is None:
            step = Step({"content": None, **message})
        else:
            step = exchange.step
            exchange.used = True
            self._pending = []
            if not step.replayed:
                self._script = []
        self._held = []
        decided = step.message
        step.message = {**decided, **message}
        done = self._guard(act, self._environment, step)
        # The decision counts, even if the agent changed it.
        step.message = decided
        if done:
            self.trajectory.steps.append(step)
        return done

    def _guard(self, function: Any, *arguments: Any) -> bool:
        try:
            done = guarded(self.trajectory, function, *arguments)
        except AgentGymError as error:
            self.problem, done = error, False
        self._closed = self._closed or not done
        return done


class AgentTask:
    """A task for an agent, with access to its episode.

    Attributes:
        id: The task's id.
        messages: The opening messages.
        tools: Definitions of the tools, in OpenAI's format.
        world: The task's description of its world, if no scenario creates one.
    """

    def __init__(
        self,
        task: Task,
        episode: Episode | None = None,
        complete: Callable[..., Answer] | None = None,
    ) -> None:
        self.id = task.id
        self.messages: list[Message] = [dict(message) for message in task.messages]
        self.tools: list[dict[str, Any]] = (
            [tool.to_openai() for tool in episode.tools] if episode else []
        )
        self.world: Any = None if episode else task.world
        self._episode = episode
        self._complete = complete

    @classmethod
    def of(cls, episode: Episode) -> AgentTask:
        """Returns the task of an episode."""
        return cls(episode.trajectory.task, episode)

    @property
    def prompt(self) -> str:
        """The user's last message."""
        said = [m for m in self.messages if m.get("role") == "user"]
        return str(said[-1].get("content") or "") if said else ""

    def call_tool(self, name: str, arguments: Mapping[str, Any]) -> str:
        """Runs a tool and returns its result as JSON, also for errors."""
        return self._world.call(name, arguments).content

    async def acall_tool(self, name: str, arguments: Mapping[str, Any]) -> str:
        """The same, for agents that await."""
        return await asyncio.to_thread(self.call_tool, name, arguments)

    def reply(self, content: str) -> str | None:
        """Sends a message to the user; returns the reply, or None at the end."""
        return self._world.say(content)

    async def areply(self, content: str) -> str | None:
        """The same, for agents that await."""
        return await asyncio.to_thread(self.reply, content)

    def complete(self, chat: dict[str, Any], *, side: bool = False) -> Answer:
        """Requests a chat completion from the endpoint, in process.

        Args:
            chat: The body of the request.
            side: Whether the request isn't one of the agent's decisions.

        Raises:
            ApiError: The request failed.
        """
        if self._complete is None:
            raise LookupError("This task supports requests to its endpoint only.")
        return self._complete(chat, side=side)

    @property
    def _world(self) -> Episode:
        if self._episode is None:
            raise LookupError("This task has no environment: it was deployed without.")
        return self._episode


class EnvironmentPool:
    """A pool of reusable environments of a scenario."""

    def __init__(
        self, scenario: Scenario, *, max_steps: int = 10, tool_timeout: float = 10.0
    ) -> None:
        self._scenario = scenario
        self._max_steps = max_steps
        self._tool_timeout = tool_timeout
        self._free: queue.SimpleQueue[Environment] = queue.SimpleQueue()
        self._made: list[Environment] = []

    @contextlib.contextmanager
    def lend(self) -> Iterator[Environment]:
        """Lends an environment for exclusive use."""
        try:
            environment = self._free.get_nowait()
        except queue.Empty:
            # A runner handles one call at a time, so each environment has its own.
            environment = self._scenario.create_environment(
                max_steps=self._max_steps, runner=ToolRunner(self._tool_timeout)
            )
            self._made.append(environment)
        try:
            yield environment
        finally:
            self._free.put(environment)

    def close(self) -> None:
        """Closes all environments."""
        while self._made:
            self._made.pop().close()
        self._free = queue.SimpleQueue()


def _find(calls: Sequence[ToolCall], wanted: ToolCall, same: bool) -> int | None:
    """The index of the matching call: the same one, or the first with its name."""
    for i, call in enumerate(calls):
        if call.name == wanted.name and (
            not same or call.arguments == wanted.arguments
        ):
            return i
    return None

"""A scenario's world as an agent from elsewhere meets it: tools to call, a user to ask.

The agent runs its own loop. It asks its endpoint what to do, and does it here: calls
tools, speaks to the user. Each act is matched with the decision that it came from, so
that the episode reads as if the built-in loop had played it.
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
"""What an agent reads that does not stop when it should."""


class Episode:
    """One episode. Safe for several threads, as an agent may call tools in parallel.

    A decision with several calls takes effect as a whole when the first of them is
    made; the others are then answered with what they brought. A call or a message
    that no decision asked for is the agent's own: it counts, and nothing is learned
    from it.
    """

    def __init__(
        self,
        environment: Environment,
        trajectory: Trajectory,
        sibling: Trajectory | None = None,
    ) -> None:
        """Starts an episode.

        Args:
            environment: Plays this task; used by nobody else meanwhile.
            trajectory: Takes the steps. Its task and its seed count.
            sibling: An episode to repeat up to its first wrong step.
        """
        self.trajectory = trajectory
        self.forked = sibling is not None
        """Whether it branches off a sibling."""
        self._environment = environment
        right = right_steps(sibling) if sibling else []
        # What the agent did of its own accord it will do again by itself.
        self._script = [step for step in right if step.state_key]
        self._pending: list[Exchange] = []
        self._held: list[tuple[ToolCall, ToolResult]] = []
        self._lock = threading.RLock()
        self._closed = not guarded(
            trajectory, environment.reset_task, trajectory.task, trajectory.seed
        )
        self.problem: AgentGymError | None = None
        """What ends the whole training."""

    @property
    def tools(self) -> Sequence[Tool]:
        """What may be called."""
        return self._environment.tool_list

    @property
    def over(self) -> bool:
        """Whether nothing that the agent does has an effect any more."""
        return self._ended()

    def _ended(self) -> bool:
        return self._closed or self._environment.done

    # What the gateway tells and asks -----------------------------------------------

    def scripted(self, state_key: str) -> Step | None:
        """The step of the sibling to repeat at this state, if that is still on."""
        with self._lock:
            if self._script and self._script[0].state_key == state_key:
                return self._script.pop(0)
            return None

    @property
    def branching(self) -> bool:
        """Whether the next decision is the first that is not repeated."""
        with self._lock:
            steps = [step for step in self.trajectory.steps if step.state_key]
            return self.forked and not self._script and all(s.replayed for s in steps)

    def decided(self, exchange: Exchange) -> None:
        """A decision has been given to the agent."""
        with self._lock:
            self._pending.append(exchange)

    # What the agent does -----------------------------------------------------------

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
        """Speaks to the user; None closes the conversation."""
        with self._lock:
            if self.over:
                return None
            spoken = [e for e in self._pending if not e.step.calls]
            same = [e for e in spoken if e.step.message.get("content") == content]
            found = same or spoken
            self._act({"content": content}, found[-1] if found else None)
            last = self._environment.messages[-1]
            # Asked anew: what was just said may have ended it.
            return None if self._ended() else str(last["content"])

    def close(self, answer: str | None = None) -> None:
        """Ends the episode, and judges it.

        Args:
            answer: What the agent brought at the end. If it says nothing, but its
                last decision was a message, then that is the answer.
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
        # The agent may have filled in or mended what was decided.
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
        # It was decided so, whatever the agent made of it.
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
    """What an agent is given to do.

    Attributes:
        id: Of the task.
        messages: The conversation with which it opens.
        tools: Definitions of the tools that it may call, as OpenAI has them.
        world: What the task says of the world it happens in, where no scenario makes
            one of it.
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
        """The task of an episode."""
        return cls(episode.trajectory.task, episode)

    @property
    def prompt(self) -> str:
        """The last thing the user said."""
        said = [m for m in self.messages if m.get("role") == "user"]
        return str(said[-1].get("content") or "") if said else ""

    def call_tool(self, name: str, arguments: Mapping[str, Any]) -> str:
        """Runs a tool and returns what it brought: JSON, also for errors."""
        return self._world.call(name, arguments).content

    async def acall_tool(self, name: str, arguments: Mapping[str, Any]) -> str:
        """The same, for agents that await."""
        return await asyncio.to_thread(self.call_tool, name, arguments)

    def reply(self, content: str) -> str | None:
        """Says something to the user and returns the answer; None if there is none."""
        return self._world.say(content)

    async def areply(self, content: str) -> str | None:
        """The same, for agents that await."""
        return await asyncio.to_thread(self.reply, content)

    def complete(self, chat: dict[str, Any], *, side: bool = False) -> Answer:
        """Asks as one would ask the endpoint for a chat completion, but in process.

        Args:
            chat: The body of the request.
            side: Whether this is no decision of the agent.

        Raises:
            ApiError: There is no answer, and why.
        """
        if self._complete is None:
            raise LookupError("This task can only be asked about at its endpoint.")
        return self._complete(chat, side=side)

    @property
    def _world(self) -> Episode:
        if self._episode is None:
            raise LookupError("This task has no world: it was deployed without one.")
        return self._episode


class EnvironmentPool:
    """Environments of a scenario, kept and used again."""

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
        """An environment that nobody else uses meanwhile."""
        try:
            environment = self._free.get_nowait()
        except queue.Empty:
            # A runner serves one call at a time: each environment has its own.
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
    """Which of the calls is meant: the same one, or the first of that name."""
    for i, call in enumerate(calls):
        if call.name == wanted.name and (
            not same or call.arguments == wanted.arguments
        ):
            return i
    return None

"""Existing agents in training: their model asks the policy, their tools pass by here.

An `AgentHarness` plays one episode of an agent at a time: the agent is told what the
user says, in its own framework, with its own prompts. Whatever it asks its
model is answered by the policy, in process. Whatever tool it calls goes through the
episode, which judges it and runs it, live.
"""

from __future__ import annotations

import queue
from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from contextvars import Context, ContextVar
from dataclasses import dataclass, replace
from typing import Any, cast

from agentgym.core.task import Message
from agentgym.core.tools import Tool
from agentgym.episodes.chat import ChatModel, jsonable
from agentgym.episodes.episode import AgentTask
from agentgym.integrations.base import FrameworkAdapter, adapter, checked_tools
from agentgym.policies.base import Policy
from agentgym.policies.saved import SavedAgent
from agentgym.scenarios.base import Scenario


class AgentHarness(ABC):
    """One agent of a framework, in training.

    Attributes:
        chat: Decides for it.
        aside: Decides what is not the agent's to learn, such as who speaks next.
    """

    def __init__(self) -> None:
        self._task: AgentTask | None = None
        self.chat = ChatModel(lambda asked: self.task.complete(asked), limited=False)
        self.aside = ChatModel(
            lambda asked: self.task.complete(asked, side=True), limited=False
        )

    @property
    def task(self) -> AgentTask:
        """What the agent is at."""
        if self._task is None:
            raise RuntimeError("This agent is in training, and no episode is on.")
        return self._task

    @abstractmethod
    def begin(self, messages: Sequence[Message]) -> str | None:
        """Forgets what was, opens a conversation, and returns what the agent says.

        None if the conversation was closed meanwhile.
        """

    @abstractmethod
    def go_on(self, content: str) -> str | None:
        """Says something to the agent, and returns what it says to that."""

    def play(self, task: AgentTask) -> None:
        """Plays one episode.

        System messages of the task are left out: the agent has its own.
        """
        self._task = task
        try:
            said = [m for m in task.messages if m.get("role") != "system"]
            answer = self.begin(said)
            while answer is not None and (reply := task.reply(answer)) is not None:
                answer = self.go_on(reply)
        finally:
            self._task = None


@dataclass(slots=True)
class _Call:
    name: str
    arguments: dict[str, Any]
    run: Callable[[], Any]
    value: Any = None
    ran: bool = False


_CALL: ContextVar[_Call | None] = ContextVar("agentgym_call", default=None)
"""What an agent is calling, for the function that the episode runs in the end."""


class RoutedTool:
    """A tool of an agent whose calls pass through the episode.

    The episode runs the tool that was found before training. If the call came from an
    agent, that function runs it as this very agent would: agents of a factory may have
    tools of their own, which share no state.

    Attributes:
        tool: Its definition, with a function that runs it.
    """

    def __init__(self, tool: Tool, told: Callable[[Any], Any] = jsonable) -> None:
        """Prepares.

        Args:
            tool: Its function runs it from arguments alone.
            told: What the tool returned, as JSON can hold it.
        """
        self._told = told
        self._run = tool.function
        self.tool = replace(tool, function=self._live)

    def call(
        self, task: AgentTask, arguments: dict[str, Any], run: Callable[[], Any]
    ) -> Any:
        """Runs a call of the agent's, if the episode lets it.

        Args:
            task: What the agent is at.
            arguments: As the model gave them.
            run: Runs it as the framework would.

        Returns:
            What the tool returned. Where it was not run, or raised, the text that says
            what came of it.
        """
        call = _Call(self.tool.name, jsonable(arguments), run)
        token = _CALL.set(call)
        try:
            content = task.call_tool(call.name, call.arguments)
        finally:
            _CALL.reset(token)
        return call.value if call.ran else content

    def _live(self, **arguments: Any) -> Any:
        call = _CALL.get()
        # In a context of its own: what a tool does is not what the agent does.
        alone = Context()
        # Of several calls in one decision, the first has all of them run.
        if call is None or (call.name, call.arguments) != (self.tool.name, arguments):
            assert self._run is not None
            return self._told(alone.run(self._run, **arguments))
        call.value = alone.run(call.run)
        call.ran = True
        return self._told(call.value)


class FrameworkAgent:
    """An agent of a framework, as the trainer runs agents: a function of three.

    Attributes:
        tools: What it brings along; they run live.
        concurrency: Episodes that it can play at the same time; None for any number.
        persistent_state: What it keeps from one episode to the next.
    """

    def __init__(
        self,
        framework: str,
        make: Callable[[], Any],
        *,
        factory: bool,
    ) -> None:
        """Takes the agent in.

        Args:
            framework: Its name.
            make: Gives the agent.
            factory: Whether it gives another one each time.

        Raises:
            UsageError: Its tools are none, or cannot be used.
            MissingExtraError: The framework has the wrong version.
        """
        self._adapter: FrameworkAdapter = adapter(framework)
        self._make = make
        first = make()
        title = self._adapter.framework.title
        self.tools = checked_tools(
            self._adapter.extract_tools(first), f"The agent of {title}"
        )
        self.__name__ = framework
        self.persistent_state = self._adapter.persistent_state(first)
        shared = not factory and not self._adapter.stateless(first)
        self.concurrency: int | None = 1 if shared else None
        self._factory = factory
        self._first: Any = first
        self._free: queue.SimpleQueue[AgentHarness] = queue.SimpleQueue()

    def __call__(self, task: AgentTask, base_url: str, api_key: str) -> None:
        """Plays one episode; the model is asked in process, not at the endpoint."""
        try:
            harness = self._free.get_nowait()
        except queue.Empty:
            harness = self._new_seat()
        try:
            harness.play(task)
        except BaseException:
            # Who knows what state it is in. An object there is only one of.
            if not self._factory:
                self._free.put(harness)
            raise
        self._free.put(harness)

    def _new_seat(self) -> AgentHarness:
        if self._first is not None:
            agent = self._first
            if self._factory:
                self._first = None
        else:
            agent = self._make()
        return self._adapter.harness(agent)


def scenario_agent(name: str, scenario: Scenario) -> FrameworkAgent:
    """A framework's own agent around a scenario's tools, for training through it.

    Args:
        name: Of the framework.
        scenario: Its tools and its system prompt are used.
    """
    environment = scenario.create_environment()
    offered = environment.tool_list
    tools = [
        replace(tool, function=_only_in_episodes, takes_world=False) for tool in offered
    ]
    environment.close()
    about = {"system_prompt": scenario.system_prompt, "scenario": scenario.name}
    # It is a shell without a policy: the one in training answers for it.
    shell = SavedAgent(cast(Policy, None), tools, about)
    return FrameworkAgent(name, lambda: adapter(name).wrap_agent(shell), factory=True)


def _only_in_episodes(**arguments: Any) -> Any:
    raise RuntimeError("This tool runs in a scenario's world only.")

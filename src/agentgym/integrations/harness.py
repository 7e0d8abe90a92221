"""Runs existing agents in training: redirects their models and tools.

An `AgentHarness` plays one episode at a time: the agent gets the user's messages in
its own framework, with its own prompts. The policy answers all requests to the agent's
model, in process. All tool calls go through the episode, which judges and runs them.
"""

from __future__ import annotations

import queue
from collections.abc import Callable
from contextvars import Context, ContextVar
from dataclasses import dataclass, replace
from typing import Any, cast

from agentgym.core.tools import Tool
from agentgym.episodes.chat import jsonable
from agentgym.episodes.episode import AgentTask
from agentgym.integrations.base import AgentHarness, FrameworkAdapter, adapter
from agentgym.policies.base import Policy
from agentgym.policies.saved import SavedAgent
from agentgym.scenarios.base import Scenario


@dataclass(slots=True)
class _Call:
    name: str
    arguments: dict[str, Any]
    run: Callable[[], Any]
    value: Any = None
    ran: bool = False


_CALL: ContextVar[_Call | None] = ContextVar("agentgym_call", default=None)
"""The agent's current call, for the function that the episode runs."""


class RoutedTool:
    """An agent's tool, whose calls go through the episode.

    The episode runs the tool that was found before training. That tool's function then
    runs the calling agent's own tool: each agent of a factory may have separate tools
    that share no state.

    Attributes:
        tool: The tool's definition, with a function that runs it.
    """

    def __init__(self, tool: Tool, told: Callable[[Any], Any] = jsonable) -> None:
        """Creates the routed tool.

        Args:
            tool: A tool whose function needs only the arguments.
            told: Converts what the tool returned to a JSON value.
        """
        self._told = told
        self._run = tool.function
        self.tool = replace(tool, function=self._live)

    def call(
        self, task: AgentTask, arguments: dict[str, Any], run: Callable[[], Any]
    ) -> Any:
        """Runs an agent's call, if the episode allows it.

        Args:
            task: The current task.
            arguments: The arguments from the model.
            run: Runs the call as the framework would.

        Returns:
            What the tool returned, or a text if the tool didn't run or raised.
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
        # In a separate context: a tool's own model requests aren't the agent's.
        isolated = Context()
        # The first of several calls in one decision runs all of them.
        if call is None or (call.name, call.arguments) != (self.tool.name, arguments):
            assert self._run is not None
            return self._told(isolated.run(self._run, **arguments))
        call.value = isolated.run(call.run)
        call.ran = True
        return self._told(call.value)


class FrameworkAgent:
    """An agent of a framework as a callable for the trainer.

    Attributes:
        tools: The agent's own tools; they run live.
        concurrency: Maximum number of concurrent episodes; None for no limit.
        persistent_state: What the agent keeps between episodes.
    """

    def __init__(
        self,
        framework: str,
        make: Callable[[], Any],
        first: Any,
        *,
        factory: bool,
    ) -> None:
        """Prepares the agent for training.

        Args:
            framework: The framework's name.
            make: Returns the agent.
            first: What `make` returned first: a factory is called once before training.
            factory: Whether `make` returns a new agent each time.

        Raises:
            UsageError: The agent has no tools, or tools that can't be used.
            MissingExtraError: The framework is missing or has the wrong version.
        """
        self._adapter: FrameworkAdapter = adapter(framework)
        self._make = make
        self.tools = self._adapter.extract_tools(first)
        self.__name__ = framework
        self.persistent_state = self._adapter.persistent_state(first)
        shared = not factory and not self._adapter.stateless(first)
        self.concurrency: int | None = 1 if shared else None
        self._factory = factory
        self._first: Any = first
        self._free: queue.SimpleQueue[AgentHarness] = queue.SimpleQueue()

    def __call__(self, task: AgentTask, base_url: str, api_key: str) -> None:
        """Plays one episode; asks the policy in process, not over HTTP."""
        try:
            harness = self._free.get_nowait()
        except queue.Empty:
            harness = self._new_harness()
        try:
            harness.play(task)
        except BaseException:
            # Its state is unknown now. A single object can't be replaced, though.
            if not self._factory:
                self._free.put(harness)
            raise
        self._free.put(harness)

    def _new_harness(self) -> AgentHarness:
        agent = self._make() if self._first is None else self._first
        if self._factory:
            self._first = None
        return self._adapter.harness(agent)


def scenario_agent(name: str, scenario: Scenario) -> FrameworkAgent:
    """Returns a framework's agent with a scenario's tools, to train through it.

    Args:
        name: The framework's name.
        scenario: Provides the tools and the system prompt.
    """
    environment = scenario.create_environment()
    offered = environment.tool_list
    tools = [
        replace(tool, function=_only_in_episodes, takes_world=False) for tool in offered
    ]
    environment.close()
    about = {"system_prompt": scenario.system_prompt, "scenario": scenario.name}
    # This agent has no policy: the one in training answers for it.
    shell = SavedAgent(cast(Policy, None), tools, about)

    def make() -> Any:
        return adapter(name).wrap_agent(shell)

    return FrameworkAgent(name, make, make(), factory=True)


def _only_in_episodes(**arguments: Any) -> Any:
    raise RuntimeError("This tool runs only inside a scenario's environment.")

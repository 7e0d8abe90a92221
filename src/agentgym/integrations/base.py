"""The adapters' contract, and the supported frameworks and versions.

Each adapter is the only importer of its framework. `adapter("langchain")` checks the
version before importing it, so a missing package is a one-line error.
"""

from __future__ import annotations

import dataclasses
import inspect
import os
import re
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from importlib import metadata
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast

from agentgym.core.task import Message
from agentgym.core.tools import Tool, ToolCall, ToolRunner, tool_map
from agentgym.episodes.chat import ChatModel
from agentgym.episodes.episode import AgentTask
from agentgym.errors import AgentGymError, MissingExtraError, UsageError, did_you_mean
from agentgym.utils.objects import load_object

if TYPE_CHECKING:
    from agentgym.policies.saved import SavedAgent
    from agentgym.scenarios.environment import Environment

NO_TELEMETRY = {
    "CREWAI_DISABLE_TELEMETRY": "true",
    "CREWAI_DISABLE_TRACKING": "true",
    "CREWAI_TRACING_ENABLED": "false",
    "OTEL_SDK_DISABLED": "true",
    "LANGSMITH_TRACING": "false",
    "LANGCHAIN_TRACING_V2": "false",
    "LITELLM_LOCAL_MODEL_COST_MAP": "True",
    "OPENAI_AGENTS_DISABLE_TRACING": "1",
}
"""Environment variables that disable the frameworks' telemetry."""

Tools = Sequence[Any] | Mapping[str, Callable[..., Any]]
"""Tools for an agent: AgentGym's, the framework's, plain functions, or a mapping from
the names of the trained tools to functions."""


@dataclass(frozen=True, slots=True)
class Package:
    """A package and its supported versions: at least `least`, below `below`."""

    name: str
    least: str
    below: str

    @property
    def installed(self) -> str | None:
        """The installed version; None if it isn't installed."""
        try:
            return metadata.version(self.name)
        except metadata.PackageNotFoundError:
            return None

    def problem(self) -> str | None:
        """Why the installed version can't be used; None if it can."""
        found = self.installed
        if found is None:
            why = "is not installed"
        elif _numbers(found) < _numbers(self.least):
            why = f"{found} is too old"
        elif _numbers(found) >= _numbers(self.below):
            why = f"{found} is too new"
        else:
            return None
        return f"{self.name} {why} (supported: {self.name}>={self.least},<{self.below})"


@dataclass(frozen=True, slots=True)
class Framework:
    """A supported framework.

    Attributes:
        title: Its display name.
        extra: The extra that installs it.
        packages: The packages that the adapter needs.
        modules: The packages that define its agent classes.
        home: The adapter, as `module:Class`.
        fallback: The framework to use instead if only that one is installed.
    """

    name: str
    title: str
    extra: str
    packages: tuple[Package, ...]
    modules: tuple[str, ...]
    home: str
    fallback: str = ""

    @property
    def installed(self) -> bool:
        """Whether the framework is installed, in any version."""
        return self.packages[0].installed is not None

    def problem(self) -> str | None:
        """Why the framework can't be used; None if it can."""
        found = (package.problem() for package in self.packages)
        return next((text for text in found if text is not None), None)


ADAPTERS: dict[str, Framework] = {
    framework.name: framework
    for framework in (
        Framework(
            "langchain",
            "LangChain",
            "langchain",
            (
                Package("langchain", "1.4.7", "1.5"),
                Package("langgraph", "1.2.20", "1.3"),
            ),
            ("langchain", "langchain_core", "langchain_classic", "langgraph"),
            "agentgym.integrations.langchain:LangChainAdapter",
        ),
        Framework(
            "autogen",
            "AutoGen",
            "autogen",
            (Package("autogen-agentchat", "0.7.5", "0.8"),),
            ("autogen_agentchat",),
            "agentgym.integrations.autogen:AutoGenAdapter",
            fallback="autogen_classic",
        ),
        Framework(
            "autogen_classic",
            "classic AutoGen",
            "autogen-classic",
            (Package("autogen", "0.14.1", "0.15"),),
            ("autogen",),
            "agentgym.integrations.autogen_classic:ClassicAutoGenAdapter",
        ),
        Framework(
            "crewai",
            "CrewAI",
            "crewai",
            (Package("crewai", "1.15.30", "1.16"),),
            ("crewai",),
            "agentgym.integrations.crewai:CrewAIAdapter",
        ),
    )
}


class AgentHarness(ABC):
    """An agent of a framework, in training.

    Attributes:
        chat: Answers the agent's model requests.
        aside: Answers requests that aren't trained, such as who speaks next.
    """

    def __init__(self, agent: Any) -> None:
        self._agent = agent
        self._task: AgentTask | None = None
        self.chat = ChatModel(lambda asked: self.task.complete(asked), limited=False)
        self.aside = ChatModel(
            lambda asked: self.task.complete(asked, side=True), limited=False
        )

    @property
    def task(self) -> AgentTask:
        """The current task."""
        if self._task is None:
            raise RuntimeError("This agent is in training and has no running episode.")
        return self._task

    @abstractmethod
    def begin(self, messages: Sequence[Message]) -> str | None:
        """Resets the agent, starts a conversation, and returns the agent's answer.

        None if the conversation was closed in the meantime.
        """

    @abstractmethod
    def reply(self, content: str) -> str | None:
        """Sends the user's next message, and returns the agent's answer."""

    def play(self, task: AgentTask) -> None:
        """Plays one episode.

        Leaves out the task's system messages: the agent has its own.
        """
        self._task = task
        try:
            said = [m for m in task.messages if m.get("role") != "system"]
            answer = self.begin(said)
            while answer is not None and (reply := task.reply(answer)) is not None:
                answer = self.reply(reply)
        finally:
            self._task = None


class FrameworkAdapter(ABC):
    """Connects AgentGym with a framework, in both directions."""

    framework: Framework

    def wrap_agent(
        self,
        trained: SavedAgent,
        *,
        tools: Tools | None = None,
        llm: Any = None,
        defer_below: float = 0.0,
        **options: Any,
    ) -> Any:
        """Returns a trained agent as an agent of the framework.

        Args:
            trained: The trained agent.
            tools: Its tools: AgentGym's, the framework's, plain functions, or a mapping
                from the names of the trained tools to functions.
            llm: A model of the framework that writes texts and takes uncertain
                decisions. Without one, the trained agent answers in short standard
                sentences.
            defer_below: The `llm` decides when the confidence is below this.
            **options: More arguments for the adapter's `make_agent`.
        """
        chat = ChatModel.of(trained, llm, defer_below)
        given = live_tools(trained, tools)
        return self.make_agent(chat, llm, given, trained.metadata, **options)

    @abstractmethod
    def make_agent(
        self,
        chat: ChatModel,
        llm: Any,
        tools: list[Any],
        about: dict[str, Any],
        **options: Any,
    ) -> Any:
        """Returns an agent of the framework; see `wrap_agent`.

        Args:
            chat: Decides.
            llm: The language model, or None.
            tools: AgentGym's tools, the framework's or plain functions.
            about: The trained agent's metadata.
            **options: Arguments of the framework's agents.
        """

    @abstractmethod
    def owned_tools(self, agent: Any) -> Iterable[tuple[str, Sequence[Tool]]]:
        """Returns the names of a team's members, each with its tools that run.

        An agent that isn't a team is its only member; its name may be empty.
        """

    def extract_tools(self, agent: Any) -> list[Tool]:
        """Returns the tools of an existing agent, with functions that run them.

        Members of a team may share tools.

        Raises:
            UsageError: The agent has no tools, a member has two with one name, or one
                has no valid schema.
        """
        who = f"The {self.framework.title} agent"
        found: dict[str, Tool] = {}
        for name, tools in self.owned_tools(agent):
            if tools:
                owner = f"'{name}'" if name else who
                found |= {tool.name: tool for tool in checked_tools(tools, owner)}
        return checked_tools(list(found.values()), who)

    @abstractmethod
    def harness(self, agent: Any) -> AgentHarness:
        """Prepares an agent for training: redirects its model and its tools."""

    def stateless(self, agent: Any) -> bool:
        """Whether one agent can play several episodes concurrently."""
        return False

    def persistent_state(self, agent: Any) -> str:
        """What the agent keeps between episodes; "" if nothing."""
        return ""

    def create_environment(self, agent: Any, tasks: Path | str) -> Environment:
        """Returns an environment with an agent's tools and tasks from a file.

        Args:
            agent: An agent of this framework.
            tasks: A JSON Lines file; see `docs/task-files.md`.
        """
        from agentgym.scenarios.registry import ScenarioRegistry

        scenario = ScenarioRegistry.load(
            "task_file", agent_tools=self.extract_tools(agent), tasks=str(tasks)
        )
        return scenario.create_environment()


def adapter(name: str) -> FrameworkAdapter:
    """Returns the adapter of a framework, after checking the framework's version.

    Raises:
        UsageError: No adapter has this name.
        MissingExtraError: The framework is missing, too old or too new.
    """
    framework = ADAPTERS.get(name)
    if framework is None:
        near = did_you_mean(name, ADAPTERS)
        known = ", ".join(ADAPTERS)
        raise UsageError(f"Framework '{name}' not found.{near} Available: {known}.")
    if framework.fallback and not framework.installed:
        fallback = ADAPTERS[framework.fallback]
        framework = fallback if fallback.installed else framework
    problem = framework.problem()
    if problem is not None:
        raise MissingExtraError(
            f"The {framework.title} adapter", framework.extra, problem
        )
    switch_off_telemetry()
    made = load_object(framework.home, "Adapter")()
    made.framework = framework
    return cast(FrameworkAdapter, made)


def switch_off_telemetry() -> None:
    """Call this before importing a framework. The user's own settings win."""
    for variable, value in NO_TELEMETRY.items():
        os.environ.setdefault(variable, value)


def framework_of(agent: Any) -> str | None:
    """The framework of an agent, by the modules of its classes; None if unknown."""
    roots = {base.__module__.partition(".")[0] for base in type(agent).__mro__}
    for framework in ADAPTERS.values():
        if roots & set(framework.modules):
            return framework.name
    return None


def live_tools(trained: SavedAgent, tools: Tools | None) -> list[Any]:
    """Returns the tools for an exported agent.

    Args:
        trained: Knows the definitions of the trained tools.
        tools: The user's tools. AgentGym's stay as they are; the adapter converts the
            others.

    Raises:
        UsageError: There are no tools, two share a name, a function has no type
            annotations, or a function's name isn't a trained tool.
    """
    if isinstance(tools, Mapping):
        known = {tool.name: tool for tool in trained.tools}
        for name in tools:
            if name not in known:
                raise UsageError(
                    f"The agent has no tool '{name}'."
                    f"{did_you_mean(name, known)} Available: {', '.join(known)}."
                )
        return [
            dataclasses.replace(known[name], function=function, takes_world=False)
            for name, function in tools.items()
        ]
    given: list[Any] = list(trained.tools if tools is None else tools)
    empty = [t.name for t in given if isinstance(t, Tool) and t.function is None]
    if empty or not given:
        named = ", ".join(empty) or "none"
        raise UsageError(
            f"These tools have no function to run: {named}. Pass tools=[...], or "
            'functions by name: tools={"name": function}.'
        )
    names = [getattr(tool, "name", None) or _name_of(tool) for tool in given]
    for name in names:
        if names.count(name) > 1:
            raise UsageError(f"Two tools are named '{name}'. Rename one.")
    for tool in given:
        if inspect.isroutine(tool):
            _typed_parameters(tool)
    return given


def checked_tools(tools: Sequence[Tool], who: str) -> list[Tool]:
    """Returns an agent's tools, after checking that a policy can train on them.

    Raises:
        UsageError: There are no tools, two share a name, or one has no valid schema.
    """
    if not tools:
        raise UsageError(
            f"{who} has no tools, so there is nothing to learn. Add tools to it."
        )
    try:
        for tool in tool_map(tools).values():
            tool.check_arguments({})
    except AgentGymError as error:
        raise UsageError(f"{who}: {error}") from None
    for tool in tools:
        for name, schema in tool.properties.items():
            said = set(schema) if isinstance(schema, Mapping) else set()
            if name in tool.required and not said - {"title", "description"}:
                raise _untyped(tool.name, name)
    return list(tools)


def _untyped(tool: str, parameter: str) -> UsageError:
    return UsageError(
        f"Tool '{tool}': parameter '{parameter}' has no type. Add a type annotation."
    )


def signature_tool(function: Callable[..., Any]) -> Tool:
    """Makes a tool from a plain function with its docstring and type annotations.

    Raises:
        UsageError: A parameter has no type annotation.
    """
    from pydantic import create_model

    name = _name_of(function)
    fields: dict[str, Any] = {}
    for parameter in _typed_parameters(function):
        default = ... if parameter.default is parameter.empty else parameter.default
        fields[parameter.name] = (parameter.annotation, default)
    schema = create_model(name, **fields).model_json_schema()
    return Tool(name, inspect.getdoc(function) or "", schema, function)


def _name_of(function: Callable[..., Any]) -> str:
    return getattr(function, "__name__", type(function).__name__)


def _typed_parameters(function: Callable[..., Any]) -> list[inspect.Parameter]:
    parameters = inspect.signature(function, eval_str=True).parameters.values()
    for parameter in parameters:
        if parameter.annotation is parameter.empty:
            raise _untyped(_name_of(function), parameter.name)
    return list(parameters)


def run_tool(tool: Tool, arguments: Mapping[str, Any]) -> str:
    """Runs a tool for a framework, for up to 10 s. Results and errors are JSON."""
    runner = ToolRunner()
    try:
        call = ToolCall(tool.name, dict(arguments))
        return runner.run({tool.name: tool}, call, None).content
    finally:
        runner.close()


def _numbers(version: str) -> tuple[int, ...]:
    found = re.match(r"\d+(\.\d+)*", version)
    return tuple(map(int, found[0].split("."))) if found else ()

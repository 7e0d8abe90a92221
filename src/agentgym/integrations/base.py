"""What the adapters share: which frameworks and versions there are, and the contract.

Each adapter is the only importer of its framework. `adapter("langchain")` checks the
version before it is imported, so that what is missing is said in one line.
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

from agentgym.core.tools import Tool, ToolCall, ToolRunner, tool_map
from agentgym.errors import (
    AgentGymError,
    MissingExtraError,
    UsageError,
    did_you_mean,
)
from agentgym.utils.objects import load_object

if TYPE_CHECKING:
    from agentgym.integrations.harness import AgentHarness
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
"""Keeps frameworks from telling others what agents do here."""

Tools = Sequence[Any] | Mapping[str, Callable[..., Any]]
"""Tools for an agent: our own, the framework's own, plain functions; or functions by
the names of the tools that the agent was trained on."""


@dataclass(frozen=True, slots=True)
class Package:
    """A distribution, and the versions that are supported: `least` up to `below`."""

    name: str
    least: str
    below: str

    def problem(self) -> str | None:
        """What is wrong with the installed version; None if nothing is."""
        supported = f"{self.name} {self.least} up to, not including, {self.below}"
        try:
            found = metadata.version(self.name)
        except metadata.PackageNotFoundError:
            return f"{self.name} is not installed (supported: {supported})"
        if _numbers(found) < _numbers(self.least):
            return f"{self.name} {found} is too old (supported: {supported})"
        if _numbers(found) >= _numbers(self.below):
            return f"{self.name} {found} is too new (supported: {supported})"
        return None


@dataclass(frozen=True, slots=True)
class Framework:
    """A framework that there is an adapter for.

    Attributes:
        title: What people call it.
        extra: Of this package, which installs it.
        packages: What the adapter needs.
        modules: Where the classes of its agents are from.
        home: The adapter, as `module:Class`.
        fallback: The framework that is meant where this one is not installed, but that
            one is.
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
        """Whether it is there, in whatever version."""
        try:
            metadata.version(self.packages[0].name)
        except metadata.PackageNotFoundError:
            return False
        return True

    def problem(self) -> str | None:
        """Why it cannot be used; None if it can."""
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


class FrameworkAdapter(ABC):
    """Leads between AgentGym and one framework, both ways."""

    framework: Framework

    @abstractmethod
    def wrap_agent(self, trained: SavedAgent, **options: Any) -> Any:
        """A trained agent as one of the framework's own; see the adapter's options."""

    @abstractmethod
    def extract_tools(self, agent: Any) -> list[Tool]:
        """The tools of an existing agent, with functions that run them.

        Raises:
            UsageError: It has none, two of one name, or one without a schema.
        """

    @abstractmethod
    def harness(self, agent: Any) -> AgentHarness:
        """Takes an agent in for training: its model and its tools are led here."""

    def stateless(self, agent: Any) -> bool:
        """Whether one agent can play several episodes at the same time."""
        return False

    def persistent_state(self, agent: Any) -> str:
        """What the agent keeps from one episode to the next; "" if nothing."""
        return ""

    def create_environment(self, agent: Any, tasks: Path | str) -> Environment:
        """An environment with an agent's own tools and tasks from a file.

        Args:
            agent: Of this framework.
            tasks: A file of JSON lines; see `docs/task-files.md`.
        """
        from agentgym.scenarios.registry import ScenarioRegistry

        scenario = ScenarioRegistry.load(
            "task_file", agent_tools=self.extract_tools(agent), tasks=str(tasks)
        )
        return scenario.create_environment()


def adapter(name: str) -> FrameworkAdapter:
    """The adapter of a framework; its version is checked first.

    Raises:
        UsageError: There is no adapter of that name.
        MissingExtraError: The framework is missing, too old or too new.
    """
    framework = ADAPTERS.get(name)
    if framework is None:
        near = did_you_mean(name, ADAPTERS)
        known = ", ".join(ADAPTERS)
        raise UsageError(f"There is no adapter '{name}'.{near} Available: {known}.")
    if framework.fallback and not framework.installed:
        fallback = ADAPTERS[framework.fallback]
        framework = fallback if fallback.installed else framework
    problem = framework.problem()
    if problem is not None:
        raise MissingExtraError(
            f"An agent of {framework.title}", framework.extra, problem
        )
    switch_off_telemetry()
    made = load_object(framework.home, "Adapter")()
    made.framework = framework
    return cast(FrameworkAdapter, made)


def switch_off_telemetry() -> None:
    """To be called before a framework is imported. What the user has set stays."""
    for variable, value in NO_TELEMETRY.items():
        os.environ.setdefault(variable, value)


def framework_of(agent: Any) -> str | None:
    """The framework that an agent is from, by where its classes are defined."""
    roots = {base.__module__.partition(".")[0] for base in type(agent).__mro__}
    for framework in ADAPTERS.values():
        if roots & set(framework.modules):
            return framework.name
    return None


def live_tools(trained: SavedAgent, tools: Tools | None) -> list[Any]:
    """The tools of an agent that is handed out.

    Args:
        trained: Knows the definitions that it was trained on.
        tools: Given by the user; ours stay ours, all others are left to the adapter.

    Raises:
        UsageError: There is none, two have one name, a function has no types, or
            functions are given for tools that there are not.
    """
    if isinstance(tools, Mapping):
        known = {tool.name: tool for tool in trained.tools}
        for name in tools:
            if name not in known:
                raise UsageError(
                    f"The agent was trained on no tool '{name}'."
                    f"{did_you_mean(name, known)} Its tools: {', '.join(known)}."
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
            f"An agent needs tools that run (without a function: {named}). Give them "
            'with tools=[...], or functions by name: tools={"name": function}.'
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
    """Tools of an agent, if a policy can be trained on them.

    Raises:
        UsageError: There is none, two have one name, or one has no valid schema.
    """
    if not tools:
        raise UsageError(
            f"{who} has no tools, so there is nothing to choose from. Give it some."
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


def shared_tools(owned: Iterable[tuple[str, Sequence[Tool]]], who: str) -> list[Tool]:
    """Tools of a team. Members may share one; none of them may have two of one name.

    Args:
        owned: Names of members, each with its tools.
        who: The team.

    Raises:
        UsageError: As `checked_tools`.
    """
    found: dict[str, Tool] = {}
    for name, tools in owned:
        if tools:
            found |= {tool.name: tool for tool in checked_tools(tools, f"'{name}'")}
    return checked_tools(list(found.values()), who)


def _untyped(tool: str, parameter: str) -> UsageError:
    return UsageError(
        f"Tool '{tool}' has no schema: its parameter '{parameter}' has no type. "
        "Annotate it."
    )


def signature_tool(function: Callable[..., Any]) -> Tool:
    """A tool made of a plain function: its docstring and its annotations.

    Raises:
        UsageError: A parameter has no annotation, so there is no schema to be had.
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
    """Runs a tool of ours for a framework: JSON, also for errors; at most 10 s."""
    runner = ToolRunner()
    try:
        call = ToolCall(tool.name, dict(arguments))
        return runner.run({tool.name: tool}, call, None).content
    finally:
        runner.close()


def _numbers(version: str) -> tuple[int, ...]:
    found = re.match(r"\d+(\.\d+)*", version)
    return tuple(map(int, found[0].split("."))) if found else ()

"""Finds scenarios: the built-in ones, those of installed packages, and your own.

Listing must be fast, so this module keeps what a list shows of the built-in
scenarios; their classes are imported when they are loaded.
"""

from __future__ import annotations

import builtins
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar, TypeVar

from agentgym.errors import (
    AgentGymError,
    ScenarioError,
    ScenarioNotFoundError,
    one_line,
)
from agentgym.utils.objects import Plugins, load_object, path_of

if TYPE_CHECKING:
    from importlib.metadata import EntryPoint

    from agentgym.core.tools import Tool
    from agentgym.scenarios.base import Scenario

ENTRY_POINTS = "agentgym.scenarios"
"""The entry point group by which an installed package offers scenarios."""

S = TypeVar("S", bound="Scenario")


@dataclass(frozen=True, slots=True)
class ScenarioInfo:
    """What a list of scenarios shows.

    Attributes:
        path: `module:Class` of the scenario.
        problem: Why it can't be loaded; "" if it can, or wasn't tried.
    """

    name: str
    description: str
    difficulty: str
    estimated_time: str
    path: str
    problem: str = ""

    @classmethod
    def of(cls, scenario: type[Scenario]) -> ScenarioInfo:
        """Reads a scenario's class; "" means not declared."""
        return cls(
            name=str(getattr(scenario, "name", "")),
            description=str(getattr(scenario, "description", "")),
            difficulty=str(getattr(scenario, "difficulty", "")),
            estimated_time=str(getattr(scenario, "estimated_time", "")),
            path=f"{scenario.__module__}:{scenario.__qualname__}",
        )


BUILTIN = {
    info.name: info
    for info in (
        ScenarioInfo(
            "customer_support",
            "Service desk of an online shop: orders, refunds, accounts, how-tos",
            "easy",
            "about a minute",
            "agentgym.scenarios.customer_support.scenario:CustomerSupport",
        ),
        ScenarioInfo(
            "code_review",
            "Reviews Python code: bugs, speed, security, style",
            "medium",
            "two minutes",
            "agentgym.scenarios.code_review.scenario:CodeReview",
        ),
        ScenarioInfo(
            "data_analysis",
            "Analyses data files: filters, groups, statistics, charts",
            "medium",
            "three minutes",
            "agentgym.scenarios.data_analysis.scenario:DataAnalysis",
        ),
        ScenarioInfo(
            "service_desks",
            "32 desks with 380 tools, from clinic to town hall; unseen tools",
            "hard",
            "two minutes",
            "agentgym.scenarios.service_desks.scenario:ServiceDesks",
        ),
        ScenarioInfo(
            "task_file",
            "Your own tasks, from a JSON Lines file (train --tasks FILE)",
            "medium",
            "minutes",
            "agentgym.scenarios.task_file.scenario:TaskFile",
        ),
    )
}
"""The scenarios that come with AgentGym. A test keeps them equal to the classes."""

_PLUGINS = Plugins(
    ENTRY_POINTS,
    {name: info.path for name, info in BUILTIN.items()},
    "Scenario",
    lambda name, known: ScenarioNotFoundError(
        name, [*known, *ScenarioRegistry._registered], "Name your own as module:Class."
    ),
)


class ScenarioRegistry:
    """All scenarios that can be named."""

    _registered: ClassVar[dict[str, type[Scenario]]] = {}

    @classmethod
    def load(
        cls, ref: str, /, *, agent_tools: Sequence[Tool] = (), **options: Any
    ) -> Scenario:
        """Creates a scenario.

        Args:
            ref: A name from `list`, or `module:Class`; the module may be in the
                current folder.
            agent_tools: Tools of the agent that plays, for scenarios that use them
                (`Scenario.takes_agent_tools`).
            options: Settings that the scenario reads (`Scenario.options`).

        Raises:
            ScenarioNotFoundError: No scenario has that name.
            ScenarioError: It can't be imported, or isn't a scenario.
            ConfigError: The scenario doesn't read an option.
        """
        scenario = cls.find(ref)
        if options:
            # Imported late: it imports pydantic.
            from agentgym.core.options import checked_options

            options = checked_options(scenario.options, options)
        if agent_tools and scenario.takes_agent_tools:
            options["agent_tools"] = agent_tools
        try:
            return scenario(**options)
        except AgentGymError:
            raise
        except Exception as error:
            raise ScenarioError(
                f"Scenario '{ref}' can't be created: {one_line(error)}."
            ) from error

    @classmethod
    def find(cls, ref: str) -> type[Scenario]:
        """The class behind a name or `module:Class`; see `load`."""
        if ref in cls._registered:
            return cls._registered[ref]
        if ":" in ref:
            return _own_class(ref)
        return _check_class(_PLUGINS.load(ref, ScenarioError), ref)

    @classmethod
    def names(cls) -> builtins.list[str]:
        """All names that `load` accepts, sorted."""
        return sorted({*_PLUGINS.names(), *cls._registered})

    @classmethod
    def list(cls) -> builtins.list[ScenarioInfo]:
        """All scenarios, by name. `problem` says which can't be imported."""
        infos = {
            **{entry.name: _info(entry) for entry in _PLUGINS.entries()},
            **BUILTIN,
            **{name: ScenarioInfo.of(s) for name, s in cls._registered.items()},
        }
        return [infos[name] for name in sorted(infos)]

    @classmethod
    def register(cls, scenario: type[S]) -> type[S]:
        """Registers a class under its name; can be used as a decorator.

        Raises:
            ScenarioError: It isn't a scenario, or another one has its name.
        """
        _check_class(scenario, getattr(scenario, "__qualname__", repr(scenario)))
        name = scenario.name
        if name in BUILTIN or cls._registered.get(name, scenario) is not scenario:
            raise ScenarioError(
                f"Scenario '{name}' already exists. Choose another name."
            )
        cls._registered[name] = scenario
        return scenario


def _info(entry: EntryPoint) -> ScenarioInfo:
    path = path_of(entry)
    try:
        info = ScenarioInfo.of(_own_class(path))
    except ScenarioError as error:
        return ScenarioInfo(entry.name, "", "", "", path, problem=str(error))
    return ScenarioInfo(
        entry.name, info.description, info.difficulty, info.estimated_time, info.path
    )


def _own_class(path: str) -> type[Scenario]:
    found = load_object(path, "Scenario", error=ScenarioError, form="module:Class")
    return _check_class(found, path)


def _check_class(found: Any, ref: str) -> type[Scenario]:
    from agentgym.scenarios.base import Scenario

    if not isinstance(found, type) or not issubclass(found, Scenario):
        raise ScenarioError(
            f"Scenario '{ref}' isn't a subclass of agentgym.Scenario. Name one that is."
        )
    missing = sorted(found.__abstractmethods__)
    if missing:
        raise ScenarioError(
            f"Scenario '{ref}' does not define {', '.join(missing)}. Define them."
        )
    name = getattr(found, "name", None)
    if not isinstance(name, str) or not name:
        raise ScenarioError(f"Scenario '{ref}' has no name. Set `name` on its class.")
    return found

"""From settings to a job: everything they name is loaded once."""

from __future__ import annotations

from collections.abc import Mapping
from types import ModuleType
from typing import Any

from agentgym.core.components import COMPONENTS
from agentgym.core.config import TrainingConfig
from agentgym.engines import get_engine
from agentgym.engines.base import Job, Warn
from agentgym.errors import ConfigError, MissingExtraError, ScenarioError
from agentgym.policies.registry import policy_class
from agentgym.scenarios.base import Scenario
from agentgym.scenarios.registry import ScenarioRegistry
from agentgym.store.rows import split_reference
from agentgym.training.rollout import Rollout


def resolve(config: TrainingConfig, *, resolved: bool = False) -> Job:
    """Loads what the settings name, and fills in the defaults.

    Args:
        config: What the user asked for.
        resolved: Whether defaults were filled in already, as those of a run's record
            are: they stay as they are.

    Raises:
        ScenarioNotFoundError: No scenario has that name.
        PolicyNotFoundError: No policy has that name.
        EngineNotFoundError: No engine has that name.
        UsageError: The agent can't be loaded.
        ConfigError: A setting is invalid or unknown.
    """
    declared = ScenarioRegistry.find(config.scenario)
    engine = get_engine(config.engine)
    name = config.policy
    if "policy" not in config.model_fields_set and not resolved:
        name = engine.training_defaults.get("policy", name)
    policy = policy_class(name)

    reading = declared.options, engine.training_defaults, policy.policy_options
    # Invalid settings are found before any of the user's code runs.
    options = config.options_of(declared.options)
    if not resolved:
        _, options = config.read_options(*reading)
    agents = load_agents(config)
    tools = _agents().tools_of(agents) if agents else ()
    scenario = ScenarioRegistry.load(config.scenario, agent_tools=tools, **options)
    if not resolved:
        defaults = scenario.training_defaults()
        if policy.language_model:
            defaults = scenario.language_model_defaults()
        config = config.resolve(defaults, policy.training_defaults, *reading)
    engine.check(config)
    _check_name(config.name)
    targets = dict(scenario.success_criteria())
    if config.target_reliability is not None:
        targets["tool_reliability"] = config.target_reliability
    return Job(
        config,
        scenario,
        engine,
        _trainable(config, scenario),
        targets,
        agents,
        lambda warn: make_rollout(config, scenario, agents, warn),
    )


def load_agents(config: TrainingConfig) -> Mapping[str, Any]:
    """The agents that the settings name, each loaded once; none for the built-in loop.

    Raises:
        UsageError: An agent can't be loaded.
        MissingExtraError: Agents need an extra that is not installed.
    """
    return _agents().load_agents(config) if config.agent_count else {}


def make_rollout(
    config: TrainingConfig, scenario: Scenario, agents: Mapping[str, Any], warn: Warn
) -> Rollout:
    """What plays the episodes: the built-in loop, or the agents.

    Args:
        config: Resolved settings.
        scenario: What is played.
        agents: From `load_agents`.
        warn: Called with each warning for the user.
    """
    if config.agent_count:
        rollout: Rollout = _agents().rollout_of(config, scenario, agents, warn)
        return rollout
    return Rollout(
        scenario, max_steps=config.max_steps, tool_timeout=config.tool_timeout
    )


def _check_name(name: str | None) -> None:
    if split_reference(name or "")[1] is not None:
        raise ConfigError(
            f"name: should omit the version, got '{name}'; AgentGym adds the next "
            "version."
        )


def _trainable(config: TrainingConfig, scenario: Scenario) -> frozenset[str]:
    """The components that learn: the user's choice, else what the scenario declares.

    Raises:
        ScenarioError: The scenario declares an unknown component, or none that learns.
    """
    if config.components is not None:
        return frozenset(config.components)
    declared = scenario.define_trainable_components()
    unknown = sorted(set(declared) - set(COMPONENTS))
    if unknown or not any(declared.values()):
        problem = f"unknown: {', '.join(unknown)}" if unknown else "none learns"
        raise ScenarioError(
            f"Scenario '{scenario.name}': define_trainable_components is wrong "
            f"({problem}). Components: {', '.join(COMPONENTS)}."
        )
    return frozenset(name for name, learns in declared.items() if learns)


def _agents() -> ModuleType:
    try:
        from agentgym.agents import rollout
    except ModuleNotFoundError as error:
        if error.name not in ("starlette", "uvicorn"):
            raise
        raise MissingExtraError("Training your own agent", "api") from None
    return rollout

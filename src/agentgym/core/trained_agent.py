"""A trained agent: loaded by name, evaluated, and exported to a framework.

agent = TrainedAgent.load("customer_support")
run = agent.run("Where is my order A-1042?", tools=my_tools)
print(run.answer, run.confidence)
"""

from __future__ import annotations

import dataclasses
import os
import warnings
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Self

from agentgym.core import result
from agentgym.core.config import TrainingConfig
from agentgym.core.metrics import TrainingMetrics
from agentgym.core.task import Split
from agentgym.errors import ModelNotFoundError
from agentgym.policies.saved import SavedAgent
from agentgym.runs.resolve import load_agents, make_rollout
from agentgym.scenarios.registry import ScenarioRegistry
from agentgym.store import Store
from agentgym.training.evaluation import evaluate, evaluate_free_form
from agentgym.training.sampler import draw_tasks


class TrainedAgent(SavedAgent):
    """A trained policy with its tools; `SavedAgent` describes `run` and `save`."""

    @classmethod
    def load(cls, model: str | Path, home: Path | str | None = None) -> TrainedAgent:
        """Loads a model.

        Args:
            model: A name ("customer_support" loads its newest version), a name with a
                version ("customer_support_v1.2"), or a folder.
            home: Where models are kept. Default: `$AGENTGYM_HOME` or `./.agentgym`.

        Raises:
            ModelNotFoundError: The model or folder doesn't exist.
            FormatError: This AgentGym can't read the model.
        """
        return cls.read(_find(model, None if home is None else Path(home)))

    def evaluate(
        self,
        scenario: str | None = None,
        *,
        split: Split = "heldout",
        tasks: int | None = None,
        seed: int | None = None,
        agent: str | None = None,
        agent_command: str | None = None,
        framework: str | None = None,
        options: Mapping[str, Any] | None = None,
    ) -> TrainingMetrics:
        """Evaluates the agent on tasks of a scenario.

        Args:
            scenario: Default: the one it was trained on, with the same options.
            split: Which tasks.
            tasks: How many. Default: as many as at the end of its training.
            seed: Chooses the tasks. Default: the seed of its training.
            agent: Your own agent, as `module:function`. Default: the built-in loop,
                even if another agent played in training.
            agent_command: Your own agent as a command line.
            framework: Evaluates with an agent of this framework.
            options: Options of the scenario; they win over those of its training.

        Raises:
            UsageError: The agent can't be loaded.
            ConfigError: The framework is unknown.
            MissingExtraError: Agents need an extra that isn't installed.
        """
        config = TrainingConfig.from_dict(
            {
                **self.metadata["config"],
                "agent": agent,
                "agent_command": agent_command,
                "framework": framework,
            }
        )
        same = scenario is None or scenario == config.scenario
        name = scenario or config.scenario
        known = ScenarioRegistry.find(name).options if same else ()
        used = {**config.options_of(known), **(options or {})}
        world = ScenarioRegistry.load(name, agent_tools=self.tools, **used)
        limit = self.metadata.get("baseline_tokens") if same else None
        rollout = make_rollout(config, world, load_agents(config), warnings.warn)
        try:
            chosen = draw_tasks(
                world,
                split,
                config.seed if seed is None else seed,
                config.heldout_tasks if tasks is None else tasks,
            )
            some = chosen[: config.free_form_tasks]
            free = evaluate_free_form(self.policy, rollout, some, limit)
            return evaluate(self.policy, rollout, chosen, limit).metrics(free_form=free)
        finally:
            rollout.close()

    def to_langchain(self, **options: Any) -> Any:
        """The agent for LangChain: a graph as `create_agent` makes it, or an executor.

        See `FrameworkAdapter.wrap_agent` and `LangChainAdapter.make_agent` for options;
        `tools` are needed.

        Raises:
            MissingExtraError: LangChain is missing, too old or too new.
        """
        return _wrap(self, "langchain", options)

    def to_autogen(self, **options: Any) -> Any:
        """The agent for AutoGen: an `AssistantAgent`, also for teams.

        Where classic AutoGen is the one installed, it is a `ConversableAgent`. See
        `FrameworkAdapter.wrap_agent` and `AutoGenAdapter.make_agent` or
        `ClassicAutoGenAdapter.make_agent` for options; `tools` are needed.

        Raises:
            MissingExtraError: AutoGen is missing, too old or too new.
        """
        return _wrap(self, "autogen", options)

    def to_crewai(self, **options: Any) -> Any:
        """The agent for CrewAI: an `Agent`, for tasks and crews.

        See `FrameworkAdapter.wrap_agent` and `CrewAIAdapter.make_agent` for options;
        `tools` are needed.

        Raises:
            MissingExtraError: CrewAI is missing, too old or too new.
        """
        return _wrap(self, "crewai", options)


class TrainingResult(result.TrainingResult):
    """What a run produced, with the trained agent at hand."""

    __slots__ = ()

    @classmethod
    def of(cls, given: result.TrainingResult) -> Self:
        """The same result, with the trained agent at hand."""
        fields = dataclasses.fields(given)
        return cls(**{field.name: getattr(given, field.name) for field in fields})

    @property
    def agent(self) -> TrainedAgent:
        """The trained agent, loaded from its folder."""
        return TrainedAgent.load(Path(self.trained_model_path))

    def to_langchain(self, **options: Any) -> Any:
        """The trained agent for LangChain; see `TrainedAgent.to_langchain`."""
        return self.agent.to_langchain(**options)

    def to_autogen(self, **options: Any) -> Any:
        """The trained agent for AutoGen; see `TrainedAgent.to_autogen`."""
        return self.agent.to_autogen(**options)

    def to_crewai(self, **options: Any) -> Any:
        """The trained agent for CrewAI; see `TrainedAgent.to_crewai`."""
        return self.agent.to_crewai(**options)


def _wrap(trained: TrainedAgent, framework: str, options: Mapping[str, Any]) -> Any:
    from agentgym.integrations.base import adapter

    return adapter(framework).wrap_agent(trained, **options)


def _find(model: str | Path, home: Path | None) -> Path:
    separators = [os.sep, *filter(None, [os.altsep])]
    if isinstance(model, Path) or any(mark in model for mark in separators):
        if not Path(model).is_dir():
            raise ModelNotFoundError(str(model), (), "The folder doesn't exist.")
        return Path(model)
    with Store(home) as store:
        try:
            return store.get_model(model).path
        except ModelNotFoundError:
            if Path(model).is_dir():
                return Path(model)
            raise

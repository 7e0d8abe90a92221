"""A trained agent: saved, found by name, measured, and handed to a framework.

agent = TrainedAgent.load("customer_support")
run = agent.run("Where is my order A-1042?", tools=my_tools)
print(run.answer, run.confidence)
"""

from __future__ import annotations

import os
import warnings
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from agentgym.core.config import TrainingConfig
from agentgym.core.metrics import TrainingMetrics
from agentgym.core.task import Split
from agentgym.errors import ModelNotFoundError
from agentgym.policies.saved import SavedAgent
from agentgym.training.evaluation import evaluate, evaluate_free_form
from agentgym.training.sampler import draw_tasks


class TrainedAgent(SavedAgent):
    """A trained policy, ready to work; see `SavedAgent` for what it can do alone."""

    @classmethod
    def load(cls, model: str | Path, home: Path | str | None = None) -> TrainedAgent:
        """Reads a model.

        Args:
            model: A name ("customer_support" is its newest version), a name with a
                version ("customer_support_v1.2"), or a folder.
            home: Where models are kept; `$AGENTGYM_HOME` or `./.agentgym` if None.

        Raises:
            ModelNotFoundError: There is no such model or folder.
            FormatError: The folder holds no model that this AgentGym can read.
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
        """Measures the agent on tasks of a scenario.

        Args:
            scenario: By default the one it was trained on, with the same options.
            split: Which tasks.
            tasks: How many; by default as many as at the end of its training.
            seed: Chooses the tasks; by default those of its training.
            agent: Plays at an endpoint that the policy answers, as in a training that
                names it; by default the built-in loop plays, however it was trained.
            agent_command: The same as a command line.
            framework: The same with an agent of this framework.
            options: Settings of the scenario; they win over those of its training.

        Raises:
            UsageError: There is no such agent.
            ConfigError: There is no such framework.
            MissingExtraError: Agents need an extra that is not installed.
        """
        from agentgym.engines.local import make_rollout
        from agentgym.scenarios.registry import ScenarioRegistry

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
        rollout = make_rollout(config, world, warnings.warn)
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

        Options are those of `LangChainAdapter.wrap_agent`; `tools` are needed.

        Raises:
            MissingExtraError: LangChain is missing, too old or too new.
        """
        return _wrap(self, "langchain", options)

    def to_autogen(self, **options: Any) -> Any:
        """The agent for AutoGen: an `AssistantAgent`, also for teams.

        Where classic AutoGen is the one installed, it is a `ConversableAgent`. Options
        are those of `AutoGenAdapter.wrap_agent` or `ClassicAutoGenAdapter.wrap_agent`;
        `tools` are needed.

        Raises:
            MissingExtraError: AutoGen is missing, too old or too new.
        """
        return _wrap(self, "autogen", options)

    def to_crewai(self, **options: Any) -> Any:
        """The agent for CrewAI: an `Agent`, for tasks and crews.

        Options are those of `CrewAIAdapter.wrap_agent`; `tools` are needed.

        Raises:
            MissingExtraError: CrewAI is missing, too old or too new.
        """
        return _wrap(self, "crewai", options)


def _wrap(trained: TrainedAgent, framework: str, options: Mapping[str, Any]) -> Any:
    from agentgym.integrations.base import adapter

    return adapter(framework).wrap_agent(trained, **options)


def _find(model: str | Path, home: Path | None) -> Path:
    separators = [os.sep, *filter(None, [os.altsep])]
    if isinstance(model, Path) or any(mark in model for mark in separators):
        if not Path(model).is_dir():
            raise ModelNotFoundError(str(model), (), "There is no such folder.")
        return Path(model)
    from agentgym.store import Store

    with Store(home) as store:
        try:
            return store.get_model(model).path
        except ModelNotFoundError:
            if Path(model).is_dir():
                return Path(model)
            raise

"""Episodes played by your own agents, for the same training loop."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from agentgym.agents.backends import PolicyBackend
from agentgym.agents.callables import Agent, CallableAgentManager, load_agent
from agentgym.agents.commands import CommandAgentManager, parse_command
from agentgym.agents.gateway import Gateway
from agentgym.agents.manager import AgentManager, MixedAgentManager
from agentgym.core.config import TrainingConfig
from agentgym.core.tools import Tool
from agentgym.core.trajectory import EpisodePlan, Trajectory
from agentgym.episodes.episode import EnvironmentPool
from agentgym.integrations.base import adapter
from agentgym.integrations.harness import FrameworkAgent, scenario_agent
from agentgym.policies.base import Decider, Policy
from agentgym.scenarios.base import Scenario
from agentgym.scenarios.task_file.scenario import TaskFile
from agentgym.training.rollout import Rollout


class AgentRollout(Rollout):
    """Lets agents play, each with its own loop, at endpoints that the policy answers.

    Episodes that branch off a sibling start again: the endpoint repeats the sibling's
    answers for as long as the agent sends the same requests.

    The draws for an episode depend on the seed, on the episode's number and on its
    agent's requests, not on which agent asks first.
    """

    def __init__(
        self,
        scenario: Scenario,
        make_manager: Callable[[Gateway], AgentManager | MixedAgentManager],
        *,
        max_steps: int,
        tool_timeout: float = 10.0,
        on_warning: Callable[[str], None] = lambda text: None,
    ) -> None:
        """Opens a gateway, until `close`.

        Args:
            scenario: What is played.
            make_manager: Makes the manager of the agents.
            max_steps: Decisions until an episode is cut off.
            tool_timeout: Seconds that a tool call may take.
            on_warning: Called with each warning for the user.
        """
        super().__init__(scenario, max_steps=max_steps, tool_timeout=tool_timeout)
        self._worlds = EnvironmentPool(
            scenario, max_steps=max_steps, tool_timeout=tool_timeout
        )
        self._backend = PolicyBackend()
        self._problems: list[Exception] = []
        self._warned: set[str] = set()
        self._on_warning = on_warning
        self._gateway = Gateway(self._backend, log=self._problems.append)
        self._manager = make_manager(self._gateway)
        self._gateway.start()

    def close(self) -> None:
        """Closes the gateway and all environments."""
        self._gateway.stop()
        self._worlds.close()
        super().close()

    def _play(
        self, policy: Decider, episodes: Sequence[EpisodePlan]
    ) -> list[Trajectory]:
        # An agent's own loop is never cut off: it would take that for a fault. Only
        # the built-in loop uses what siblings know: here each of them draws without
        # regard to the others.
        if not isinstance(policy, Policy):
            # A model without its constraint is measured by the built-in loop.
            return super()._play(policy, episodes)
        self._backend.use(policy)
        try:
            played = self._manager.play(episodes, self._worlds)
        finally:
            # No decisions are made while the policy learns.
            self._backend.use(None)
        for text in sorted({f"{type(e).__name__}: {e}" for e in self._problems}):
            if text not in self._warned:
                self._warned.add(text)
                self._on_warning(f"The gateway failed on a request ({text}).")
        self._problems.clear()
        return [trajectory for (trajectory,) in played]


def load_agents(config: TrainingConfig) -> dict[str, Agent]:
    """Loads the agents that a training names, by name, each once.

    Raises:
        UsageError: An agent can't be loaded.
    """
    if config.agent_command is not None:
        parse_command(config.agent_command)
    if config.framework is not None:
        adapter(config.framework)
    return {name: load_agent(name) for name in config.agent_names}


def tools_of(agents: Mapping[str, Agent]) -> list[Tool]:
    """The tools of loaded agents."""
    return [
        tool
        for agent in agents.values()
        if isinstance(agent, FrameworkAgent)
        for tool in agent.tools
    ]


def rollout_of(
    config: TrainingConfig,
    scenario: Scenario,
    agents: Mapping[str, Agent],
    on_warning: Callable[[str], None],
) -> AgentRollout:
    """The rollout of a training that names agents; `load_agents` has loaded them."""
    return AgentRollout(
        scenario,
        manager_maker(config, scenario, agents, on_warning),
        max_steps=config.max_steps,
        tool_timeout=config.tool_timeout,
        on_warning=on_warning,
    )


def manager_maker(
    config: TrainingConfig,
    scenario: Scenario,
    agents: Mapping[str, Agent],
    on_warning: Callable[[str], None],
) -> Callable[[Gateway], AgentManager | MixedAgentManager]:
    """Makes managers of the agents that a training names, and of its framework's."""
    agents = dict(agents)
    if config.framework is not None:
        agents[config.framework] = scenario_agent(config.framework, scenario)
    share = max(1, config.agent_concurrency // config.agent_count)
    options: dict[str, Any] = {
        "time_limit": config.agent_timeout,
        "on_warning": on_warning,
    }
    at_once = dict.fromkeys(agents, share)
    for name, agent in agents.items():
        if isinstance(agent, FrameworkAgent):
            _tell(agent, scenario, on_warning)
            at_once[name] = agent.concurrency or share

    def make(gateway: Gateway) -> AgentManager | MixedAgentManager:
        made: list[AgentManager] = [
            CallableAgentManager(
                agent, gateway, kind=name, concurrency=at_once[name], **options
            )
            for name, agent in agents.items()
        ]
        if config.agent_command is not None:
            made.append(
                CommandAgentManager(
                    config.agent_command, gateway, concurrency=share, **options
                )
            )
        return made[0] if len(made) == 1 else MixedAgentManager(made)

    return make


def _tell(
    agent: FrameworkAgent, scenario: Scenario, on_warning: Callable[[str], None]
) -> None:
    """Warns the user before the first call is made."""
    if isinstance(scenario, TaskFile) and (live := scenario.runs_live()):
        on_warning(
            f"The agent's tools run live in training: {', '.join(live)}. List those "
            "that must not run in dry_run."
        )
    if agent.persistent_state:
        on_warning(
            f"The agent keeps {agent.persistent_state} between episodes, and AgentGym "
            "can't reset it. Reset it in a sandbox, or remove it."
        )
    if agent.concurrency == 1:
        on_warning(
            "The agent keeps state, so its episodes run one at a time. To run several, "
            "name a function that makes such agents."
        )

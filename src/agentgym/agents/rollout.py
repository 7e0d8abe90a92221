"""Episodes played by agents from elsewhere, for the same training loop."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from agentgym.agents.backends import PolicyBackend
from agentgym.agents.callables import CallableAgentManager, load_agent
from agentgym.agents.commands import CommandAgentManager, parse_command
from agentgym.agents.episode import Worlds
from agentgym.agents.gateway import Gateway
from agentgym.agents.manager import AgentManager, Assignment, MixedAgentManager
from agentgym.core.config import TrainingConfig
from agentgym.core.rollout import Rollout
from agentgym.core.task import Task
from agentgym.core.trajectory import Trajectory
from agentgym.policies.base import Decider, Policy, Sampling
from agentgym.scenarios.base import Scenario


class AgentRollout(Rollout):
    """Lets agents play, each with its own loop, at endpoints that the policy answers.

    Episodes that branch off a sibling begin anew: the endpoint repeats what it told
    the sibling, for as long as the agent asks the same.
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
            on_warning: Told what a person should look into.
        """
        super().__init__(scenario, max_steps=max_steps, tool_timeout=tool_timeout)
        self._worlds = Worlds(scenario, max_steps=max_steps, tool_timeout=tool_timeout)
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
        self,
        policy: Decider,
        tasks: Sequence[Task],
        sampling: Sampling,
        seed: int,
        siblings: Sequence[Trajectory],
    ) -> list[Trajectory]:
        if not isinstance(policy, Policy):
            # A model without its constraint is measured by the built-in loop.
            return super()._play(policy, tasks, sampling, seed, siblings)
        assignments = [
            Assignment(task, siblings[i].seed, siblings[i])
            if siblings
            else Assignment(task, seed * 65_537 + i)
            for i, task in enumerate(tasks)
        ]
        self._backend.use(policy, sampling)
        try:
            played = self._manager.play(assignments, self._worlds)
        finally:
            # Nobody may decide while the policy learns.
            self._backend.use(None)
        for text in sorted({f"{type(e).__name__}: {e}" for e in self._problems}):
            if text not in self._warned:
                self._warned.add(text)
                self._on_warning(f"The gateway failed on a request ({text}).")
        self._problems.clear()
        return [trajectory for (trajectory,) in played]


def check_agent(config: TrainingConfig) -> None:
    """Finds out what is wrong with the agent of a training before it starts.

    Raises:
        UsageError: There is no such agent.
    """
    if config.agent_command is not None:
        parse_command(config.agent_command)
    if config.agent is not None:
        load_agent(config.agent)


def rollout_of(
    config: TrainingConfig, scenario: Scenario, on_warning: Callable[[str], None]
) -> AgentRollout:
    """The rollout of a training that names an agent.

    Raises:
        UsageError: There is no such agent.
    """
    options: dict[str, Any] = {
        "concurrency": config.agent_concurrency,
        "time_limit": config.agent_timeout,
        "on_warning": on_warning,
    }
    if config.agent_command is not None:
        command = config.agent_command

        def make(gateway: Gateway) -> AgentManager:
            return CommandAgentManager(command, gateway, **options)
    else:
        agent = load_agent(config.agent or "")

        def make(gateway: Gateway) -> AgentManager:
            return CallableAgentManager(agent, gateway, **options)

    return AgentRollout(
        scenario,
        make,
        max_steps=config.max_steps,
        tool_timeout=config.tool_timeout,
        on_warning=on_warning,
    )

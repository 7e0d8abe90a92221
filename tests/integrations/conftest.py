"""A trained agent, worlds to act in, and a watch over the network."""

from __future__ import annotations

import json
import os
import runpy
import sys
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from agentgym import TrainedAgent, Trainer
from agentgym.core.task import Task
from agentgym.core.trajectory import Trajectory
from agentgym.episodes.episode import AgentTask, Episode
from agentgym.integrations.base import switch_off_telemetry
from agentgym.scenarios.customer_support.tools import WRITING_TOOLS
from agentgym.scenarios.registry import ScenarioRegistry
from agentgym.training.rollout import Rollout

# Before any framework is imported by a test.
switch_off_telemetry()
# Helpers that lie beside the tests.
sys.path.insert(0, str(Path(__file__).parent))

GUARD = Path(__file__).parent / "guard"
runpy.run_path(str(GUARD / "sitecustomize.py"))


@pytest.fixture(autouse=True)
def no_network(
    monkeypatch: pytest.MonkeyPatch, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[None]:
    """Fails a test if it, or a program it starts, reaches beyond this machine."""
    tried = tmp_path_factory.mktemp("network") / "tried"
    monkeypatch.setenv("AGENTGYM_TRIED", str(tried))
    path = [str(GUARD), *filter(None, [os.environ.get("PYTHONPATH")])]
    monkeypatch.setenv("PYTHONPATH", os.pathsep.join(path))
    yield
    assert not tried.exists(), f"connections beyond loopback: {tried.read_text()}"


@pytest.fixture(scope="session")
def trained(tmp_path_factory: pytest.TempPathFactory) -> TrainedAgent:
    """A planner that was trained on customer_support for a few seconds."""
    home = tmp_path_factory.mktemp("trained")
    result = Trainer(home=home).train(
        "customer_support", episodes=2_500, eval_tasks=20, heldout_tasks=20
    )
    return TrainedAgent.load(Path(result.trained_model_path))


@pytest.fixture(scope="session")
def writing_task(trained: TrainedAgent) -> Task:
    """A task that the agent solves in the built-in loop by changing the database."""
    scenario = ScenarioRegistry.load("customer_support")
    rollout = Rollout(scenario, max_steps=10)
    tasks = scenario.tasks("heldout", 0, 60)
    played = rollout.play(trained.policy, tasks)
    rollout.close()
    for task, trajectory in zip(tasks, played, strict=True):
        asked = any(not step.calls for step in trajectory.steps[:-1])
        called = {call.name for step in trajectory.steps for call in step.calls}
        if trajectory.success and not asked and called & WRITING_TOOLS:
            return task
    pytest.fail("the agent solves no task that writes")


class Shop:
    """The world of one task, with tools that really write into its database."""

    def __init__(self, task: Task) -> None:
        self.environment = ScenarioRegistry.load(
            "customer_support"
        ).create_environment()
        self.trajectory = Trajectory(task)
        self.episode = Episode(self.environment, self.trajectory)
        self.prompt = AgentTask.of(self.episode).prompt
        self.tools: dict[str, Callable[..., Any]] = {
            tool.name: partial(self._call, tool.name) for tool in self.episode.tools
        }
        self.before = self.environment.world.effects()

    def _call(self, name: str, **arguments: Any) -> Any:
        return json.loads(self.episode.call(name, arguments).content)

    def check(self) -> None:
        """The database changed, and exactly as the task asks."""
        task = self.environment.task
        assert task is not None
        after = self.environment.world.effects()
        assert after != self.before
        assert after == task.world.expected_effects


@pytest.fixture
def shop(writing_task: Task) -> Iterator[Shop]:
    made = Shop(writing_task)
    yield made
    made.environment.close()

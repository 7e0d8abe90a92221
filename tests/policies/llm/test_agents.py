"""A language model behind the endpoints of agents from elsewhere."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import pytest

from agentgym import Trainer
from agentgym.agents.callables import CallableAgentManager, load_agent
from agentgym.agents.gateway import Gateway
from agentgym.agents.rollout import AgentRollout
from agentgym.agents.trl import tokens_of
from agentgym.core.events import IterationDone
from agentgym.core.trajectory import GroupPlan
from agentgym.policies.llm.policy import LlmPolicy
from agentgym.scenarios.registry import ScenarioRegistry

ROOT = Path(__file__).parents[3]
SCENARIO = "tiny_scenario:Tiny"
COMMAND = f"{sys.executable} -S {ROOT / 'examples' / 'command_agent.py'}"


@pytest.fixture(autouse=True)
def _paths(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.syspath_prepend(str(ROOT / "tests" / "integration"))
    monkeypatch.syspath_prepend(str(ROOT / "examples"))


@pytest.mark.slow
@pytest.mark.parametrize(
    "agent",
    [{"agent": "tool_loop_agent:agent"}, {"agent_command": COMMAND}],
    ids=["callable", "command"],
)
def test_an_agent_trains_a_language_model(
    tmp_path: Path, families: dict[str, Path], agent: Any
) -> None:
    points: list[IterationDone] = []
    trainer = Trainer(
        home=tmp_path,
        listeners=[
            lambda e: points.append(e) if isinstance(e, IterationDone) else None
        ],
    )
    result = trainer.train(
        SCENARIO,
        policy="llm",
        model=str(families["qwen2"]),
        episodes=24,
        group_size=8,
        batch_size=2,
        eval_tasks=4,
        heldout_tasks=4,
        free_form_tasks=1,
        agent_concurrency=4,
        **agent,
    )
    assert result.metrics.episodes_completed >= 20
    assert sum(point.values["broken"] for point in points) == 0
    assert any(point.values["gradient_norm"] > 0 for point in points)
    assert not any("agent" in kind for kind in result.metrics.failures)
    again = trainer.evaluate(**agent)
    assert again.tool_reliability == result.metrics.tool_reliability


def test_trajectories_have_the_tokens_of_the_sampler(families: dict[str, Path]) -> None:
    policy = LlmPolicy(str(families["qwen2"]))
    scenario = ScenarioRegistry.load(SCENARIO)

    def make(gateway: Gateway) -> CallableAgentManager:
        return CallableAgentManager(load_agent("tool_loop_agent:agent"), gateway)

    rollout = AgentRollout(scenario, make, max_steps=4)
    tasks = scenario.tasks("train", 0, 4)
    plans = [GroupPlan(t, 2, exploration=0.3, branch=False) for t in tasks]
    groups = rollout.groups(policy, plans)
    rollout.close()
    for trajectory in (t for group in groups for t in group.trajectories):
        assert trajectory.failure is None and trajectory.steps
        for step in trajectory.steps:
            assert step.sampled is not None
            assert len(step.sampled.prompt) == step.prompt_tokens
            assert len(step.sampled.completion) == step.completion_tokens
            assert sum(step.sampled.logprobs) == pytest.approx(step.logprob)
        found = tokens_of(trajectory)
        assert found is not None
        # What was written is read again as the same tokens, so nothing is cut off.
        assert sum(found[1]) == sum(s.completion_tokens for s in trajectory.steps)

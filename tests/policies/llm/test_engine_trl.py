"""The engine trl: GRPOTrainer trains what answers agents. Skipped without TRL."""

from __future__ import annotations

import sys
import types
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from agentgym import TrainedAgent, Trainer
from agentgym.core.control import Control
from agentgym.core.events import EvaluationDone, IterationDone, Warned
from agentgym.core.trajectory import Trajectory
from agentgym.engines.trl import TrlEngine
from agentgym.errors import ConfigError
from agentgym.runs.resolve import resolve

pytest.importorskip("trl", reason="needs the extra: pip install 'openagentgym[trl]'")

ROOT = Path(__file__).parents[3]
SCENARIO = "wordy:Wordy"


@pytest.fixture(autouse=True)
def _wordy(monkeypatch: pytest.MonkeyPatch) -> None:
    """The tiny scenario; but a random model gets no gate open, so it likes words."""
    monkeypatch.syspath_prepend(str(ROOT / "tests" / "integration"))
    monkeypatch.syspath_prepend(str(ROOT / "examples"))
    from tiny_scenario import Tiny

    class Wordy(Tiny):
        def broadcast_rewards(self, trajectory: Trajectory) -> list[float]:
            said = "".join(str(step.message["content"]) for step in trajectory.steps)
            return [float(said.count("e"))] * len(trajectory.steps)

    module: Any = types.ModuleType("wordy")
    module.Wordy = Wordy
    monkeypatch.setitem(sys.modules, "wordy", module)


def _settings(families: dict[str, Path], **more: Any) -> dict[str, Any]:
    return {
        "engine": "trl",
        "agent": "tool_loop_agent:agent",
        "model": str(families["qwen2"]),
        "group_size": 4,
        "batch_size": 2,
        "episodes": 16,
        "eval_tasks": 2,
        "heldout_tasks": 3,
        "free_form_tasks": 1,
        "max_steps": 3,
        "learning_rate": 1e-3,
        **more,
    }


@pytest.mark.slow
def test_trl_trains_an_agent(
    tmp_path: Path, families: dict[str, Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    from agentgym.agents import trl as agents

    played: list[Trajectory] = []
    given: list[dict[str, Any]] = []
    row = agents._row

    def spy(trajectory: Trajectory, prompt: Any) -> dict[str, Any]:
        played.append(trajectory)
        given.append(row(trajectory, prompt))
        return given[-1]

    monkeypatch.setattr(agents, "_row", spy)
    heard: list[Any] = []
    trainer = Trainer(home=tmp_path, listeners=[heard.append])
    result = trainer.train(SCENARIO, **_settings(families))
    assert result.config["policy"] == "llm"
    assert result.config["sources"]["policy"] == "engine"
    points = [event for event in heard if isinstance(event, IterationDone)]
    assert [(p.iteration, p.episodes) for p in points] == [(1, 8), (2, 16)]
    assert result.metrics.episodes_completed == len(played) == 16
    assert not [event for event in heard if isinstance(event, Warned)]
    # Siblings first, and rewards of the scenario.
    for start in range(0, 16, 4):
        assert len({t.task.id for t in played[start : start + 4]}) == 1
    assert len({t.task.id for t in played}) == 4
    assert all(t.failure is None and t.mean_reward is not None for t in played)
    for trajectory, one in zip(played, given, strict=True):
        assert one["reward"] == trajectory.mean_reward
        sampled = trajectory.steps[0].sampled
        assert sampled is not None
        assert one["prompt_ids"] == list(sampled.prompt)
        assert one["completion_ids"][: len(sampled.completion)] == list(
            sampled.completion
        )
    # Measured by the same code: before, after, and on held-out tasks.
    assert len(result.history) == 2 and result.metrics.tasks == 3
    assert result.metrics.free_form_tasks == 1
    assert [e.split for e in heard if isinstance(e, EvaluationDone)] == [
        "validation",
        "heldout",
    ]
    # What was learned is in the model that was published.
    policy: Any = TrainedAgent.load(result.model, home=tmp_path).policy
    learned = policy.state()["lora"]
    assert sum(np.abs(a).sum() for n, a in learned.items() if n.endswith(".up")) > 0
    # A finished run gives its result again, whatever its engine.
    assert Trainer.resume(result.run_id, home=tmp_path) == result


@pytest.mark.slow
def test_a_run_is_stopped(tmp_path: Path, families: dict[str, Path]) -> None:
    control = Control()

    def stop(event: Any) -> None:
        if isinstance(event, IterationDone):
            control.adjust(learning_rate=0.1)
            control.stop("enough")

    heard: list[Any] = []
    trainer = Trainer(home=tmp_path, listeners=[stop, heard.append], control=control)
    result = trainer.train(SCENARIO, **_settings(families))
    assert result.metrics.episodes_completed == 8
    (warned,) = [event.text for event in heard if isinstance(event, Warned)]
    assert "learning_rate" in warned


@pytest.mark.parametrize(
    ("settings", "problem"),
    [
        ({"policy": "planner"}, "language models"),
        ({"agent": None}, "Set exactly one of agent"),
        ({"credit": "broadcast"}, "'credit'"),
        ({"entropy": 0.1}, "'entropy'"),
    ],
)
def test_settings_that_it_does_not_read(
    families: dict[str, Path], settings: Any, problem: str
) -> None:
    from agentgym import TrainingConfig

    given = {k: v for k, v in _settings(families, **settings).items() if v is not None}
    if settings.get("policy"):
        del given["model"], given["free_form_tasks"]
    with pytest.raises(ConfigError, match=problem):
        resolve(TrainingConfig(scenario=SCENARIO, **given))


def test_matrices_are_those_of_the_policy(families: dict[str, Path]) -> None:
    """The adapter that PEFT trains says the same in the policy that takes it over."""
    import torch
    from peft import LoraConfig, get_peft_model

    from agentgym.engines.trl import _matrices
    from agentgym.policies.llm.lora import lora_layers
    from agentgym.policies.llm.models import load_model
    from agentgym.policies.llm.policy import LlmPolicy

    assert not TrlEngine.resumable
    policy = LlmPolicy(str(families["qwen3"]), half=False)
    names = [name for name, _ in lora_layers(policy.engine.model)]
    plain, _ = load_model(families["qwen3"])
    model = get_peft_model(plain, LoraConfig(r=16, lora_alpha=32, target_modules=names))
    with torch.no_grad():
        for name, parameter in model.named_parameters():
            if "lora_B" in name:
                parameter.normal_(std=0.02)
    policy.load_state({**policy.state(), "lora": dict(_matrices(model))})
    ids = torch.arange(3, 30)[None]
    with torch.no_grad():
        gap = model(ids).logits - policy.engine.model(ids).logits
    assert gap.abs().max() < 1e-4

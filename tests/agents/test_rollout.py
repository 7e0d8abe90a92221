"""Training with an agent in the place of the built-in loop."""

from __future__ import annotations

import random
import sys
import threading
import time
import types
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from agentgym import Trainer, TrainingConfig
from agentgym.core.events import Warned
from agentgym.errors import ConfigError, FailureBudgetExceeded, UsageError
from agentgym.policies import registry
from agentgym.runs.resolve import resolve

ROOT = Path(__file__).parents[2]
SCENARIO = "tiny_scenario:Tiny"
COMMAND = f"{sys.executable} -S {ROOT / 'examples' / 'command_agent.py'}"


@pytest.fixture(autouse=True)
def _tiny(monkeypatch: pytest.MonkeyPatch, eventually: Any) -> Iterator[None]:
    monkeypatch.syspath_prepend(str(ROOT / "tests" / "integration"))
    monkeypatch.syspath_prepend(str(ROOT / "examples"))
    monkeypatch.setitem(registry._CLASSES, "tiny", "tiny_policy:TinyPolicy")
    before = _threads()
    yield
    eventually(lambda: _threads() <= before)


def _threads() -> int:
    """Threads of agents and gateways; the planner's own ends when it is forgotten."""
    names = [thread.name for thread in threading.enumerate()]
    return sum(not name.startswith("agentgym-encoder") for name in names)


def _train(home: Path, listeners: Any = (), **settings: Any) -> Any:
    trainer = Trainer(home=home, listeners=listeners)
    return trainer.train(SCENARIO, policy="tiny", **settings)


@pytest.mark.parametrize(
    "agent",
    [{"agent": "tool_loop_agent:agent"}, {"agent_command": COMMAND}],
    ids=["callable", "command"],
)
def test_an_agent_learns_as_the_built_in_loop_does(tmp_path: Path, agent: Any) -> None:
    warned: list[Any] = []
    result = _train(
        tmp_path,
        [lambda event: warned.append(event) if isinstance(event, Warned) else None],
        episodes=160 if "agent" in agent else 24,
        **agent,
    )
    built_in = _train(tmp_path / "other", episodes=8)
    # Untrained, nothing is drawn: both decide the same.
    assert result.baseline.tool_reliability == built_in.baseline.tool_reliability
    assert result.baseline.avg_tokens_used == built_in.baseline.avg_tokens_used
    if "agent" in agent:
        gained = result.metrics.tool_reliability - result.baseline.tool_reliability
        assert gained > 0.3
    assert not any("agent" in kind for kind in result.metrics.failures)
    assert warned == []
    assert result.config["sources"][next(iter(agent))] == "user"


def _weights(result: Any) -> list[bytes]:
    folder = Path(result.trained_model_path)
    return [(folder / f"{name}.npy").read_bytes() for name in ("tool", "code")]


def unpunctual(task: Any, base_url: str, api_key: str) -> None:
    """The same agent, but who asks first is up to chance."""
    from tool_loop_agent import agent

    time.sleep(random.random() / 50)
    agent(task, base_url, api_key)


def _module(monkeypatch: pytest.MonkeyPatch, name: str, **contents: Any) -> None:
    module: Any = types.ModuleType(name)
    vars(module).update(contents)
    monkeypatch.setitem(sys.modules, name, module)


def test_same_seed_same_weights_whoever_asks_first(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    _module(monkeypatch, "late", agent=unpunctual)
    models = {}
    for home, agents in {"one": 1, "eight": 8, "again": 8, "other": 8}.items():
        result = _train(
            tmp_path / home,
            episodes=64,
            exploration=0.5,
            seed=7 if home == "other" else 0,
            agent="tool_loop_agent:agent" if agents == 1 else "late:agent",
            agent_concurrency=agents,
        )
        models[home] = _weights(result)
    assert models["one"] == models["eight"] == models["again"] != models["other"]


@pytest.mark.slow
def test_the_same_for_the_planner(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    _module(monkeypatch, "late", agent=unpunctual)
    models = []
    for home in ("one", "other"):
        result = Trainer(home=tmp_path / home).train(
            "customer_support",
            episodes=200,
            eval_tasks=5,
            heldout_tasks=5,
            agent="late:agent",
        )
        folder = Path(result.trained_model_path)
        (weights,) = folder.glob("*.safetensors")
        models.append(weights.read_bytes())
    assert models[0] == models[1]


# Several kinds ---------------------------------------------------------------------


def test_kinds_that_earn_more_by_nature_teach_no_more(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Two kinds take turns; what one of them is paid on top changes nothing."""
    import tiny_scenario
    from tool_loop_agent import agent

    from agentgym.core import rewards

    class Unfair(tiny_scenario.Tiny):
        options = {**tiny_scenario.Tiny.options, "bonus": 0}

        def broadcast_rewards(self, trajectory: Any) -> list[float]:
            rich = trajectory.agent_kind == "rich:agent"
            bonus = self.settings["bonus"] if rich else 0
            return [bonus + r for r in super().broadcast_rewards(trajectory)]

    _module(monkeypatch, "unfair", Unfair=Unfair)
    _module(monkeypatch, "rich", agent=agent)
    _module(monkeypatch, "poor", agent=agent)

    def weights(home: str, bonus: int) -> Any:
        result = Trainer(home=tmp_path / home).train(
            "unfair:Unfair",
            policy="tiny",
            episodes=64,
            bonus=bonus,
            agent="rich:agent,poor:agent",
        )
        return np.load(Path(result.trained_model_path) / "tool.npy")

    fair, unfair = weights("fair", 0), weights("unfair", 512)
    assert np.allclose(fair, unfair, atol=1e-9)
    # Compared as they are, the rich would have been praised for being rich.
    monkeypatch.setattr(
        rewards,
        "comparable_rewards",
        lambda trajectories: [[s.reward for s in t.steps] for t in trajectories],
    )
    assert not np.allclose(fair, weights("raw", 512), atol=1e-3)


def test_a_function_and_a_program_take_turns(tmp_path: Path) -> None:
    result = _train(
        tmp_path, episodes=16, agent="tool_loop_agent:agent", agent_command=COMMAND
    )
    assert not any("agent" in kind for kind in result.metrics.failures)


def test_a_run_goes_on_where_it_stopped(tmp_path: Path) -> None:
    from agentgym.core.control import Control
    from agentgym.core.events import IterationDone

    control = Control()

    def stop(event: Any) -> None:
        if isinstance(event, IterationDone) and event.iteration == 2:
            control.interrupt()

    trainer = Trainer(home=tmp_path, listeners=[stop], control=control)
    settings: Any = {"policy": "tiny", "agent": "tool_loop_agent:agent", "episodes": 64}
    with pytest.raises(KeyboardInterrupt):
        trainer.train(SCENARIO, **settings)
    result = Trainer.resume("last", home=tmp_path)
    assert result.metrics.episodes_completed >= 60


def test_agents_that_always_fail_end_the_training(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def agent(task: Any, base_url: str, api_key: str) -> None:
        raise ValueError("I am lost")

    _module(monkeypatch, "lost", agent=agent)
    with pytest.raises(FailureBudgetExceeded, match="I am lost"):
        _train(tmp_path, agent="lost:agent", agent_timeout=20)


def test_a_gateway_that_fails_is_told_about(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from tiny_policy import TinyPolicy

    def broken(self: Any, request: Any, sampling: Any) -> Any:
        raise ZeroDivisionError("oh")

    monkeypatch.setattr(TinyPolicy, "_decide", broken)
    warned: list[Any] = []
    with pytest.raises(FailureBudgetExceeded, match="internal_error"):
        _train(
            tmp_path,
            [lambda event: warned.append(event) if isinstance(event, Warned) else None],
            agent="tool_loop_agent:agent",
        )
    assert "ZeroDivisionError: oh" in warned[0].text and len(warned) == 1


@pytest.mark.parametrize(
    ("settings", "problem"),
    [
        ({"agent_timeout": 3}, "without an agent"),
        ({"agent_concurrency": 3}, "without an agent"),
    ],
)
def test_settings_that_make_no_sense(settings: Any, problem: str) -> None:
    with pytest.raises(ConfigError, match=problem):
        resolve(TrainingConfig(scenario=SCENARIO, **settings))


def test_an_agent_that_does_not_exist(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="cannot be imported"):
        _train(tmp_path, agent="no_such_module:agent")
    with pytest.raises(UsageError, match="Agent command 'no-such-program' not found"):
        _train(tmp_path, agent_command="no-such-program")

"""Training with an agent in the place of the built-in loop."""

from __future__ import annotations

import sys
import threading
import types
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from agentgym import Trainer, TrainingConfig
from agentgym.core.errors import ConfigError, FailureBudgetExceeded, UsageError
from agentgym.core.events import Warned
from agentgym.engines.local import resolve
from agentgym.policies import registry

ROOT = Path(__file__).parents[2]
SCENARIO = "tiny_scenario:Tiny"
COMMAND = f"{sys.executable} -S {ROOT / 'examples' / 'command_agent.py'}"


@pytest.fixture(autouse=True)
def _tiny(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    monkeypatch.syspath_prepend(str(ROOT / "tests" / "integration"))
    monkeypatch.syspath_prepend(str(ROOT / "examples"))
    monkeypatch.setitem(registry._CLASSES, "tiny", "tiny_policy:TinyPolicy")
    before = threading.active_count()
    yield
    assert threading.active_count() <= before


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
        # One after the other, so that what is drawn does not depend on the clock.
        agent_concurrency=1 if "agent" in agent else 4,
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


def test_same_seed_same_weights_one_after_the_other(tmp_path: Path) -> None:
    models = []
    for home in ("one", "other"):
        result = _train(
            tmp_path / home,
            episodes=32,
            agent="tool_loop_agent:agent",
            agent_concurrency=1,
        )
        folder = Path(result.trained_model_path)
        models.append([(folder / f"{n}.npy").read_bytes() for n in ("tool", "code")])
    assert models[0] == models[1]


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

    module: Any = types.ModuleType("lost")
    module.agent = agent
    monkeypatch.setitem(sys.modules, "lost", module)
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
        ({"agent": "a:b", "agent_command": "c"}, "exclude each other"),
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
    with pytest.raises(UsageError, match="no command"):
        _train(tmp_path, agent_command="no-such-program")

"""Settings become a job once: nothing that they name is loaded twice."""

from __future__ import annotations

import sys
import types
from collections import Counter
from pathlib import Path
from typing import Any

import pytest

from agentgym import Trainer, TrainingConfig
from agentgym.cli.app import run
from agentgym.core.control import Control
from agentgym.core.events import Event, IterationDone, Listener
from agentgym.errors import ConfigError
from agentgym.runs.resolve import resolve

SETTINGS = {"policy": "tiny", "agent": "counting:make", "episodes": "8"}


class Calls(Counter[str]):
    """How often the user's code was called until the first episode began."""

    begun = False

    def note(self, name: str) -> None:
        if not self.begun:
            self[name] += 1


@pytest.fixture
def calls(monkeypatch: pytest.MonkeyPatch) -> Calls:
    """Counts, while there is a module `counting` with a scenario and a factory."""
    from tiny_scenario import Tiny
    from tool_loop_agent import agent

    counted = Calls()

    class Counting(Tiny):
        def __init__(self, **options: Any) -> None:
            counted.note("scenario")
            super().__init__(**options)

        def create_environment(self, tasks: Any = (), **options: Any) -> Any:
            counted.begun = True
            return super().create_environment(tasks, **options)

    def make() -> Any:
        counted.note("factory")
        return agent

    resolve_config = TrainingConfig.resolve

    def spy(self: TrainingConfig, *arguments: Any, **named: Any) -> TrainingConfig:
        counted.note("resolve")
        return resolve_config(self, *arguments, **named)

    monkeypatch.setattr(TrainingConfig, "resolve", spy)
    module: Any = types.ModuleType("counting")
    vars(module).update(Counting=Counting, make=make)
    monkeypatch.setitem(sys.modules, "counting", module)
    return counted


ONCE = {"scenario": 1, "factory": 1, "resolve": 1}


def test_from_python_everything_is_loaded_once(tmp_path: Path, calls: Calls) -> None:
    Trainer(home=tmp_path).train("counting:Counting", **SETTINGS)
    assert calls == ONCE


def test_from_the_command_line_everything_is_loaded_once(
    tmp_path: Path, calls: Calls, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("AGENTGYM_HOME", str(tmp_path))
    options = [f"--{name}={value}" for name, value in SETTINGS.items()]
    assert run(["train", "counting:Counting", *options, "--quiet"]) == 0
    assert calls == ONCE


@pytest.mark.parametrize("from_python", [True, False])
def test_a_resumed_run_loads_everything_once_and_resolves_nothing(
    tmp_path: Path,
    calls: Calls,
    monkeypatch: pytest.MonkeyPatch,
    from_python: bool,
) -> None:
    monkeypatch.setenv("AGENTGYM_HOME", str(tmp_path))
    control = Control()
    trainer = Trainer(listeners=[_interrupting(control)], control=control)
    with pytest.raises(KeyboardInterrupt):
        trainer.train("counting:Counting", **{**SETTINGS, "episodes": 32})
    assert calls == ONCE
    calls.clear()
    calls.begun = False
    if from_python:
        Trainer.resume("last")
    else:
        assert run(["runs", "resume", "--quiet"]) == 0
    assert calls == {"scenario": 1, "factory": 1}


def _interrupting(control: Control) -> Listener:
    def hear(event: Event) -> None:
        if isinstance(event, IterationDone):
            control.interrupt()

    return hear


def test_settings_are_checked_before_the_users_code_is_called(
    calls: Calls,
) -> None:
    config = TrainingConfig(
        scenario="counting:Counting", policy="tiny", agent="counting:make", episods=3
    )
    with pytest.raises(ConfigError, match="Did you mean 'episodes'"):
        resolve(config)
    assert not calls


def test_what_was_resolved_stays_as_it_is(monkeypatch: pytest.MonkeyPatch) -> None:
    from tiny_policy import TinyPolicy

    config = resolve(
        TrainingConfig(scenario="tiny_scenario:Tiny", policy="tiny")
    ).config
    kept = TrainingConfig.from_dict(config.to_dict())
    # As in a newer version, with other defaults than those the run began with.
    monkeypatch.setattr(TinyPolicy, "training_defaults", {"learning_rate": 0.1})
    assert resolve(kept, resolved=True).config.to_dict() == config.to_dict()

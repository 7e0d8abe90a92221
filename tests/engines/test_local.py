from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from agentgym import Trainer, TrainingConfig
from agentgym.core.control import Control
from agentgym.core.events import Event, IterationDone, Listener, RunFailed
from agentgym.engines import get_engine
from agentgym.engines.local import LocalEngine
from agentgym.errors import (
    ConfigError,
    EngineNotFoundError,
    PolicyNotFoundError,
    ScenarioError,
    StoreError,
)
from agentgym.policies import registry
from agentgym.runs.resolve import resolve
from agentgym.runs.view import view_of
from agentgym.store import Store
from agentgym.training.checkpoint import CheckpointFolder

TINY = Path(__file__).parents[1] / "integration"
SCENARIO = "tiny_scenario:Tiny"


@pytest.fixture(autouse=True)
def _tiny(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.syspath_prepend(str(TINY))
    monkeypatch.setitem(registry._CLASSES, "tiny", "tiny_policy:TinyPolicy")


def _train(home: Path, *listeners: Listener, **settings: Any) -> Any:
    trainer = Trainer(home=home, listeners=listeners)
    return trainer.train(SCENARIO, policy="tiny", **settings)


def test_engines_by_name() -> None:
    assert isinstance(get_engine("local"), LocalEngine)
    with pytest.raises(EngineNotFoundError, match="Available: local, trl"):
        get_engine("nobody")


def test_policies_by_name() -> None:
    assert registry.create_policy("tiny", 1).state()["tool"].any()
    with pytest.raises(PolicyNotFoundError, match="Available: llm, planner"):
        registry.create_policy("nobody", 0)


def test_what_the_store_holds_of_a_run(tmp_path: Path) -> None:
    result = _train(tmp_path, seed=4)
    with Store(tmp_path) as store:
        run = store.get_run(result.run_id)
        assert (run.scenario, run.policy, run.engine) == (SCENARIO, "tiny", "local")
        assert (run.seed, run.status) == (4, "finished")
        assert run.config == result.config
        assert run.result == result.to_dict()
        assert run.episodes == result.metrics.episodes_completed > 188
        assert run.model == "tiny_v1.0"
        assert run.pid == os.getpid()
        assert run.error is None
        view = view_of(store, run.id)
        points = view.points
        assert [p.iteration for p in points] == list(range(1, len(points) + 1))
        assert points[-1].episodes == run.episodes
        assert [(e.iteration, e.episodes) for e in view.evaluations] == [
            (entry["iteration"], entry["episodes"]) for entry in result.history
        ]
        assert view.heldout is not None
        assert view.heldout.metrics == result.metrics.to_dict()
        assert view.heldout.iteration == points[-1].iteration
        assert run.targets == view.targets == {"tool_reliability": 1.0}
        assert run.attempt == 1
        failed = store.trajectories(run.id, failed=True, limit=1000)
        assert failed and all(not row.success for row in failed)
        assert failed[0].steps[0]["reward"] is not None
        model = store.get_model("tiny")
        assert model.run_id == run.id
        assert model.metadata["metrics"] == result.metrics.to_dict()


def test_files_of_a_run(tmp_path: Path) -> None:
    result = _train(tmp_path, episodes=16, name="my.gates")
    assert result.model == "my.gates_v1.0"
    folder = Path(result.trained_model_path)
    assert folder == tmp_path / "models" / "my.gates_v1.0"
    assert sorted(p.name for p in folder.iterdir()) == [
        "agent.json",
        "code.npy",
        "result.json",
        "tool.npy",
    ]
    # Checkpoints of a finished run would only fill the disk.
    run = tmp_path / "runs" / result.run_id
    assert sorted(p.name for p in run.iterdir()) == ["lock", "result.json"]
    assert (run / "result.json").read_bytes() == (folder / "result.json").read_bytes()


def test_resolving() -> None:
    job = resolve(TrainingConfig(scenario=SCENARIO, policy="tiny"))
    assert job.scenario.name == "tiny"
    assert job.config.learning_rate == 0.5
    assert job.config.sources["learning_rate"] == "policy"
    assert job.config.options_of(job.scenario.options) == {"crash": False}
    assert job.targets == {"tool_reliability": 1.0}
    job = resolve(
        TrainingConfig.from_dict(
            {"scenario": SCENARIO, "policy": "tiny", "crash": True}
        )
    )
    assert job.scenario.settings == {"crash": True}


def test_what_learns() -> None:
    config = TrainingConfig(scenario=SCENARIO, policy="tiny")
    assert resolve(config).trainable == {"tool_selection", "parameter_selection"}
    config.components = ["output_generation"]
    assert resolve(config).trainable == {"output_generation"}


@pytest.mark.parametrize(
    ("declared", "text"),
    [
        ({"tool_selection": False}, "none learns"),
        ({"tool_selecting": True}, "unknown: tool_selecting"),
    ],
)
def test_a_scenario_that_declares_nonsense(
    monkeypatch: pytest.MonkeyPatch,
    tmp_path: Path,
    declared: dict[str, bool],
    text: str,
) -> None:
    from tiny_scenario import Tiny

    monkeypatch.setattr(Tiny, "define_trainable_components", lambda self: declared)
    with pytest.raises(ScenarioError, match=text):
        _train(tmp_path)
    assert not (tmp_path / "agentgym.db").exists()


# When the home cannot be used


def test_a_home_that_is_a_file(tmp_path: Path) -> None:
    home = tmp_path / "home"
    home.write_text("")
    with pytest.raises(StoreError, match="a file stands where a folder is needed"):
        _train(home)


def test_a_disk_that_fills_up_loses_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    whole = _train(tmp_path / "whole")
    home = tmp_path / "home"
    save = CheckpointFolder.save
    saves = []

    def full(self: CheckpointFolder, checkpoint: Any) -> None:
        saves.append(checkpoint)
        if len(saves) == 3:
            raise StoreError("Cannot write: No space left on device.")
        save(self, checkpoint)

    heard: list[Event] = []
    monkeypatch.setattr(CheckpointFolder, "save", full)
    with pytest.raises(StoreError, match="No space left"):
        _train(home, heard.append)
    assert isinstance(heard[-1], RunFailed)
    with Store(home) as store:
        assert store.get_run("last").status == "failed"
    resumed = Trainer.resume("last", home)
    with Store(home) as store:
        run = store.get_run("last")
        assert (run.status, run.error) == ("finished", None)
        points = [p.iteration for p in view_of(store, run.id).points]
        assert points == list(range(1, len(points) + 1))
    for name in ("tool.npy", "code.npy"):
        first, second = (
            (Path(r.trained_model_path) / name).read_bytes() for r in (whole, resumed)
        )
        assert first == second


def test_a_store_that_breaks_ends_the_run(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Rows must not get lost in silence, so this is no mere display that fails."""

    def broken(self: Store, *arguments: Any, **fields: Any) -> None:
        raise StoreError("agentgym.db cannot grow, the disk is full.")

    monkeypatch.setattr(Store, "append_events", broken)
    with pytest.raises(StoreError, match="disk is full"):
        _train(tmp_path)


def test_a_model_that_cannot_be_written_is_not_there(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from tiny_policy import TinyPolicy

    def full(self: Any, folder: Path) -> None:
        raise OSError(28, "No space left on device")

    with monkeypatch.context() as patch:
        patch.setattr(TinyPolicy, "save", full)
        with pytest.raises(StoreError, match="No space left on device"):
            _train(tmp_path)
    with Store(tmp_path) as store:
        assert store.list_models() == []
    result = Trainer.resume("last", tmp_path)
    assert result.model == "tiny_v1.0"


def test_killed_between_publishing_and_saying_so(tmp_path: Path) -> None:
    result = _train(tmp_path)
    shutil.rmtree(tmp_path / "runs" / result.run_id)
    gone = subprocess.Popen([sys.executable, "-c", ""])
    gone.wait()
    with Store(tmp_path) as store:
        store.update_run(
            result.run_id, status="running", model=None, result=None, pid=gone.pid
        )
    again = Trainer.resume("last", tmp_path)
    assert again == result
    with Store(tmp_path) as store:
        run = store.get_run("last")
        assert (run.status, run.model) == ("finished", result.model)
        assert len(store.list_models()) == 1
    assert (tmp_path / "runs" / result.run_id / "result.json").exists()


def test_a_control_keeps_its_own_source(tmp_path: Path) -> None:
    iterations: list[Event] = []

    def source() -> list[tuple[str, dict[str, Any]]]:
        return [("stop", {})] if len(iterations) == 2 else []

    control = Control(source)

    def hear(event: Event) -> None:
        if isinstance(event, IterationDone):
            iterations.append(event)

    Trainer(home=tmp_path, listeners=[hear], control=control).train(
        SCENARIO, policy="tiny"
    )
    assert len(iterations) == 2
    assert control.source is source


@pytest.mark.parametrize("setting", [{"model": "smollm2-135m"}, {"free_form_tasks": 9}])
def test_settings_of_a_language_model_need_one(setting: dict[str, Any]) -> None:
    config = TrainingConfig(scenario="tiny_scenario:Tiny", policy="tiny", **setting)
    with pytest.raises(ConfigError, match="Policy 'tiny' doesn't use"):
        resolve(config)

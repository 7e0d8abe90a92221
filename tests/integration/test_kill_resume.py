"""Runs that are killed, runs side by side, runs that must give the same bytes."""

from __future__ import annotations

import itertools
import os
import random
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from agentgym import Trainer
from agentgym.core.control import Control
from agentgym.core.events import Event, IterationDone, LoggedEvent, RunStarted
from agentgym.policies.registry import create_policy
from agentgym.runs.view import view_of
from agentgym.store import Store
from agentgym.store.artifacts import FolderArtifacts
from agentgym.training.checkpoint import CheckpointFolder

HERE = Path(__file__).parent

# Each is the beginning or the end of something that must not be left half done.
MOMENTS = [
    "RunStarted:1",
    "before add_trajectories:1",
    "BaselineMeasured:1",
    "os.fsync:1",
    "before os.replace:1",
    "CheckpointSaved:1",
    "IterationDone:2",
    "learn:3",
    "add_trajectories:1",
    "EvaluationDone:1",
    "os.replace:1",
    "before os.replace:4",
    "IterationDone:1",
    "before learn:4",
    "append_events:2",
    "before publish:1",
    "publish:1",
    "before os.replace:9",
]
# Enough for one run that is killed again and again; the slow tests do them all.
CHAIN = [m for m in MOMENTS if m not in ("os.fsync:1", "learn:3", "before learn:4")]
CHAIN = [*CHAIN[:-1], "never"]
# What depends on the clock and not on the seed.
_CLOCKED = {
    "episodes_per_second",
    "avg_response_time",
    "total_training_time",
    "time_savings",
}


def _start(home: Path, moment: str, *rest: str, delay: float = 0) -> Any:
    environment = {
        **os.environ,
        "OPENBLAS_NUM_THREADS": "1",
        "PYTHONPATH": os.pathsep.join([str(HERE), *sys.path]),
        "TINY_DELAY": str(delay),
    }
    return subprocess.Popen(
        [sys.executable, str(HERE / "train_child.py"), str(home), moment, *rest],
        env=environment,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
    )


def _wait(child: Any, *allowed: int) -> int:
    _, errors = child.communicate(timeout=120)
    assert child.returncode in allowed, errors.decode()
    return int(child.returncode)


def _weights(home: Path) -> dict[str, bytes]:
    (folder,) = (home / "models").glob("tiny_*")
    return {p.name: p.read_bytes() for p in folder.glob("planner.*")}


def _rows(home: Path) -> dict[str, Any]:
    """All rows of the only run, without what depends on the clock."""

    def plain(values: dict[str, Any]) -> dict[str, Any]:
        return {k: v for k, v in values.items() if k not in _CLOCKED}

    with Store(home) as store:
        (run,) = store.list_runs()
        assert run.status == "finished"
        (model,) = store.list_models()
        assert run.model == model.full_name
        log = store.events(run.id)
        assert [logged.seq for logged in log] == list(range(1, len(log) + 1))
        attempts = [logged.attempt for logged in log]
        assert attempts == sorted(attempts)
        view = view_of(store, run.id)
        assert view.status == "finished"
        return {
            "points": [(p.iteration, p.episodes, plain(p.values)) for p in view.points],
            "evaluations": [
                (e.split, e.iteration, e.episodes, plain(e.metrics))
                for e in [*view.evaluations, view.heldout]
                if e is not None
            ],
            "counts": view.counts,
            "trajectories": [
                (t.iteration, t.number, t.success, t.task_id)
                for t in store.trajectories(run.id, limit=1000)
            ],
            "episodes": run.episodes,
        }


@pytest.fixture(scope="module")
def unbroken(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The home of a run that was never killed."""
    home = tmp_path_factory.mktemp("unbroken")
    _wait(_start(home, "never"), 0)
    return home


def test_killed_at_many_moments_and_resumed_each_time(
    unbroken: Path, tmp_path: Path
) -> None:
    killed = 0
    for i, moment in enumerate(CHAIN):
        command = ["resume"] if i else []
        code = _wait(_start(tmp_path, moment, *command), 0, -signal.SIGKILL)
        killed += code == -signal.SIGKILL
        # A folder half written must never be seen as a model.
        with Store(tmp_path) as store:
            for model in store.list_models():
                assert (model.path / "agent.json").exists()
    assert killed >= 10
    assert _weights(tmp_path) == _weights(unbroken)
    assert _rows(tmp_path) == _rows(unbroken)


@pytest.mark.slow
@pytest.mark.parametrize("moment", MOMENTS)
def test_killed_once_and_resumed(unbroken: Path, tmp_path: Path, moment: str) -> None:
    _wait(_start(tmp_path, moment), 0, -signal.SIGKILL)
    _wait(_start(tmp_path, "never", "resume"), 0)
    assert _weights(tmp_path) == _weights(unbroken)
    assert _rows(tmp_path) == _rows(unbroken)


@pytest.mark.slow
@pytest.mark.parametrize("number", range(10))
def test_killed_from_outside_at_any_time(
    unbroken: Path, tmp_path: Path, number: int
) -> None:
    child = _start(tmp_path, "never", delay=0.02)
    database = tmp_path / "agentgym.db"
    while not database.exists() or not any(tmp_path.glob("runs/*")):
        time.sleep(0.01)
    time.sleep(random.Random(number).uniform(0.0, 2.5))
    child.kill()
    _wait(child, 0, -signal.SIGKILL)
    _wait(_start(tmp_path, "never", "resume"), 0)
    assert _weights(tmp_path) == _weights(unbroken)
    assert _rows(tmp_path) == _rows(unbroken)


@pytest.mark.slow
def test_killed_ten_times_at_any_time(unbroken: Path, tmp_path: Path) -> None:
    """The log is complete and in order, and nothing that was said is lost."""
    rng = random.Random(0)
    said: list[LoggedEvent] = []
    kills = 0
    while kills < 10:
        resumed = ["resume"] if kills else []
        # The longer a run is alive, the likelier it is to end before it is killed.
        child = _start(tmp_path, "never", *resumed, delay=0.05)
        while not list(tmp_path.glob("runs/*/lock")):
            time.sleep(0.01)
        time.sleep(rng.uniform(0.6, 1.4))
        child.kill()
        if _wait(child, 0, -signal.SIGKILL) == 0:
            break
        kills += 1
        with Store(tmp_path) as store:
            log = store.events(store.get_run("last").id)
        # Whatever was there stays, word for word.
        assert log[: len(said)] == said
        said = log
    assert kills >= 5
    _wait(_start(tmp_path, "never", "resume"), 0)
    assert _weights(tmp_path) == _weights(unbroken)
    assert _rows(tmp_path) == _rows(unbroken)
    with Store(tmp_path) as store:
        run = store.get_run("last")
        log = store.events(run.id)
    assert log[: len(said)] == said
    # Each attempt says all of its iterations, from where it begins.
    reached = 0
    for _, entries in itertools.groupby(log, key=lambda logged: logged.attempt):
        first, *rest = (logged.event for logged in entries)
        assert isinstance(first, RunStarted)
        begin = first.resumed_from or 0
        assert begin <= reached
        done = [e.iteration for e in rest if isinstance(e, IterationDone)]
        assert done == list(range(begin + 1, begin + 1 + len(done)))
        reached = max(reached, begin + len(done))


def test_two_trainings_in_one_home(unbroken: Path, tmp_path: Path) -> None:
    children = [_start(tmp_path, "never"), _start(tmp_path, "never", "seed=1")]
    for child in children:
        _wait(child, 0)
    with Store(tmp_path) as store:
        runs = {run.seed: run for run in store.list_runs()}
        models = {model.run_id: model for model in store.list_models()}
        assert {m.full_name for m in models.values()} == {"tiny_v1.0", "tiny_v1.1"}
        for run in runs.values():
            assert run.status == "finished"
            points = view_of(store, run.id).points
            assert [p.iteration for p in points] == list(range(1, len(points) + 1))
            assert points[-1].episodes == run.episodes
            assert run.model == models[run.id].full_name
    same = models[runs[0].id].path / "planner.safetensors"
    other = models[runs[1].id].path / "planner.safetensors"
    assert same.read_bytes() == _weights(unbroken)["planner.safetensors"]
    assert other.read_bytes() != same.read_bytes()


@pytest.mark.parametrize(
    ("component", "learning"),
    [
        ("tool_selection", {"tool"}),
        ("parameter_selection", {"value", "pointer"}),
    ],
)
def test_one_component_alone(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    component: str,
    learning: set[str],
) -> None:
    """Looks at the newest weights, for the best may well be the untrained ones."""
    monkeypatch.syspath_prepend(str(HERE))
    control = Control()

    def leave(event: Event) -> None:
        if isinstance(event, IterationDone) and event.iteration == 4:
            control.interrupt()

    trainer = Trainer(home=tmp_path, listeners=[leave], control=control)
    with pytest.raises(KeyboardInterrupt):
        trainer.train("tiny_scenario:Tiny", components=[component])
    (folder,) = (tmp_path / "runs").iterdir()
    checkpoint, _ = CheckpointFolder(FolderArtifacts(folder)).load()
    assert checkpoint is not None and checkpoint.progress.iteration == 4
    untrained = create_policy("planner", 0).state()["weights"]
    changed = set()
    for head, arrays in checkpoint.policy["weights"].items():
        for name, array in arrays.items():
            before = untrained[head][name]
            # Rows for tools that were met are added in any case, all zero.
            more = ((0, len(array) - len(before)), *[(0, 0)] * (array.ndim - 1))
            if np.pad(before, more).tobytes() != array.tobytes():
                changed.add(head)
    assert changed
    assert changed <= learning

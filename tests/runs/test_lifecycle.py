"""The rules of a run: who may do what, in which status."""

from __future__ import annotations

import itertools
import os
import re
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from agentgym import Trainer, TrainingConfig
from agentgym.core.control import Control
from agentgym.core.events import Event, IterationDone, Paused, RunFinished
from agentgym.engines.local import LocalEngine
from agentgym.errors import ConfigError, StoreError, UsageError
from agentgym.runs import lifecycle
from agentgym.runs.launchers.child import OUTPUT, Child
from agentgym.runs.launchers.here import Here
from agentgym.runs.resolve import resolve
from agentgym.store import Store
from agentgym.store.rows import RUN_STATUSES

TINY = "tiny_scenario:Tiny"


@pytest.fixture
def store(tmp_path: Path) -> Iterator[Store]:
    with Store(tmp_path / "home") as opened:
        yield opened


class Nowhere:
    """A launcher that only notes what it was asked for."""

    def __init__(self) -> None:
        self.launched: list[str] = []

    def launch(self, store: Store, run_id: str, job: Any = None) -> str:
        self.launched.append(run_id)
        return "launched"


def _run(store: Store, status: Any, engine: str = "local") -> str:
    store.create_run(
        "a1b2", scenario=TINY, policy="tiny", engine=engine, seed=0, config={}
    )
    store.update_run("a1b2", status=status)
    return "a1b2"


# What must happen: asked the run's process, launched the run, deleted it, or the words
# of the refusal.
_RULES: dict[str, dict[str, str]] = {
    "pause": {
        "running": "asked",
        "paused": "Run a1b2 is already paused. Resume it with: agentgym runs resume",
        "interrupted": "it is interrupted. Resume it with: agentgym runs resume a1b2",
    },
    "stop": {
        "running": "asked",
        "paused": "asked",
        "failed": "can't be stopped: it is failed. Resume it with: agentgym runs res",
        "stopped": "can't be stopped: it is stopped.",
    },
    "adjust": {
        "running": "asked",
        "paused": "asked",
        "finished": "can't be adjusted: it is finished.",
    },
    "resume": {
        "running": "Run a1b2 is already running in process",
        "paused": "asked",
    },
    "delete": {
        "running": "can't be deleted: it is running. Stop it with: agentgym runs stop",
        "paused": "can't be deleted: it is paused. Stop it with: agentgym runs stop",
    },
}
_ELSE = {"resume": "launched", "delete": "deleted"}


@pytest.mark.parametrize(
    ("order", "status"), list(itertools.product(_RULES, RUN_STATUSES))
)
def test_the_table(store: Store, order: str, status: str) -> None:
    run = _run(store, status)
    launcher = Nowhere()
    orders: dict[str, Any] = {
        "pause": lambda: lifecycle.pause(store, run),
        "stop": lambda: lifecycle.stop(store, run),
        "adjust": lambda: lifecycle.adjust(store, run, {"entropy": 0.1}),
        "resume": lambda: lifecycle.resume(store, run, launcher),
        "delete": lambda: lifecycle.delete(store, run),
    }
    wanted = _RULES[order].get(status, _ELSE.get(order, f"it is {status}."))
    if wanted not in ("asked", "launched", "deleted"):
        with pytest.raises(UsageError, match=re.escape(wanted)):
            orders[order]()
        assert store.get_run(run).status == status
    else:
        orders[order]()
    if wanted == "deleted":
        assert store.list_runs() == []
    asked = [name for name, _ in store.take_commands(run)]
    assert asked == ([order] if wanted == "asked" else [])
    assert launcher.launched == ([run] if wanted == "launched" else [])


def test_what_an_engine_cannot_do_is_refused(
    store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(LocalEngine, "adjustable", ())
    monkeypatch.setattr(LocalEngine, "resumable", False)
    run = _run(store, "running")
    with pytest.raises(UsageError, match="'local' can't change entropy during trai"):
        lifecycle.adjust(store, run, {"entropy": 0.1})
    store.update_run(run, status="interrupted")
    with pytest.raises(UsageError, match="engine 'local' doesn't support it"):
        lifecycle.resume(store, run, Nowhere())
    with pytest.raises(UsageError, match="it is interrupted.$"):
        lifecycle.stop(store, run)
    # It never began, so there is nothing to go back to.
    store.update_run(run, status="queued")
    assert lifecycle.resume(store, run, Nowhere()) == "launched"


def test_adjusting_obeys_the_rules_of_control(store: Store) -> None:
    run = _run(store, "running")
    with pytest.raises(ConfigError, match="Did you mean 'entropy'"):
        lifecycle.adjust(store, run, {"entrpy": 0.1})
    with pytest.raises(ConfigError, match="exploration must be"):
        lifecycle.adjust(store, run, {"entropy": 0.1, "exploration": 2})
    with pytest.raises(UsageError, match="Nothing to adjust"):
        lifecycle.adjust(store, run, {})
    assert store.take_commands(run) == []


def test_a_finished_run_gives_its_result_again(tmp_path: Path) -> None:
    result = Trainer(home=tmp_path).train(TINY, policy="tiny", episodes=16)
    heard: list[Event] = []
    # Its scenario need not be there any more.
    with Store(tmp_path) as store:
        store.update_run(result.run_id, config={"scenario": "gone:Gone"})
        log = store.events(result.run_id)
    assert Trainer.resume("last", tmp_path, [heard.append]) == result
    assert [type(event) for event in heard] == [RunFinished]
    with Store(tmp_path) as store:
        assert store.events(result.run_id) == log


def test_a_paused_run_continues_in_its_own_process(tmp_path: Path) -> None:
    """Whoever resumes it gets its result, and hears the rest of it."""
    paused = threading.Event()
    control = Control()
    control.request_pause()

    def hear(event: Event) -> None:
        if isinstance(event, Paused):
            paused.set()

    results: list[Any] = []
    trainer = Trainer(home=tmp_path, listeners=[hear], control=control)
    thread = threading.Thread(
        target=lambda: results.append(trainer.train(TINY, policy="tiny", episodes=32))
    )
    thread.start()
    assert paused.wait(30)
    heard: list[Event] = []
    assert _soon(tmp_path, "paused")
    resumed = Trainer.resume("last", tmp_path, [heard.append])
    thread.join()
    assert results == [resumed]
    assert any(isinstance(event, IterationDone) for event in heard)
    assert isinstance(heard[-1], RunFinished)


def _soon(home: Path, status: str) -> str:
    deadline = time.monotonic() + 60
    while time.monotonic() < deadline:
        with Store(home) as store:
            if (run := store.get_run("last")).status == status:
                return run.id
        time.sleep(0.05)
    raise AssertionError(f"no run became {status}: it is {run.status}")


def test_a_run_that_ends_elsewhere_without_a_result(store: Store) -> None:
    _run(store, "running")

    def fail() -> None:
        time.sleep(0.3)
        store.update_run("a1b2", status="failed", error="It broke.")

    threading.Thread(target=fail).start()
    with pytest.raises(UsageError, match="Run a1b2 is failed: It broke."):
        lifecycle.outcome(store, "a1b2")


def test_deleting_removes_the_files(tmp_path: Path) -> None:
    control = Control()
    trainer = Trainer(
        home=tmp_path, control=control, listeners=[lambda _: control.interrupt()]
    )
    with pytest.raises(KeyboardInterrupt):
        trainer.train(TINY, policy="tiny")
    (folder,) = (tmp_path / "runs").iterdir()
    assert any(path.name.startswith("checkpoint") for path in folder.iterdir())
    with Store(tmp_path) as store:
        assert lifecycle.delete(store, "last").id == folder.name
        assert store.list_runs() == []
    assert list((tmp_path / "runs").iterdir()) == []


# In a process of its own


@pytest.fixture
def _path_of_children(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PYTHONPATH", os.pathsep.join(sys.path))


@pytest.mark.usefixtures("_path_of_children")
def test_a_child_carries_a_submitted_run_out(store: Store) -> None:
    settings: Any = {"episodes": 16, "eval_tasks": 4, "heldout_tasks": 4}
    job = resolve(TrainingConfig(scenario=TINY, **settings))
    child = lifecycle.submit(store, job, Child())
    assert child.wait(60) == 0
    (run,) = store.list_runs()
    assert (run.status, run.pid, run.attempt) == ("finished", child.pid, 1)
    output = (store.runs_dir / run.id / OUTPUT).read_text()
    assert output == f"{run.model}\n"
    same = lifecycle.submit(store, job, Here())
    assert same.metrics.tool_reliability == run.result["metrics"]["tool_reliability"]  # type: ignore[index]


_PARENT = """
import sys
from pathlib import Path
from agentgym import TrainingConfig
from agentgym.runs import lifecycle
from agentgym.runs.launchers.child import Child
from agentgym.runs.resolve import resolve
from agentgym.store import Store

job = resolve(TrainingConfig(scenario="tiny_scenario:Tiny", episodes=64))
with Store(Path(sys.argv[1])) as store:
    print(lifecycle.submit(store, job, Child()).pid)
"""


@pytest.mark.usefixtures("_path_of_children")
def test_a_child_outlives_its_parent_and_obeys_everyone(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TINY_DELAY", "0.1")
    done = subprocess.run(
        [sys.executable, "-c", _PARENT, str(tmp_path)],
        capture_output=True,
        text=True,
        check=True,
    )
    run_id = _soon(tmp_path, "running")
    with Store(tmp_path) as store:
        assert store.get_run(run_id).pid == int(done.stdout)
        lifecycle.stop(store, run_id)
        result = lifecycle.outcome(store, run_id)
        assert store.get_run(run_id).status == "stopped"
    assert result.metrics.episodes_completed < 60


def test_a_child_whose_folder_cannot_be_made(store: Store) -> None:
    store.runs_dir.write_text("")
    run = _run(store, "queued")
    with pytest.raises(StoreError, match="a file stands where a folder is needed"):
        lifecycle.resume(store, run, Child())

"""What a process writes down of the run that it carries out."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
import time
from pathlib import Path
from typing import Any

import pytest

from agentgym.core.events import (
    BaselineMeasured,
    CheckpointSaved,
    Event,
    IterationDone,
    Paused,
    RunFailed,
    RunFinished,
    RunStarted,
    RunStopped,
    Warned,
)
from agentgym.errors import StoreError, UsageError
from agentgym.runs import recorder as module
from agentgym.runs.recorder import RunRecorder
from agentgym.store import Store

FAILED = {"success": False, "task_id": "t", "steps": []}


@pytest.fixture
def store(tmp_path: Path) -> Any:
    with Store(tmp_path) as opened:
        add_run(opened)
        yield opened


def add_run(store: Store) -> None:
    store.create_run("r", scenario="s", policy="p", engine="local", seed=1, config={})


def heartbeat(store: Store) -> float:
    found = store.get_run("r").heartbeat
    assert found is not None
    return found


def wait_for_a_beat(store: Store) -> None:
    before, deadline = heartbeat(store), time.monotonic() + 60
    while heartbeat(store) == before:
        assert time.monotonic() < deadline
        time.sleep(0.01)


def beating() -> bool:
    return any(t.name == "agentgym-heartbeat" for t in threading.enumerate())


def test_events_are_there_at_once_and_change_the_run(store: Store) -> None:
    said: list[Event] = [
        RunStarted("r", {"episodes": 9}),
        BaselineMeasured({"y": 1}, (FAILED,)),
        CheckpointSaved(0, "x"),
        IterationDone(1, 5, {}),
        Warned("careful"),
        Paused(1),
    ]
    with RunRecorder(store, "r") as record:
        assert record.attempt == 1
        for number, event in enumerate(said, start=1):
            record(event)
            assert len(store.events("r")) == number
        run = store.get_run("r")
        assert (run.status, run.episodes, run.attempt) == ("paused", 5, 1)
        logged = [entry.event for entry in store.events("r")]
        assert [event.kind for event in logged] == [event.kind for event in said]
        (kept,) = store.trajectories("r")
        assert (kept.attempt, kept.iteration, kept.data) == (1, 0, FAILED)
        record(RunFailed("boom"))
        run = store.get_run("r")
        assert (run.status, run.error) == ("failed", "boom")
        assert run.finished_at is not None


def test_a_run_that_was_told_to_stop_is_stopped_also_after_a_resumption(
    store: Store,
) -> None:
    with RunRecorder(store, "r") as record:
        record(RunStarted("r", {}))
        record(IterationDone(1, 5, {}))
        record(RunStopped("enough"))
        record(CheckpointSaved(1, "x"))
    with RunRecorder(store, "r") as record:
        assert record.attempt == 2
        record(RunStarted("r", {}, 1))
        assert store.get_run("r").episodes == 5
        record(RunFinished({"model": "m_v1.0"}))
    run = store.get_run("r")
    assert (run.status, run.model) == ("stopped", "m_v1.0")
    assert run.result == {"model": "m_v1.0"}


def test_the_heart_beats_from_a_thread(
    store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "BEAT_SECONDS", 0.02)
    with RunRecorder(store, "r"):
        wait_for_a_beat(store)
        wait_for_a_beat(store)
    assert not beating()


def test_the_heart_stops_when_the_run_dies_of_an_exception(
    store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "BEAT_SECONDS", 0.02)
    with pytest.raises(MemoryError), RunRecorder(store, "r"):
        assert beating()
        raise MemoryError
    assert not beating()


def test_a_store_that_is_busy_for_a_while_does_not_stop_the_heart(
    store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "BEAT_SECONDS", 0.02)
    failures = [StoreError("busy")] * 3
    beat = Store.beat

    def busy(self: Store, run_id: str, attempt: int) -> bool:
        if failures:
            raise failures.pop()
        return beat(self, run_id, attempt)

    monkeypatch.setattr(Store, "beat", busy)
    with RunRecorder(store, "r"):
        wait_for_a_beat(store)
    assert not failures


def test_a_run_has_one_process(store: Store) -> None:
    store.begin_attempt("r")
    child = subprocess.Popen([sys.executable, "-S", "-c", "input()"], stdin=-1)
    try:
        store.update_run("r", pid=child.pid)
        recorder = RunRecorder(store, "r")
        with pytest.raises(UsageError, match="already running in process"), recorder:
            pass
        child.send_signal(signal.SIGKILL)
        child.wait()
        with recorder:
            assert recorder.attempt == 2
    finally:
        child.kill()
        child.communicate()


def test_a_process_that_was_given_up_can_say_nothing_more(store: Store) -> None:
    with RunRecorder(store, "r") as lost:
        lost(RunStarted("r", {}))
        # On another machine it looked dead, as its network was gone for a minute.
        with RunRecorder(store, "r") as found:
            found(RunStarted("r", {}))
            with pytest.raises(StoreError, match="resumed elsewhere"):
                lost(IterationDone(1, 1, {}))
            assert not store.beat("r", lost.attempt)
            assert store.beat("r", found.attempt)


def test_a_killed_process_is_seen_at_once_and_its_log_is_whole(tmp_path: Path) -> None:
    code = (
        "import sys, os, pathlib\n"
        "from agentgym.core.events import IterationDone, RunStarted\n"
        "from agentgym.runs.recorder import RunRecorder\n"
        "from agentgym.store import Store\n"
        "store = Store(pathlib.Path(sys.argv[1]))\n"
        "with RunRecorder(store, 'r') as record:\n"
        "    record(RunStarted('r', {}))\n"
        "    for i in range(10**6):\n"
        "        record(IterationDone(i, i, {}))\n"
        "        if i == 20: print('ready', flush=True)\n"
    )
    with Store(tmp_path) as store:
        add_run(store)
        child = subprocess.Popen(
            [sys.executable, "-c", code, str(tmp_path)],
            stdout=subprocess.PIPE,
            env={**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)},
        )
        assert child.stdout is not None
        assert child.stdout.readline() == b"ready\n"
        assert store.get_run("r").status == "running"
        child.kill()
        child.communicate()
        assert store.get_run("r").status == "interrupted"
        log = store.events("r")
        assert [entry.seq for entry in log] == list(range(1, len(log) + 1))
        assert len(log) >= 22

"""The event log and what a run's liveness follows from, on SQLite and PostgreSQL."""

from __future__ import annotations

import math
import multiprocessing
import os
import signal
import socket
import sqlite3
import threading
import time
from enum import StrEnum
from pathlib import Path
from typing import Any

import pytest
import sqlalchemy as sa

from agentgym.core.events import (
    Adjusted,
    CheckpointSaved,
    Event,
    IterationDone,
    LoggedEvent,
    Paused,
    RunStarted,
    UnknownEvent,
    Warned,
)
from agentgym.core.metrics import AtMost
from agentgym.errors import RunNotFoundError, StoreError, UsageError
from agentgym.store import Store
from agentgym.store.artifacts import FolderArtifacts
from agentgym.store.store import LOST_AFTER

fork = multiprocessing.get_context("fork")


@pytest.fixture
def run(store: Store) -> Store:
    """A store with one run."""
    add_run(store)
    return store


def add_run(store: Store, run_id: str = "run", **more: Any) -> None:
    values: dict[str, Any] = {"scenario": "s", "policy": "p", "engine": "local"}
    store.create_run(run_id, **values | {"seed": 1, "config": {}} | more)


def point(iteration: int, **values: Any) -> IterationDone:
    return IterationDone(iteration, iteration, values)


def failed(name: str) -> dict[str, Any]:
    return {"success": False, "task_id": name, "steps": []}


# Appending and reading


def test_what_was_said_comes_back(run: Store) -> None:
    before = time.time()
    attempt = run.begin_attempt("run")
    said: list[Event] = [
        RunStarted("run", {"a": 1}),
        point(1, loss=0.5),
        CheckpointSaved(1, "x"),
        Adjusted(1, {"entropy": 0.1}),
        Warned("careful"),
        Paused(1),
    ]
    assert run.append_events("run", attempt, said[:2]) == 2
    assert run.append_events("run", attempt, said[2:], status="paused") == 6
    assert run.append_events("run", attempt, []) == 6
    log = run.events("run")
    assert [entry.event for entry in log] == said
    assert [entry.seq for entry in log] == [1, 2, 3, 4, 5, 6]
    assert {(entry.run_id, entry.attempt) for entry in log} == {("run", attempt)}
    assert all(before - 1 <= entry.time <= time.time() for entry in log)
    assert run.get_run("run").status == "paused"
    assert run.get_run("run").last_seq == 6
    assert LoggedEvent.from_dict(log[3].to_dict()) == log[3]


def test_a_part_of_the_log(run: Store) -> None:
    events = [point(i) if i % 3 else Warned(str(i)) for i in range(1, 10)]
    run.append_events("run", 0, events)
    assert [e.seq for e in run.events("run", after=7)] == [8, 9]
    assert [e.seq for e in run.events("run", after=3, limit=2)] == [4, 5]
    assert [e.seq for e in run.events("run", kinds=["warned"])] == [3, 6, 9]
    assert [e.seq for e in run.events("run", 3, 1, ("warned", "paused"))] == [6]
    assert run.events("run", after=9) == []
    assert run.events("nobody") == []


def test_events_of_a_newer_version_are_kept_as_they_are(run: Store) -> None:
    strange = UnknownEvent({"kind": "dreamt", "of": ["sheep"]})
    run.append_events("run", 0, [strange])
    (entry,) = run.events("run")
    assert entry.event == strange
    assert [e.event for e in run.events("run", kinds=("dreamt",))] == [strange]


def test_values_that_are_no_plain_json_are_made_so(run: Store) -> None:
    class Kind(StrEnum):
        TIMEOUT = "timeout"

    class LikeNumpy:
        def tolist(self) -> float:
            return 0.5

    values = {
        "nan": math.nan,
        "deep": [{"inf": -math.inf}, 1.5],
        "numpy": LikeNumpy(),
        "kind": Kind.TIMEOUT,
        "path": Path("a"),
        "text": "å\ud800\x01\x00",
        "large": 2**80,
    }
    run.append_events("run", 0, [point(0, **values)])
    (entry,) = run.events("run")
    assert entry.event == point(
        0,
        nan=None,
        deep=[{"inf": None}, 1.5],
        numpy=0.5,
        kind="timeout",
        path="a",
        text="å\ud800\x01\x00",
        large=2**80,
    )


def test_an_event_that_cannot_be_stored_leaves_none_of_its_batch(run: Store) -> None:
    loop: dict[str, Any] = {}
    loop["self"] = loop
    for bad in ({"bad": object()}, loop):
        with pytest.raises(StoreError, match="JSON"):
            run.append_events("run", 0, [point(1), point(2, **bad)], episodes=7)
    assert run.events("run") == []
    assert run.get_run("run").episodes == 0
    assert run.append_events("run", 0, [point(1)]) == 1


def test_texts_that_a_database_cannot_hold_are_mended(run: Store) -> None:
    """PostgreSQL takes neither NUL nor half a surrogate pair into a text."""
    run.update_run("run", error="a\x00b\ud800c")
    assert run.get_run("run").error == "a\ufffdb\ufffdc"
    run.add_trajectories("run", 0, 1, [failed("t\x00\udfff") | {"said": "\x00\ud800"}])
    (row,) = run.trajectories("run")
    assert row.task_id == "t\ufffd\ufffd"
    assert row.data["said"] == "\x00\ud800"
    with pytest.raises(RunNotFoundError):
        run.get_run("ru\x00")


def test_targets_are_kept_with_the_run(store: Store) -> None:
    targets = {"tool_reliability": 0.95, "false_positive_rate": AtMost(0.1)}
    add_run(store, targets=targets)
    found = store.get_run("run").targets
    assert found == targets
    assert isinstance(found["false_positive_rate"], AtMost)
    assert not isinstance(found["tool_reliability"], AtMost)


def test_appending_costs_the_same_however_long_the_log_is(lite: Path) -> None:
    steps = 0

    def count() -> int:
        nonlocal steps
        steps += 1
        return 0

    def listen(connection: sqlite3.Connection, _record: object) -> None:
        connection.set_progress_handler(count, 1)

    def cost(store: Store, run_id: str) -> int:
        """What SQLite's machine does, in its own instructions."""
        nonlocal steps
        steps = 0
        store.append_events(run_id, 0, [point(1)])
        return steps

    sa.event.listen(sa.engine.Engine, "connect", listen)
    try:
        with Store(lite) as store:
            add_run(store, "long")
            add_run(store, "short")
            store.append_events("long", 0, [point(i) for i in range(30_000)])
            assert 0 < cost(store, "long") < 1.5 * cost(store, "short")
    finally:
        sa.event.remove(sa.engine.Engine, "connect", listen)


# Attempts


def test_each_attempt_takes_the_run_over(run: Store) -> None:
    assert run.get_run("run").attempt == 0
    run.update_run("run", status="failed", error="boom", result={"x": 1})
    assert run.begin_attempt("run") == 1
    found = run.get_run("run")
    assert (found.attempt, found.status, found.error) == (1, "running", None)
    assert (found.result, found.finished_at, found.pid) == (None, None, os.getpid())
    assert run.append_events("run", 1, [Warned("one")]) == 1
    assert run.begin_attempt("run") == 2
    with pytest.raises(StoreError, match="resumed elsewhere"):
        run.append_events("run", 1, [Warned("too late")], status="failed")
    assert run.append_events("run", 2, [Warned("two")]) == 2
    assert [(e.attempt, e.seq) for e in run.events("run")] == [(1, 1), (2, 2)]
    assert run.get_run("run").status == "running"
    with pytest.raises(RunNotFoundError):
        run.begin_attempt("nobody")
    with pytest.raises(RunNotFoundError):
        run.append_events("nobody", 1, [Warned("who")])


def test_a_run_that_lives_elsewhere_is_not_taken_over(
    run: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    run.begin_attempt("run")
    with monkeypatch.context() as patch:
        patch.setattr(socket, "gethostname", lambda: "elsewhere")
        with pytest.raises(UsageError, match="already running in process"):
            run.begin_attempt("run")
        run.update_run("run", heartbeat=0.0)
        assert run.begin_attempt("run") == 2


def test_a_queued_run_has_no_process_yet(store: Store) -> None:
    add_run(store, status="queued")
    row = store.get_run("run")
    assert (row.status, row.pid, row.host) == ("queued", None, None)
    assert store.begin_attempt("run") == 1
    assert store.get_run("run").pid == os.getpid()


def test_of_two_processes_one_gets_the_run(home: Path) -> None:
    with Store(home) as store:
        add_run(store)
    results = fork.SimpleQueue()
    together = fork.Barrier(4)

    def work() -> None:
        with Store(home) as store:
            together.wait(20)
            try:
                results.put(store.begin_attempt("run"))
            except UsageError:
                results.put(0)
            together.wait(20)

    children = [fork.Process(target=work) for _ in range(4)]
    for child in children:
        child.start()
    for child in children:
        child.join(30)
    assert sorted(results.get() for _ in children) == [0, 0, 0, 1]


# Liveness


def test_a_run_without_a_heartbeat_is_interrupted(
    run: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    attempt = run.begin_attempt("run")
    now = time.time()
    for host in (socket.gethostname(), "elsewhere"):
        with monkeypatch.context() as patch:
            patch.setattr(socket, "gethostname", lambda host=host: host)
            run.update_run("run", heartbeat=now - LOST_AFTER + 15)
            assert run.get_run("run").status == "running"
            run.update_run("run", heartbeat=now - LOST_AFTER - 15)
            assert run.get_run("run").status == "interrupted"
            assert run.list_runs()[0].status == "interrupted"
            assert run.beat("run", attempt)
            assert run.get_run("run").status == "running"
    run.update_run("run", status="finished", heartbeat=0.0)
    assert run.get_run("run").status == "finished"


def test_a_heartbeat_of_the_future_is_one(run: Store) -> None:
    run.update_run("run", heartbeat=time.time() + 3600)
    assert run.get_run("run").status == "running"


def test_postgresql_s_own_clock_counts(
    tmp_path: Path, postgres_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Machines whose clocks differ agree on who is alive, in any time zone."""
    monkeypatch.setenv("PGTZ", "Pacific/Chatham")
    with Store(tmp_path, postgres_url) as store:
        add_run(store)
        attempt = store.begin_attempt("run")
        real = time.time
        for skew in (-3600.0, 3600.0):
            monkeypatch.setattr(time, "time", lambda skew=skew: real() + skew)
            assert store.beat("run", attempt)
            heartbeat = store.get_run("run").heartbeat
            assert heartbeat is not None and abs(heartbeat - real()) < 60
            assert store.get_run("run").status == "running"


# Trajectories of a run that was resumed


def test_later_iterations_of_earlier_attempts_are_left_out(run: Store) -> None:
    def begin(resumed_from: int | None) -> int:
        attempt = run.begin_attempt("run")
        run.append_events("run", attempt, [RunStarted("run", {}, resumed_from)])
        return attempt

    def names() -> list[str]:
        return [row.task_id for row in run.trajectories("run")]

    first = begin(None)
    for i in (0, 1, 2, 3):
        run.add_trajectories("run", first, i, [failed(f"first {i}")])
    second = begin(1)
    assert names() == ["first 1", "first 0"]
    run.add_trajectories("run", second, 1, [failed("second 1")])
    run.add_trajectories("run", second, 2, [failed("second 2")])
    assert names() == ["second 2", "second 1", "first 0"]
    begin(2)
    assert names() == ["second 2", "second 1", "first 0"]
    begin(0)
    assert names() == ["first 0"]
    assert [row.attempt for row in run.trajectories("run")] == [first]
    begin(None)
    assert names() == []


def test_what_is_left_out_is_the_first_to_go(
    run: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(Store, "max_failures", 3)
    run.begin_attempt("run")
    run.append_events("run", 1, [RunStarted("run", {})])
    for i in (1, 2, 3):
        run.add_trajectories("run", 1, i, [failed(f"first {i}")])
    run.begin_attempt("run")
    run.append_events("run", 2, [RunStarted("run", {}, 1)])
    run.add_trajectories("run", 2, 2, [failed("second 2")])
    found = [row.task_id for row in run.trajectories("run")]
    assert found == ["second 2", "first 1"]


def test_a_deleted_run_is_gone_with_its_log(store: Store) -> None:
    for run_id in ("run", "other"):
        add_run(store, run_id)
        store.append_events(run_id, 0, [Warned(run_id)])
        store.add_trajectories(run_id, 0, 1, [failed(run_id)])
        store.send_command(run_id, "stop")
    store.delete_run("run")
    assert [row.id for row in store.list_runs()] == ["other"]
    assert (store.events("run"), store.trajectories("run")) == ([], [])
    assert store.take_commands("run") == []
    assert len(store.events("other")) == len(store.trajectories("other")) == 1
    with pytest.raises(RunNotFoundError):
        store.delete_run("run")


# Several processes and threads


def test_two_processes_append_to_one_log(home: Path) -> None:
    with Store(home) as store:
        add_run(store)

    def work(name: int) -> None:
        with Store(home) as store:
            for i in range(60):
                store.append_events("run", 0, [point(i, by=name), point(i, by=name)])

    children = [fork.Process(target=work, args=(name,)) for name in (1, 2)]
    for child in children:
        child.start()
    with Store(home) as store:
        seen = 0
        while any(child.is_alive() for child in children) or seen < 240:
            # Whoever follows the log misses nothing and sees nothing twice.
            news = [entry.seq for entry in store.events("run", after=seen)]
            assert news == list(range(seen + 1, seen + 1 + len(news)))
            seen += len(news)
            assert len(news) or all(child.exitcode in (None, 0) for child in children)
        for child in children:
            child.join(30)
            assert child.exitcode == 0
        log = store.events("run")
        for name in (1, 2):
            own = [e.event for e in log if e.event == point(e.event.iteration, by=name)]
            assert own == [point(i, by=name) for i in range(60) for _ in range(2)]


def test_a_killed_writer_leaves_a_log_without_gaps(home: Path) -> None:
    with Store(home) as store:
        add_run(store)

        def work() -> None:
            with Store(home) as own:
                for i in range(10**6):
                    own.append_events("run", 0, [point(2 * i), point(2 * i + 1)])

        for _ in range(4):
            child = fork.Process(target=work)
            child.start()
            before = len(store.events("run"))
            while len(store.events("run")) < before + 10:
                assert child.is_alive()
            assert child.pid is not None
            os.kill(child.pid, signal.SIGKILL)
            child.join(30)
        # What the server was doing for a killed client may end a little later.
        last = store.append_events("run", 0, [Warned("the end")])
        log = store.events("run")
        assert [entry.seq for entry in log] == list(range(1, last + 1))
        assert last % 2 == 1, "batches are whole"


def test_a_reader_sees_one_state_throughout(run: Store) -> None:
    """A row and the log that it speaks of, read in one transaction, fit together."""
    run.append_events("run", 0, [point(0)])
    done = threading.Event()

    def write() -> None:
        for i in range(1, 200):
            run.append_events("run", 0, [point(i)], episodes=i)
        done.set()

    writer = threading.Thread(target=write)
    writer.start()
    try:
        while not done.is_set():
            with run._database.read() as queries:
                row = queries.run("run")
                time.sleep(0.002)
                log = queries.events("run", 0, None, ())
                again = queries.run("run")
            assert row is not None and row == again
            assert row.last_seq == len(log)
    finally:
        writer.join()


def test_a_reader_cannot_write_on_postgresql(tmp_path: Path, postgres_url: str) -> None:
    with Store(tmp_path, postgres_url) as store:
        add_run(store)
        with (
            pytest.raises(StoreError, match="read-only transaction"),
            store._database.read() as queries,
        ):
            queries.update_run("run", {"episodes": 1})
        # The connection goes back into the pool as it was.
        store.update_run("run", episodes=2)
        assert store.get_run("run").episodes == 2


def test_a_server_s_lock_is_free_once_its_holder_is_killed(
    tmp_path: Path, postgres_url: str
) -> None:
    """Advisory locks keep two from reserving a version at once, and no longer."""
    ready = fork.Event()

    def hold() -> None:
        with Store(tmp_path, postgres_url) as own, own._database.write() as queries:
            queries.lock()
            ready.set()
            time.sleep(60)

    with Store(tmp_path, postgres_url) as store:
        child = fork.Process(target=hold)
        child.start()
        assert ready.wait(20)
        assert child.pid is not None
        os.kill(child.pid, signal.SIGKILL)
        child.join(20)
        with store.reserve_model("m") as draft:
            assert draft.version == "v1.0"


def test_plain_urls_of_postgresql_are_understood(
    tmp_path: Path, postgres_url: str
) -> None:
    assert postgres_url.startswith("postgresql://")
    for url in (
        postgres_url,
        postgres_url.replace("postgresql://", "postgres://"),
        postgres_url.replace("postgresql://", "postgresql+psycopg://"),
    ):
        with Store(tmp_path, url) as store:
            store.list_runs()


def test_a_server_that_is_not_there_is_explained(tmp_path: Path) -> None:
    url = f"postgresql://u:secret@/name?host={tmp_path}"
    with pytest.raises(StoreError, match="Check that it runs") as error:
        Store(tmp_path, url)
    assert "secret" not in str(error.value)


# Artifacts


def test_two_machines_share_models_and_checkpoints(
    tmp_path: Path, home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """One database and one folder of artifacts, two homes."""
    url = os.environ.get("AGENTGYM_DATABASE_URL", f"sqlite:///{tmp_path / 'x.db'}")
    monkeypatch.setenv("AGENTGYM_ARTIFACTS", str(tmp_path / "shared"))
    with Store(tmp_path / "here", url) as here, Store(tmp_path / "there", url) as there:
        with here.reserve_model("m") as draft:
            (draft.folder / "deep").mkdir()
            (draft.folder / "deep" / "weights").write_text("w")
        here.artifacts.within("runs/r").write("state", b"1")
        assert [model.full_name for model in there.list_models()] == ["m_v1.0"]
        model = there.get_model("m")
        assert model.path == tmp_path / "there" / "models" / "m_v1.0"
        assert (model.path / "deep" / "weights").read_text() == "w"
        assert there.artifacts.within("runs/r").read("state") == b"1"
        with there.reserve_model("m") as second:
            assert second.version == "v1.1"
        here.delete_model("m_v1.0")
        assert [model.full_name for model in there.list_models()] == ["m_v1.1"]
        assert sorted(os.listdir(tmp_path / "shared" / "models")) == ["m_v1.1"]


def test_blobs_are_whole_and_the_one_before_is_kept(tmp_path: Path) -> None:
    artifacts = FolderArtifacts(tmp_path / "deep")
    assert artifacts.list() == []
    with pytest.raises(FileNotFoundError):
        artifacts.read("a/b")
    artifacts.write("a/b", b"1", previous="a/old")
    artifacts.write("a/b", b"2", previous="a/old")
    assert (artifacts.read("a/b"), artifacts.read("a/old")) == (b"2", b"1")
    assert artifacts.within("a").list() == ["b", "old"]
    assert artifacts.location("a/b") == str(tmp_path / "deep" / "a" / "b")
    artifacts.delete("a/b")
    artifacts.delete("a/b")
    assert artifacts.within("a").list() == ["old"]
    artifacts.delete("a")
    assert artifacts.list() == []


@pytest.mark.parametrize("same_disk", [True, False])
def test_a_folder_is_published_and_fetched(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, same_disk: bool
) -> None:
    source, artifacts = tmp_path / "source", FolderArtifacts(tmp_path / "root")
    source.mkdir()
    (source / "file").write_text("x")
    if not same_disk:
        monkeypatch.setattr("agentgym.store.artifacts._on_one_disk", lambda *_: False)
    artifacts.publish(source, "model")
    assert not source.exists()
    assert artifacts.list() == ["model"]
    for _ in range(2):
        artifacts.fetch("model", tmp_path / "here" / "model")
    assert (tmp_path / "here" / "model" / "file").read_text() == "x"
    assert os.listdir(tmp_path / "root") == ["model"]
    with pytest.raises(FileNotFoundError):
        artifacts.fetch("nothing", tmp_path / "here" / "nothing")

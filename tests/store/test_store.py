"""The store through its public API, on SQLite and on PostgreSQL; see conftest.py.

What cannot be had for real is forced: chmod does not bind root, so a home that cannot
be written is one that is a file or lies under one; a full disk is SQLite's own page
limit, or an OSError with ENOSPC from the call that would meet it.
"""

from __future__ import annotations

import errno
import itertools
import multiprocessing
import os
import shutil
import signal
import sqlite3
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from agentgym.core.events import IterationDone
from agentgym.errors import (
    ConfigError,
    MissingExtraError,
    ModelNotFoundError,
    RunNotFoundError,
    StoreError,
)
from agentgym.store import RunRow, Store

fork = multiprocessing.get_context("fork")


def add_run(store: Store, run_id: str = "run", **changes: Any) -> None:
    values: dict[str, Any] = {
        "scenario": "customer_support",
        "policy": "planner",
        "engine": "local",
        "seed": 1,
        "config": {"episodes": 100},
    }
    store.create_run(run_id, **(values | changes))


def point(iteration: int, **values: Any) -> IterationDone:
    return IterationDone(iteration, iteration, values)


def trajectory(success: bool | None, name: str = "task") -> dict[str, Any]:
    return {"success": success, "task_id": name, "steps": [{"content": name}]}


def in_processes(*works: Callable[[], Any], expect: int = 0) -> None:
    children = [fork.Process(target=work) for work in works]
    for child in children:
        child.start()
    for child in children:
        child.join(20)
    assert [child.exitcode for child in children] == [expect] * len(children)


def die() -> None:
    os.kill(os.getpid(), signal.SIGKILL)


def dead_pid() -> int:
    child = subprocess.Popen([sys.executable, "-S", "-c", ""])
    child.wait()
    return child.pid


# Home and opening


def test_home_is_the_argument_then_the_variable_then_the_working_folder(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    with Store() as store:
        assert store.home == tmp_path / ".agentgym"
    monkeypatch.setenv("AGENTGYM_HOME", str(tmp_path / "variable"))
    with Store() as store:
        assert store.home == tmp_path / "variable"
        assert store.runs_dir == store.home / "runs"
        assert store.models_dir == store.home / "models"
    with Store(tmp_path / "deep" / "100% of it?#") as store:
        add_run(store)
        assert (store.home / "agentgym.db").is_file()


def test_sqlite_is_set_up_for_several_processes(lite: Path) -> None:
    Store(lite).close()
    connection = sqlite3.connect(lite / "agentgym.db")
    assert connection.execute("PRAGMA journal_mode").fetchone() == ("wal",)
    connection.close()


def test_a_url_names_another_database(
    lite: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with Store(lite, f"sqlite:///{tmp_path / 'by_argument.db'}") as store:
        add_run(store)
    monkeypatch.setenv("AGENTGYM_DATABASE_URL", f"sqlite:///{tmp_path / 'by_env.db'}")
    with Store(lite) as store:
        assert store.list_runs() == []
    assert (tmp_path / "by_argument.db").exists()
    assert (tmp_path / "by_env.db").exists()
    assert not (lite / "agentgym.db").exists()


def test_importing_and_reading_load_no_more_than_they_need(home: Path) -> None:
    Store(home).close()
    code = (
        "import sys, pathlib\n"
        "from agentgym.store import Store\n"
        "assert 'sqlalchemy' not in sys.modules\n"
        "Store(pathlib.Path(sys.argv[1])).list_runs()\n"
        "assert 'sqlalchemy' in sys.modules and 'alembic' not in sys.modules\n"
    )
    subprocess.run([sys.executable, "-c", code, str(home)], check=True)


def test_a_closed_store_says_so(home: Path) -> None:
    store = Store(home)
    store.close()
    store.close()
    with pytest.raises(StoreError, match="closed"):
        store.list_runs()


# Runs


def test_a_run_comes_back_as_it_was_written(store: Store) -> None:
    add_run(store, seed=2**40, config={"lr": 0.1, "nested": {"a": [1, None]}})
    store.update_run("run", status="paused", episodes=7, model="m_v1.0")
    store.update_run("run", result={"reliability": 0.9}, error="none", heartbeat=2e9)
    run = store.get_run("run")
    assert (run.scenario, run.policy, run.engine) == (
        "customer_support",
        "planner",
        "local",
    )
    assert run.seed == 2**40
    assert run.config == {"lr": 0.1, "nested": {"a": [1, None]}}
    assert (run.status, run.episodes, run.model) == ("paused", 7, "m_v1.0")
    assert (run.result, run.error) == ({"reliability": 0.9}, "none")
    assert (run.heartbeat, run.pid) == (2e9, os.getpid())


def test_finished_at_follows_the_status(store: Store) -> None:
    add_run(store)
    assert store.get_run("run").finished_at is None
    store.update_run("run", status="stopped")
    assert store.get_run("run").finished_at is not None
    store.update_run("run", status="running")
    assert store.get_run("run").finished_at is None


def test_a_run_id_is_taken_once(store: Store) -> None:
    add_run(store)
    with pytest.raises(StoreError, match="Run 'run' already exists"):
        add_run(store)
    assert len(store.list_runs()) == 1


def test_wrong_fields_and_statuses_are_refused(store: Store) -> None:
    add_run(store)
    with pytest.raises(TypeError, match="epsiodes"):
        store.update_run("run", epsiodes=1)  # type: ignore[call-arg]
    with pytest.raises(ValueError, match="'done'"):
        store.update_run("run", status="done")  # type: ignore[arg-type]
    with pytest.raises(RunNotFoundError):
        store.update_run("other", episodes=1)


def test_runs_are_listed_newest_first(store: Store) -> None:
    for number in range(4):
        add_run(store, f"run{number}")
    assert [run.id for run in store.list_runs()] == ["run3", "run2", "run1", "run0"]
    assert [run.id for run in store.list_runs(limit=2)] == ["run3", "run2"]


def test_a_run_is_found_by_prefix_and_as_last(store: Store) -> None:
    for run_id in ("abc1", "abc2", "b_d", "bxd", "abc"):
        add_run(store, run_id)
    assert store.get_run("abc1").id == "abc1"
    assert store.get_run("abc").id == "abc", "an exact id wins over a prefix"
    assert store.get_run("bx").id == "bxd"
    assert store.get_run("b_").id == "b_d", "no wildcards"
    assert store.get_run("last").id == "abc"
    with pytest.raises(RunNotFoundError, match=r"Available: abc, abc1, abc2\. Several"):
        store.get_run("ab")
    for absent in ("ABC1", "", "%", "zzz"):
        with pytest.raises(RunNotFoundError, match="Available: abc, abc1"):
            store.get_run(absent)


def test_last_of_no_runs_is_not_found(store: Store) -> None:
    with pytest.raises(RunNotFoundError, match="Available: none"):
        store.get_run("last")


@pytest.mark.parametrize("status", ["running", "paused"])
def test_a_run_whose_process_is_gone_is_interrupted(store: Store, status: Any) -> None:
    add_run(store)
    store.update_run("run", status=status)
    assert store.get_run("run").status == status
    store.update_run("run", pid=dead_pid())
    assert store.get_run("run").status == "interrupted"
    assert store.list_runs()[0].status == "interrupted"
    store.update_run("run", status="finished")
    assert store.get_run("run").status == "finished"


def test_a_killed_process_that_nobody_reaped_is_gone(store: Store) -> None:
    child = subprocess.Popen([sys.executable, "-S", "-c", "input()"], stdin=-1)
    try:
        add_run(store)
        store.update_run("run", pid=child.pid)
        assert store.get_run("run").status == "running"
        child.kill()
        deadline = time.monotonic() + 60
        while store.get_run("run").status == "running":
            assert time.monotonic() < deadline
    finally:
        child.kill()
        child.communicate()


@pytest.mark.skipif(not Path("/proc/self/stat").exists(), reason="needs Linux")
def test_a_later_process_of_the_same_pid_is_not_taken_for_the_run(
    store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("agentgym.store.processes.birth", lambda pid: "an older boot")
    add_run(store)
    assert store.get_run("run").status == "interrupted"


def test_a_run_of_another_host_is_shown_as_it_says(
    store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    add_run(store)
    store.update_run("run", pid=dead_pid())
    monkeypatch.setattr("agentgym.store.processes.host", lambda: "elsewhere")
    assert store.get_run("run").status == "running"


# Trajectories


def test_trajectories_come_newest_first_and_can_be_filtered(store: Store) -> None:
    add_run(store)
    store.add_trajectories("run", 1, 1, [trajectory(True, "a"), trajectory(False, "b")])
    store.add_trajectories("run", 1, 2, [trajectory(None, "c"), trajectory(True, "d")])
    names = [row.task_id for row in store.trajectories("run")]
    assert names == ["d", "c", "b", "a"]
    assert [r.task_id for r in store.trajectories("run", failed=True)] == ["c", "b"]
    assert [r.task_id for r in store.trajectories("run", failed=False)] == ["d", "a"]
    assert [r.task_id for r in store.trajectories("run", limit=1)] == ["d"]
    newest = store.trajectories("run")[0]
    assert newest.data == trajectory(True, "d")
    assert newest.steps == [{"content": "d"}]
    assert (newest.iteration, newest.number, newest.success) == (2, 1, True)
    assert store.trajectories("run")[1].success is None


def test_an_iteration_written_again_replaces_its_trajectories(store: Store) -> None:
    add_run(store)
    store.add_trajectories("run", 1, 1, [trajectory(False, n) for n in "abc"])
    store.add_trajectories("run", 1, 2, [trajectory(False, "other")])
    store.add_trajectories("run", 1, 1, [trajectory(True, n) for n in "xy"])
    assert [row.task_id for row in store.trajectories("run")] == ["other", "y", "x"]


def test_the_sample_is_bounded_and_loses_the_oldest_first(
    store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(Store, "max_failures", 4)
    monkeypatch.setattr(Store, "max_successes", 2)
    add_run(store)
    add_run(store, "other")
    store.add_trajectories("other", 1, 0, [trajectory(False, "kept")])
    for iteration in range(3):
        batch = [trajectory(n % 2 == 0, f"{iteration}.{n}") for n in range(6)]
        store.add_trajectories("run", 1, iteration, batch)
    failed = store.trajectories("run", failed=True, limit=100)
    good = store.trajectories("run", failed=False, limit=100)
    assert [row.task_id for row in failed] == ["2.5", "2.3", "2.1", "1.5"]
    assert [row.task_id for row in good] == ["2.4", "2.2"]
    store.add_trajectories("run", 1, 3, [trajectory(True, f"3.{n}") for n in range(9)])
    assert len(store.trajectories("run", failed=True, limit=100)) == 4, (
        "successes never push failures out"
    )
    assert [row.task_id for row in store.trajectories("other")] == ["kept"]


def test_the_default_bounds_hold(store: Store) -> None:
    add_run(store)
    for iteration in range(3):
        batch = [trajectory(n % 2 == 0) for n in range(600)]
        store.add_trajectories("run", 1, iteration, batch)
    assert len(store.trajectories("run", failed=True, limit=9999)) == 400
    assert len(store.trajectories("run", failed=False, limit=9999)) == 100


def test_the_file_stops_growing(lite: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Store, "max_failures", 20)
    sizes = []
    huge = trajectory(False) | {"steps": [{"content": "x" * 202_000}]}
    for round_ in range(3):
        with Store(lite) as store:
            if round_ == 0:
                add_run(store)
            for iteration in range(round_ * 10, round_ * 10 + 10):
                batch = [trajectory(False, "t" * 2000), huge] * 5
                store.add_trajectories("run", 1, iteration, batch)
            row = store.trajectories("run", limit=1)[0]
            assert row.steps[0]["content"].endswith("[200000 characters cut]")
        sizes.append((lite / "agentgym.db").stat().st_size)
    assert sizes[2] <= sizes[0] * 1.2 < 2_000_000


def test_the_sample_equals_a_simple_model_of_it(
    store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(Store, "max_failures", 5)
    monkeypatch.setattr(Store, "max_successes", 3)
    numbers = itertools.count()
    outcomes = st.lists(st.sampled_from([True, False, None]), max_size=6)

    @settings(max_examples=25, database=None)
    @given(st.lists(st.tuples(st.integers(0, 5), outcomes), max_size=8))
    def check(batches: list[tuple[int, list[bool | None]]]) -> None:
        run_id = f"run{next(numbers)}"
        add_run(store, run_id)
        expected: dict[tuple[int, int], bool | None] = {}
        for iteration, batch in batches:
            store.add_trajectories(run_id, 1, iteration, [trajectory(o) for o in batch])
            expected = {k: v for k, v in expected.items() if k[0] != iteration}
            expected |= {(iteration, n): o for n, o in enumerate(batch)}
            failed = sorted(k for k, v in expected.items() if not v)[-5:]
            good = sorted(k for k, v in expected.items() if v)[-3:]
            expected = {k: expected[k] for k in sorted(failed + good, reverse=True)}
        rows = store.trajectories(run_id, limit=999)
        found = {(row.iteration, row.number): row.success for row in rows}
        assert list(found.items()) == list(expected.items())

    check()


# Commands


def test_commands_are_taken_in_order_and_once(store: Store) -> None:
    add_run(store)
    add_run(store, "other")
    store.send_command("run", "pause")
    store.send_command("other", "stop")
    store.send_command("run", "adjust", {"learning_rate": 0.1})
    store.send_command("run", "resume")
    assert store.take_commands("run") == [
        ("pause", {}),
        ("adjust", {"learning_rate": 0.1}),
        ("resume", {}),
    ]
    assert store.take_commands("run") == []
    assert store.take_commands("other") == [("stop", {})]


def test_each_command_reaches_one_taker_only(store: Store) -> None:
    add_run(store)
    taken: list[int] = []

    def send() -> None:
        for n in range(60):
            store.send_command("run", "adjust", {"n": n})

    done = threading.Event()

    def take_all() -> None:
        while True:
            finished = done.is_set()
            found = store.take_commands("run")
            taken.extend(arguments["n"] for _, arguments in found)
            if finished and not found:
                return

    takers = [threading.Thread(target=take_all) for _ in range(3)]
    for taker in takers:
        taker.start()
    send()
    done.set()
    for taker in takers:
        taker.join()
    assert sorted(taken) == list(range(60))


# Several processes


def test_two_processes_may_create_the_home_at_once(home: Path) -> None:
    def work(name: str) -> None:
        with Store(home) as store:
            add_run(store, name)

    names = [f"run{n}" for n in range(6)]
    in_processes(*(lambda name=name: work(name) for name in names))
    with Store(home) as store:
        assert sorted(run.id for run in store.list_runs()) == names


def test_two_processes_writing_at_once_do_not_disturb_each_other(home: Path) -> None:
    with Store(home) as store:
        add_run(store, "run0")
        add_run(store, "run1")

    def work(run_id: str) -> None:
        with Store(home) as store:
            for i in range(80):
                store.append_events(run_id, 0, [point(i), point(i)])
                store.add_trajectories(run_id, 1, i, [trajectory(i % 2 == 0)] * 3)
                store.update_run(run_id, episodes=i)
                store.events(run_id)
            store.update_run(run_id, status="finished")

    in_processes(lambda: work("run0"), lambda: work("run1"))
    with Store(home) as store:
        for run_id in ("run0", "run1"):
            assert [e.seq for e in store.events(run_id)] == list(range(1, 161))
            assert len(store.trajectories(run_id, limit=999)) == 100 + 120
            run = store.get_run(run_id)
            assert (run.episodes, run.status) == (79, "finished")


def test_a_store_survives_a_fork(store: Store) -> None:
    add_run(store)

    def work() -> None:
        for i in range(20):
            store.append_events("run", 0, [point(i)])

    child = fork.Process(target=work)
    child.start()
    for i in range(20, 40):
        store.append_events("run", 0, [point(i)])
    child.join(20)
    assert child.exitcode == 0
    assert [e.seq for e in store.events("run")] == list(range(1, 41))


def test_a_process_killed_in_the_midst_of_writing_leaves_whole_batches(
    home: Path,
) -> None:
    with Store(home) as store:
        add_run(store)

    def work() -> None:
        with Store(home) as store:
            threading.Timer(0.3, die).start()
            for i in range(100_000):
                store.append_events("run", 0, [point(2 * i), point(2 * i + 1)])

    in_processes(work, expect=-signal.SIGKILL)
    with Store(home) as store:
        points = store.events("run")
        assert points
        assert len(points) % 2 == 0
        assert [p.event for p in points] == [point(i) for i in range(len(points))]
        assert [p.seq for p in points] == list(range(1, len(points) + 1))
        assert store.append_events("run", 0, [point(0)]) == len(points) + 1
        assert store.get_run("run").status == "running", "this process is its owner"


# Models


def save(store: Store, name: str = "customer_support", text: str = "w") -> str:
    with store.reserve_model(name, run_id="run") as draft:
        (draft.folder / "weights").write_text(text)
        draft.metadata["text"] = text
    return draft.full_name


def test_versions_count_up_for_each_name(store: Store) -> None:
    assert save(store) == "customer_support_v1.0"
    assert save(store) == "customer_support_v1.1"
    assert save(store, "code_review") == "code_review_v1.0"
    names = [model.full_name for model in store.list_models()]
    assert names == [
        "code_review_v1.0",
        "customer_support_v1.0",
        "customer_support_v1.1",
    ]


def test_a_model_is_found_by_name_and_by_version(store: Store) -> None:
    for n in range(12):
        save(store, text=str(n))
    newest = store.get_model("customer_support")
    assert (newest.version, newest.metadata) == ("v1.11", {"text": "11"})
    assert newest.path == store.models_dir / "customer_support_v1.11"
    assert (newest.path / "weights").read_text() == "11"
    assert newest.run_id == "run"
    assert store.get_model("customer_support_v1.2").metadata == {"text": "2"}
    assert store.get_model("customer_support:v1.2").version == "v1.2"


def test_a_missing_model_lists_what_there_is(store: Store) -> None:
    with pytest.raises(ModelNotFoundError, match="Available: none"):
        store.get_model("customer_support")
    save(store)
    for absent in ("customer_suport", "customer_support_v1.1", "customer_support_v2.0"):
        with pytest.raises(ModelNotFoundError, match="customer_support_v1.0"):
            store.get_model(absent)


def test_the_draft_knows_its_version_and_is_not_yet_seen(store: Store) -> None:
    with store.reserve_model("m") as draft:
        assert (draft.version, draft.full_name) == ("v1.0", "m_v1.0")
        assert draft.path == store.models_dir / "m_v1.0"
        assert list(draft.folder.iterdir()) == []
        assert store.list_models() == []
        assert not draft.path.exists()
        with store.reserve_model("m") as second:
            assert second.version == "v1.1"
        assert [model.version for model in store.list_models()] == ["v1.1"]
    assert [model.version for model in store.list_models()] == ["v1.0", "v1.1"]


def test_a_draft_that_fails_is_given_back(store: Store) -> None:
    for failure in (RuntimeError, KeyboardInterrupt):
        with pytest.raises(failure), store.reserve_model("m") as draft:
            (draft.folder / "half").write_text("x")
            raise failure
        assert list(store.models_dir.iterdir()) == []
    assert save(store, "m") == "m_v1.0"


def test_metadata_that_cannot_be_stored_gives_the_draft_back(store: Store) -> None:
    with (
        pytest.raises(StoreError, match="JSON"),
        store.reserve_model("m") as draft,
    ):
        draft.metadata["bad"] = object()
    assert save(store, "m") == "m_v1.0"


@pytest.mark.parametrize(
    "name", ["", "..", ".hidden", "a/b", "a b", "x" * 101, "m_v1.0", "m:v1.0", "ü"]
)
def test_names_that_are_no_folder_names_are_refused(store: Store, name: str) -> None:
    with (
        pytest.raises(ConfigError, match="Invalid model name"),
        store.reserve_model(name),
    ):
        pass
    assert not store.models_dir.exists()


def test_an_existing_folder_is_registered_as_a_copy(
    store: Store, tmp_path: Path
) -> None:
    source = tmp_path / "source"
    (source / "deep").mkdir(parents=True)
    (source / "deep" / "weights").write_text("w")
    model = store.register_model("m", run_id=None, path=source, metadata={"a": 1})
    assert (model.full_name, model.metadata, model.run_id) == ("m_v1.0", {"a": 1}, None)
    assert (model.path / "deep" / "weights").read_text() == "w"
    assert (source / "deep" / "weights").exists()
    for absent in (tmp_path / "nothing", source / "deep" / "weights"):
        with pytest.raises(StoreError, match=str(absent)):
            store.register_model("m", run_id=None, path=absent, metadata={})
    assert [m.full_name for m in store.list_models()] == ["m_v1.0"]


def test_a_deleted_version_goes_with_its_folder_and_is_not_reused(
    store: Store,
) -> None:
    save(store)
    save(store)
    store.delete_model("customer_support:v1.1")
    assert [m.version for m in store.list_models()] == ["v1.0"]
    assert [p.name for p in store.models_dir.iterdir()] == ["customer_support_v1.0"]
    with pytest.raises(ModelNotFoundError):
        store.delete_model("customer_support_v1.1")
    assert save(store) == "customer_support_v1.2"


def test_a_model_whose_folder_somebody_removed_is_not_there(store: Store) -> None:
    save(store)
    save(store)
    shutil.rmtree(store.get_model("customer_support").path)
    assert store.get_model("customer_support").version == "v1.0"
    assert save(store) == "customer_support_v1.2"


def test_models_outlive_a_lost_database(lite: Path) -> None:
    with Store(lite) as store:
        save(store)
    (lite / "agentgym.db").unlink()
    with Store(lite) as store:
        assert save(store, text="new") == "customer_support_v1.1"
        old = store.models_dir / "customer_support_v1.0" / "weights"
        assert old.read_text() == "w"


def test_a_moved_home_keeps_its_models(home: Path, tmp_path: Path) -> None:
    with Store(home) as store:
        save(store)
    home.rename(tmp_path / "moved")
    with Store(tmp_path / "moved") as store:
        path = store.get_model("customer_support").path
        assert (path / "weights").read_text() == "w"


def test_processes_finishing_at_once_get_different_versions(home: Path) -> None:
    def work(name: str) -> None:
        with Store(home) as store:
            for n in range(5):
                save(store, "m", f"{name}{n}")

    in_processes(*(lambda name=name: work(name) for name in "abcd"))
    with Store(home) as store:
        models = store.list_models()
        assert [m.minor for m in models] == list(range(20))
        texts = [(m.path / "weights").read_text() for m in models]
        assert texts == [m.metadata["text"] for m in models]
        assert len(set(texts)) == 20


def _die_before_rename(store: Store) -> None:
    def rename(*_: object) -> None:
        die()

    Path.rename = rename  # type: ignore[assignment,method-assign]
    save(store, "m", "half")


def _die_while_writing(store: Store) -> None:
    with store.reserve_model("m") as draft:
        (draft.folder / "half").write_text("x")
        die()


@pytest.mark.parametrize(
    ("crash", "next_name"),
    [(_die_while_writing, "m_v1.1"), (_die_before_rename, "m_v1.2")],
)
def test_a_kill_between_reserve_and_confirm_leaves_nothing_broken(
    home: Path, crash: Callable[[Store], None], next_name: str
) -> None:
    with Store(home) as store:
        save(store, "m")

        def work() -> None:
            with Store(home) as own:
                crash(own)

        in_processes(work, expect=-signal.SIGKILL)
        assert (home / "models" / ".m_v1.1.draft").exists(), "the crash came too late"
        assert [m.full_name for m in store.list_models()] == ["m_v1.0"]
        with store.reserve_model("other") as alive:
            assert save(store, "m") == next_name
            assert alive.folder.exists(), "only drafts of dead processes are cleared"
        names = sorted(path.name for path in store.models_dir.iterdir())
        assert names == sorted(["m_v1.0", next_name, "other_v1.0"])
        assert sorted(m.full_name for m in store.list_models()) == names


def test_a_kill_right_after_publishing_loses_nothing(home: Path) -> None:
    def work() -> None:
        with Store(home) as store:
            save(store, "m")
            die()

    in_processes(work, expect=-signal.SIGKILL)
    with Store(home) as store:
        assert store.get_model("m").metadata == {"text": "w"}


# Failures


def one_line(error: pytest.ExceptionInfo[StoreError]) -> str:
    text = str(error.value)
    assert "\n" not in text
    assert "sqlalche" not in text
    return text


def test_a_home_that_is_a_file_or_lies_under_one(tmp_path: Path) -> None:
    file = tmp_path / "file"
    file.write_text("")
    for home in (file, file / "below"):
        with pytest.raises(StoreError, match="AGENTGYM_HOME") as error:
            Store(home)
        assert str(home) in one_line(error)


@pytest.mark.parametrize(
    ("number", "advice"),
    [(errno.ENOSPC, "disk is full"), (errno.EROFS, "make it writable")],
)
def test_a_home_that_cannot_be_made(
    lite: Path, monkeypatch: pytest.MonkeyPatch, number: int, advice: str
) -> None:
    def refuse(*_: object, **__: object) -> None:
        raise OSError(number, os.strerror(number))

    monkeypatch.setattr(Path, "mkdir", refuse)
    with pytest.raises(StoreError, match=advice) as error:
        Store(lite)
    one_line(error)


def test_a_file_that_is_no_database_is_refused_and_left_alone(lite: Path) -> None:
    lite.mkdir()
    (lite / "agentgym.db").write_bytes(b"not a database " * 100)
    with pytest.raises(StoreError, match="not an SQLite database: move it") as error:
        Store(lite)
    assert str(lite / "agentgym.db") in one_line(error)
    assert (lite / "agentgym.db").read_bytes() == b"not a database " * 100


def test_a_database_that_is_a_folder(lite: Path) -> None:
    (lite / "agentgym.db").mkdir(parents=True)
    with pytest.raises(StoreError, match="cannot be opened") as error:
        Store(lite)
    one_line(error)


def test_a_damaged_database(lite: Path) -> None:
    with Store(lite) as store:
        add_run(store)
        store.append_events("run", 0, [point(i, x="y" * 100) for i in range(500)])
    path = lite / "agentgym.db"
    data = path.read_bytes()
    path.write_bytes(data[:8192] + b"\xff" * (len(data) - 8192))
    with pytest.raises(StoreError, match="damaged") as error, Store(lite) as store:
        store.events("run")
        store.list_runs()
    one_line(error)


def test_another_programs_database(lite: Path) -> None:
    lite.mkdir()
    connection = sqlite3.connect(lite / "agentgym.db")
    connection.execute("CREATE TABLE models (x)")
    connection.close()
    with pytest.raises(StoreError, match="belongs to another program") as error:
        Store(lite)
    one_line(error)


def test_a_lock_that_is_not_given_back(
    lite: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(Store, "busy_timeout", 0.2)
    with Store(lite) as store:
        add_run(store)
        other = sqlite3.connect(lite / "agentgym.db")
        other.execute("BEGIN IMMEDIATE")
        assert store.get_run("run").id == "run", "readers go on"
        with pytest.raises(StoreError, match="locked by another process") as error:
            store.update_run("run", episodes=1)
        one_line(error)
        other.rollback()
        other.close()
        store.update_run("run", episodes=1)


def test_a_migration_that_somebody_else_never_ends(
    home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from agentgym.utils.files import file_lock

    monkeypatch.setattr(Store, "busy_timeout", 0.2)
    home.mkdir()
    with (
        file_lock(home / "agentgym.db.lock", 1),
        pytest.raises(StoreError, match="locked by another process") as error,
    ):
        Store(home)
    one_line(error)


def test_a_full_disk_while_writing_keeps_what_was_there(
    lite: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from agentgym.store import database

    with Store(lite) as store:
        add_run(store)
        store.append_events("run", 0, [point(0, kept=True)])
    configure = database._configure_sqlite

    def configure_small(connection: sqlite3.Connection, record: object) -> None:
        configure(connection, record)
        pages = connection.execute("PRAGMA page_count").fetchone()[0]
        connection.execute(f"PRAGMA max_page_count={pages + 2}")

    monkeypatch.setattr(database, "_configure_sqlite", configure_small)
    with Store(lite) as store:
        with pytest.raises(StoreError, match="disk is full: free some space") as error:
            store.append_events("run", 0, [point(i, x="y" * 999) for i in range(99)])
        one_line(error)
        assert [e.event for e in store.events("run")] == [point(0, kept=True)]


def test_a_full_disk_while_publishing_a_model(
    store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(*_: object) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    with monkeypatch.context() as patch:
        patch.setattr(os, "fsync", refuse)
        with pytest.raises(StoreError, match="disk is full") as error:
            save(store, "m")
    one_line(error)
    assert store.list_models() == []
    assert list(store.models_dir.iterdir()) == []
    assert save(store, "m") == "m_v1.0"


def test_urls_that_cannot_be_used(lite: Path) -> None:
    for url, advice in {
        "nonsense": "postgresql\\+psycopg://",
        "nosuch://host/name": "postgresql\\+psycopg://",
        "mysql://u:secret@host/name": "needs sqlite or postgresql",
        "postgresql+asyncpg://u:secret@host/name": "asynchronous",
        "sqlite+aiosqlite:///x.db": "asynchronous",
    }.items():
        with pytest.raises(StoreError, match=advice) as error:
            Store(lite, url)
        assert "secret" not in one_line(error)


def test_a_missing_driver_names_the_extra(
    lite: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "psycopg", None)
    with pytest.raises(MissingExtraError, match=r"agentgym\[postgres\]") as error:
        Store(lite, "postgresql+psycopg://u:secret@host/name")
    assert "secret" not in str(error.value)


def test_rows_are_plain_values(store: Store) -> None:
    add_run(store)
    run = store.get_run("run")
    store.close()
    assert isinstance(run, RunRow)
    assert run.config == {"episodes": 100}
    with pytest.raises(AttributeError):
        run.status = "failed"  # type: ignore[misc]

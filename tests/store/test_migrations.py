"""The schema's history: what migrations build, refuse and keep."""

from __future__ import annotations

import shutil
import sqlite3
from functools import partial
from pathlib import Path
from typing import Any

import pytest
import sqlalchemy as sa
from alembic import command
from alembic.autogenerate import compare_metadata
from alembic.config import Config
from alembic.migration import MigrationContext
from alembic.script import ScriptDirectory

from agentgym.core import events
from agentgym.core.events import IterationDone
from agentgym.errors import RunNotFoundError, StoreError
from agentgym.runs.view import view_of
from agentgym.store import Store, database
from agentgym.store.schema import REVISIONS, Base

ADD_A_COLUMN = """
import sqlalchemy as sa
from alembic import op

revision = "0003"
down_revision = "0002"


def upgrade():
    op.add_column("events", sa.Column("note", sa.String(), nullable=True))
    with op.batch_alter_table("runs", recreate="always") as runs:
        runs.add_column(sa.Column("title", sa.String(), nullable=True))
"""


def describe(path: Path) -> dict[str, Any]:
    engine = sa.create_engine(f"sqlite:///{path}")
    inspector = sa.inspect(engine)
    found = {
        table: {
            "columns": [
                (c["name"], str(c["type"]), c["nullable"], c["default"])
                for c in inspector.get_columns(table)
            ],
            "primary key": inspector.get_pk_constraint(table),
            "foreign keys": inspector.get_foreign_keys(table),
            "unique": inspector.get_unique_constraints(table),
            "indexes": inspector.get_indexes(table),
        }
        for table in inspector.get_table_names()
        if table != "alembic_version"
    }
    engine.dispose()
    return found


def revision_of(home: Path) -> str:
    connection = sqlite3.connect(home / "agentgym.db")
    (found,) = connection.execute("SELECT version_num FROM alembic_version").fetchone()
    connection.close()
    return str(found)


def fill(home: Path) -> None:
    with Store(home) as store:
        store.create_run(
            "run", scenario="s", policy="p", engine="e", seed=1, config={"a": 1}
        )
        store.append_events("run", 0, [IterationDone(1, 1, {"x": 1.0})])
        store.add_trajectories("run", 0, 1, [{"success": False, "task_id": "t"}])
        store.send_command("run", "stop")
        with store.reserve_model("m") as draft:
            draft.metadata["z"] = 3


def assert_filled(home: Path) -> None:
    with Store(home) as store:
        assert store.get_run("run").config == {"a": 1}
        (logged,) = store.events("run")
        assert logged.event == IterationDone(1, 1, {"x": 1.0})
        assert [t.task_id for t in store.trajectories("run")] == ["t"]
        assert store.get_model("m").metadata == {"z": 3}


def next_version(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, migration: str
) -> None:
    """Makes the code one revision newer than it is."""
    folder = tmp_path / "100% migrations"
    shutil.copytree(database.MIGRATIONS, folder)
    (folder / "versions" / "0003_next.py").write_text(migration)
    monkeypatch.setattr(database, "MIGRATIONS", folder)
    monkeypatch.setattr(database, "REVISIONS", (*REVISIONS, "0003"))


def test_the_list_of_revisions_is_that_of_the_files() -> None:
    config = Config()
    config.set_main_option("script_location", str(database.MIGRATIONS))
    config.set_main_option("path_separator", "newline")
    scripts = ScriptDirectory.from_config(config)
    found = [script.revision for script in scripts.walk_revisions()]
    assert tuple(reversed(found)) == REVISIONS


def test_migrations_build_the_declared_schema(tmp_path: Path) -> None:
    Store(tmp_path / "home").close()
    migrated = tmp_path / "home" / "agentgym.db"
    declared = tmp_path / "declared.db"
    engine = sa.create_engine(f"sqlite:///{declared}")
    Base.metadata.create_all(engine)
    engine.dispose()
    assert describe(migrated) == describe(declared)

    engine = sa.create_engine(f"sqlite:///{migrated}")
    with engine.connect() as connection:
        context = MigrationContext.configure(connection)
        assert compare_metadata(context, Base.metadata) == []
    engine.dispose()
    assert revision_of(tmp_path / "home") == REVISIONS[-1]


def test_a_newer_schema_is_refused_and_left_alone(tmp_path: Path) -> None:
    fill(tmp_path)
    connection = sqlite3.connect(tmp_path / "agentgym.db")
    connection.execute("UPDATE alembic_version SET version_num = '0042'")
    connection.commit()
    connection.close()
    with pytest.raises(StoreError, match="newer AgentGym.*0042.*upgrade agentgym"):
        Store(tmp_path)
    assert revision_of(tmp_path) == "0042"


def test_an_upgrade_keeps_all_data(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    home = tmp_path / "home"
    fill(home)
    next_version(tmp_path, monkeypatch, ADD_A_COLUMN)
    assert_filled(home)
    assert revision_of(home) == "0003"
    columns = [name for name, *_ in describe(home / "agentgym.db")["runs"]["columns"]]
    assert "title" in columns
    with Store(home) as store:
        assert store.take_commands("run") == [("stop", {})]
        # Foreign keys bind again after the upgrade.
        with pytest.raises(RunNotFoundError):
            store.send_command("absent", "stop")


def test_an_upgrade_that_fails_changes_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    home = tmp_path / "home"
    fill(home)
    before = describe(home / "agentgym.db")
    with monkeypatch.context() as patch:
        broken = ADD_A_COLUMN + "    op.execute('SELECT * FROM nowhere')\n"
        next_version(tmp_path, patch, broken)
        with pytest.raises(StoreError, match="no such table: nowhere"):
            Store(home)
    assert describe(home / "agentgym.db") == before
    assert revision_of(home) == REVISIONS[-1]
    assert_filled(home)


OLD_RUN = {
    "id": "old",
    "scenario": "s",
    "policy": "p",
    "engine": "local",
    "seed": 2**40,
    "config": {"episodes": 30},
    "status": "finished",
    "episodes": 30,
    "result": {"model": "m_v1.0"},
    "created_at": 5.0,
    "updated_at": 9.0,
}


@pytest.mark.parametrize("kind", ["sqlite", "postgresql"])
def test_what_an_old_database_knew_becomes_events(
    tmp_path: Path,
    request: pytest.FixtureRequest,
    monkeypatch: pytest.MonkeyPatch,
    kind: str,
) -> None:
    url = f"sqlite:///{tmp_path / 'old.db'}"
    if kind == "postgresql":
        url = request.getfixturevalue("postgres_url")
    with monkeypatch.context() as patch:
        patch.setattr(database, "REVISIONS", ("0001",))
        patch.setattr(database, "_upgrade", partial(upgrade_to, "0001"))
        Store(tmp_path, url).close()
    fill_old(url)
    with Store(tmp_path, url) as store:
        said = [logged.event for logged in store.events("old")]
        assert said == [
            events.RunStarted("old", {"episodes": 30}),
            events.BaselineMeasured({"y": 0}),
            events.IterationDone(1, 15, {"x": 1}),
            events.EvaluationDone(1, 15, "validation", {"y": 1}),
            events.IterationDone(2, 30, {"x": 2}),
            events.EvaluationDone(2, 30, "validation", {"y": 2}),
            events.EvaluationDone(2, 30, "heldout", {"y": 3}),
            events.RunFinished({"model": "m_v1.0"}),
        ]
        run = store.get_run("old")
        assert (run.attempt, run.last_seq, run.targets) == (1, len(said), {})
        assert (run.seed, run.status, run.result) == (
            2**40,
            "finished",
            {"model": "m_v1.0"},
        )
        (kept,) = store.trajectories("old")
        assert (kept.attempt, kept.iteration, kept.task_id) == (1, 2, "t")
        # Interrupted after the checkpoint of iteration 1, and not resumed since.
        broken = store.events("broken", kinds=("run_stopped",))
        assert [logged.event for logged in broken] == [events.RunStopped("interrupted")]
        assert store.begin_attempt("broken") == 2
        store.append_events("broken", 2, [events.RunStarted("broken", {}, 1)])
        points = [point.iteration for point in view_of(store, "broken").points]
        assert points == [1]
        failed = store.get_run("failed")
        assert view_of(store, "failed").error == failed.error == "It broke."


def upgrade_to(revision: str, connection: sa.Connection) -> None:
    config = Config()
    config.set_main_option("script_location", str(database.MIGRATIONS))
    config.set_main_option("path_separator", "newline")
    config.attributes["connection"] = connection
    command.upgrade(config, revision)


def fill_old(url: str) -> None:
    engine = sa.create_engine(url.replace("postgresql:", "postgresql+psycopg:"))
    tables = sa.MetaData()
    tables.reflect(engine)
    with engine.begin() as connection:

        def insert(table: str, **values: Any) -> None:
            connection.execute(sa.insert(tables.tables[table]).values(**values))

        insert("runs", **OLD_RUN)
        insert("runs", **OLD_RUN | {"id": "broken", "status": "interrupted"})
        insert(
            "runs",
            **OLD_RUN | {"id": "failed", "status": "failed", "error": "It broke."},
        )
        for run in ("old", "broken"):
            for i in (2, 1):
                values = {"x": i}
                insert(
                    "points",
                    run_id=run,
                    iteration=i,
                    episodes=15 * i,
                    values=values,
                    time=6.0,
                )
            for i, split in enumerate(["validation"] * 3 + ["heldout"]):
                insert(
                    "evaluations",
                    run_id=run,
                    split=split,
                    iteration=min(i, 2),
                    episodes=15 * min(i, 2),
                    metrics={"y": i},
                    time=7.0,
                )
        insert(
            "trajectories",
            run_id="old",
            iteration=2,
            number=0,
            success=False,
            task_id="t",
            data={"steps": []},
            time=7.0,
        )
    engine.dispose()

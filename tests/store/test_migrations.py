"""The schema's history: what migrations build, refuse and keep."""

from __future__ import annotations

import shutil
import sqlite3
from pathlib import Path
from typing import Any

import pytest
import sqlalchemy as sa
from alembic.autogenerate import compare_metadata
from alembic.config import Config
from alembic.migration import MigrationContext
from alembic.script import ScriptDirectory

from agentgym.errors import RunNotFoundError, StoreError
from agentgym.store import Store, database
from agentgym.store.schema import REVISIONS, Base

ADD_A_COLUMN = """
import sqlalchemy as sa
from alembic import op

revision = "0002"
down_revision = "0001"


def upgrade():
    op.add_column("points", sa.Column("note", sa.String(), nullable=True))
    with op.batch_alter_table("runs", recreate="always") as runs:
        runs.add_column(sa.Column("title", sa.String(), nullable=True))
"""


@pytest.fixture(autouse=True)
def _clean_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("AGENTGYM_DATABASE_URL", raising=False)


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
        store.add_points("run", [(1, 1, {"x": 1.0})])
        store.add_evaluation("run", "test", 1, 1, {"y": 2})
        store.add_trajectories("run", 1, [{"success": False, "task_id": "t"}])
        store.send_command("run", "stop")
        with store.reserve_model("m") as draft:
            draft.metadata["z"] = 3


def assert_filled(home: Path) -> None:
    with Store(home) as store:
        assert store.get_run("run").config == {"a": 1}
        assert [p.values for p in store.points("run")] == [{"x": 1.0}]
        assert [e.metrics for e in store.evaluations("run")] == [{"y": 2}]
        assert [t.task_id for t in store.trajectories("run")] == ["t"]
        assert store.get_model("m").metadata == {"z": 3}


def next_version(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, migration: str
) -> None:
    """Makes the code one revision newer than it is."""
    folder = tmp_path / "100% migrations"
    shutil.copytree(database.MIGRATIONS, folder)
    (folder / "versions" / "0002_next.py").write_text(migration)
    monkeypatch.setattr(database, "MIGRATIONS", folder)
    monkeypatch.setattr(database, "REVISIONS", ("0001", "0002"))


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
    assert revision_of(home) == "0002"
    columns = [name for name, *_ in describe(home / "agentgym.db")["runs"]["columns"]]
    assert "title" in columns
    with Store(home) as store:
        assert store.take_commands("run") == [("stop", {})]
        # Foreign keys bind again after the upgrade.
        with pytest.raises(RunNotFoundError):
            store.add_points("absent", [(1, 1, {})])


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
    assert revision_of(home) == "0001"
    assert_filled(home)

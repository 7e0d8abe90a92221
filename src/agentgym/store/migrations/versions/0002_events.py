"""An event log in the place of points and evaluations; attempts; targets."""

from collections.abc import Iterator
from typing import Any

import sqlalchemy as sa
from alembic import op

Said = tuple[float, str, dict[str, Any]]

revision = "0002"
down_revision = "0001"


def upgrade() -> None:
    """Turns what was known of each run into events of its first attempt."""
    op.create_table(
        "events",
        sa.Column("run_id", sa.String(), nullable=False),
        sa.Column("seq", sa.BigInteger(), nullable=False),
        sa.Column("attempt", sa.Integer(), nullable=False),
        sa.Column("time", sa.Double(), nullable=False),
        sa.Column("kind", sa.String(), nullable=False),
        sa.Column("payload", sa.JSON(), nullable=False),
        sa.ForeignKeyConstraint(
            ["run_id"], ["runs.id"], name="fk_events_run_id", ondelete="CASCADE"
        ),
        sa.PrimaryKeyConstraint("run_id", "seq", name="pk_events"),
    )
    op.create_index("ix_events_run_id_kind_seq", "events", ["run_id", "kind", "seq"])
    new = (
        sa.Column("targets", sa.JSON(), nullable=False, server_default="{}"),
        sa.Column("attempt", sa.Integer(), nullable=False, server_default="1"),
        sa.Column("last_seq", sa.BigInteger(), nullable=False, server_default="0"),
    )
    with op.batch_alter_table("runs") as runs:
        for column in new:
            runs.add_column(column)
    _write_events(op.get_bind())
    with op.batch_alter_table("runs") as runs:
        for column in new:
            runs.alter_column(column.name, server_default=None)
    with op.batch_alter_table("trajectories") as trajectories:
        trajectories.add_column(
            sa.Column("attempt", sa.Integer(), nullable=False, server_default="1")
        )
    with op.batch_alter_table("trajectories") as trajectories:
        trajectories.alter_column("attempt", server_default=None)
        trajectories.drop_constraint("pk_trajectories", type_="primary")
        trajectories.create_primary_key(
            "pk_trajectories", ["run_id", "iteration", "number", "attempt"]
        )
    op.drop_table("points")
    op.drop_table("evaluations")


def _write_events(connection: sa.Connection) -> None:
    tables = sa.MetaData()
    runs, points, evaluations, events = (
        sa.Table(name, tables, autoload_with=connection)
        for name in ("runs", "points", "evaluations", "events")
    )
    for run in connection.execute(sa.select(runs)).mappings().all():
        config = {"run_id": run["id"], "config": run["config"]}
        said = [
            (run["created_at"], "run_started", config),
            *_measured(connection, run["id"], points, evaluations),
            *((run["updated_at"], *last) for last in _ending(run)),
        ]
        rows = [
            {
                "run_id": run["id"],
                "seq": seq,
                "attempt": 1,
                "time": time,
                "kind": kind,
                "payload": payload,
            }
            for seq, (time, kind, payload) in enumerate(said, start=1)
        ]
        connection.execute(sa.insert(events), rows)
        connection.execute(
            sa.update(runs).where(runs.c.id == run["id"]).values(last_seq=len(rows))
        )


def _measured(
    connection: sa.Connection, run_id: str, points: sa.Table, evaluations: sa.Table
) -> list[Said]:
    """Iterations and evaluations in the order in which they happened."""
    said: list[tuple[tuple[int, int], Said]] = []
    query = sa.select(points).where(points.c.run_id == run_id)
    for row in connection.execute(query).mappings():
        payload = {name: row[name] for name in ("iteration", "episodes", "values")}
        said.append(((row["iteration"], 0), (row["time"], "iteration_done", payload)))
    query = sa.select(evaluations).where(evaluations.c.run_id == run_id)
    for row in connection.execute(query).mappings():
        names = ("iteration", "episodes", "split", "metrics")
        kind, payload = "evaluation_done", {name: row[name] for name in names}
        if row["split"] == "validation" and row["episodes"] == 0:
            kind, payload = "baseline_measured", {"metrics": row["metrics"]}
        place = 2 if row["split"] == "heldout" else 1
        said.append(((row["iteration"], place), (row["time"], kind, payload)))
    return [event for _, event in sorted(said, key=lambda item: item[0])]


def _ending(run: sa.RowMapping) -> Iterator[tuple[str, dict[str, Any]]]:
    if run["status"] == "stopped":
        yield "run_stopped", {"reason": "stopped on request"}
    if run["status"] in ("finished", "stopped"):
        yield "run_finished", {"result": run["result"] or {}}
    elif run["status"] == "failed":
        yield "run_failed", {"error": run["error"] or ""}
    elif run["status"] == "interrupted":
        yield "run_stopped", {"reason": "interrupted"}

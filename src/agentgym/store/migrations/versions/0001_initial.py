"""Runs, points, evaluations, trajectories, commands and models."""

import sqlalchemy as sa
from alembic import op

revision = "0001"
down_revision = None


def upgrade() -> None:
    """Creates all tables."""
    op.create_table(
        "runs",
        sa.Column("number", sa.Integer(), nullable=False),
        sa.Column("id", sa.String(), nullable=False),
        sa.Column("scenario", sa.String(), nullable=False),
        sa.Column("policy", sa.String(), nullable=False),
        sa.Column("engine", sa.String(), nullable=False),
        sa.Column("seed", sa.BigInteger(), nullable=True),
        sa.Column("config", sa.JSON(), nullable=False),
        sa.Column("status", sa.String(), nullable=False),
        sa.Column("episodes", sa.Integer(), nullable=False),
        sa.Column("model", sa.String(), nullable=True),
        sa.Column("error", sa.String(), nullable=True),
        sa.Column("result", sa.JSON(), nullable=True),
        sa.Column("pid", sa.Integer(), nullable=True),
        sa.Column("host", sa.String(), nullable=True),
        sa.Column("process", sa.String(), nullable=True),
        sa.Column("heartbeat", sa.Double(), nullable=True),
        sa.Column("created_at", sa.Double(), nullable=False),
        sa.Column("updated_at", sa.Double(), nullable=False),
        sa.Column("finished_at", sa.Double(), nullable=True),
        sa.PrimaryKeyConstraint("number", name="pk_runs"),
        sa.UniqueConstraint("id", name="uq_runs_id"),
    )
    op.create_table(
        "points",
        sa.Column("run_id", sa.String(), nullable=False),
        sa.Column("iteration", sa.Integer(), nullable=False),
        sa.Column("episodes", sa.Integer(), nullable=False),
        sa.Column("values", sa.JSON(), nullable=False),
        sa.Column("time", sa.Double(), nullable=False),
        _belongs_to_run("points"),
        sa.PrimaryKeyConstraint("run_id", "iteration", name="pk_points"),
    )
    op.create_table(
        "evaluations",
        sa.Column("run_id", sa.String(), nullable=False),
        sa.Column("split", sa.String(), nullable=False),
        sa.Column("iteration", sa.Integer(), nullable=False),
        sa.Column("episodes", sa.Integer(), nullable=False),
        sa.Column("metrics", sa.JSON(), nullable=False),
        sa.Column("time", sa.Double(), nullable=False),
        _belongs_to_run("evaluations"),
        sa.PrimaryKeyConstraint("run_id", "split", "iteration", name="pk_evaluations"),
    )
    op.create_table(
        "trajectories",
        sa.Column("run_id", sa.String(), nullable=False),
        sa.Column("iteration", sa.Integer(), nullable=False),
        sa.Column("number", sa.Integer(), nullable=False),
        sa.Column("success", sa.Boolean(), nullable=True),
        sa.Column("task_id", sa.String(), nullable=False),
        sa.Column("data", sa.JSON(), nullable=False),
        sa.Column("time", sa.Double(), nullable=False),
        _belongs_to_run("trajectories"),
        sa.PrimaryKeyConstraint(
            "run_id", "iteration", "number", name="pk_trajectories"
        ),
    )
    op.create_table(
        "commands",
        sa.Column("number", sa.Integer(), nullable=False),
        sa.Column("run_id", sa.String(), nullable=False),
        sa.Column("command", sa.String(), nullable=False),
        sa.Column("arguments", sa.JSON(), nullable=False),
        _belongs_to_run("commands"),
        sa.PrimaryKeyConstraint("number", name="pk_commands"),
    )
    op.create_index("ix_commands_run_id", "commands", ["run_id"])
    op.create_table(
        "models",
        sa.Column("name", sa.String(), nullable=False),
        sa.Column("minor", sa.Integer(), nullable=False),
        sa.Column("state", sa.String(), nullable=False),
        sa.Column("run_id", sa.String(), nullable=True),
        sa.Column("metadata", sa.JSON(), nullable=False),
        sa.Column("pid", sa.Integer(), nullable=False),
        sa.Column("host", sa.String(), nullable=False),
        sa.Column("process", sa.String(), nullable=True),
        sa.Column("created_at", sa.Double(), nullable=False),
        sa.PrimaryKeyConstraint("name", "minor", name="pk_models"),
    )


def _belongs_to_run(table: str) -> sa.ForeignKeyConstraint:
    return sa.ForeignKeyConstraint(
        ["run_id"], ["runs.id"], name=f"fk_{table}_run_id", ondelete="CASCADE"
    )

"""The tables. A change here needs a new file in `migrations/versions`."""

from __future__ import annotations

from typing import Any

from sqlalchemy import (
    JSON,
    BigInteger,
    Dialect,
    Double,
    ForeignKey,
    Index,
    MetaData,
    String,
    TypeDecorator,
)
from sqlalchemy.orm import DeclarativeBase, Mapped, mapped_column

# Kept beside the migrations so that a store that is up to date opens without alembic.
REVISIONS: tuple[str, ...] = ("0001", "0002")
"""Every revision of the schema, oldest first."""

Json = dict[str, Any]


class Text(TypeDecorator[str]):
    """Text that every database takes: PostgreSQL knows neither NUL nor half a pair."""

    impl = String
    cache_ok = True

    def process_bind_param(self, value: str | None, dialect: Dialect) -> str | None:
        """The text with what no database takes replaced."""
        if value is None:
            return None
        clean = value.replace("\0", "\ufffd")
        return clean.encode("utf-16", "surrogatepass").decode("utf-16", "replace")


class Base(DeclarativeBase):
    """Base of all tables."""

    # Constraints need names, or later migrations cannot drop them.
    metadata = MetaData(
        naming_convention={
            "pk": "pk_%(table_name)s",
            "fk": "fk_%(table_name)s_%(column_0_name)s",
            "uq": "uq_%(table_name)s_%(column_0_name)s",
            "ix": "ix_%(table_name)s_%(column_0_name)s",
        }
    )
    type_annotation_map = {
        Json: JSON(none_as_null=True),
        float: Double(),
        str: Text(),
    }


def _run_key(*, primary_key: bool = True, index: bool = False) -> Mapped[str]:
    return mapped_column(
        ForeignKey("runs.id", ondelete="CASCADE"), primary_key=primary_key, index=index
    )


class Run(Base):
    """One training run.

    `attempt` counts starts and resumes, `last_seq` the events of the log. A process
    that appends to the log updates `last_seq` first, and so waits for others.
    """

    __tablename__ = "runs"

    number: Mapped[int] = mapped_column(primary_key=True)
    id: Mapped[str] = mapped_column(unique=True)
    scenario: Mapped[str]
    policy: Mapped[str]
    engine: Mapped[str]
    seed: Mapped[int | None] = mapped_column(BigInteger)
    config: Mapped[Json]
    status: Mapped[str]
    episodes: Mapped[int]
    model: Mapped[str | None]
    error: Mapped[str | None]
    result: Mapped[Json | None]
    pid: Mapped[int | None]
    host: Mapped[str | None]
    process: Mapped[str | None]
    heartbeat: Mapped[float | None]
    created_at: Mapped[float]
    updated_at: Mapped[float]
    finished_at: Mapped[float | None]
    targets: Mapped[Json]
    attempt: Mapped[int]
    last_seq: Mapped[int] = mapped_column(BigInteger)


class LogEntry(Base):
    """One event of a run. Rows are added and never changed."""

    __tablename__ = "events"
    __table_args__ = (Index("ix_events_run_id_kind_seq", "run_id", "kind", "seq"),)

    run_id: Mapped[str] = _run_key()
    seq: Mapped[int] = mapped_column(BigInteger, primary_key=True, autoincrement=False)
    attempt: Mapped[int]
    time: Mapped[float]
    kind: Mapped[str]
    payload: Mapped[Json]


class Trajectory(Base):
    """One episode of the bounded sample."""

    __tablename__ = "trajectories"

    run_id: Mapped[str] = _run_key()
    iteration: Mapped[int] = mapped_column(primary_key=True, autoincrement=False)
    number: Mapped[int] = mapped_column(primary_key=True, autoincrement=False)
    success: Mapped[bool | None]
    task_id: Mapped[str]
    data: Mapped[Json]
    time: Mapped[float]
    attempt: Mapped[int] = mapped_column(primary_key=True, autoincrement=False)


class Command(Base):
    """What one process asks of the process that runs a training."""

    __tablename__ = "commands"

    number: Mapped[int] = mapped_column(primary_key=True)
    run_id: Mapped[str] = _run_key(primary_key=False, index=True)
    command: Mapped[str]
    arguments: Mapped[Json]


class Model(Base):
    """One version of a model.

    `state` is "reserved" until its files are written, then "registered". A deleted
    version keeps its row as "deleted", so that its number is never given out again.
    `run_id` isn't a foreign key: a model may come from another home.
    """

    __tablename__ = "models"

    name: Mapped[str] = mapped_column(primary_key=True)
    minor: Mapped[int] = mapped_column(primary_key=True, autoincrement=False)
    state: Mapped[str]
    run_id: Mapped[str | None]
    metadata_: Mapped[Json] = mapped_column("metadata")
    pid: Mapped[int]
    host: Mapped[str]
    process: Mapped[str | None]
    created_at: Mapped[float]

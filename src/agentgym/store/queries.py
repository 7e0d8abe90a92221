"""Every statement that the store sends, bound to one transaction."""

from __future__ import annotations

import time
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import sqlalchemy as sa
from sqlalchemy.dialects import sqlite
from sqlalchemy.engine import Connection
from sqlalchemy.orm import DeclarativeBase

from agentgym.store.rows import (
    EvaluationRow,
    ModelRow,
    PointRow,
    RunRow,
    TrajectoryRow,
    full_name,
)
from agentgym.store.schema import (
    Command,
    Evaluation,
    Model,
    Point,
    Run,
    Trajectory,
)

if TYPE_CHECKING:
    from sqlalchemy.dialects import postgresql

_ADVISORY_LOCK = 0x41474E5447594D  # Any constant will do: "AGNTGYM".


class Queries:
    """The statements; the caller opened the transaction and ends it."""

    def __init__(self, connection: Connection) -> None:
        self._connection = connection

    def lock(self) -> None:
        """Lets no other writer past this line until the transaction ends."""
        # On SQLite every transaction that writes is alone already.
        if self._connection.dialect.name == "postgresql":
            self._connection.execute(
                sa.select(sa.func.pg_advisory_xact_lock(_ADVISORY_LOCK))
            )

    # Runs

    def insert_run(self, **values: Any) -> None:
        """Adds a run."""
        self._connection.execute(sa.insert(Run).values(**values))

    def update_run(self, run_id: str, values: Mapping[str, Any]) -> bool:
        """Returns whether there is such a run."""
        statement = sa.update(Run).where(Run.id == run_id).values(**values)
        return self._connection.execute(statement).rowcount > 0

    def run(self, run_id: str) -> RunRow | None:
        """The run of exactly this id."""
        return next(iter(self._runs(_select(Run).where(Run.id == run_id))), None)

    def runs_like(self, prefix: str, limit: int) -> list[RunRow]:
        """The newest runs whose ids begin so."""
        # LIKE would ignore case on SQLite and treat "_" as a wildcard.
        start = sa.func.substr(Run.id, 1, len(prefix))
        query = _select(Run).where(start == prefix)
        return self._runs(query.order_by(Run.number.desc()).limit(limit))

    def _runs(self, query: sa.Select[Any]) -> list[RunRow]:
        return [RunRow(**row) for row in self._connection.execute(query).mappings()]

    # Points, evaluations, trajectories

    def put_points(
        self, run_id: str, points: Iterable[tuple[int, int, dict[str, Any]]]
    ) -> None:
        """Adds or replaces points."""
        now = time.time()
        self._put(
            Point,
            [
                {
                    "run_id": run_id,
                    "iteration": iteration,
                    "episodes": episodes,
                    "values": values,
                    "time": now,
                }
                for iteration, episodes, values in points
            ],
        )

    def points(self, run_id: str) -> list[PointRow]:
        """All points, by iteration."""
        query = sa.select(Point.iteration, Point.episodes, Point.values, Point.time)
        query = query.where(Point.run_id == run_id).order_by(Point.iteration)
        return [PointRow(*row) for row in self._connection.execute(query)]

    def put_evaluation(self, **values: Any) -> None:
        """Adds or replaces an evaluation."""
        self._put(Evaluation, [values])

    def evaluations(self, run_id: str, split: str | None) -> list[EvaluationRow]:
        """All evaluations, by iteration."""
        table = Evaluation
        query = sa.select(
            table.split, table.iteration, table.episodes, table.metrics, table.time
        ).where(table.run_id == run_id)
        if split is not None:
            query = query.where(table.split == split)
        query = query.order_by(table.iteration, table.split)
        return [EvaluationRow(*row) for row in self._connection.execute(query)]

    def replace_trajectories(
        self, run_id: str, iteration: int, rows: Sequence[Mapping[str, Any]]
    ) -> None:
        """Puts these in the place of all that the iteration had."""
        self._connection.execute(
            sa.delete(Trajectory).where(
                Trajectory.run_id == run_id, Trajectory.iteration == iteration
            )
        )
        self._put(
            Trajectory,
            [{"run_id": run_id, "iteration": iteration, **row} for row in rows],
        )

    def drop_oldest_trajectories(self, run_id: str, *, failed: bool, keep: int) -> None:
        """Drops all failed (or successful) ones but the newest `keep`."""
        table = Trajectory
        same = sa.and_(table.run_id == run_id, _is_failed(failed))
        first_too_many = self._connection.execute(
            sa.select(table.iteration, table.number)
            .where(same)
            .order_by(table.iteration.desc(), table.number.desc())
            .offset(keep)
            .limit(1)
        ).first()
        if first_too_many is None:
            return
        iteration, number = first_too_many
        older = sa.or_(
            table.iteration < iteration,
            sa.and_(table.iteration == iteration, table.number <= number),
        )
        self._connection.execute(sa.delete(table).where(same, older))

    def trajectories(
        self, run_id: str, failed: bool | None, limit: int
    ) -> list[TrajectoryRow]:
        """The newest trajectories, newest first."""
        table = Trajectory
        query = sa.select(
            table.iteration,
            table.number,
            table.success,
            table.task_id,
            table.data,
            table.time,
        ).where(table.run_id == run_id)
        if failed is not None:
            query = query.where(_is_failed(failed))
        query = query.order_by(table.iteration.desc(), table.number.desc())
        rows = self._connection.execute(query.limit(limit))
        return [TrajectoryRow(*row) for row in rows]

    def forget_after(self, run_id: str, iteration: int) -> None:
        """Drops what later iterations wrote."""
        for table in (Point, Evaluation, Trajectory):
            self._connection.execute(
                sa.delete(table).where(
                    table.run_id == run_id, table.iteration > iteration
                )
            )

    # Commands

    def insert_command(self, **values: Any) -> None:
        """Appends to the queue."""
        self._connection.execute(sa.insert(Command).values(**values))

    def has_commands(self, run_id: str) -> bool:
        """Whether the queue holds anything."""
        query = sa.select(Command.number).where(Command.run_id == run_id).limit(1)
        return self._connection.execute(query).first() is not None

    def pop_commands(self, run_id: str) -> list[tuple[str, dict[str, Any]]]:
        """Empties the queue; each command is given to one caller only."""
        rows = self._connection.execute(
            sa.delete(Command)
            .where(Command.run_id == run_id)
            .returning(Command.number, Command.command, Command.arguments)
        )
        # RETURNING promises no order.
        return [(row[1], row[2]) for row in sorted(rows, key=lambda row: row[0])]

    # Models

    def last_minor(self, name: str) -> int:
        """The highest version ever given out and not taken back; -1 if none."""
        query = sa.select(sa.func.max(Model.minor)).where(Model.name == name)
        found = self._connection.execute(query).scalar()
        return -1 if found is None else int(found)

    def insert_model(self, **values: Any) -> None:
        """Adds a reservation."""
        self._connection.execute(
            sa.insert(Model).values(state="reserved", metadata_={}, **values)
        )

    def model_claims(self) -> list[sa.RowMapping]:
        """Who reserved or registered what: name, minor, state, pid, host, process."""
        query = sa.select(
            Model.name, Model.minor, Model.state, Model.pid, Model.host, Model.process
        ).where(Model.state != "deleted")
        return list(self._connection.execute(query).mappings())

    def drop_reservation(self, name: str, minor: int) -> None:
        """Takes a version back that was never registered."""
        self._connection.execute(
            sa.delete(Model).where(
                Model.name == name, Model.minor == minor, Model.state == "reserved"
            )
        )

    def register_model(self, name: str, minor: int, metadata: dict[str, Any]) -> bool:
        """Returns whether the reservation was still there."""
        statement = (
            sa.update(Model)
            .where(Model.name == name, Model.minor == minor, Model.state == "reserved")
            .values(state="registered", metadata_=metadata, created_at=time.time())
        )
        return self._connection.execute(statement).rowcount > 0

    def mark_model_deleted(self, name: str, minor: int) -> None:
        """Keeps no more than the number, so that it is not given out again."""
        self._connection.execute(
            sa.update(Model)
            .where(Model.name == name, Model.minor == minor)
            .values(state="deleted", metadata_={})
        )

    def models(self, models_dir: Path) -> list[ModelRow]:
        """Registered models, by name and version."""
        query = (
            sa.select(
                Model.name,
                Model.minor,
                Model.run_id,
                Model.metadata_,
                Model.created_at,
            )
            .where(Model.state == "registered")
            .order_by(Model.name, Model.minor)
        )
        return [
            ModelRow(
                name=name,
                minor=minor,
                run_id=run_id,
                path=models_dir / full_name(name, minor),
                metadata=metadata,
                created_at=created_at,
            )
            for name, minor, run_id, metadata, created_at in self._connection.execute(
                query
            )
        ]

    def _put(
        self, table: type[DeclarativeBase], rows: Sequence[Mapping[str, Any]]
    ) -> None:
        """Inserts rows; one whose key exists replaces the old row."""
        if not rows:
            return
        insert: sqlite.Insert | postgresql.Insert = sqlite.insert(table)
        if self._connection.dialect.name == "postgresql":
            from sqlalchemy.dialects import postgresql

            insert = postgresql.insert(table)
        keys = [column.name for column in sa.inspect(table).primary_key]
        new = {name: insert.excluded[name] for name in rows[0] if name not in keys}
        self._connection.execute(
            insert.on_conflict_do_update(index_elements=keys, set_=new), rows
        )


def _select(table: type[DeclarativeBase]) -> sa.Select[Any]:
    return sa.select(*sa.inspect(table).local_table.columns)


def _is_failed(failed: bool) -> sa.ColumnElement[bool]:
    success = sa.func.coalesce(Trajectory.success, sa.false())
    return success.is_(sa.false()) if failed else success.is_(sa.true())

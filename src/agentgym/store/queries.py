"""Every statement that the store sends, bound to one transaction."""

from __future__ import annotations

import dataclasses
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import sqlalchemy as sa
from sqlalchemy.engine import Connection
from sqlalchemy.orm import DeclarativeBase

from agentgym.core.events import Event, LoggedEvent
from agentgym.store.encoding import read_targets
from agentgym.store.rows import ModelRow, ModelVersion, RunRow, TrajectoryRow
from agentgym.store.schema import Command, LogEntry, Model, Run, Text, Trajectory

Key = tuple[int, int, int]
"""Names a trajectory of a run: attempt, iteration, number."""

_ADVISORY_LOCK = 0x41474E5447594D  # Any constant works: "AGNTGYM".


class Queries:
    """The statements; the caller opened the transaction and ends it."""

    def __init__(self, connection: Connection) -> None:
        self._dialect = connection.dialect.name
        self._execute = connection.execute

    def lock(self) -> None:
        """Lets no other writer past this line until the transaction ends."""
        # On SQLite every transaction that writes is alone already.
        if self._dialect == "postgresql":
            self._execute(sa.select(sa.func.pg_advisory_xact_lock(_ADVISORY_LOCK)))

    # Runs

    def insert_run(self, **values: Any) -> None:
        """Adds a run."""
        self._execute(sa.insert(Run).values(**values))

    def now(self) -> float:
        """The time by the database's clock, which all who use it share."""
        if self._dialect != "postgresql":
            return time.time()
        clock = sa.extract("epoch", sa.func.clock_timestamp())
        return float(self._execute(sa.select(clock)).scalar_one())

    def begin_attempt(self, run_id: str, values: Mapping[str, Any]) -> int:
        """Counts another attempt at a run, which must be there."""
        statement = sa.update(Run).where(Run.id == run_id)
        statement = statement.values(**values, attempt=Run.attempt + 1)
        found = self._execute(statement.returning(Run.attempt))
        return int(found.scalar_one())

    def update_run(self, run_id: str, values: Mapping[str, Any]) -> bool:
        """Returns whether there is such a run."""
        statement = sa.update(Run).where(Run.id == run_id).values(**values)
        return self._execute(statement).rowcount > 0

    def delete_run(self, run_id: str) -> bool:
        """Returns whether there was such a run."""
        statement = sa.delete(Run).where(Run.id == run_id)
        return self._execute(statement).rowcount > 0

    def run(self, run_id: str) -> RunRow | None:
        """The run of exactly this id."""
        return next(
            iter(self._runs(_select(Run, RunRow).where(Run.id == run_id))), None
        )

    def runs_like(self, prefix: str, limit: int) -> list[RunRow]:
        """The newest runs whose ids begin so."""
        # LIKE would ignore case on SQLite and treat "_" as a wildcard.
        start = sa.func.substr(Run.id, 1, len(prefix), type_=Text())
        query = _select(Run, RunRow).where(start == prefix)
        return self._runs(query.order_by(Run.number.desc()).limit(limit))

    def _runs(self, query: sa.Select[Any]) -> list[RunRow]:
        rows = self._execute(query).mappings()
        return [RunRow(**{**r, "targets": read_targets(r["targets"])}) for r in rows]

    # Events

    def append_events(
        self,
        run_id: str,
        attempt: int,
        events: Sequence[Event],
        values: Mapping[str, Any],
    ) -> int | None:
        """Adds to the log and changes the run; None if the attempt isn't its newest."""
        last = self._execute(
            sa.update(Run)
            .where(Run.id == run_id, Run.attempt == attempt)
            .values(**values, last_seq=Run.last_seq + len(events))
            .returning(Run.last_seq)
        ).scalar()
        if last is None or not events:
            return last
        now = time.time()
        rows = []
        for seq, event in enumerate(events, start=last - len(events) + 1):
            payload = event.to_dict()
            row = {"run_id": run_id, "attempt": attempt, "seq": seq, "time": now}
            rows.append({**row, "kind": payload.pop("kind"), "payload": payload})
        self._execute(sa.insert(LogEntry), rows)
        return int(last)

    def events(
        self, run_id: str, after: int, limit: int | None, kinds: Sequence[str]
    ) -> list[LoggedEvent]:
        """Events after a place in the log, in order."""
        table = LogEntry
        query = sa.select(
            table.attempt, table.seq, table.time, table.kind, table.payload
        ).where(table.run_id == run_id, table.seq > after)
        if kinds:
            query = query.where(table.kind.in_(kinds))
        rows = self._execute(query.order_by(table.seq).limit(limit))
        return [
            LoggedEvent(
                run_id, attempt, seq, when, Event.from_dict({**payload, "kind": kind})
            )
            for attempt, seq, when, kind, payload in rows
        ]

    # Trajectories

    def replace_trajectories(
        self,
        run_id: str,
        attempt: int,
        iteration: int,
        rows: Sequence[Mapping[str, Any]],
    ) -> None:
        """Puts these in the place of all that the iteration of this attempt had."""
        table = Trajectory
        same = {"run_id": run_id, "attempt": attempt, "iteration": iteration}
        self._execute(sa.delete(table).filter_by(**same))
        if rows:
            self._execute(sa.insert(table), [{**same, **row} for row in rows])

    def trajectory_keys(self, run_id: str) -> dict[Key, bool]:
        """Who is in the sample, newest first, and whether it solved its task."""
        table = Trajectory
        query = sa.select(
            table.attempt,
            table.iteration,
            table.number,
            sa.func.coalesce(table.success, sa.false()),
        ).where(table.run_id == run_id)
        newest = table.iteration.desc(), table.attempt.desc(), table.number.desc()
        rows = self._execute(query.order_by(*newest))
        return {(row[0], row[1], row[2]): bool(row[3]) for row in rows}

    def delete_trajectories(self, run_id: str, keys: Sequence[Key]) -> None:
        """Drops these from the sample."""
        self._execute(
            sa.delete(Trajectory).where(Trajectory.run_id == run_id, _is_one_of(keys))
        )

    def trajectories(self, run_id: str, keys: Sequence[Key]) -> list[TrajectoryRow]:
        """These of the sample, in this order."""
        query = _select(Trajectory, TrajectoryRow).where(
            Trajectory.run_id == run_id, _is_one_of(keys)
        )
        rows = [TrajectoryRow(*row) for row in self._execute(query)]
        return sorted(
            rows, key=lambda r: keys.index((r.attempt, r.iteration, r.number))
        )

    # Commands

    def insert_command(self, **values: Any) -> None:
        """Appends to the queue."""
        self._execute(sa.insert(Command).values(**values))

    def has_commands(self, run_id: str) -> bool:
        """Whether the queue holds anything."""
        query = sa.select(Command.number).where(Command.run_id == run_id).limit(1)
        return self._execute(query).first() is not None

    def pop_commands(self, run_id: str) -> list[tuple[str, dict[str, Any]]]:
        """Empties the queue; each command is given to one caller only."""
        rows = self._execute(
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
        found = self._execute(query).scalar()
        return -1 if found is None else int(found)

    def insert_model(
        self, name: str, minor: int, run_id: str | None, owner: Mapping[str, Any]
    ) -> None:
        """Adds a reservation."""
        values = {"name": name, "minor": minor, "run_id": run_id, **owner}
        values |= {"state": "reserved", "metadata_": {}, "created_at": time.time()}
        self._execute(sa.insert(Model).values(**values))

    def model_claims(self) -> list[sa.RowMapping]:
        """Who reserved or registered what: name, minor, state, pid, host, process."""
        query = sa.select(
            Model.name, Model.minor, Model.state, Model.pid, Model.host, Model.process
        ).where(Model.state != "deleted")
        return list(self._execute(query).mappings())

    def drop_version(self, name: str, minor: int) -> None:
        """Takes a version back that was never published."""
        self._execute(sa.delete(Model).where(Model.name == name, Model.minor == minor))

    def register_model(self, name: str, minor: int, metadata: dict[str, Any]) -> bool:
        """Returns whether the reservation was still there."""
        statement = (
            sa.update(Model)
            .where(Model.name == name, Model.minor == minor, Model.state == "reserved")
            .values(state="registered", metadata_=metadata, created_at=time.time())
        )
        return self._execute(statement).rowcount > 0

    def mark_model_deleted(self, name: str, minor: int) -> None:
        """Keeps no more than the number, so that it is not given out again."""
        self._execute(
            sa.update(Model)
            .where(Model.name == name, Model.minor == minor)
            .values(state="deleted", metadata_={})
        )

    def models(self, models_dir: Path) -> list[ModelRow]:
        """Registered models, by name and version."""
        query = sa.select(
            Model.name, Model.minor, Model.run_id, Model.metadata_, Model.created_at
        )
        registered = query.where(Model.state == "registered")
        rows = self._execute(registered.order_by(Model.name, Model.minor))
        return [
            ModelRow(
                name,
                minor,
                run_id,
                models_dir / ModelVersion(name, minor).full_name,
                metadata,
                created_at,
            )
            for name, minor, run_id, metadata, created_at in rows
        ]


def _select(table: type[DeclarativeBase], row: type[Any]) -> sa.Select[Any]:
    """Selects what a row of `rows` holds, in its order."""
    return sa.select(*(getattr(table, f.name) for f in dataclasses.fields(row)))


def _is_one_of(keys: Sequence[Key]) -> sa.ColumnElement[bool]:
    table = Trajectory
    return sa.tuple_(table.attempt, table.iteration, table.number).in_(keys)

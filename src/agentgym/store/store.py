"""The store: what one home folder remembers, shared by all processes that use it."""

from __future__ import annotations

import contextlib
import dataclasses
import math
import os
import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar, Self, Unpack

from agentgym.core.events import Event, LoggedEvent, RunStarted
from agentgym.errors import RunNotFoundError, StoreError, UsageError
from agentgym.store import processes
from agentgym.store.artifacts import ArtifactStore, FolderArtifacts
from agentgym.store.encoding import bounded, write_targets
from agentgym.store.files import file_errors
from agentgym.store.models import ModelRegistry
from agentgym.store.rows import (
    RUN_STATUSES,
    UNDER_WAY,
    RunFields,
    RunRow,
    RunStatus,
    TrajectoryRow,
)

if TYPE_CHECKING:
    from agentgym.store.queries import Key, Queries

LOST_AFTER = 30.0
"""Seconds without a heartbeat after which a run's process counts as gone."""


class Store(ModelRegistry):
    """Runs, events, trajectories, commands and models under one home folder.

    Several processes and threads may use one home at the same time. Every method is
    one transaction: it happens as a whole or not at all.

    Args:
        home: The folder; `$AGENTGYM_HOME` or `./.agentgym` by default. Made if missing.
        url: Another database than `agentgym.db` in the home, such as
            `postgresql+psycopg://user:password@host/name`; `$AGENTGYM_DATABASE_URL`
            by default.
        artifacts: Where models and checkpoints are kept; the folder
            `$AGENTGYM_ARTIFACTS`, or the home, by default. Machines that share a
            database share this too.

    Attributes:
        runs_dir: Where runs keep their files. The store does not make it.
        models_dir: Where models are on this machine, a folder for each version.
        artifacts: Where models and checkpoints are kept.

    Raises:
        StoreError: The home or the database cannot be used.
    """

    busy_timeout: ClassVar[float] = 30.0
    """Seconds to wait for another process that writes."""
    max_failures: ClassVar[int] = 400
    """Failed trajectories that are kept for each run."""
    max_successes: ClassVar[int] = 100
    """Successful trajectories that are kept for each run."""

    def __init__(
        self,
        home: Path | None = None,
        url: str | None = None,
        artifacts: ArtifactStore | None = None,
    ) -> None:
        chosen = home or os.environ.get("AGENTGYM_HOME") or ".agentgym"
        self.home = Path(chosen).expanduser().absolute()
        self.runs_dir = self.home / "runs"
        self.models_dir = self.home / "models"
        self.artifacts = artifacts or FolderArtifacts(
            Path(os.environ.get("AGENTGYM_ARTIFACTS") or self.home).expanduser()
        )
        # SQLAlchemy takes a third of a second to import; --help must not wait for it.
        from sqlalchemy.engine import URL

        from agentgym.store.database import Database

        with file_errors(self.home):
            self.home.mkdir(parents=True, exist_ok=True)
        self._database = Database(
            url
            or os.environ.get("AGENTGYM_DATABASE_URL")
            or URL.create("sqlite", database=str(self.home / "agentgym.db")),
            lock=self.home / "agentgym.db.lock",
            timeout=self.busy_timeout,
        )

    def close(self) -> None:
        """Closes the database. The store cannot be used afterwards."""
        self._database.close()

    def __enter__(self) -> Self:
        """Returns the store; leaving the block closes it."""
        return self

    def __exit__(self, *problem: object) -> None:
        """Closes the store."""
        self.close()

    # Runs

    def create_run(
        self,
        run_id: str,
        *,
        scenario: str,
        policy: str,
        engine: str,
        seed: int | None,
        config: dict[str, Any],
        targets: Mapping[str, float] | None = None,
        status: RunStatus = "running",
    ) -> None:
        """Adds a run: "running" in this process, or "queued".

        Raises:
            StoreError: A run with this id exists.
        """
        from agentgym.store.database import ConflictError

        now = time.time()
        try:
            with self._database.write() as queries:
                queries.insert_run(
                    id=run_id,
                    scenario=scenario,
                    policy=policy,
                    engine=engine,
                    seed=seed,
                    config=config,
                    status=status,
                    episodes=0,
                    targets=write_targets(targets or {}),
                    attempt=0,
                    last_seq=0,
                    heartbeat=queries.now(),
                    created_at=now,
                    updated_at=now,
                    **processes.columns(None if status == "queued" else os.getpid()),
                )
        except ConflictError as error:
            raise StoreError(
                f"Run '{run_id}' already exists. Resume it, or choose another id."
            ) from error

    def update_run(self, run_id: str, **fields: Unpack[RunFields]) -> None:
        """Changes fields of a run.

        Args:
            run_id: The whole id.
            **fields: See `RunFields`. `pid` is a process on this host.

        Raises:
            RunNotFoundError: No such run.
            TypeError: No such field.
            ValueError: No such status.
        """
        values = _checked(fields)
        with self._database.write() as queries:
            if not queries.update_run(run_id, values):
                raise _no_run(run_id, queries)

    def delete_run(self, run_id: str) -> None:
        """Deletes a run with all that is known of it. Its files and model stay.

        Raises:
            RunNotFoundError: No such run.
        """
        with self._database.write() as queries:
            if not queries.delete_run(run_id):
                raise _no_run(run_id, queries)

    def get_run(self, run_id: str) -> RunRow:
        """Finds a run.

        Args:
            run_id: Its id, enough of its first characters to be unique, or "last"
                for the newest run.

        Raises:
            RunNotFoundError: No run fits, or several do.
        """
        with self._database.read() as queries:
            if run_id == "last":
                found = queries.runs_like("", limit=1)
            elif exact := queries.run(run_id):
                found = [exact]
            else:
                found = queries.runs_like(run_id, limit=10) if run_id else []
            if not found:
                raise _no_run(run_id, queries)
            now = queries.now()
        if len(found) > 1:
            raise RunNotFoundError(
                run_id,
                [run.id for run in found],
                "Several runs match. Type more of the id.",
            )
        return _as_seen(found[0], now)

    def list_runs(self, limit: int = 50) -> list[RunRow]:
        """Returns the newest runs, newest first."""
        with self._database.read() as queries:
            now = queries.now()
            return [_as_seen(run, now) for run in queries.runs_like("", limit)]

    # Events

    def begin_attempt(self, run_id: str) -> int:
        """Makes this process run a run, whose status becomes "running".

        Returns:
            The attempt's number, for `append_events`. Earlier attempts can no longer
            append.

        Raises:
            RunNotFoundError: No such run.
            UsageError: Another process is running it.
        """
        with self._database.write() as queries:
            queries.lock()
            run = queries.run(run_id)
            if run is None:
                raise _no_run(run_id, queries)
            now = queries.now()
            owner = processes.columns(os.getpid())
            own = owner == {name: getattr(run, name) for name in owner}
            if run.attempt and not own and _as_seen(run, now).status in UNDER_WAY:
                raise UsageError(
                    f"Run '{run_id}' is already running in process {run.pid} on"
                    f" {run.host}. Wait for it, or stop it first."
                )
            values = {
                **owner,
                "status": "running",
                "error": None,
                "result": None,
                "finished_at": None,
                "heartbeat": now,
                "updated_at": time.time(),
            }
            return queries.begin_attempt(run_id, values)

    def append_events(
        self,
        run_id: str,
        attempt: int,
        events: Sequence[Event],
        **fields: Unpack[RunFields],
    ) -> int:
        """Adds events to the log of a run, and changes fields of the run with them.

        Returns:
            The `seq` of the last one. Within a run they count up without gaps, also
            when several processes write.

        Raises:
            RunNotFoundError: No such run.
            StoreError: A later attempt has begun, or an event can't be stored.
        """
        values = _checked(fields)
        with self._database.write() as queries:
            last = queries.append_events(run_id, attempt, events, values)
            if last is None:
                if queries.run(run_id) is None:
                    raise _no_run(run_id, queries)
                raise StoreError(
                    f"Run '{run_id}' was resumed elsewhere, so this process can't"
                    " continue it."
                )
        return last

    def beat(self, run_id: str, attempt: int) -> bool:
        """Says that the process of a run is alive; False if a later attempt began."""
        with self._database.write() as queries:
            values = {"heartbeat": queries.now()}
            return queries.append_events(run_id, attempt, (), values) is not None

    def events(
        self,
        run_id: str,
        after: int = 0,
        limit: int | None = None,
        kinds: Sequence[str] = (),
    ) -> list[LoggedEvent]:
        """Returns the log of a run, in order.

        Args:
            run_id: The whole id.
            after: Leave out events up to this `seq`.
            limit: How many at most.
            kinds: Only these, such as "warned"; all by default.
        """
        with self._database.read() as queries:
            return queries.events(run_id, after, limit, kinds)

    # Trajectories

    def add_trajectories(
        self,
        run_id: str,
        attempt: int,
        iteration: int,
        trajectories: Sequence[dict[str, Any]],
    ) -> None:
        """Adds an iteration's episodes to the run's bounded sample.

        The newest `max_failures` failed and `max_successes` successful ones of a run
        are kept. What the iteration had before is replaced. A trajectory that is very
        large has its long texts cut.

        Args:
            run_id: The whole id.
            attempt: From `begin_attempt`.
            iteration: The iteration that sampled them.
            trajectories: Each with `success` (None counts as failed), `task_id` and
                `steps`; all other entries are kept as well.

        Raises:
            RunNotFoundError: No such run.
        """
        numbered = list(enumerate(trajectories))
        failed = [item for item in numbered if not item[1].get("success")]
        succeeded = [item for item in numbered if item[1].get("success")]
        kept = failed[-self.max_failures :] + succeeded[-self.max_successes :]
        now = time.time()
        rows = [
            {
                "number": number,
                "success": _bool_or_none(trajectory.get("success")),
                "task_id": str(trajectory.get("task_id", "")),
                "data": bounded(trajectory),
                "time": now,
            }
            for number, trajectory in kept
        ]
        with self._write_to(run_id) as queries:
            queries.replace_trajectories(run_id, attempt, iteration, rows)
            everything = queries.trajectory_keys(run_id)
            if len(everything) > min(self.max_failures, self.max_successes):
                valid = _valid(everything, queries, run_id)
                bad = [key for key in valid if not everything[key]]
                good = [key for key in valid if everything[key]]
                keep = {*bad[: self.max_failures], *good[: self.max_successes]}
                queries.delete_trajectories(run_id, list(everything.keys() - keep))

    def trajectories(
        self, run_id: str, *, failed: bool | None = None, limit: int = 20
    ) -> list[TrajectoryRow]:
        """Returns trajectories of the sample, newest first.

        Those of iterations that a later attempt made again are left out.

        Args:
            run_id: The whole id.
            failed: True for failed ones only, False for successful ones only.
            limit: How many at most.
        """
        with self._database.read() as queries:
            everything = queries.trajectory_keys(run_id)
            chosen = [
                key
                for key in _valid(everything, queries, run_id)
                if failed is None or failed is not everything[key]
            ]
            return queries.trajectories(run_id, chosen[:limit])

    # Commands

    def send_command(
        self, run_id: str, command: str, arguments: dict[str, Any] | None = None
    ) -> None:
        """Asks the process of a run for something, such as "pause" or "stop".

        Raises:
            RunNotFoundError: No such run.
        """
        with self._write_to(run_id) as queries:
            queries.insert_command(
                run_id=run_id, command=command, arguments=arguments or {}
            )

    def take_commands(self, run_id: str) -> list[tuple[str, dict[str, Any]]]:
        """Returns and removes the commands for a run, oldest first.

        Each command is returned only once, to one caller. The call is cheap while
        no command waits. A run that resumes should take and drop the commands meant
        for the process before it.
        """
        with self._database.read() as queries:
            if not queries.has_commands(run_id):
                return []
        with self._database.write() as queries:
            return queries.pop_commands(run_id)

    @contextlib.contextmanager
    def _write_to(self, run_id: str) -> Iterator[Queries]:
        """A transaction that writes rows of one run."""
        from agentgym.store.database import ConflictError

        try:
            with self._database.write() as queries:
                yield queries
        except ConflictError:
            with self._database.read() as queries:
                if queries.run(run_id) is None:
                    raise _no_run(run_id, queries) from None
            raise


def _checked(fields: RunFields) -> dict[str, Any]:
    """The columns that a change of these fields sets."""
    unknown = fields.keys() - RunFields.__annotations__.keys()
    if unknown:
        raise TypeError(f"A run has no field {', '.join(sorted(unknown))}.")
    values: dict[str, Any] = {**fields, "updated_at": time.time()}
    if "status" in fields:
        status = fields["status"]
        if status not in RUN_STATUSES:
            known = ", ".join(RUN_STATUSES)
            raise ValueError(f"Invalid run status '{status}'. Valid: {known}.")
        done = status not in UNDER_WAY
        values["finished_at"] = values["updated_at"] if done else None
    if "pid" in fields:
        values |= processes.columns(fields["pid"])
    return values


def _as_seen(run: RunRow, now: float) -> RunRow:
    """The run, with a status that knows whether its process is still there."""
    lost = run.heartbeat is not None and now - run.heartbeat > LOST_AFTER
    if run.status in UNDER_WAY and (
        lost or processes.is_gone(run.pid, run.host, run.process)
    ):
        return dataclasses.replace(run, status="interrupted")
    return run


def _valid(keys: Iterable[Key], queries: Queries, run_id: str) -> list[Key]:
    """The trajectories that no later attempt made again."""
    last: dict[int, float] = {}
    resumed = math.inf
    for start in reversed(queries.events(run_id, 0, None, (RunStarted.kind,))):
        last[start.attempt] = resumed
        if isinstance(start.event, RunStarted):
            at = start.event.resumed_from
            resumed = min(resumed, -1 if at is None else at)
    newest: dict[int, int] = {}
    for attempt, iteration, _ in keys:
        newest[iteration] = max(attempt, newest.get(iteration, 0))
    return [
        key
        for key in keys
        if key[0] == newest[key[1]] and key[1] <= last.get(key[0], math.inf)
    ]


def _no_run(run_id: str, queries: Queries) -> RunNotFoundError:
    newest = [run.id for run in queries.runs_like("", limit=10)]
    hint = "These are the newest ten." if len(newest) == 10 else ""
    return RunNotFoundError(run_id, newest, hint)


def _bool_or_none(value: object) -> bool | None:
    # NumPy's booleans aren't bool, and SQLite takes nothing else.
    return None if value is None else bool(value)

"""The store: what one home folder remembers, shared by all processes that use it."""

from __future__ import annotations

import contextlib
import dataclasses
import os
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING, Any, ClassVar, Self, Unpack

from agentgym.errors import RunNotFoundError, StoreError
from agentgym.store import processes
from agentgym.store.encoding import bounded
from agentgym.store.files import file_errors
from agentgym.store.models import ModelRegistry
from agentgym.store.rows import (
    RUN_STATUSES,
    EvaluationRow,
    PointRow,
    RunFields,
    RunRow,
    TrajectoryRow,
)

if TYPE_CHECKING:
    from agentgym.store.queries import Queries

_UNDER_WAY = ("running", "paused")


class Store(ModelRegistry):
    """Runs, metrics, trajectories, commands and models under one home folder.

    Several processes and threads may use one home at the same time. Every method is
    one transaction: it happens as a whole or not at all.

    Args:
        home: The folder; `$AGENTGYM_HOME` or `./.agentgym` by default. Made if missing.
        url: Another database than `agentgym.db` in the home, such as
            `postgresql+psycopg://user:password@host/name`; `$AGENTGYM_DATABASE_URL`
            by default. Models and run folders stay in the home.

    Attributes:
        runs_dir: Where runs keep their files. The store does not make it.
        models_dir: Where models live, one folder for each version.

    Raises:
        StoreError: The home or the database cannot be used.
    """

    busy_timeout: ClassVar[float] = 30.0
    """Seconds to wait for another process that writes."""
    max_failures: ClassVar[int] = 400
    """Failed trajectories that are kept for each run."""
    max_successes: ClassVar[int] = 100
    """Successful trajectories that are kept for each run."""

    def __init__(self, home: Path | None = None, url: str | None = None) -> None:
        chosen = home or os.environ.get("AGENTGYM_HOME") or ".agentgym"
        self.home = Path(chosen).expanduser().absolute()
        self.runs_dir = self.home / "runs"
        self.models_dir = self.home / "models"
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

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
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
    ) -> None:
        """Adds a run with status "running", carried out by this process.

        Raises:
            StoreError: There is a run of that id already.
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
                    status="running",
                    episodes=0,
                    heartbeat=now,
                    created_at=now,
                    updated_at=now,
                    **processes.columns(os.getpid()),
                )
        except ConflictError as error:
            raise StoreError(
                f"There is a run '{run_id}' already: resume it, or choose another id."
            ) from error

    def update_run(self, run_id: str, **fields: Unpack[RunFields]) -> None:
        """Changes fields of a run.

        Args:
            run_id: The whole id.
            **fields: See `RunFields`. `pid` is a process on this host: whoever resumes
                a run passes its own.

        Raises:
            RunNotFoundError: There is no such run.
            TypeError: There is no such field.
            ValueError: There is no such status.
        """
        unknown = fields.keys() - RunFields.__annotations__.keys()
        if unknown:
            raise TypeError(f"A run has no field {', '.join(sorted(unknown))}.")
        values: dict[str, Any] = {**fields, "updated_at": time.time()}
        if "status" in fields:
            status = fields["status"]
            if status not in RUN_STATUSES:
                known = ", ".join(RUN_STATUSES)
                raise ValueError(f"A run cannot be '{status}'; it can be {known}.")
            done = status not in _UNDER_WAY
            values["finished_at"] = values["updated_at"] if done else None
        if "pid" in fields:
            values |= processes.columns(fields["pid"])
        with self._database.write() as queries:
            if not queries.update_run(run_id, values):
                raise _no_run(run_id, queries)

    def get_run(self, run_id: str) -> RunRow:
        """Finds a run.

        Args:
            run_id: Its id, the beginning of it if no other id begins so, or "last"
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
        if len(found) > 1:
            hint = "Several ids begin so: give more of it."
            raise RunNotFoundError(run_id, [run.id for run in found], hint)
        return _as_seen_now(found[0])

    def list_runs(self, limit: int = 50) -> list[RunRow]:
        """Returns the newest runs, newest first."""
        with self._database.read() as queries:
            return [_as_seen_now(run) for run in queries.runs_like("", limit)]

    # Metrics

    def add_points(
        self, run_id: str, points: Sequence[tuple[int, int, dict[str, Any]]]
    ) -> None:
        """Stores metrics: (iteration, episodes, values) for each iteration.

        An iteration that is there already is replaced. Numbers that are not finite
        are stored as None.

        Raises:
            RunNotFoundError: There is no such run.
        """
        with self._write_to(run_id) as queries:
            queries.put_points(run_id, points)

    def points(self, run_id: str) -> list[PointRow]:
        """Returns the metrics of a run, by iteration."""
        with self._database.read() as queries:
            return queries.points(run_id)

    def add_evaluation(
        self,
        run_id: str,
        split: str,
        iteration: int,
        episodes: int,
        metrics: dict[str, Any],
    ) -> None:
        """Stores an evaluation, in place of one of the same split and iteration.

        Raises:
            RunNotFoundError: There is no such run.
        """
        with self._write_to(run_id) as queries:
            queries.put_evaluation(
                run_id=run_id,
                split=split,
                iteration=iteration,
                episodes=episodes,
                metrics=metrics,
                time=time.time(),
            )

    def evaluations(self, run_id: str, split: str | None = None) -> list[EvaluationRow]:
        """Returns the evaluations of a run, by iteration."""
        with self._database.read() as queries:
            return queries.evaluations(run_id, split)

    # Trajectories

    def add_trajectories(
        self, run_id: str, iteration: int, trajectories: Sequence[dict[str, Any]]
    ) -> None:
        """Adds an iteration's episodes to the run's bounded sample.

        The newest `max_failures` failed and `max_successes` successful ones of a run
        are kept. What the iteration had before is replaced. A trajectory that is very
        large has its long texts cut.

        Args:
            run_id: The whole id.
            iteration: The iteration that sampled them.
            trajectories: Each with `success` (None counts as failed), `task_id` and
                `steps`; whatever else it holds is kept as well.

        Raises:
            RunNotFoundError: There is no such run.
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
            queries.replace_trajectories(run_id, iteration, rows)
            for is_failed, keep in (
                (True, self.max_failures),
                (False, self.max_successes),
            ):
                queries.drop_oldest_trajectories(run_id, failed=is_failed, keep=keep)

    def trajectories(
        self, run_id: str, *, failed: bool | None = None, limit: int = 20
    ) -> list[TrajectoryRow]:
        """Returns trajectories of the sample, newest first.

        Args:
            run_id: The whole id.
            failed: True for failed ones only, False for successful ones only.
            limit: How many at most.
        """
        with self._database.read() as queries:
            return queries.trajectories(run_id, failed, limit)

    def forget_after(self, run_id: str, iteration: int) -> None:
        """Drops points, evaluations and trajectories of later iterations.

        For a run that resumes from a checkpoint of `iteration`.
        """
        with self._database.write() as queries:
            queries.forget_after(run_id, iteration)

    # Commands

    def send_command(
        self, run_id: str, command: str, arguments: dict[str, Any] | None = None
    ) -> None:
        """Asks the process of a run for something, such as "pause" or "stop".

        Raises:
            RunNotFoundError: There is no such run.
        """
        with self._write_to(run_id) as queries:
            queries.insert_command(
                run_id=run_id, command=command, arguments=arguments or {}
            )

    def take_commands(self, run_id: str) -> list[tuple[str, dict[str, Any]]]:
        """Returns and removes the commands for a run, oldest first.

        Each command is given out once, whoever asks. Asking is cheap while there is
        none. A run that resumes should take and drop what was meant for the process
        before it.
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


def _as_seen_now(run: RunRow) -> RunRow:
    if run.status in _UNDER_WAY and processes.is_gone(run.pid, run.host, run.process):
        return dataclasses.replace(run, status="interrupted")
    return run


def _no_run(run_id: str, queries: Queries) -> RunNotFoundError:
    newest = [run.id for run in queries.runs_like("", limit=10)]
    hint = "These are the newest ten." if len(newest) == 10 else ""
    return RunNotFoundError(run_id, newest, hint)


def _bool_or_none(value: object) -> bool | None:
    # NumPy's booleans are no bool, and SQLite takes nothing else.
    return None if value is None else bool(value)

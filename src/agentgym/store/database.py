"""Opens the database, brings its schema up to date and explains its failures.

Importing this module imports SQLAlchemy; alembic only when a schema is not the newest.
"""

from __future__ import annotations

import contextlib
import json
import os
import sqlite3
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import sqlalchemy as sa
from sqlalchemy import exc
from sqlalchemy.engine import URL, Connection, Engine, make_url

from agentgym.errors import AgentGymError, MissingExtraError, StoreError
from agentgym.store.encoding import encode
from agentgym.store.files import ELSEWHERE, LOCKED, file_errors
from agentgym.store.queries import Queries
from agentgym.store.schema import REVISIONS, Base
from agentgym.utils.files import file_lock

MIGRATIONS = Path(__file__).with_name("migrations")

_SQLITE_ADVICE = {
    "SQLITE_BUSY": LOCKED,
    "SQLITE_LOCKED": LOCKED,
    "SQLITE_FULL": "cannot grow, the disk is full: free some space and try again",
    "SQLITE_READONLY": f"is read-only: make it writable, or {ELSEWHERE}",
    "SQLITE_PERM": f"can't be opened: change its permissions, or {ELSEWHERE}",
    "SQLITE_CANTOPEN": f"cannot be opened: make its folder writable, or {ELSEWHERE}",
    "SQLITE_NOTADB": f"is not an SQLite database: move it away, or {ELSEWHERE}",
    "SQLITE_CORRUPT": f"is damaged: restore a copy or move it away, or {ELSEWHERE}",
    "SQLITE_IOERR": f"cannot be read or written: check the disk, or {ELSEWHERE}",
}


class ConflictError(StoreError):
    """A row exists already, or one that it refers to does not."""


class Database:
    """One database, its schema up to date.

    Args:
        url: What to open.
        lock: File that keeps two processes from migrating at once.
        timeout: Seconds to wait for other writers.
    """

    def __init__(self, url: str | URL, *, lock: Path, timeout: float) -> None:
        self._lock = lock
        self._timeout = timeout
        self._pid = os.getpid()
        self._inherited: list[Any] = []
        self._closed = False
        self._engine = self._create_engine(url)
        self._set_modes()
        try:
            with self._begin() as connection:
                revision = self._revision(connection)
            if revision != REVISIONS[-1]:
                self._migrate()
        except BaseException:
            self._engine.dispose()
            raise

    def close(self) -> None:
        """Closes all connections."""
        self._closed = True
        self._engine.dispose()

    @contextlib.contextmanager
    def read(self) -> Iterator[Queries]:
        """A transaction that only looks; it sees one state throughout."""
        with self._begin() as connection:
            yield Queries(connection)

    @contextlib.contextmanager
    def write(self) -> Iterator[Queries]:
        """A transaction that changes all or nothing."""
        with self._begin(mode="write") as connection:
            yield Queries(connection)

    @contextlib.contextmanager
    def _begin(self, mode: str = "read") -> Iterator[Connection]:
        if self._closed:
            raise StoreError("This store is closed: open a new one.")
        if os.getpid() != self._pid:
            # SQLite connections must not cross a fork, nor be closed in the child.
            self._inherited.append(self._engine.pool)
            self._engine.dispose(close=False)
            self._pid = os.getpid()
        try:
            with self._modes[mode].begin() as connection:
                yield connection
        except exc.SQLAlchemyError as error:
            raise self._explain(error) from error
        except (OverflowError, UnicodeError) as error:
            raise StoreError(f"Cannot store this value: {error}.") from error

    def _set_modes(self) -> None:
        """What a transaction may do; each is a view of the engine with its pool."""
        options: dict[str, dict[str, Any]] = {"read": {}, "write": {}, "migrate": {}}
        if self._engine.dialect.name == "postgresql":
            # As on SQLite, one that reads sees one state throughout.
            options["read"] = {
                "isolation_level": "REPEATABLE READ",
                "postgresql_readonly": True,
            }
        self._modes = {
            mode: self._engine.execution_options(mode=mode, **more)
            for mode, more in options.items()
        }

    def _create_engine(self, url: str | URL) -> Engine:
        try:
            url = make_url(url)
            if url.drivername in ("postgres", "postgresql"):
                url = url.set(drivername="postgresql+psycopg")
            self._label = url.render_as_string()
            if url.get_dialect().is_async:
                raise StoreError(
                    f"Cannot use {self._label}: its driver is asynchronous; write"
                    " postgresql+psycopg://user:password@host/name or sqlite:///file."
                )
            if url.get_backend_name() == "sqlite":
                self._label = url.database or "the database in memory"
                arguments: dict[str, Any] = {"timeout": self._timeout}
            elif url.get_backend_name() == "postgresql":
                arguments = {}
            else:
                raise StoreError(
                    f"Cannot use {self._label}: the store needs sqlite or postgresql."
                )
            engine = sa.create_engine(
                url,
                connect_args=arguments,
                json_serializer=encode,
                json_deserializer=json.loads,
                pool_pre_ping=url.get_backend_name() != "sqlite",
            )
        except ImportError as error:
            raise MissingExtraError(
                f"The database {self._label}", "postgres"
            ) from error
        except (exc.SQLAlchemyError, ValueError) as error:
            raise StoreError(
                "Invalid database URL. Write it like"
                " postgresql+psycopg://user:password@host/name."
            ) from error
        if engine.dialect.name == "sqlite":
            sa.event.listen(engine, "connect", _configure_sqlite)
            sa.event.listen(engine, "begin", _begin_sqlite)
        return engine

    def _revision(self, connection: Connection) -> str | None:
        """The schema's revision; None for a database that has yet to be filled."""
        inspector = sa.inspect(connection)
        found = None
        if inspector.has_table("alembic_version"):
            query = sa.text("SELECT version_num FROM alembic_version")
            found = connection.execute(query).scalar()
        if found is None:
            if set(inspector.get_table_names()) & set(Base.metadata.tables):
                raise StoreError(
                    f"{self._label} belongs to another program: move it away,"
                    f" or {ELSEWHERE}."
                )
            return None
        if found not in REVISIONS:
            raise StoreError(
                f"{self._label} was written by a newer AgentGym (schema {found}, this"
                f" one knows up to {REVISIONS[-1]}): upgrade agentgym, or {ELSEWHERE}."
            )
        return str(found)

    def _migrate(self) -> None:
        try:
            with file_errors(self._lock), file_lock(self._lock, self._timeout):
                if self._engine.dialect.name == "sqlite":
                    self._switch_to_wal()
                with self._begin(mode="migrate") as connection:
                    Queries(connection).lock()
                    # Another process may have done it while we waited.
                    if self._revision(connection) != REVISIONS[-1]:
                        _upgrade(connection)
        finally:
            # Migrations switch foreign keys off on their connection.
            self._engine.dispose()

    def _switch_to_wal(self) -> None:
        """Writers then no longer stop readers. The file remembers the mode."""
        deadline = time.monotonic() + self._timeout
        while True:
            try:
                connection = self._engine.raw_connection()
                try:
                    connection.cursor().execute("PRAGMA journal_mode=WAL")
                finally:
                    connection.close()
                return
            except (sqlite3.Error, exc.SQLAlchemyError) as error:
                # SQLite doesn't wait for this lock.
                cause = getattr(error, "orig", error)
                busy = _sqlite_code(cause).startswith("SQLITE_BUSY")
                if not busy or time.monotonic() > deadline:
                    raise self._explain(error) from error
                time.sleep(0.02)

    def _explain(self, error: Exception) -> AgentGymError:
        cause = getattr(error, "orig", None) or error
        if isinstance(cause, AgentGymError):
            return cause
        code = _sqlite_code(cause)
        for prefix, advice in _SQLITE_ADVICE.items():
            if code.startswith(prefix):
                return StoreError(f"{self._label} {advice}.")
        reason = str(cause).strip().partition("\n")[0].rstrip(".")
        text = f"The database {self._label} returned an error: {reason}."
        if isinstance(error, exc.IntegrityError):
            return ConflictError(text)
        if isinstance(error, exc.OperationalError) and not code:
            text += " Check that it runs and that the URL is correct."
        return StoreError(text)


def _sqlite_code(error: object) -> str:
    return str(getattr(error, "sqlite_errorname", ""))


def _configure_sqlite(connection: sqlite3.Connection, _record: object) -> None:
    # None keeps the driver from opening its own transactions; see _begin_sqlite.
    connection.isolation_level = None
    connection.execute("PRAGMA foreign_keys=ON")
    connection.execute("PRAGMA synchronous=NORMAL")


def _begin_sqlite(connection: Connection) -> None:
    mode = connection.get_execution_options().get("mode")
    if mode == "migrate":
        # Rebuilding a table drops it, which would delete all rows that refer to it.
        connection.exec_driver_sql("PRAGMA foreign_keys=OFF")
    # A transaction that reads first and writes later cannot wait for another writer.
    connection.exec_driver_sql("BEGIN" if mode == "read" else "BEGIN IMMEDIATE")


def _upgrade(connection: Connection) -> None:
    from alembic import command
    from alembic.config import Config
    from alembic.util import CommandError

    config = Config()
    config.set_main_option("script_location", str(MIGRATIONS).replace("%", "%%"))
    config.set_main_option("path_separator", "newline")
    config.attributes["connection"] = connection
    try:
        command.upgrade(config, "head")
    except CommandError as error:
        raise StoreError(
            f"The migrations cannot be run ({error}): install agentgym again."
        ) from error

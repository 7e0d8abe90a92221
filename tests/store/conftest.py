"""A store on SQLite and one on PostgreSQL; most tests run with both."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator
from importlib.util import find_spec
from pathlib import Path

import pytest

from agentgym.store import Store

sys.path.insert(0, str(Path(__file__).parent))


@pytest.fixture(scope="session")
def postgres() -> Iterator[object]:
    """One server for all tests of this process."""
    binaries = None
    if find_spec("psycopg") is not None:
        from postgres import Postgres, find_binaries

        binaries = find_binaries()
    if binaries is None:
        problem = "PostgreSQL or its driver is missing: pip install pgserver psycopg"
        if os.environ.get("AGENTGYM_REQUIRE_POSTGRES") == "1":
            pytest.fail(problem)
        pytest.skip(problem)
    with Postgres(binaries) as server:
        yield server


@pytest.fixture(autouse=True)
def _clean_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("AGENTGYM_HOME", raising=False)
    monkeypatch.delenv("AGENTGYM_DATABASE_URL", raising=False)


@pytest.fixture
def lite(tmp_path: Path) -> Path:
    """A home with a database of its own, for what only SQLite does."""
    return tmp_path / "home"


@pytest.fixture
def postgres_url(request: pytest.FixtureRequest) -> Iterator[str]:
    """A fresh database of PostgreSQL."""
    with request.getfixturevalue("postgres").database() as url:
        yield url


@pytest.fixture(params=["sqlite", "postgresql"])
def home(
    request: pytest.FixtureRequest,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> Path:
    """A home; `Store(home)` opens a fresh database of either kind."""
    if request.param == "postgresql":
        url = request.getfixturevalue("postgres_url")
        monkeypatch.setenv("AGENTGYM_DATABASE_URL", url)
    return tmp_path / "home"


@pytest.fixture
def store(home: Path) -> Iterator[Store]:
    """A store of either kind."""
    with Store(home) as opened:
        yield opened

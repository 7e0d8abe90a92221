"""What all tests share."""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

# Before numpy is imported: more BLAS threads are slower on small matrices, and the
# number of threads may change the last bits of a result.
os.environ["OPENBLAS_NUM_THREADS"] = "1"

import pytest
from hypothesis import HealthCheck, settings

# Machines are noisy: how long an example takes says nothing about it.
settings.register_profile(
    "untimed", deadline=None, suppress_health_check=[HealthCheck.too_slow]
)
settings.load_profile("untimed")

# Started in the background of a script, this process ignores Ctrl-C, and so would all
# that the tests start.
if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    signal.signal(signal.SIGINT, signal.default_int_handler)


@pytest.fixture(scope="session", autouse=True)
def _home_of_its_own(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """No test writes into the checkout, even if it forgets to name a home."""
    home = tmp_path_factory.mktemp("home")
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("AGENTGYM_HOME", str(home))
        yield home


@pytest.fixture(scope="session")
def eventually() -> Callable[[Callable[[], object]], None]:
    """Waits until a condition holds: on a busy machine, that may take a while."""

    def wait(condition: Callable[[], object]) -> None:
        deadline = time.monotonic() + 60
        while not condition():
            assert time.monotonic() < deadline, "waited a minute in vain"
            time.sleep(0.01)

    return wait


@pytest.fixture
def batched(monkeypatch: pytest.MonkeyPatch) -> list[Any]:
    """What has come to a batcher; it waits there until it is decided."""
    import asyncio

    from agentgym.serving.batching import Batcher

    come: list[Any] = []
    ask = Batcher.ask

    async def counted(batcher: Any, item: Any) -> Any:
        answer = asyncio.ensure_future(ask(batcher, item))
        await asyncio.sleep(0)
        come.append(item)
        return await answer

    monkeypatch.setattr(Batcher, "ask", counted)
    return come


def pytest_make_parametrize_id(val: object, argname: str) -> str | None:
    """Bytes make names that nobody can read, and that may differ between workers."""
    return argname if isinstance(val, bytes) else None

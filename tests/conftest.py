"""What all tests share."""

from __future__ import annotations

import os
import signal
from collections.abc import Iterator
from pathlib import Path

# Before numpy is imported: more BLAS threads are slower on small matrices, and the
# number of threads may change the last bits of a result.
os.environ["OPENBLAS_NUM_THREADS"] = "1"

import pytest

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


def pytest_make_parametrize_id(val: object, argname: str) -> str | None:
    """Bytes make names that nobody can read, and that may differ between workers."""
    return argname if isinstance(val, bytes) else None

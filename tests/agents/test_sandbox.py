"""Code that agents wrote: what it may not do."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import pytest

from agentgym.agents.commands import Outcome, run_sandboxed


def _run(folder: Path, code: str, **limits: float) -> Outcome:
    return run_sandboxed([sys.executable, "-c", code], folder, **limits)  # type: ignore[arg-type]


def test_what_it_says(tmp_path: Path) -> None:
    outcome = _run(tmp_path, "import os; print(os.getcwd()); raise SystemExit(3)")
    assert outcome == Outcome(3, f"{tmp_path}\n")
    assert list(tmp_path.iterdir()) == []


def test_no_secrets(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OPENAI_API_KEY", "mine")
    outcome = _run(tmp_path, "import os; print(os.environ.get('OPENAI_API_KEY'))")
    assert outcome.output == "None\n"


@pytest.mark.parametrize(
    "code",
    [
        "x = bytearray(1 << 30)",
        "open('f', 'wb').write(bytes(2 << 20))",
        "print('x' * (2 << 20), flush=True)",
        "import socket; socket.create_connection(('127.0.0.1', {port}), 5)",
    ],
    ids=["memory", "file", "output", "network"],
)
def test_limits(tmp_path: Path, code: str) -> None:
    import socket

    with socket.create_server(("127.0.0.1", 0)) as server:
        port = server.getsockname()[1]
        outcome = _run(
            tmp_path, code.format(port=port), memory=512 << 20, output=1 << 20
        )
    assert outcome.code not in (0, None)


def test_time(tmp_path: Path, eventually: Any) -> None:
    child = (
        "import os, subprocess, sys, time;"
        "p = subprocess.Popen([sys.executable, '-c', 'import time; time.sleep(60)'],"
        " start_new_session=True);"
        "open('child', 'w').write(str(p.pid)); time.sleep(60)"
    )
    outcome = _run(tmp_path, child, seconds=5.0)
    assert outcome.code is None
    pid = (tmp_path / "child").read_text()
    stat = Path(f"/proc/{pid}/stat")
    eventually(lambda: not stat.exists() or ") Z" in stat.read_text())

"""Aider itself, on a small repository, with a policy that writes what it should."""

from __future__ import annotations

import os
import subprocess
import tempfile
import threading
import time
from pathlib import Path
from typing import Any

import pytest

from agentgym.agents.aider import AiderAgentManager, Repository, repository_task
from agentgym.agents.gateway import Gateway
from agentgym.core.task import Task
from agentgym.core.tools import FailureKind
from agentgym.errors import UsageError

WRONG = "def add(a, b):\n    return a - b\n"
TEST = (
    "from calc import add\n\n\n"
    "def test_add():\n    assert add(2, 3) == 5\n    assert add(0, 0) == 0\n"
)


@pytest.fixture
def repository(tmp_path: Path) -> Repository:
    """A function that is wrong, and a test that says so."""
    folder = tmp_path / "origin"
    folder.mkdir()
    (folder / "calc.py").write_text(WRONG)
    (folder / "test_calc.py").write_text(TEST)
    commands = [
        ["git", "init", "-q"],
        ["git", "add", "."],
        ["git", "-c", "user.name=x", "-c", "user.email=x@y", "commit", "-qm", "x"],
    ]
    for command in commands:
        subprocess.run(command, cwd=folder, check=True)
    commit = subprocess.run(
        ["git", "rev-parse", "HEAD"],
        cwd=folder,
        check=True,
        capture_output=True,
        text=True,
    ).stdout.strip()
    return Repository(str(folder), commit, ("calc.py",))


def _edit(line: str) -> str:
    return (
        "calc.py\n```python\n<<<<<<< SEARCH\n    return a - b\n=======\n"
        f"    return {line}\n>>>>>>> REPLACE\n```\n"
    )


def _says(request: Any) -> str:
    text = str(request.messages[-1]["content"])
    if "rightly" in text:
        return _edit("a + b")
    return _edit("a * b") if "wrongly" in text else "There is nothing to do."


@pytest.fixture
def aider() -> Path | None:
    """`AGENTGYM_AIDER_PYTHON` names an environment that has Aider already."""
    given = os.environ.get("AGENTGYM_AIDER_PYTHON")
    return Path(given) if given else None


@pytest.mark.slow
def test_three_tasks(
    gateway: Gateway,
    policy: Any,
    repository: Repository,
    aider: Path | None,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    (tmp_path / "temp").mkdir()
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path / "temp"))
    policy.says = _says
    policy.context_length = 100_000
    manager = AiderAgentManager(gateway, python=aider, concurrency=2)
    tasks = [
        repository_task(way, f"Mend the function add, {way}.", repository)
        for way in ("rightly", "wrongly", "not at all")
    ]
    played = manager.deploy(tasks)
    by_task = {t.task.id: t for t in played}
    assert {name: t.success for name, t in by_task.items()} == {
        "rightly": True,
        "wrongly": False,
        "not at all": False,
    }
    assert "+    return a + b" in manager.diffs["rightly"]
    assert "+    return a * b" in manager.diffs["wrongly"]
    assert manager.diffs["not at all"] == ""
    for trajectory in played:
        assert trajectory.failure is None and trajectory.agent_kind == "aider"
        for step in trajectory.steps:
            assert step.sampled is not None and step.sampled.completion
            assert step.reward == trajectory.outcome
    assert Path(repository.path, "calc.py").read_text() == WRONG
    assert list((tmp_path / "temp").iterdir()) == [] and gateway.sessions == {}

    # Killed while it waits for its answer.
    policy.go.clear()
    threading.Timer(25, policy.go.set).start()
    manager.time_limit = 12.0
    (killed,) = manager.deploy(tasks[:1])
    policy.go.set()
    assert killed.failure is FailureKind.AGENT_TIMEOUT
    assert list((tmp_path / "temp").iterdir()) == [] and gateway.sessions == {}
    assert _processes(f"127.0.0.1:{gateway.port}/s/") == []


def _processes(mark: str) -> list[str]:
    for _ in range(50):
        found = []
        for entry in Path("/proc").glob("[0-9]*"):
            try:
                if mark.encode() in (entry / "environ").read_bytes():
                    found.append(entry.name)
            except OSError:
                continue
        if not found:
            break
        time.sleep(0.05)
    return found


def test_tasks_that_are_none(gateway: Gateway, tmp_path: Path) -> None:
    manager = AiderAgentManager(gateway, python=tmp_path / "python")
    with pytest.raises(UsageError, match="must have a Repository"):
        manager.deploy([Task("t", ())])
    lost = Repository(str(tmp_path / "nowhere"), "HEAD", ())
    (broken,) = manager.deploy([repository_task("t", "x", lost)])
    assert broken.failure is FailureKind.AGENT_CRASH
    assert "git clone failed" in broken.failure_text

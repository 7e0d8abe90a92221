"""A command line in this process, in a home and a folder of its own."""

from __future__ import annotations

import contextlib
import io
import json
import os
import subprocess
import sys
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from agentgym.cli.app import run

TINY_FOLDER = Path(__file__).parents[1] / "integration"
TINY = "tiny_scenario:Tiny"


@dataclass(frozen=True)
class Outcome:
    """How a command ended."""

    code: int
    out: str
    err: str

    @property
    def json(self) -> dict[str, Any]:
        """The one object on standard output; fails if there is anything else."""
        value = json.loads(self.out)
        assert isinstance(value, dict)
        return value

    @property
    def error(self) -> str:
        """The one line that explains; fails if there is more, or a traceback."""
        assert self.code in (1, 2), (self.code, self.out, self.err)
        lines = [line for line in self.err.split("\n") if line.startswith("error: ")]
        assert len(lines) == 1, self.err
        assert self.err.rstrip("\n").endswith(lines[0])
        assert "Traceback" not in self.err + self.out
        return lines[0].removeprefix("error: ")


Cli = Callable[..., Outcome]


@pytest.fixture
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """An empty home, and an empty current folder beside it."""
    here = tmp_path / "here"
    here.mkdir()
    monkeypatch.chdir(here)
    monkeypatch.setenv("AGENTGYM_HOME", str(tmp_path / "home"))
    monkeypatch.syspath_prepend(str(TINY_FOLDER))
    return tmp_path / "home"


@pytest.fixture
def cli(home: Path, capfd: pytest.CaptureFixture[str]) -> Cli:
    """Runs `agentgym ARGUMENTS` in this process."""

    def invoke(*arguments: str) -> Outcome:
        capfd.readouterr()
        code = run(arguments)
        captured = capfd.readouterr()
        return Outcome(code, captured.out, captured.err)

    return invoke


def start(*arguments: str, **environment: str) -> subprocess.Popen[str]:
    """Starts `agentgym ARGUMENTS` in a process of its own."""
    path = [str(TINY_FOLDER), *sys.path]
    return subprocess.Popen(
        [sys.executable, "-m", "agentgym", *arguments],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env={**os.environ, "PYTHONPATH": os.pathsep.join(path), **environment},
    )


@pytest.fixture
def spawn(home: Path) -> Callable[..., subprocess.Popen[str]]:
    """Starts commands in processes of their own, in the test's home."""
    return start


@pytest.fixture(scope="session")
def trained_home(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A home with two finished runs and their models; tests must not change it."""
    folder = tmp_path_factory.mktemp("trained")
    with pytest.MonkeyPatch.context() as patch:
        patch.syspath_prepend(str(TINY_FOLDER))
        # `--home` sets it; this puts back what was there.
        patch.setenv("AGENTGYM_HOME", str(folder))
        for seed in ("0", "1"):
            arguments = (
                f"train {TINY} --seed {seed} --episodes 48 --eval-every 16"
                " --group-size 4 --batch-size 4 --heldout-tasks 16"
            )
            out, err = io.StringIO(), io.StringIO()
            with contextlib.redirect_stdout(out), contextlib.redirect_stderr(err):
                code = run([*arguments.split(), "--quiet", "--home", str(folder)])
            assert (code, out.getvalue()) == (0, f"tiny_v1.{seed}\n"), err.getvalue()
    return folder

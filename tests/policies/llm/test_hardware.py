"""Which precision a machine computes in."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

import pytest
import torch

from agentgym.policies.llm import hardware

CPU = torch.device("cpu")


@pytest.fixture(autouse=True)
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    monkeypatch.setenv("AGENTGYM_CACHE", str(tmp_path))
    known = {"avx512_bf16": True}
    monkeypatch.setattr(torch.cpu, "get_capabilities", lambda: known)
    hardware.half_speed.cache_clear()
    yield tmp_path
    hardware.half_speed.cache_clear()


def probe(monkeypatch: pytest.MonkeyPatch, program: str) -> None:
    monkeypatch.setattr(hardware, "_PROBE", program)


def test_a_machine_that_kills_who_tries_computes_in_full_precision(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    probe(monkeypatch, "import os, signal; os.kill(os.getpid(), signal.SIGILL)")
    assert hardware.half_speed() == 0
    assert not hardware.half_pays(CPU)


@pytest.mark.parametrize(("speed", "pays"), [("0.6", False), ("1.9", True)])
def test_what_is_slower_does_not_pay(
    monkeypatch: pytest.MonkeyPatch, speed: str, pays: bool
) -> None:
    probe(monkeypatch, f"print({speed})")
    assert hardware.half_pays(CPU) is pays


def test_it_is_tried_once(monkeypatch: pytest.MonkeyPatch, cache: Path) -> None:
    probe(monkeypatch, "print(1.5)")
    assert hardware.half_speed() == 1.5
    hardware.half_speed.cache_clear()
    probe(monkeypatch, "print(0.5)")
    assert hardware.half_speed() == 1.5
    assert list(json.loads((cache / "hardware.json").read_text()).values()) == [1.5]


@pytest.mark.parametrize("damaged", ["", "[1]", '{"a": ', "null"])
def test_a_damaged_file_is_written_anew(
    monkeypatch: pytest.MonkeyPatch, cache: Path, damaged: str
) -> None:
    (cache / "hardware.json").write_text(damaged)
    probe(monkeypatch, "print(1.5)")
    assert hardware.half_speed() == 1.5
    assert list(json.loads((cache / "hardware.json").read_text()).values()) == [1.5]


def test_who_is_too_slow_is_asked_again(
    monkeypatch: pytest.MonkeyPatch, cache: Path
) -> None:
    monkeypatch.setattr(hardware, "_PROBE_SECONDS", 0.2)
    probe(monkeypatch, "import time; time.sleep(30)")
    assert hardware.half_speed() == 0
    assert not (cache / "hardware.json").exists()


def test_without_instructions_nobody_tries(monkeypatch: pytest.MonkeyPatch) -> None:
    probe(monkeypatch, "print(9.0)")
    monkeypatch.setattr(torch.cpu, "get_capabilities", dict)
    assert hardware.half_speed() == 0


def test_the_probe_itself_prints_a_number(monkeypatch: pytest.MonkeyPatch) -> None:
    """With instructions that this machine is known to carry out."""
    monkeypatch.setenv("ONEDNN_MAX_CPU_ISA", "AVX512_CORE")
    assert hardware.half_speed() > 0

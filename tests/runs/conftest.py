"""The tiny scenario and policy for runs, and modules that count what is loaded."""

from __future__ import annotations

from pathlib import Path

import pytest

from agentgym.policies import registry

ROOT = Path(__file__).parents[2]


@pytest.fixture(autouse=True)
def _tiny(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.syspath_prepend(str(ROOT / "tests" / "integration"))
    monkeypatch.syspath_prepend(str(ROOT / "examples"))
    monkeypatch.setitem(registry._CLASSES, "tiny", "tiny_policy:TinyPolicy")

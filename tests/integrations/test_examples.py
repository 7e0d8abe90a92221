"""The examples run as they are, without a key."""

from __future__ import annotations

import importlib.util
import os
import subprocess
import sys
from pathlib import Path

import pytest

EXAMPLES = Path(__file__).parents[2] / "examples"


@pytest.mark.parametrize(
    ("name", "needs"),
    [
        ("langchain_support_bot", "langchain"),
        ("train_my_own_agent", "langchain_openai"),
        ("defer_to_llm", "langchain"),
        ("autogen_code_review_team", "autogen_agentchat"),
        ("crewai_data_analysis_crew", "crewai"),
    ],
)
def test_an_example_runs(name: str, needs: str, tmp_path: Path) -> None:
    if importlib.util.find_spec(needs) is None:
        pytest.skip(f"{needs} is not installed")
    environment = {k: v for k, v in os.environ.items() if not k.endswith("_API_KEY")}
    done = subprocess.run(
        [sys.executable, str(EXAMPLES / f"{name}.py"), "--episodes", "200"],
        cwd=tmp_path,
        env={**environment, "AGENTGYM_HOME": str(tmp_path / "home")},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr[-3000:]

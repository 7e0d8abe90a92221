"""Tasks for agents with two tools, get_report and call_taxi, and trainings on them."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import agentgym
from agentgym.core.result import TrainingResult
from agentgym.errors import FailureBudgetExceeded
from agentgym.utils.objects import name_of


def write_tasks(folder: Path) -> Path:
    """Reports on topics and calls for taxis, in turn."""
    lines = []
    for i in range(18):
        topic = ("tides", "traffic", "pollen")[i % 3]
        said = f"How are the {topic} today ({i})?"
        call: dict[str, Any] = {"name": "get_report", "arguments": {"topic": topic}}
        if i % 2:
            said = f"Please send {i} taxis."
            call = {"name": "call_taxi", "arguments": {"number": i}}
        message = {"role": "user", "content": said}
        lines.append({"id": f"t{i}", "messages": [message], "expected": [call]})
    path = folder / "tasks.jsonl"
    path.write_text("\n".join(map(json.dumps, lines)), encoding="utf-8")
    return path


def train(agent: Any, folder: Path, **settings: Any) -> TrainingResult:
    """A short training, with files in the folder."""
    return agentgym.train(
        agent,
        tasks=write_tasks(folder),
        home=folder / "home",
        **{"batch_size": 4, "eval_tasks": 2, "heldout_tasks": 2, **settings},
    )


def check_is_given_up(endless: Callable[[], Any], folder: Path, seconds: int) -> None:
    """An agent that never stops ends its own training, with a clear message."""
    # Which of them comes first depends on the machine.
    given_up = f"did not end within {seconds} s|after too many requests"
    with pytest.raises(FailureBudgetExceeded, match=given_up):
        train(endless, folder, agent_timeout=seconds, episodes=400)


def check_breaks_its_episodes(result: TrainingResult, endless: Any) -> None:
    """What was trained cannot be measured with an agent that never stops."""
    metrics = result.agent.evaluate(agent=name_of(endless), tasks=2)
    failures = metrics.failures
    assert failures.get("agent_timeout", 0) + failures.get("agent_flood", 0) == 2
    assert metrics.task_success == 0

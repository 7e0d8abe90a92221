"""Training on a few tasks in which the user says every value by its name."""

from __future__ import annotations

from pathlib import Path

import pytest
from task_lines import Write, task, tool

from agentgym import Trainer

CITIES = "Oslo Rome Lima Cairo Quito Hanoi Accra Tunis".split()
# Four wordings to train on, two to look at on the way, and two that are held out.
SPLITS = ["train"] * 4 + ["validation"] * 2 + ["heldout"] * 2
SAID = {
    "get_weather": """Will I need an umbrella in {}?
Is it raining in {} today?
How warm is it in {}?
Is the sun shining in {}?
Do I need a coat in {}?
What temperature does {} have?
Will it snow in {} tomorrow?
Are there storms in {}?""",
    "get_time": """How late is it in {}?
Is it night already in {}?
Tell me the hour in {}.
What does the clock say in {}?
Is it past midnight in {}?
Which hour is it now in {}?
Can I still phone someone in {}, or is it too late?
Is it morning or evening in {}?""",
}


@pytest.mark.parametrize("seed", [0, 1])
def test_values_that_are_said_are_not_unlearned(
    write: Write, tmp_path: Path, seed: int
) -> None:
    city = {"type": "string", "enum": CITIES}
    tools = [tool(name, city=city) for name in SAID]
    lines = [
        task(
            id=f"{name}-{i}",
            messages=[{"role": "user", "content": text.format(CITIES[i])}],
            tools=tools,
            expected=[{"name": name, "arguments": {"city": CITIES[i]}}],
            split=SPLITS[i],
        )
        for name, texts in SAID.items()
        for i, text in enumerate(texts.splitlines())
    ]
    result = Trainer(home=tmp_path / "home").train(
        "task_file", tasks=str(write(*lines)), episodes=1_000, seed=seed
    )
    untrained, *_, trained = result.history
    assert trained["tool_reliability"] > untrained["tool_reliability"]
    assert result.metrics.tool_reliability > result.baseline.tool_reliability
    assert "bad_arguments" not in result.metrics.failures

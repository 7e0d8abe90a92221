"""The data_analysis scenario: tasks, rewards, metrics and targets."""

from __future__ import annotations

import random
import re
from typing import TYPE_CHECKING, Any

from agentgym.core.task import Split, Task
from agentgym.core.trajectory import Trajectory
from agentgym.scenarios.data_analysis.plan import SYSTEM_PROMPT, Goal
from agentgym.scenarios.planned import GeneratedScenario

if TYPE_CHECKING:
    from agentgym.scenarios.data_analysis.environment import DataAnalysisEnvironment

_AFTER_MISTAKE = 0.25
"""How much a reward after a mistake may differ from the mistake's reward."""
_SCANNED = re.compile(r'"scanned": "(\d+) rows, (\d+) bytes"')


class DataAnalysis(GeneratedScenario):
    """Questions about five kinds of data files, answered with nine tools."""

    name = "data_analysis"
    description = "Analyses data files: filters, groups, statistics, charts"
    difficulty = "medium"
    estimated_time = "three minutes"
    system_prompt = SYSTEM_PROMPT
    extra, needs = "analysis", ("duckdb", "pandas", "matplotlib")
    measures = ("insight_accuracy", "query_efficiency", "chart_fit")

    def make_task(self, split: Split, rng: random.Random, name: str) -> Task:
        """A question. Splits share no phrasings, files, columns, values or data."""
        # Imported late, as below: this imports DuckDB, pandas and matplotlib.
        from agentgym.scenarios.data_analysis.tasks import make_task

        return make_task(split, rng, name)

    def environment(self) -> type[DataAnalysisEnvironment]:
        """The environment's class."""
        from agentgym.scenarios.data_analysis.environment import DataAnalysisEnvironment

        return DataAnalysisEnvironment

    def broadcast_rewards(self, trajectory: Trajectory) -> list[float]:
        """See `Scenario`; rewards after a mistake stay close to the mistake's.

        Otherwise right decisions after a mistake would reinforce the mistake.
        """
        rewards = super().broadcast_rewards(trajectory)
        mistake = None
        for i, step in enumerate(trajectory.steps):
            if mistake is not None:
                rewards[i] = mistake + _AFTER_MISTAKE * (rewards[i] - mistake)
            elif step.correct is False:
                mistake = rewards[i]
        return rewards

    def measure(self, trajectory: Trajectory) -> dict[str, tuple[float, float]]:
        """Insight accuracy, query efficiency and chart fit."""
        goal: Goal = trajectory.task.goal
        done = {
            call.name
            for step in trajectory.steps
            if step.correct
            for call, result in zip(step.calls, step.results, strict=True)
            if result.ok
        }
        found = {"insight_accuracy": (float("answer" in done), 1.0)}
        if "answer" in done:
            found["query_efficiency"] = (goal.efficiency(*_scanned(trajectory)), 1.0)
        if any(step.tool == "plot_chart" for step in goal.plan):
            found["chart_fit"] = (float("plot_chart" in done), 1.0)
        return found

    def success_criteria(self) -> dict[str, float]:
        """The targets; `docs/scenarios/data_analysis.md` defines them."""
        return {
            "insight_accuracy": 0.85,
            "query_efficiency": 0.90,
            "avg_response_time": 300.0,
        }

    def training_defaults(self) -> dict[str, Any]:
        """Many small updates: plans are long and are learned call by call."""
        return {
            "episodes": 17_000,
            "eval_every": 8_500,
            "learning_rate": 0.01,
            "batch_size": 16,
            "group_size": 8,
        }

    def language_model_defaults(self) -> dict[str, Any]:
        """Tasks are long, so measuring on them takes a language model long."""
        return super().language_model_defaults() | {
            "episodes": 18_000,
            "eval_every": 9_000,
        }


def _scanned(trajectory: Trajectory) -> tuple[int, int]:
    """Rows and bytes that the tools report as scanned in an episode."""
    found = [
        match
        for step in trajectory.steps
        for result in step.results
        if result.ok and (match := _SCANNED.search(result.content))
    ]
    return sum(int(m[1]) for m in found), sum(int(m[2]) for m in found)

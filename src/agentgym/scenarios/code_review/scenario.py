"""The code_review scenario: tasks, rewards, metrics and targets."""

from __future__ import annotations

import random
from typing import TYPE_CHECKING, Any

from agentgym.core.metrics import AtMost
from agentgym.core.task import Split, Task
from agentgym.core.trajectory import Trajectory
from agentgym.scenarios.code_review.plan import (
    CHECKS,
    SYSTEM_PROMPT,
    Comment,
    Goal,
    cost_of,
)
from agentgym.scenarios.planned import GeneratedScenario

if TYPE_CHECKING:
    from agentgym.scenarios.code_review.environment import CodeReviewEnvironment


class CodeReview(GeneratedScenario):
    """Reviews of Python submissions with ten tools."""

    name = "code_review"
    description = "Reviews Python code: bugs, speed, security, style"
    difficulty = "medium"
    estimated_time = "two minutes"
    system_prompt = SYSTEM_PROMPT
    extra, needs = "review", ("ruff", "bandit")
    max_steps = 12
    measures = (
        "issue_detection",
        "false_positive_rate",
        "explanation_quality",
        "verdict_accuracy",
        "cost_efficiency",
    )

    def make_task(self, split: Split, rng: random.Random, name: str) -> Task:
        """A review. Splits share no phrasings, files, code or identifiers."""
        # Imported late, as below: this imports bandit and analyses submissions.
        from agentgym.scenarios.code_review.tasks import make_task

        return make_task(split, rng, name)

    def environment(self) -> type[CodeReviewEnvironment]:
        """The environment's class."""
        from agentgym.scenarios.code_review.environment import CodeReviewEnvironment

        return CodeReviewEnvironment

    def measure(self, trajectory: Trajectory) -> dict[str, tuple[float, float]]:
        """Issue detection, false positives, explanations, verdict and cost."""
        goal: Goal = trajectory.task.goal
        made, comments, verdicts = _course(trajectory)
        score = goal.score(comments)
        found = {
            "verdict_accuracy": (float(verdicts == [goal.verdict]), 1.0),
        }
        if goal.issues:
            found["issue_detection"] = (score.detected, len(goal.issues))
        if comments:
            found["false_positive_rate"] = (score.false, len(comments))
        if verdicts == [goal.verdict]:
            spent = max(goal.cost, cost_of(made))
            found["cost_efficiency"] = (goal.cost / spent, 1.0)
        if score.nameable:
            found["explanation_quality"] = (score.named, score.nameable)
        return found

    def success_criteria(self) -> dict[str, float]:
        """The targets; `docs/scenarios/code_review.md` defines them."""
        return {
            "issue_detection": 0.90,
            "false_positive_rate": AtMost(0.10),
            "avg_response_time": 120.0,
        }

    def training_defaults(self) -> dict[str, Any]:
        """Many small updates: plans are long and are learned call by call."""
        return {
            "episodes": 20_000,
            "eval_every": 5_000,
            "learning_rate": 0.01,
            "batch_size": 24,
            "group_size": 12,
            "max_steps": self.max_steps,
        }

    def language_model_defaults(self) -> dict[str, Any]:
        """Tasks are long, so measuring on them takes a language model long."""
        return super().language_model_defaults() | {
            "episodes": 20_000,
            "eval_every": 10_000,
        }


def _course(trajectory: Trajectory) -> tuple[list[str], list[Comment], list[str]]:
    """The tools that ran, comments and verdicts, in order."""
    made: list[str] = []
    comments: list[Comment] = []
    verdicts: list[str] = []
    file = ""
    for step in trajectory.steps:
        for call, result in zip(step.calls, step.results, strict=True):
            if not result.ok:
                continue
            made.append(call.name)
            if call.name in CHECKS:
                file = call.arguments["file"]
            elif call.name == "comment":
                comments.append(Comment(file, **call.arguments))
            elif call.name in ("approve", "request_changes"):
                verdicts.append(call.name)
    return made, comments, verdicts

"""The code-review scenario: tasks, rewards, its own figures and targets."""

from __future__ import annotations

import random
from collections.abc import Sequence
from importlib.util import find_spec
from typing import TYPE_CHECKING, Any

from agentgym.core.errors import MissingExtraError
from agentgym.core.targets import AtMost
from agentgym.core.task import Split, Task
from agentgym.core.tools import ToolRunner
from agentgym.core.trajectory import Trajectory
from agentgym.scenarios.base import Scenario
from agentgym.scenarios.code_review.plan import (
    CHECKS,
    SYSTEM_PROMPT,
    Comment,
    Goal,
    cost_of,
)

if TYPE_CHECKING:
    from agentgym.scenarios.code_review.environment import CodeReviewEnvironment


class CodeReview(Scenario):
    """Reviews of Python submissions with ten tools."""

    name = "code_review"
    description = "Reviewer of Python code: bugs, speed, security, style"
    difficulty = "medium"
    estimated_time = "two minutes"
    system_prompt = SYSTEM_PROMPT
    options = {"tool_failure_rate": 0.0, "patience": 2}
    measures = (
        "issue_detection",
        "false_positive_rate",
        "explanation_quality",
        "verdict_accuracy",
        "cost_efficiency",
    )

    def __init__(self, **options: Any) -> None:
        """Makes the scenario.

        Raises:
            MissingExtraError: What the tools analyse with is not installed.
        """
        super().__init__(**options)
        if not all(find_spec(name) for name in ("ruff", "bandit")):
            raise MissingExtraError("The scenario 'code_review'", "review")

    def tasks(self, split: Split, seed: int, count: int) -> list[Task]:
        """Draws tasks; splits share no wording, file, code or identifier."""
        # Imported late, as below: it analyses, and brings bandit along.
        from agentgym.scenarios.code_review.tasks import make_task

        # A generator for each task: the n-th task does not depend on the count.
        return [
            make_task(
                split, random.Random(f"{split}-{seed}-{i}"), f"{split}-{seed}-{i}"
            )
            for i in range(count)
        ]

    def create_environment(
        self,
        tasks: Sequence[Task] = (),
        *,
        max_steps: int = 12,
        runner: ToolRunner | None = None,
        render_mode: str | None = None,
    ) -> CodeReviewEnvironment:
        """The submissions, the tools and the judge."""
        from agentgym.scenarios.code_review.environment import CodeReviewEnvironment

        return CodeReviewEnvironment(
            tasks or self.tasks("train", 0, 64),
            max_steps=max_steps,
            patience=int(self.settings["patience"]),
            tool_failure_rate=float(self.settings["tool_failure_rate"]),
            runner=runner,
            render_mode=render_mode,
        )

    def measure(self, trajectory: Trajectory) -> dict[str, tuple[float, float]]:
        """What was found, what was found wrongly, how it was told and what it cost."""
        goal: Goal = trajectory.task.goal
        made, comments, concluded = _course(trajectory)
        score = goal.score(comments)
        found = {
            "verdict_accuracy": (float(concluded == [goal.verdict]), 1.0),
        }
        if goal.issues:
            found["issue_detection"] = (score.detected, len(goal.issues))
        if comments:
            found["false_positive_rate"] = (score.false, len(comments))
        if concluded == [goal.verdict]:
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
        """Many small updates: plans are long, and are learned call by call."""
        return {
            "episodes": 20_000,
            "eval_every": 5_000,
            "learning_rate": 0.01,
            "batch_size": 24,
            "group_size": 12,
            "max_steps": 12,
        }


def _course(trajectory: Trajectory) -> tuple[list[str], list[Comment], list[str]]:
    """Tools that ran, comments, and verdicts, in order."""
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

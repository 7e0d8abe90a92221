"""Measures a policy on tasks: reliability with its interval, cost, calibration.

Nothing here is assumed: calls are counted where tools ran, tokens where the policy
read and wrote them, seconds by the clock.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, Any

from agentgym.core.metrics import MANUAL_HOURS, Interval, TrainingMetrics
from agentgym.errors import ScenarioError

if TYPE_CHECKING:
    from agentgym.core.task import Task
    from agentgym.core.trajectory import Trajectory
    from agentgym.policies.base import Decider, Policy
    from agentgym.training.rollout import Rollout

_CHUNK = 32
"""Tasks that are played together in an evaluation."""

_Z = 1.959963984540054  # of a two-sided 95% interval


@dataclass(frozen=True, slots=True)
class Prices:
    """Dollars for a million tokens."""

    input_per_million: float
    output_per_million: float

    def cost(self, prompt_tokens: int, completion_tokens: int) -> float:
        """Dollars for tokens read and written."""
        return (
            prompt_tokens * self.input_per_million
            + completion_tokens * self.output_per_million
        ) / 1e6


PRICES = Prices(input_per_million=0.15, output_per_million=0.60)
"""The stated price table: the order of a small hosted model's list price.

Cost reduction is a ratio, so only the proportion of the two matters for it.
"""


@dataclass(eq=False)
class Evaluation:
    """Judged episodes of one policy, one for each task.

    Attributes:
        measured: The scenario's own metrics for each episode: what it reached, and
            what was possible.
    """

    trajectories: list[Trajectory]
    measured: Sequence[Mapping[str, tuple[float, float]]] = ()

    @cached_property
    def decisions(self) -> list[tuple[float, bool]]:
        """Confidence of each judged decision, and whether it was right."""
        return [
            (step.confidence, step.correct)
            for trajectory in self.trajectories
            for step in trajectory.steps
            if step.correct is not None
        ]

    @property
    def solved(self) -> int:
        """Tasks that were solved."""
        return sum(trajectory.success is True for trajectory in self.trajectories)

    @property
    def tool_reliability(self) -> float:
        """Calls that were right and ran, over calls made and missed; 0 for none."""
        right, total = self._calls
        return right / total if total else 0.0

    @property
    def tokens_per_task(self) -> float:
        """Mean tokens of a task, read and written."""
        return _mean([trajectory.tokens for trajectory in self.trajectories])

    def cost_per_solved_task(self) -> float:
        """Dollars spent on all tasks, over tasks solved.

        If nothing was solved this is the cost of all tasks: a lower bound.
        """
        total = sum(
            PRICES.cost(trajectory.prompt_tokens, trajectory.completion_tokens)
            for trajectory in self.trajectories
        )
        return total / max(1, self.solved)

    def metrics(
        self,
        baseline: Evaluation | None = None,
        *,
        episodes_completed: int = 0,
        total_training_time: float | None = None,
        convergence_episode: int | None = None,
        manual_hours: float = MANUAL_HOURS,
        free_form: Evaluation | None = None,
    ) -> TrainingMetrics:
        """The figures.

        Args:
            baseline: The untrained policy on the same tasks; cost is compared to it.
            episodes_completed: Episodes of training behind the policy.
            total_training_time: Seconds of training; None if it wasn't trained.
            convergence_episode: Episodes until validation first reached the target.
            manual_hours: Hours by hand, the reference for time savings.
            free_form: The same policy without its constraint.
        """
        count = len(self.trajectories)
        success = self.solved / count if count else 0.0
        savings = None
        if total_training_time is not None:
            savings = 1.0 - total_training_time / 3600.0 / manual_hours
        rewards = [t.mean_reward for t in self.trajectories]
        judged = [reward for reward in rewards if reward is not None]
        return TrainingMetrics(
            tool_reliability=self.tool_reliability,
            task_success=success,
            tool_reliability_interval=self.tool_reliability_interval(),
            task_success_interval=wilson(success, count),
            avg_tokens_used=self.tokens_per_task,
            avg_response_time=_mean(
                [sum(s.latency for s in t.steps) for t in self.trajectories]
            ),
            cost_per_solved_task=self.cost_per_solved_task(),
            cost_reduction=self._cost_reduction(baseline),
            time_savings=savings,
            episodes_completed=episodes_completed,
            total_training_time=total_training_time or 0.0,
            final_reward=_mean(judged) if judged else None,
            convergence_episode=convergence_episode,
            tasks=count,
            tool_calls=sum(t.tool_calls for t in self.trajectories),
            per_tool=self._per_tool(),
            failures=self._failures(),
            calibration_error=calibration_error(self.decisions),
            measures=self._measures(),
            manual_hours=manual_hours,
            **_free_form(free_form),
        )

    def tool_reliability_interval(self) -> Interval:
        """Of tool reliability, 95%.

        Calls of one episode are not independent: a wrong one brings others. So the
        number of calls is divided by the design effect of a ratio estimator over
        tasks. Where all calls are right, or all wrong, nothing can be estimated from
        the data, and only tasks are counted.
        """
        return _ratio_interval(
            [
                (t.correct_calls, t.tool_calls + t.missed_calls)
                for t in self.trajectories
            ]
        )

    @property
    def _calls(self) -> tuple[int, int]:
        return (
            sum(t.correct_calls for t in self.trajectories),
            sum(t.tool_calls + t.missed_calls for t in self.trajectories),
        )

    def _cost_reduction(self, baseline: Evaluation | None) -> float | None:
        if baseline is None or not self.solved:
            return None
        before = baseline.cost_per_solved_task()
        return 1.0 - self.cost_per_solved_task() / before if before else None

    def _measures(self) -> dict[str, dict[str, float]]:
        pairs: dict[str, list[tuple[float, float]]] = {}
        for episode in self.measured:
            for name, pair in episode.items():
                pairs.setdefault(name, []).append(pair)
        found = {}
        for name, some in sorted(pairs.items()):
            total = math.fsum(possible for _, possible in some)
            interval = _ratio_interval(some)
            found[name] = {
                "value": math.fsum(reached for reached, _ in some) / total,
                "low": interval.low,
                "high": interval.high,
                "tasks": len(some),
            }
        return found

    def _per_tool(self) -> dict[str, dict[str, int]]:
        calls: Counter[str] = Counter()
        correct: Counter[str] = Counter()
        for trajectory in self.trajectories:
            for step in trajectory.steps:
                ran = step.correct is True and all(r.ok for r in step.results)
                for call in step.calls:
                    calls[call.name] += 1
                    correct[call.name] += ran
        return {
            name: {"calls": calls[name], "correct": correct[name]}
            for name in sorted(calls)
        }

    def _failures(self) -> dict[str, int]:
        kinds: Counter[str] = Counter()
        for trajectory in self.trajectories:
            if trajectory.failure is not None:
                kinds[str(trajectory.failure)] += 1
            for step in trajectory.steps:
                if step.failure is not None:
                    kinds[str(step.failure)] += 1
        return dict(kinds.most_common())


def evaluate(
    policy: Decider,
    rollout: Rollout,
    tasks: Sequence[Task],
    baseline_tokens: float | None = None,
    check: Callable[[], None] = lambda: None,
) -> Evaluation:
    """Plays each task once, always taking the likeliest decision.

    Rewards are recorded, but nothing is learned, and what the policy kept for
    learning is dropped.

    Args:
        policy: Decides.
        rollout: Plays.
        tasks: What to do.
        baseline_tokens: Tokens that the untrained policy spends on a task, if known.
        check: Called after every few tasks; it may wait, or raise to stop. The result
            doesn't depend on it.
    """
    trajectories: list[Trajectory] = []
    for start in range(0, len(tasks), _CHUNK):
        check()
        trajectories += rollout.play(policy, tasks[start : start + _CHUNK], start)
    for trajectory in trajectories:
        trajectory.baseline_tokens = baseline_tokens
        rollout.reward(trajectory)
        for step in trajectory.steps:
            step.trace = None
    return Evaluation(trajectories, [_measure(rollout, t) for t in trajectories])


def _measure(
    rollout: Rollout, trajectory: Trajectory
) -> Mapping[str, tuple[float, float]]:
    """The scenario's own metrics of an episode; {} if it crashed.

    Raises:
        ScenarioError: The scenario doesn't declare them, or a value is out of range.
    """
    scenario = rollout.scenario
    if trajectory.failure is not None:
        return {}
    found = scenario.measure(trajectory)
    for name, (reached, possible) in found.items():
        if name not in scenario.measures or not 0 <= reached <= possible:
            raise ScenarioError(
                f"measure of scenario '{scenario.name}' gives {name}: {reached!r} out "
                f"of {possible!r}. Add it to `measures`, with 0 <= reached <= possible."
            )
    return {name: pair for name, pair in found.items() if pair[1] > 0}


def _ratio_interval(pairs: Sequence[tuple[float, float]]) -> Interval:
    """Of a sum of parts over a sum of wholes, one pair for each task, 95%."""
    pairs = [pair for pair in pairs if pair[1]]
    right = math.fsum(x for x, _ in pairs)
    total = math.fsum(y for _, y in pairs)
    if not total:
        return wilson(0.0, 0)
    ratio = right / total
    if right in (0, total) or len(pairs) < 2:
        return wilson(ratio, len(pairs))
    squares = math.fsum((x - ratio * y) ** 2 for x, y in pairs)
    variance = len(pairs) / (len(pairs) - 1) * squares / total**2
    design_effect = max(1.0, variance / (ratio * (1 - ratio) / total))
    return wilson(ratio, total / design_effect)


def evaluate_free_form(
    policy: Policy,
    rollout: Rollout,
    tasks: Sequence[Task],
    baseline_tokens: float | None = None,
    check: Callable[[], None] = lambda: None,
) -> Evaluation | None:
    """The same without the policy's constraint; None if it has none."""
    unconstrained = policy.free_form()
    if unconstrained is None:
        return None
    return evaluate(unconstrained, rollout, tasks, baseline_tokens, check)


def wilson(p: float, n: float) -> Interval:
    """Wilson's 95% interval of a share `p` seen in `n` trials.

    Args:
        p: The share, 0 to 1.
        n: Trials; may be an effective number and need not be whole. With none,
            nothing is known: 0 to 1.
    """
    if n <= 0:
        return Interval(0.0, 1.0)
    square = _Z * _Z
    center = (p + square / (2 * n)) / (1 + square / n)
    half = _Z / (1 + square / n) * math.sqrt(p * (1 - p) / n + square / (4 * n * n))
    # Rounding must not leave the share itself outside at its extremes.
    return Interval(min(p, max(0.0, center - half)), max(p, min(1.0, center + half)))


def calibration_error(
    decisions: Sequence[tuple[float, bool]], bins: int = 10
) -> float | None:
    """Expected calibration error; None without decisions.

    Decisions are put into bins by confidence; in each, mean confidence is compared
    with the share that was right, and bins count by their size.
    """
    if not decisions:
        return None
    parts: list[list[tuple[float, bool]]] = [[] for _ in range(bins)]
    for confidence, right in decisions:
        parts[min(bins - 1, max(0, int(confidence * bins)))].append((confidence, right))
    gaps = (
        abs(math.fsum(c for c, _ in part) - sum(right for _, right in part))
        for part in parts
    )
    return math.fsum(gaps) / len(decisions)


def _free_form(evaluation: Evaluation | None) -> dict[str, Any]:
    if evaluation is None:
        return {}
    return {
        "free_form_reliability": evaluation.tool_reliability,
        "free_form_reliability_interval": evaluation.tool_reliability_interval(),
        "free_form_tasks": len(evaluation.trajectories),
    }


def _mean(values: Sequence[float]) -> float:
    return math.fsum(values) / len(values) if values else 0.0

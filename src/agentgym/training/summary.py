"""What a training measures and reports."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any

from agentgym.core.metrics import TrainingMetrics
from agentgym.core.rewards import Signal
from agentgym.core.tools import FailureKind
from agentgym.core.trajectory import Group
from agentgym.policies.base import UpdateStats
from agentgym.training.evaluation import Evaluation

_SAMPLE = 20
_IN_HISTORY = (
    "tool_reliability",
    "tool_reliability_interval",
    "task_success",
    "task_success_interval",
    "avg_tokens_used",
    "final_reward",
)


def training_values(
    groups: Sequence[Group], signal: Signal, stats: UpdateStats
) -> dict[str, Any]:
    """The values of an `IterationDone` that do not depend on the clock.

    Reliability counts decisions with calls; one that makes two calls counts once.
    """
    episodes = [t for group in groups for t in group.trajectories]
    rewards = [r for t in episodes if (r := t.mean_reward) is not None]
    # Steps repeated from a sibling weren't decided here.
    steps = [step for t in episodes for step in t.steps if not step.replayed]
    calls = [
        step for step in steps if step.calls or step.failure is FailureKind.NO_CALL
    ]
    right = [s for s in calls if s.correct and all(r.ok for r in s.results)]
    failures = Counter(str(step.failure) for step in steps if step.failure)
    failures.update(str(t.failure) for t in episodes if t.failure)
    return {
        "mean_reward": sum(rewards) / len(rewards) if rewards else None,
        "success": sum(t.success is True for t in episodes) / len(episodes),
        "reliability": len(right) / max(1, len(calls)),
        "loss": stats.loss,
        "entropy": stats.entropy,
        "gradient_norm": stats.gradient_norm,
        "clipped": int(stats.clipped),
        "groups": signal.groups,
        "groups_without_variance": signal.groups_without_variance,
        "unrewarded": signal.unrewarded,
        "broken": sum(t.failure is not None for t in episodes),
        "tokens": sum(t.tokens for t in episodes) / len(episodes),
        "failures": dict(failures.most_common()),
    }


def sample(evaluation: Evaluation) -> tuple[dict[str, Any], ...]:
    """Some of the trajectories as dicts: failures first, then what solved its task."""
    ordered = sorted(evaluation.trajectories, key=lambda t: t.success is True)
    return tuple(trajectory.to_dict() for trajectory in ordered[:_SAMPLE])


def history_entry(
    iteration: int, episodes: int, metrics: TrainingMetrics
) -> dict[str, Any]:
    """One evaluation as `TrainingResult.history` keeps it."""
    values = metrics.to_dict()
    return {
        "iteration": iteration,
        "episodes": episodes,
        **{name: values[name] for name in _IN_HISTORY},
    }


def score(entry: Mapping[str, Any]) -> float:
    """How good an evaluation of the history is.

    Reliability alone isn't enough: where only outcomes are judged, every call is right.
    """
    reliability, success = entry["tool_reliability"], entry["task_success"]
    return float(reliability + success) / 2

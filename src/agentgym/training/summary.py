"""What a training measures and tells of itself."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from agentgym.core.config import TrainingConfig
from agentgym.core.events import BaselineMeasured, EvaluationDone, EventBus
from agentgym.core.metrics import TrainingMetrics
from agentgym.core.rewards import Signal
from agentgym.core.task import Task
from agentgym.core.tools import FailureKind
from agentgym.core.trajectory import Group
from agentgym.policies.base import Policy, UpdateStats
from agentgym.training.checkpoint import LoopState
from agentgym.training.evaluation import Evaluation, evaluate
from agentgym.training.rollout import Rollout

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
    # What was repeated from a sibling was not decided here.
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


def validate(
    config: TrainingConfig,
    rollout: Rollout,
    policy: Policy,
    tasks: Sequence[Task],
    progress: LoopState,
    events: EventBus,
    *,
    seconds: Callable[[], float],
    between: Callable[[], None],
) -> Evaluation:
    """Measures a policy during training, tells it, and adds it to the history.

    The first time it is untrained, and spends the tokens that others are compared to.

    Args:
        config: Resolved settings.
        rollout: Plays the scenario.
        policy: As it is now.
        tasks: The validation tasks.
        progress: Where the training stands; it is changed.
        events: Hears what was measured.
        seconds: How long training has taken so far.
        between: See `evaluate`.
    """
    limit = progress.baseline_tokens
    evaluation = evaluate(policy, rollout, tasks, limit, between)
    metrics = evaluation.metrics(
        episodes_completed=progress.episodes,
        total_training_time=seconds(),
        manual_hours=config.manual_hours,
    )
    at, shown = (progress.iteration, progress.episodes), sample(evaluation)
    if progress.history:
        events.emit(EvaluationDone(*at, "validation", metrics.to_dict(), shown))
    else:
        progress.baseline_tokens = evaluation.tokens_per_task
        events.emit(BaselineMeasured(metrics.to_dict(), shown))
    progress.history.append(history_entry(*at, metrics))
    return evaluation


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

    Reliability alone would not do: where only outcomes are judged, every call is right.
    """
    reliability, success = entry["tool_reliability"], entry["task_success"]
    return float(reliability + success) / 2

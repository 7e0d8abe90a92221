"""Metrics of a policy, and targets to compare them with."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from agentgym.errors import FormatError

MANUAL_HOURS = 4.0
"""Hours a person spends tuning prompts by hand: the reference for time savings."""


class AtMost(float):
    """An upper limit as a target; a plain number is a lower limit."""


@dataclass(frozen=True, slots=True)
class Interval:
    """A 95% confidence interval."""

    low: float
    high: float


@dataclass(frozen=True, slots=True)
class TrainingMetrics:
    """Metrics of one policy on one set of tasks. None means "not measured".

    Attributes:
        tool_reliability: Successful right calls, divided by calls made and missed.
        task_success: Share of tasks solved.
        avg_tokens_used: Tokens read and written by all model calls of a task.
        avg_response_time: Seconds per task, decisions and tools.
        cost_per_solved_task: In dollars, with the given prices. If no task was solved,
            the cost of all tasks, which is a lower bound.
        cost_reduction: Share of the baseline's cost per solved task that is saved.
            None without a baseline, or if no task was solved.
        time_savings: 1 - hours of training / `manual_hours`. None if not trained.
        episodes_completed: Number of training episodes.
        total_training_time: Seconds of training and validation, without the final
            measurement on held-out tasks.
        final_reward: Mean reward of an episode.
        convergence_episode: Episodes until validation first reached the target.
        tasks: Number of tasks measured.
        tool_calls: Number of calls made.
        per_tool: For each tool, its `calls` and how many of them were `correct`.
        failures: Number of failures by kind.
        calibration_error: Expected difference between confidence and accuracy.
        measures: The scenario's additional metrics by name: `value`, `low` and `high`
            of the 95% interval, and `tasks`, the number of tasks it applies to.
        manual_hours: The reference for `time_savings`.
        free_form_reliability: Tool reliability of a language model that decodes
            without the grammar it was trained with, as other runtimes do.
        free_form_tasks: Number of tasks measured that way.
    """

    tool_reliability: float
    task_success: float
    tool_reliability_interval: Interval
    task_success_interval: Interval
    avg_tokens_used: float
    avg_response_time: float
    cost_per_solved_task: float
    cost_reduction: float | None = None
    time_savings: float | None = None
    episodes_completed: int = 0
    total_training_time: float = 0.0
    final_reward: float | None = None
    convergence_episode: int | None = None
    tasks: int = 0
    tool_calls: int = 0
    per_tool: dict[str, dict[str, int]] = field(default_factory=dict)
    failures: dict[str, int] = field(default_factory=dict)
    calibration_error: float | None = None
    measures: dict[str, dict[str, float]] = field(default_factory=dict)
    manual_hours: float = MANUAL_HOURS
    free_form_reliability: float | None = None
    free_form_reliability_interval: Interval | None = None
    free_form_tasks: int = 0

    def to_dict(self) -> dict[str, Any]:
        """Returns a JSON value; intervals become `[low, high]`."""
        result = {f.name: getattr(self, f.name) for f in dataclasses.fields(self)}
        for name in _INTERVALS:
            if result[name] is not None:
                result[name] = [result[name].low, result[name].high]
        cleaned: dict[str, Any] = clean(result)
        return cleaned

    @classmethod
    def from_dict(cls, values: Mapping[str, Any]) -> TrainingMetrics:
        """Reads what `to_dict` returned.

        Raises:
            FormatError: A metric is missing, unknown or has the wrong type.
        """
        if isinstance(values, Mapping):
            # Results from earlier versions don't have these.
            values = {**_SINCE, **values}
        given = checked_fields(cls, values, "metrics")
        for name, value in given.items():
            if value is None and name in _OPTIONAL:
                continue
            if name in _INTERVALS:
                if not isinstance(value, list | tuple) or len(value) != 2:
                    raise wrong_type(name, "two numbers", value)
                given[name] = Interval(_number(name, value[0]), _number(name, value[1]))
            elif name in _TABLES:
                if not isinstance(value, Mapping):
                    raise wrong_type(name, "a mapping", value)
                given[name] = dict(value)
            else:
                _number(name, value)
        return cls(**given)


_INTERVALS = (
    "tool_reliability_interval",
    "task_success_interval",
    "free_form_reliability_interval",
)
_SINCE: dict[str, Any] = {
    "free_form_reliability": None,
    "free_form_reliability_interval": None,
    "free_form_tasks": 0,
    "measures": {},
}
_TABLES = ("per_tool", "failures", "measures")
_OPTIONAL = {f.name for f in dataclasses.fields(TrainingMetrics) if f.default is None}


def clean(value: Any) -> Any:
    """Returns a JSON value: infinite and NaN numbers become None."""
    if isinstance(value, Mapping):
        return {str(key): clean(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [clean(item) for item in value]
    if isinstance(value, Path):
        return str(value)
    if value is None or isinstance(value, bool):
        return value
    if isinstance(value, str):
        return str(value)
    if hasattr(value, "item"):
        # A numpy scalar; this avoids importing numpy here.
        value = value.item()
    if isinstance(value, float) and not math.isfinite(value):
        return None
    return value


def checked_fields(cls: type, values: Mapping[str, Any], what: str) -> dict[str, Any]:
    """Returns the values after checking them against a dataclass's fields.

    Raises:
        FormatError: A field is missing or unknown.
    """
    if not isinstance(values, Mapping):
        raise FormatError(f"{what} should be a mapping, not {type(values).__name__}.")
    known = {f.name for f in dataclasses.fields(cls)}
    missing, unknown = known - set(values), set(values) - known
    if missing:
        named = ", ".join(sorted(missing))
        raise FormatError(f"{what} has missing fields: {named}.")
    if unknown:
        named = ", ".join(sorted(map(str, unknown)))
        raise FormatError(f"{what} has unknown fields: {named}.")
    return dict(values)


def _number(name: str, value: Any) -> float:
    if isinstance(value, bool) or not isinstance(value, int | float):
        raise wrong_type(name, "a number", value)
    return value


def wrong_type(name: str, wanted: str, value: Any) -> FormatError:
    """An error about a field's type."""
    return FormatError(f"{name} should be {wanted}, not {type(value).__name__}.")

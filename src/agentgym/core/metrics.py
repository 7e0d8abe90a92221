"""Figures of a policy on tasks, and the targets that they are compared with."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from agentgym.errors import FormatError

MANUAL_HOURS = 4.0
"""Hours a person spends tuning prompts by hand: what time savings count against."""


class AtMost(float):
    """A target that a figure should not exceed; a plain number is one to reach."""


@dataclass(frozen=True, slots=True)
class Interval:
    """A 95% confidence interval."""

    low: float
    high: float


@dataclass(frozen=True, slots=True)
class TrainingMetrics:
    """Figures of one policy on one set of tasks. None means "not measured".

    Attributes:
        tool_reliability: Calls that were right and ran, over calls made and missed.
        task_success: Share of tasks solved.
        avg_tokens_used: Tokens of all model calls of a task, read and written.
        avg_response_time: Seconds that a task takes, decisions and tools.
        cost_per_solved_task: In dollars at the stated price table. If nothing was
            solved it is the cost of all tasks, which is a lower bound.
        cost_reduction: Share of the baseline's cost for each solved task that is
            saved. None without a baseline, or where nothing was solved.
        time_savings: 1 - hours of training / `manual_hours`. None if not trained.
        episodes_completed: Episodes of training.
        total_training_time: Seconds of training, validation included; measuring the
            held-out tasks at the end is not training.
        final_reward: Mean reward of an episode.
        convergence_episode: Episodes until validation first reached the target.
        tasks: Tasks measured on.
        tool_calls: Calls made.
        per_tool: By tool: `calls` made and how many of them were `correct`.
        failures: By kind of failure: how often.
        calibration_error: Expected difference between confidence and being right.
        measures: The scenario's own figures by name: `value`, `low` and `high` of its
            95% interval, and `tasks`, those that it says something about.
        manual_hours: What `time_savings` counts against.
        free_form_reliability: Tool reliability of a language model without the
            constraint under which it is trained: as another runtime would run it.
        free_form_tasks: Tasks that this was measured on.
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
        """As JSON can hold it; an interval is `[low, high]`."""
        result = {f.name: getattr(self, f.name) for f in dataclasses.fields(self)}
        for name in _INTERVALS:
            if result[name] is not None:
                result[name] = [result[name].low, result[name].high]
        cleaned: dict[str, Any] = clean(result)
        return cleaned

    @classmethod
    def from_dict(cls, values: Mapping[str, Any]) -> TrainingMetrics:
        """Reads what `to_dict` wrote.

        Raises:
            FormatError: If a figure is missing, unknown or no figure.
        """
        if isinstance(values, Mapping):
            # Results of earlier versions do not have these.
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
_OPTIONAL = (
    "cost_reduction",
    "time_savings",
    "final_reward",
    "convergence_episode",
    "calibration_error",
    "free_form_reliability",
    "free_form_reliability_interval",
)


def clean(value: Any) -> Any:
    """The value as JSON can hold it: numbers that are not finite become None."""
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
        # A numpy scalar; core does not import numpy for it.
        value = value.item()
    if isinstance(value, float) and not math.isfinite(value):
        return None
    return value


def checked_fields(cls: type, values: Mapping[str, Any], what: str) -> dict[str, Any]:
    """The values of a dataclass, all of them and no others.

    Raises:
        FormatError: One is missing or unknown.
    """
    if not isinstance(values, Mapping):
        raise FormatError(f"{what} should be a mapping, not {type(values).__name__}.")
    known = {f.name for f in dataclasses.fields(cls)}
    missing, unknown = known - set(values), set(values) - known
    if missing:
        raise FormatError(f"{what} without {', '.join(sorted(missing))}.")
    if unknown:
        named = ", ".join(sorted(map(str, unknown)))
        raise FormatError(f"{what} with unknown {named}.")
    return dict(values)


def _number(name: str, value: Any) -> float:
    if isinstance(value, bool) or not isinstance(value, int | float):
        raise wrong_type(name, "a number", value)
    return value


def wrong_type(name: str, wanted: str, value: Any) -> FormatError:
    """Says which type a field should have."""
    return FormatError(f"{name} should be {wanted}, not {type(value).__name__}.")

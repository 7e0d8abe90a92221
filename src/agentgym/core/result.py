"""What came out of a training run: measured figures, and where things are."""

from __future__ import annotations

import dataclasses
import json
import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from agentgym.core.errors import FormatError
from agentgym.utils.files import atomic_write_text

if TYPE_CHECKING:
    from agentgym.core.trained_agent import TrainedAgent

FORMAT = "agentgym-result"
VERSION = 1

MANUAL_HOURS = 4.0
"""Hours a person spends tuning prompts by hand: what time savings count against."""


@dataclass(frozen=True, slots=True)
class Interval:
    """A 95% confidence interval."""

    low: float
    high: float


class SummaryRow(NamedTuple):
    """One line of a before/after table, as text; "" where there is no figure."""

    label: str
    before: str
    after: str


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
        given = _fields(cls, values, "metrics")
        for name, value in given.items():
            if value is None and name in _OPTIONAL:
                continue
            if name in _INTERVALS:
                if not isinstance(value, list | tuple) or len(value) != 2:
                    raise _wrong(name, "two numbers", value)
                given[name] = Interval(_number(name, value[0]), _number(name, value[1]))
            elif name in _TABLES:
                if not isinstance(value, Mapping):
                    raise _wrong(name, "a mapping", value)
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


@dataclass(slots=True)
class TrainingResult:
    """What a run has brought.

    Attributes:
        run_id: The run in the store.
        model: Name of the model with its version.
        config: The settings in force, as `TrainingConfig.to_dict` gives them.
        metrics: The trained policy on held-out tasks.
        baseline: The untrained policy on the same tasks.
        trained_model_path: Folder of the model.
        artifacts: Further files by what they are.
        history: The evaluations during training, oldest first.
    """

    run_id: str
    model: str
    config: dict[str, Any]
    metrics: TrainingMetrics
    baseline: TrainingMetrics
    trained_model_path: str
    artifacts: dict[str, str] = field(default_factory=dict)
    history: list[dict[str, Any]] = field(default_factory=list)

    def to_dict(self) -> dict[str, Any]:
        """As JSON can hold it; numbers that are not finite become None."""
        result = {f.name: getattr(self, f.name) for f in dataclasses.fields(self)}
        result["metrics"] = self.metrics.to_dict()
        result["baseline"] = self.baseline.to_dict()
        cleaned: dict[str, Any] = clean(result)
        return cleaned

    @classmethod
    def from_dict(cls, values: Mapping[str, Any]) -> TrainingResult:
        """Reads what `to_dict` wrote.

        Raises:
            FormatError: If something is missing, unknown or of the wrong type.
        """
        given = _fields(cls, values, "result")
        for name, value in given.items():
            kind = _KINDS.get(name, dict)
            if not isinstance(value, kind):
                raise _wrong(name, _KIND_NAMES[kind], value)
        given["metrics"] = TrainingMetrics.from_dict(given["metrics"])
        given["baseline"] = TrainingMetrics.from_dict(given["baseline"])
        return cls(**given)

    def save(self, path: Path | str) -> None:
        """Writes the result as JSON, whole or not at all."""
        data = {"format": FORMAT, "version": VERSION, **self.to_dict()}
        text = json.dumps(data, indent=2, allow_nan=False)
        atomic_write_text(path, f"{text}\n")

    @classmethod
    def load(cls, path: Path | str) -> TrainingResult:
        """Reads what `save` wrote.

        Raises:
            FormatError: If the file is missing, truncated, foreign, or of another
                version.
        """
        try:
            data = json.loads(Path(path).read_bytes())
        except OSError as error:
            raise FormatError(
                f"{path} cannot be read: {error.strerror or error}."
            ) from None
        except (ValueError, RecursionError):
            raise FormatError(
                f"{path} is truncated or no JSON. Train again, or take a backup."
            ) from None
        if not isinstance(data, dict) or data.get("format") != FORMAT:
            raise FormatError(f"{path} is no training result of AgentGym.")
        version = data.get("version")
        if version != VERSION:
            newer = isinstance(version, int) and version > VERSION
            advice = "Update AgentGym" if newer else "Train again"
            raise FormatError(
                f"{path} has format version {version!r}; this AgentGym reads version "
                f"{VERSION}. {advice}."
            )
        values = {k: v for k, v in data.items() if k not in ("format", "version")}
        try:
            return cls.from_dict(values)
        except FormatError as error:
            raise FormatError(f"{path}: {error}") from None

    @property
    def agent(self) -> TrainedAgent:
        """The trained agent, read from its folder."""
        from agentgym.core.trained_agent import TrainedAgent

        return TrainedAgent.load(Path(self.trained_model_path))

    def to_langchain(self, **options: Any) -> Any:
        """The trained agent for LangChain; see `TrainedAgent.to_langchain`."""
        return self.agent.to_langchain(**options)

    def to_autogen(self, **options: Any) -> Any:
        """The trained agent for AutoGen; see `TrainedAgent.to_autogen`."""
        return self.agent.to_autogen(**options)

    def to_crewai(self, **options: Any) -> Any:
        """The trained agent for CrewAI; see `TrainedAgent.to_crewai`."""
        return self.agent.to_crewai(**options)

    def summary(self) -> list[SummaryRow]:
        """Rows of a before/after table: the untrained policy, then the trained one."""
        before, after = self.baseline, self.metrics
        return [
            SummaryRow(
                "Tool reliability",
                _share(before.tool_reliability, before.tool_reliability_interval),
                _share(after.tool_reliability, after.tool_reliability_interval),
            ),
            *self._free_form(),
            SummaryRow(
                "Task success",
                _share(before.task_success, before.task_success_interval),
                _share(after.task_success, after.task_success_interval),
            ),
            *(
                SummaryRow(
                    name.replace("_", " ").capitalize(),
                    _measure(before, name),
                    _measure(after, name),
                )
                for name in after.measures
            ),
            SummaryRow(
                "Tokens per task",
                f"{before.avg_tokens_used:,.0f}",
                f"{after.avg_tokens_used:,.0f}",
            ),
            SummaryRow(
                "Response time per task",
                _seconds(before.avg_response_time),
                _seconds(after.avg_response_time),
            ),
            SummaryRow("Cost per solved task", _dollars(before), _dollars(after)),
            SummaryRow("Cost reduction", "", _share(after.cost_reduction)),
            SummaryRow(
                f"Time savings (against {after.manual_hours:g} h by hand)",
                "",
                _share(after.time_savings),
            ),
            SummaryRow("Episodes", "", f"{after.episodes_completed:,}"),
            SummaryRow("Training time", "", _seconds(after.total_training_time)),
            SummaryRow("Held-out tasks", f"{before.tasks:,}", f"{after.tasks:,}"),
        ]

    def _free_form(self) -> list[SummaryRow]:
        if self.metrics.free_form_reliability is None:
            return []
        before, after = (
            _share(m.free_form_reliability, m.free_form_reliability_interval)
            for m in (self.baseline, self.metrics)
        )
        return [SummaryRow("Free-form reliability", before, after)]


_KINDS: dict[str, type] = {
    "run_id": str,
    "model": str,
    "trained_model_path": str,
    "history": list,
}
_KIND_NAMES: dict[type, str] = {str: "text", list: "a list", dict: "a mapping"}


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


def _fields(cls: type, values: Mapping[str, Any], what: str) -> dict[str, Any]:
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
        raise _wrong(name, "a number", value)
    return value


def _wrong(name: str, wanted: str, value: Any) -> FormatError:
    return FormatError(f"{name} should be {wanted}, not {type(value).__name__}.")


def _share(value: float | None, interval: Interval | None = None) -> str:
    if value is None:
        return ""
    if interval is None:
        return f"{value:.1%}"
    return f"{value:.1%} ({100 * interval.low:.1f} to {100 * interval.high:.1f})"


def _measure(metrics: TrainingMetrics, name: str) -> str:
    found = metrics.measures.get(name)
    if found is None:
        return ""
    return _share(found["value"], Interval(found["low"], found["high"]))


def _dollars(metrics: TrainingMetrics) -> str:
    least = "at least " if metrics.task_success == 0 else ""
    return f"{least}${metrics.cost_per_solved_task:.6f}"


def _seconds(value: float) -> str:
    return f"{1000 * value:.1f} ms" if value < 1 else f"{value:.1f} s"

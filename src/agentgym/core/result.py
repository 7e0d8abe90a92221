"""The result of a training run: measured figures, and where things are.

`agentgym.TrainingResult` is this class with the trained agent at hand; see
`core/trained_agent.py`.
"""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, NamedTuple, Self

from agentgym.core.metrics import (
    Interval,
    TrainingMetrics,
    checked_fields,
    clean,
    wrong_type,
)
from agentgym.errors import FormatError
from agentgym.utils.files import atomic_write_text

__all__ = ["Interval", "SummaryRow", "TrainingMetrics", "TrainingResult"]

FORMAT = "agentgym-result"
VERSION = 1


class SummaryRow(NamedTuple):
    """One line of a before/after table, as text; "" where nothing was measured."""

    label: str
    before: str
    after: str


@dataclass(slots=True)
class TrainingResult:
    """What a run produced.

    Attributes:
        run_id: The run in the store.
        model: Name and version of the model.
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
    def from_dict(cls, values: Mapping[str, Any]) -> Self:
        """Reads what `to_dict` wrote.

        Raises:
            FormatError: If something is missing, unknown or of the wrong type.
        """
        given = checked_fields(cls, values, "result")
        for name, value in given.items():
            kind = _KINDS.get(name, dict)
            if not isinstance(value, kind):
                raise wrong_type(name, _KIND_NAMES[kind], value)
        given["metrics"] = TrainingMetrics.from_dict(given["metrics"])
        given["baseline"] = TrainingMetrics.from_dict(given["baseline"])
        return cls(**given)

    def save(self, path: Path | str) -> None:
        """Writes the result as JSON, whole or not at all."""
        data = {"format": FORMAT, "version": VERSION, **self.to_dict()}
        text = json.dumps(data, indent=2, allow_nan=False)
        atomic_write_text(path, f"{text}\n")

    @classmethod
    def load(cls, path: Path | str) -> Self:
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
                f"{path} is truncated or isn't valid JSON. Train again, or restore a "
                "backup."
            ) from None
        if not isinstance(data, dict) or data.get("format") != FORMAT:
            raise FormatError(f"{path} isn't a training result of AgentGym.")
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

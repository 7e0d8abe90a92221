"""The result of a training run: measured figures, and where things are.

`agentgym.TrainingResult` is this class with the trained agent at hand; see
`core/trained_agent.py`.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Self

from agentgym.core.metrics import (
    Interval,
    TrainingMetrics,
    checked_fields,
    clean,
    wrong_type,
)
from agentgym.core.tables import before_after, time_savings
from agentgym.errors import FormatError
from agentgym.utils.files import JsonFormat

__all__ = ["Interval", "TrainingMetrics", "TrainingResult"]

_FORMAT = JsonFormat("agentgym-result", 1, "an AgentGym training result")


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
        _FORMAT.write(path, self.to_dict())

    @classmethod
    def load(cls, path: Path | str) -> Self:
        """Reads what `save` wrote.

        Raises:
            FormatError: If the file is missing, truncated, foreign, or of another
                version.
        """
        values = _FORMAT.read(path)
        try:
            return cls.from_dict(values)
        except FormatError as error:
            raise FormatError(f"{path}: {error}") from None

    def __str__(self) -> str:
        """The untrained and the trained policy beside each other, as a table."""
        before, after = self.baseline.to_dict(), self.metrics.to_dict()
        table = before_after(before, after, {}).plain()
        return f"{self.model}, run {self.run_id}\n{table}\n{time_savings(after, {})}"


_KINDS: dict[str, type] = {
    "run_id": str,
    "model": str,
    "trained_model_path": str,
    "history": list,
}
_KIND_NAMES: dict[type, str] = {str: "text", list: "a list", dict: "a mapping"}

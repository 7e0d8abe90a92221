"""A task's plan: the calls that answer its question; others are judged by it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from agentgym.core.tools import ToolCall
from agentgym.scenarios.planned import Milestone

if TYPE_CHECKING:
    from agentgym.scenarios.data_analysis.charts import Shown

SYSTEM_PROMPT = (
    "You answer questions about data files. Load the file, compute with as few calls "
    "as you can, draw a chart if one is wanted, answer with the value, then close."
)

_TOLERANCE = 0.005
"""By which an answer in numbers may be off, as a share of it."""


@dataclass(frozen=True, slots=True)
class Goal:
    """How a task is judged.

    Attributes:
        plan: The calls that answer the question with the least scanned, in order; the
            last one is the answer.
        rows: Scanned by the plan, without loading the file.
        bytes: The same.
        charts: What a right chart shows: any of these; empty if none is wanted.
        file_rows: Scanned by loading the file that the question names.
        file_bytes: The same.
    """

    plan: tuple[Milestone, ...]
    rows: int
    bytes: int
    charts: tuple[Shown, ...]
    file_rows: int
    file_bytes: int

    def efficiency(self, rows: int, size: int) -> float:
        """What the plan scans against what was scanned, 0 to 1: rows and bytes.

        Loading the file that the question names is left out on both sides: it is the
        same in every plan.
        """
        rows, size = rows - self.file_rows, size - self.file_bytes
        by_rows = self.rows / rows if rows > self.rows else 1.0
        by_bytes = self.bytes / size if size > self.bytes else 1.0
        return (by_rows + by_bytes) / 2


def wrong_arguments(due: Milestone, call: ToolCall) -> frozenset[str]:
    """Names of the arguments that are not as they should be.

    What the plan leaves open may be anything, and correlation is the same both ways.
    """
    wanted = dict(due.arguments)
    wrong = _differing(wanted, call.arguments)
    if wanted.get("other") is None:
        return wrong
    wanted["column"], wanted["other"] = wanted["other"], wanted["column"]
    return min(wrong, _differing(wanted, call.arguments), key=len)


def _differing(wanted: Mapping[str, Any], given: Mapping[str, Any]) -> frozenset[str]:
    return frozenset(n for n, v in wanted.items() if not _equal(v, given.get(n)))


def _equal(wanted: Any, given: Any) -> bool:
    if isinstance(wanted, int | float) and isinstance(given, int | float):
        return abs(wanted - given) <= _TOLERANCE * abs(wanted)
    return bool(wanted == given)

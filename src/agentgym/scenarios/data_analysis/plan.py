"""A task's plan: the calls that answer its question, to judge an agent's calls by."""

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
"""Relative tolerance for numbers in answers."""


@dataclass(frozen=True, slots=True)
class Goal:
    """How a task is judged.

    Attributes:
        plan: The calls that answer the question with the least data scanned, in order;
            the last one is the answer.
        rows: Rows scanned by the plan, without loading the file.
        bytes: Bytes scanned by the plan, without loading the file.
        charts: The contents of right charts; empty if the user wants no chart.
        file_rows: Rows scanned by loading the question's file.
        file_bytes: Bytes scanned by loading the question's file.
    """

    plan: tuple[Milestone, ...]
    rows: int
    bytes: int
    charts: tuple[Shown, ...]
    file_rows: int
    file_bytes: int

    def efficiency(self, rows: int, size: int) -> float:
        """The plan's scans divided by the actual scans, 0 to 1, for rows and bytes.

        Loading the question's file doesn't count on either side, because every plan
        does it.
        """
        rows, size = rows - self.file_rows, size - self.file_bytes
        by_rows = self.rows / rows if rows > self.rows else 1.0
        by_bytes = self.bytes / size if size > self.bytes else 1.0
        return (by_rows + by_bytes) / 2


def wrong_arguments(due: Milestone, call: ToolCall) -> frozenset[str]:
    """The names of a call's wrong arguments.

    Arguments that the plan leaves open may be anything, and the two columns of a
    correlation may be swapped.
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

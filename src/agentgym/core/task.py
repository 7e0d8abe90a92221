"""A task: one thing for an agent to do."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, Literal, get_args

Message = dict[str, Any]
"""An OpenAI-style chat message."""

Split = Literal["train", "validation", "heldout"]
SPLITS: tuple[Split, ...] = get_args(Split)

Difficulty = Literal["easy", "medium", "hard"]
DIFFICULTIES: tuple[Difficulty, ...] = get_args(Difficulty)


@dataclass(frozen=True, slots=True)
class Task:
    """One thing to do.

    Attributes:
        id: Unique within its scenario and split; the same id is the same task.
        messages: The conversation with which the episode opens.
        world: What the scenario needs to build the world the task happens in.
        goal: What the scenario needs to judge calls and outcome. Agents never see it.
        best_steps: Decisions of the shortest right course, the closing answer
            included. An episode that needs no more than these was "fast".
        difficulty: From properties of the task, not from how agents do on it.
        split: Which part of the data it belongs to.
        tags: What kind of task it is, for tables (intents, for example).
    """

    id: str
    messages: tuple[Message, ...]
    world: Any = None
    goal: Any = None
    best_steps: int = 1
    difficulty: Difficulty = "easy"
    split: Split = "train"
    tags: tuple[str, ...] = field(default=())

"""Tasks for agents."""

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
    """A task for an agent.

    Attributes:
        id: Unique within its scenario and split; equal ids mean equal tasks.
        messages: The messages that open the conversation.
        world: What the scenario needs to create the task's world.
        goal: What the scenario needs to judge calls and outcome. Agents never see it.
        best_steps: Number of decisions in the shortest right course, including the
            final answer. Episodes with no more decisions than this count as "fast".
        difficulty: Estimated from the task, not from how agents perform.
        split: The part of the data it belongs to.
        tags: Labels for tables, for example intents.
    """

    id: str
    messages: tuple[Message, ...]
    world: Any = None
    goal: Any = None
    best_steps: int = 1
    difficulty: Difficulty = "easy"
    split: Split = "train"
    tags: tuple[str, ...] = field(default=())


@dataclass(frozen=True, slots=True)
class TaskSource:
    """How a task was drawn, so that another process can draw it again.

    Attributes:
        seed: Of the draw.
        count: Tasks of the draw.
        index: Of the task among them.
        difficulty: That was asked for, if any.
    """

    split: Split
    seed: int
    count: int
    index: int
    difficulty: Difficulty | None = None

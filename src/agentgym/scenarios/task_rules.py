"""The rules that a scenario's tasks keep; see `rules.py`."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from agentgym.core.task import SPLITS, Task
from agentgym.scenarios.probing import TASKS, Bench

_ROLES = ("system", "user", "assistant", "tool")


def tasks_exist(bench: Bench) -> str:
    """Each split gives as many tasks as are asked for, or all that it has."""
    for split in SPLITS:
        tasks: Sequence[Any] = bench.draw(split, 0)
        # A small split is measured once; in training, tasks recur.
        if not tasks or len(tasks) > TASKS or (split == "train" and len(tasks) < TASKS):
            return (
                f"tasks('{split}', seed=0, count={TASKS}) gives {len(tasks)} tasks. "
                "Give as many as asked for; in training they may recur."
            )
        for task in tasks:
            if not isinstance(task, Task):
                return f"tasks('{split}') gives {task!r}. Give objects of type Task."
            if task.split != split:
                return f"Task '{task.id}' of '{split}' has split '{task.split}'."
            if not task.messages:
                return f"Task '{task.id}' has no messages. Give it an opening."
    return ""


def tasks_open_with_user(bench: Bench) -> str:
    """Every task opens with chat messages, the last of them the user's."""
    for task in _all_tasks(bench):
        for message in task.messages:
            if not isinstance(message, dict) or message.get("role") not in _ROLES:
                return f"Task '{task.id}' opens with {message!r}, no chat message."
        last = task.messages[-1]
        if last["role"] != "user" or not str(last.get("content") or "").strip():
            return (
                f"Task '{task.id}' does not end its opening with the user. Add a "
                "message {'role': 'user', 'content': ...} that says what to do."
            )
    return ""


def tasks_deterministic(bench: Bench) -> str:
    """The same seed gives the same tasks."""
    for split in SPLITS:
        tasks = bench.tasks[split]
        again = bench.draw(split, 0)
        if len(tasks) != len(again):
            return f"tasks('{split}', seed=0) differ in number between two calls."
        for first, second in zip(tasks, again, strict=True):
            if _face(first) != _face(second):
                return (
                    f"tasks('{split}', seed=0) differ between two calls, at task "
                    f"'{first.id}'. Draw with random.Random(seed) only."
                )
    return ""


def seeds_differ(bench: Bench) -> str:
    """Another seed gives other training tasks."""
    if list(map(_opening, bench.tasks["train"])) == list(
        map(_opening, bench.draw("train", 1))
    ):
        return (
            "tasks('train') are the same for seeds 0 and 1. The trainer asks with a "
            "new seed in every iteration: draw, or at least shuffle, by the seed."
        )
    return ""


def task_ids_unique(bench: Bench) -> str:
    """Within a split, the same id is the same task."""
    for split in SPLITS:
        seen: dict[str, Any] = {}
        for task in [*bench.tasks[split], *bench.draw(split, 1)]:
            if seen.setdefault(task.id, _face(task)) != _face(task):
                return (
                    f"Two different tasks of '{split}' have the id '{task.id}'. Make "
                    "the id from all that makes the task, the seed included."
                )
    return ""


def splits_disjoint(bench: Bench) -> str:
    """Splits share no opening of the user."""
    seen: dict[str, str] = {}
    for split in SPLITS:
        for opening in {_opening(task) for task in bench.tasks[split]}:
            other = seen.setdefault(opening, split)
            if other != split:
                return (
                    f"'{other}' and '{split}' share the opening {opening[:60]!r}. What "
                    "is trained on must not be measured on: split the wordings."
                )
    return ""


def best_steps_positive(bench: Bench) -> str:
    """Every task's shortest course has at least one step."""
    for task in _all_tasks(bench):
        if type(task.best_steps) is not int or task.best_steps < 1:
            return (
                f"Task '{task.id}' has best_steps {task.best_steps!r}. Count the "
                "decisions of the shortest right course, the closing answer included."
            )
    return ""


def _all_tasks(bench: Bench) -> list[Task]:
    return [task for split in SPLITS for task in bench.tasks[split]]


def _opening(task: Task) -> str:
    return "\n".join(
        str(message.get("content")) for message in task.messages if _by_user(message)
    )


def _by_user(message: Any) -> bool:
    return isinstance(message, dict) and message.get("role") == "user"


def _face(task: Task) -> tuple[Any, ...]:
    # What can be compared of any task: worlds and goals may be objects of any kind.
    return (task.messages, task.best_steps, task.difficulty, task.tags)

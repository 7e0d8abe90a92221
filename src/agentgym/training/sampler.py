"""Tasks that are met again: those that went wrong, then those met longest ago.

What a batch of tasks has to teach lies mostly in those that go wrong. So a part of each
batch goes to earlier tasks: they are sampled anew, on the current weights. Those that
were not solved when they were last tried come first. Once few are left, solved ones
fill their places, so that a batch is as large as was asked for and what was learned is
not forgotten. An entry names its task by how it was drawn, so that a resumed run meets
the same tasks again.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Sequence

from agentgym.core.task import Task
from agentgym.core.trajectory import Group

MOST = 256
"""Entries of either kind that are kept; the oldest go first."""
_REST = 3
"""Iterations until a task is met again."""

Entry = list[int]
"""Number and size of the draw that the task came from, its position there, and the
iteration in which it was last tried."""
Draw = Callable[[int, int], Sequence[Task]]
"""(number, size) -> tasks."""


class Backlog:
    """Unsolved and solved tasks, oldest first."""

    def __init__(self, unsolved: list[Entry], solved: list[Entry], draw: Draw) -> None:
        """Takes up where a checkpoint's entries stand.

        Args:
            unsolved: Changed in place: they belong to the training's progress.
            solved: The same.
            draw: Draws tasks of the training split.
        """
        self._unsolved, self._solved = unsolved, solved
        entries = [*unsolved, *solved]
        draws = {(e[0], e[1]): draw(e[0], e[1]) for e in entries}
        self._tasks = {_key(e): draws[e[0], e[1]][e[2]] for e in entries}

    def take(self, iteration: int, most: int) -> list[tuple[Entry, Task]]:
        """Takes out tasks that have rested, up to so many."""
        ready = (
            (entries, entry)
            for entries in (self._unsolved, self._solved)
            for entry in entries
            if iteration - entry[3] >= _REST
        )
        taken = []
        for entries, entry in list(itertools.islice(ready, most)):
            entries.remove(entry)
            taken.append((entry, self._tasks.pop(_key(entry))))
        return taken

    def note(self, entry: Entry, group: Group, iteration: int) -> None:
        """Puts a task in. It is solved if all who started from its beginning did so."""
        started = [
            t for t in group.trajectories if not (t.steps and t.steps[0].replayed)
        ]
        done = all(t.unspoiled for t in started)
        entries = self._solved if done else self._unsolved
        entry = [*entry[:3], iteration]
        entries.append(entry)
        self._tasks[_key(entry)] = group.task
        if len(entries) > MOST:
            del self._tasks[_key(entries.pop(0))]


def _key(entry: Entry) -> tuple[int, int, int]:
    return entry[0], entry[1], entry[2]

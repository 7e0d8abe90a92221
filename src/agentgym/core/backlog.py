"""Tasks that were not solved when they were last tried, to be met again.

What a batch of tasks has to teach lies mostly in those that go wrong. So a part of each
batch goes to earlier tasks that did: they are sampled anew, on the current weights, and
leave the backlog once they are solved. An entry names its task by how it was drawn, so
that a resumed run meets the same tasks again.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from agentgym.core.task import Task
from agentgym.core.trajectory import Group

MOST = 256
"""Entries that are kept; the oldest go first."""
_REST = 3
"""Iterations until a task is met again."""

Entry = list[int]
"""Number and size of the draw that the task came from, its position there, and the
iteration in which it was last tried."""
Draw = Callable[[int, int], Sequence[Task]]
"""(number, size) -> tasks."""


class Backlog:
    """Unsolved tasks, oldest first."""

    def __init__(self, entries: list[Entry], draw: Draw) -> None:
        """Takes up where a checkpoint's entries stand.

        Args:
            entries: Changed in place: they belong to the training's progress.
            draw: Draws tasks of the training split.
        """
        self._entries = entries
        draws = {(e[0], e[1]): draw(e[0], e[1]) for e in entries}
        self._tasks = {_key(e): draws[e[0], e[1]][e[2]] for e in entries}

    def take(self, iteration: int, most: int) -> list[tuple[Entry, Task]]:
        """Takes out tasks that have rested, up to so many."""
        ready = [e for e in self._entries if iteration - e[3] >= _REST][:most]
        taken = [(entry, self._tasks.pop(_key(entry))) for entry in ready]
        kept = [e for e in self._entries if not any(e is r for r in ready)]
        self._entries[:] = kept
        return taken

    def note(self, entry: Entry, group: Group, iteration: int) -> None:
        """Puts a task in, unless all who started from its beginning solved it."""
        started = [
            t for t in group.trajectories if not (t.steps and t.steps[0].replayed)
        ]
        if all(t.success for t in started):
            return
        entry = [*entry[:3], iteration]
        self._entries.append(entry)
        self._tasks[_key(entry)] = group.task
        while len(self._entries) > MOST:
            self._tasks.pop(_key(self._entries.pop(0)), None)


def _key(entry: Entry) -> tuple[int, int, int]:
    return entry[0], entry[1], entry[2]

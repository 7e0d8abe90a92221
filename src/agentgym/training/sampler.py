"""Which tasks a training plays: new ones and some earlier ones.

A batch teaches mostly through tasks that go wrong. So a part of each batch
goes to earlier tasks, sampled again on the current weights. Those that were not solved
when they were last tried come first. Once few are left, solved ones fill their places,
so that what was learned is not forgotten.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping, Sequence
from functools import lru_cache
from typing import Any

from agentgym.core.task import Difficulty, Split, Task, TaskSource
from agentgym.core.trajectory import Group, GroupPlan
from agentgym.errors import ScenarioError
from agentgym.scenarios.base import Scenario

MOST = 256
"""Solved tasks that are remembered, and as many others; the oldest go first."""
_REST = 3
"""Iterations until a task is met again."""


class Sampler:
    """Plans iterations: `plan`, then `note` what was played.

    Everything follows from the seed and from what was noted. `state` holds all of it
    as plain data: the code that saves it need not know what it means.

    Args:
        scenario: Whose tasks are played.
        seed: Of the training.
        revisit: Share of a batch for earlier tasks.
    """

    def __init__(self, scenario: Scenario, seed: int, revisit: float = 0.0) -> None:
        self._scenario = scenario
        self._seed = seed
        self._revisit = revisit
        self._iteration = 0
        self._unsolved: dict[TaskSource, int] = {}
        """Iteration in which each was last tried, oldest first."""
        self._solved: dict[TaskSource, int] = {}
        self._kept: dict[TaskSource, Task] = {}
        """Tasks of both, as far as they were drawn here."""
        # Tasks drawn ahead are those of the next iteration: they are drawn only once.
        self._drawn = lru_cache(maxsize=4)(self._draw)

    def plan(
        self,
        tasks: int,
        group_size: int,
        *,
        difficulty: Difficulty | None = None,
        **options: Any,
    ) -> list[GroupPlan]:
        """The groups of the next iteration.

        Args:
            tasks: Groups, at most.
            group_size: Siblings of each, at most.
            difficulty: Of new tasks; any by default.
            **options: Further fields of `GroupPlan`, the same for all.
        """
        again = self._take(int(tasks * self._revisit))
        count = tasks - int(tasks * self._revisit)
        number = self._number(self._iteration)
        fresh = self._drawn("train", number, count, difficulty)
        sources = [
            TaskSource("train", number, count, i, difficulty) for i in range(len(fresh))
        ]
        planned = [
            *zip(sources, fresh, strict=True),
            *((s, self.task(s)) for s in again),
        ]
        for source in again:
            self._kept.pop(source, None)
        return [
            GroupPlan(
                task,
                group_size,
                seed=(self._seed, self._iteration),
                position=position,
                version=self._iteration,
                source=source,
                **options,
            )
            for position, (source, task) in enumerate(planned)
        ]

    def ahead(self, tasks: int, difficulty: Difficulty | None = None) -> Sequence[Task]:
        """The new tasks of the next iteration, if it is as large."""
        count = tasks - int(tasks * self._revisit)
        return self._drawn(
            "train", self._number(self._iteration + 1), count, difficulty
        )

    def note(self, plans: Sequence[GroupPlan], groups: Sequence[Group]) -> None:
        """Records how the groups of an iteration went and moves to the next."""
        for plan, group in zip(plans, groups, strict=True):
            assert plan.source is not None
            started = [
                t for t in group.trajectories if not (t.steps and t.steps[0].replayed)
            ]
            solved = all(t.success is True for t in started)
            known = self._solved if solved else self._unsolved
            known[plan.source] = self._iteration
            self._kept[plan.source] = plan.task
            if len(known) > MOST:
                oldest = next(iter(known))
                del known[oldest]
                self._kept.pop(oldest, None)
        self._iteration += 1

    def task(self, source: TaskSource) -> Task:
        """Draws a task again."""
        if source in self._kept:
            return self._kept[source]
        drawn = self._drawn(source.split, source.seed, source.count, source.difficulty)
        return drawn[source.index]

    def state(self) -> dict[str, Any]:
        """All that `note` has changed, as plain data."""
        return {
            "iteration": self._iteration,
            "unsolved": [
                [*dataclasses.astuple(s), i] for s, i in self._unsolved.items()
            ],
            "solved": [[*dataclasses.astuple(s), i] for s, i in self._solved.items()],
        }

    def load_state(self, state: Mapping[str, Any]) -> None:
        """Restores what `state` returned."""
        self._iteration = int(state["iteration"])
        for known, rows in (
            (self._unsolved, state["unsolved"]),
            (self._solved, state["solved"]),
        ):
            known.clear()
            known.update((TaskSource(*row[:-1]), int(row[-1])) for row in rows)

    def _number(self, iteration: int) -> int:
        return self._seed * 1_000_003 + iteration + 1

    def _take(self, most: int) -> list[TaskSource]:
        """Takes out tasks that have rested, up to so many."""
        taken: list[TaskSource] = []
        for known in (self._unsolved, self._solved):
            rested = [s for s, i in known.items() if self._iteration - i >= _REST]
            for source in rested[: most - len(taken)]:
                del known[source]
                taken.append(source)
        return taken

    def _draw(
        self, split: Split, seed: int, count: int, difficulty: Difficulty | None
    ) -> Sequence[Task]:
        return draw_tasks(self._scenario, split, seed, count, difficulty)


def draw_tasks(
    scenario: Scenario,
    split: Split,
    seed: int,
    count: int,
    difficulty: Difficulty | None = None,
) -> Sequence[Task]:
    """Tasks of a scenario, at least one.

    Raises:
        ScenarioError: The split has no tasks, so nothing can be learned or measured.
    """
    if difficulty is None:
        tasks = scenario.tasks(split, seed, count)
    else:
        tasks = scenario.tasks_of(difficulty, split, seed, count)
    if not tasks:
        kind = f"{difficulty} tasks" if difficulty else "tasks"
        raise ScenarioError(
            f"Scenario '{scenario.name}' has no {kind} in the split '{split}'. Its "
            "`tasks` method must return at least one."
        )
    return tasks

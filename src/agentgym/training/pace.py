"""How far tasks are played in training.

Reading a conversation is what training a language model costs, and mistakes are what it
learns from. They are not spread evenly: the first decision, at which a request must be
understood, may go wrong ten times as often as the closing answer. So a task is played
on, past a right decision, with a probability that falls with how often the decisions to
come go wrong, compared with the first decisions of other tasks. What was left out is
not taken for a failure, nor for a success: see `Trajectory.cut_short`.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from agentgym.core.trajectory import Group

_MEMORY = 0.98
"""Weight of what was seen before, for each episode that is seen."""

Seen = list[float]
"""Decisions and mistakes at one depth; older ones count less."""


class Pace:
    """Counts mistakes by depth: the number of decisions that came before.

    Args:
        seen: One entry for each depth. Changed in place: it belongs to the training's
            progress.
        least: Share of tasks that are played to their end, at least.
    """

    def __init__(self, seen: list[Seen], least: float) -> None:
        self._seen = seen
        self._least = least

    def horizons(self, count: int, rng: np.random.Generator) -> list[int | None]:
        """For each task of a batch, the right decisions after which it is left.

        None means that it is played to its end.
        """
        if self._least >= 1.0:
            return [None] * count
        shares = self.shares()
        # Shares fall with the depth, so that one number tells how far a task goes.
        return [
            next((depth for depth, s in enumerate(shares) if drawn >= s), None)
            for drawn in rng.random(count)
        ]

    def shares(self) -> list[float]:
        """Share of tasks that are played on at each depth, as far as any was played."""
        rates = [mistakes / decisions for decisions, mistakes in self._seen]
        # As likely as the likeliest mistake that is still to come.
        return [
            1.0
            if depth == 0
            else min(1.0, max(self._least, max(rates[depth:]) / max(rates[0], 1e-9)))
            for depth in range(len(rates))
        ]

    def note(self, groups: Sequence[Group]) -> None:
        """Takes in the episodes that began at the beginning."""
        for trajectory in (t for group in groups for t in group.trajectories):
            if trajectory.failure is not None or trajectory.steps[0].replayed:
                continue
            for depth, step in enumerate(trajectory.steps):
                if depth == len(self._seen):
                    self._seen.append([0.0, 0.0])
                seen = self._seen[depth]
                seen[0] = _MEMORY * seen[0] + 1.0
                seen[1] = _MEMORY * seen[1] + (step.correct is False)
                if step.correct is False:
                    break

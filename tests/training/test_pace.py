"""How far tasks are played: mistakes by depth, and what is drawn from them."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from agentgym.core.task import Task
from agentgym.core.trajectory import Group, Step, Trajectory
from agentgym.training.pace import Pace

TASK = Task("task", ())


def episode(*right: bool, replayed: int = 0) -> Trajectory:
    steps = [Step({}, correct=r, replayed=i < replayed) for i, r in enumerate(right)]
    return Trajectory(TASK, steps)


def noted(*episodes: Trajectory, least: float = 0.1) -> Pace:
    pace = Pace([], least)
    pace.note([Group(TASK, list(episodes))])
    return pace


def test_nothing_is_left_out_if_all_is_to_be_played() -> None:
    pace = noted(episode(False), episode(True, True), least=1.0)
    rng = np.random.default_rng(0)
    assert pace.horizons(3, rng) == [None] * 3
    # Nor is anything drawn: other trainings go on as they were.
    assert rng.random() == np.random.default_rng(0).random()


def test_nothing_is_left_out_before_anything_was_seen() -> None:
    assert Pace([], 0.1).horizons(2, np.random.default_rng(0)) == [None, None]


def test_shares_follow_the_mistakes_to_come() -> None:
    half = [episode(True, True, True), episode(False)] * 50
    late = [episode(True, True, i % 4 > 0) for i in range(100)]
    # First decisions go wrong as often as not, and others never.
    first, second, third = noted(*half).shares()
    assert (first, second, third) == (1.0, 0.1, 0.1)
    mixed = [e for pair in zip(half, late, strict=True) for e in pair]
    first, second, third = noted(*mixed).shares()
    assert first == 1.0 and second == third == pytest.approx(0.67, abs=0.1)


def test_horizons_are_drawn_by_the_shares() -> None:
    pace = noted(*[episode(True, True), episode(False)] * 50, least=0.25)
    drawn = pace.horizons(4000, np.random.default_rng(0))
    assert set(drawn) == {1, None}
    assert drawn.count(None) / 4000 == pytest.approx(0.25, abs=0.03)


def test_only_what_began_at_the_beginning_counts() -> None:
    seen: list[list[float]] = []
    broken = episode(False)
    broken.failure = "agent_crash"  # type: ignore[assignment]
    repeated = episode(True, False, replayed=1)
    Pace(seen, 0.1).note([Group(TASK, [broken, repeated])])
    assert seen == []
    Pace(seen, 0.1).note([Group(TASK, [episode(True, False, False)])])
    assert seen == [[1.0, 0.0], [1.0, 1.0]]  # What follows a mistake is no measure.


@given(st.lists(st.lists(st.booleans(), min_size=1, max_size=6), max_size=30))
def test_shares_fall_and_stay_within_bounds(episodes: list[list[bool]]) -> None:
    shares = noted(*(episode(*e) for e in episodes), least=0.2).shares()
    assert all(0.2 <= share <= 1.0 for share in shares)
    assert shares == sorted(shares, reverse=True)

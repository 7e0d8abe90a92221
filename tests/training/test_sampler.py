"""The backlog: what went wrong is met again first, in order, within a bound."""

from __future__ import annotations

from collections.abc import Sequence

from agentgym.core.task import Task
from agentgym.core.trajectory import Group, Step, Trajectory
from agentgym.training.sampler import MOST, Backlog, Entry


def draw(number: int, size: int) -> Sequence[Task]:
    return [Task(f"{number}-{size}-{i}", ()) for i in range(size)]


def group(entry: Entry, *solved: bool) -> Group:
    task = draw(entry[0], entry[1])[entry[2]]
    episodes = [Trajectory(task, [Step({})], success=s) for s in solved]
    return Group(task, episodes)


def taken(backlog: Backlog, iteration: int, most: int = 99) -> list[str]:
    return [task.id for _, task in backlog.take(iteration, most)]


def test_what_was_not_solved_is_met_again_after_a_rest() -> None:
    backlog = Backlog([], [], draw)
    backlog.note([5, 4, 0], group([5, 4, 0], True, False), 10)
    backlog.note([5, 4, 1], group([5, 4, 1], False, False), 10)
    assert taken(backlog, 11) == []
    assert taken(backlog, 13, most=1) == ["5-4-0"]
    assert taken(backlog, 13) == ["5-4-1"]
    assert taken(backlog, 99) == []


def test_what_was_solved_only_fills_up() -> None:
    backlog = Backlog([], [], draw)
    for i, solved in enumerate([True, False, True, False]):
        backlog.note([5, 4, i], group([5, 4, i], solved), 10)
    assert taken(backlog, 13, most=3) == ["5-4-1", "5-4-3", "5-4-0"]
    assert taken(backlog, 13) == ["5-4-2"]


def test_only_those_who_started_from_the_beginning_count() -> None:
    backlog = Backlog([], [], draw)
    some = group([1, 1, 0], True, True)
    fork = Trajectory(some.task, [Step({}, replayed=True)], success=False)
    some.trajectories.append(fork)
    backlog.note([2, 1, 0], some, 0)
    backlog.note([1, 1, 0], group([1, 1, 0], False), 0)
    assert taken(backlog, 9, most=1) == ["1-1-0"]


def test_a_resumed_run_meets_the_same_tasks() -> None:
    unsolved: list[Entry] = []
    solved: list[Entry] = []
    backlog = Backlog(unsolved, solved, draw)
    for i in range(6):
        backlog.note([i, 7, i], group([i, 7, i], i < 2), i)
    resumed = Backlog([*map(list, unsolved)], [*map(list, solved)], draw)
    expected = [f"{i}-7-{i}" for i in (2, 3, 4, 0, 1)]
    assert taken(resumed, 7) == taken(backlog, 7) == expected
    assert taken(resumed, 20) == taken(backlog, 20) == ["5-7-5"]


def test_an_entry_says_when_it_was_last_tried() -> None:
    backlog = Backlog([[3, 2, 1, 0]], [], draw)
    (entry, task), *_ = backlog.take(50, 1)
    backlog.note(entry, Group(task, [Trajectory(task, [Step({})], success=False)]), 50)
    assert taken(backlog, 52) == []
    assert taken(backlog, 53) == ["3-2-1"]


def test_the_oldest_are_forgotten() -> None:
    unsolved: list[Entry] = []
    solved: list[Entry] = []
    backlog = Backlog(unsolved, solved, draw)
    for i in range(MOST + 10):
        backlog.note([i, 1, 0], group([i, 1, 0], False), 0)
        backlog.note([i, 2, 0], group([i, 2, 0], True), 0)
    assert len(unsolved) == len(solved) == MOST
    assert taken(backlog, 9, most=1) == ["10-1-0"]

"""Properties of advantages: what siblings teach, and what they must not."""

from __future__ import annotations

import math
from collections.abc import Sequence

import pytest
from hypothesis import given
from hypothesis import strategies as st

from agentgym.core.rewards import (
    Credit,
    argument_advantage,
    assign_advantages,
    comparable_rewards,
    normalized,
    rewards_to_go,
)
from agentgym.core.task import Task
from agentgym.core.tools import ToolCall
from agentgym.core.trajectory import Group, Step, Trajectory

TASK = Task("t", ({"role": "user", "content": "do it"},))
CREDITS: tuple[Credit, ...] = ("state", "broadcast")

rewards = st.integers(-40, 40).map(lambda n: n / 8)
episode_rewards = st.lists(rewards, min_size=1, max_size=5)
episodes = st.lists(episode_rewards, min_size=2, max_size=8)
discounts = st.floats(0.01, 0.99)


def trajectory(
    values: Sequence[float | None], correct: bool | None = None, path: str = ""
) -> Trajectory:
    """An episode whose n-th state is shared with siblings, unless `path` differs."""
    steps = [
        Step({}, state_key=f"{path}{i}", reward=value, correct=correct)
        for i, value in enumerate(values)
    ]
    return Trajectory(TASK, steps)


def group(*some: Trajectory) -> Group:
    return Group(TASK, list(some))


def advantages(of: Trajectory) -> list[float | None]:
    return [step.advantage for step in of.steps]


def parameter_advantages(of: Trajectory) -> list[float | None]:
    return [step.parameter_advantage for step in of.steps]


@given(st.lists(st.floats(-1e6, 1e6), min_size=2, max_size=20))
def test_normalized_has_mean_zero_and_deviation_one(values: list[float]) -> None:
    result = normalized(values)
    if result is None:
        assert max(values) - min(values) <= 1e-5 * max(1.0, *map(abs, values))
        return
    assert math.fsum(result) / len(result) == pytest.approx(0.0, abs=1e-6)
    squares = math.fsum(value**2 for value in result) / len(result)
    assert squares == pytest.approx(1.0, abs=1e-6)


@given(st.lists(rewards, min_size=2, max_size=20))
def test_normalized_keeps_the_order(values: list[float]) -> None:
    result = normalized(values)
    if result is None:
        return
    for a, b in zip(values, result, strict=True):
        for c, d in zip(values, result, strict=True):
            assert (a < c) == (b < d)


@given(rewards, st.integers(0, 9))
def test_equal_values_are_no_signal(value: float, count: int) -> None:
    assert normalized([value] * count) is None


@given(episode_rewards, discounts)
def test_rewards_to_go_lie_between_those_that_are_left(
    values: list[float], discount: float
) -> None:
    result = rewards_to_go(values, discount)
    assert len(result) == len(values)
    assert result[-1] == values[-1]
    for i, value in enumerate(result):
        left = values[i:]
        assert min(left) - 1e-9 <= value <= max(left) + 1e-9


def test_rewards_to_go_by_hand() -> None:
    assert rewards_to_go([], 0.5) == []
    assert rewards_to_go([1.0, 4.0], 0.5) == [(1 + 0.5 * 4) / 1.5, 4.0]


@given(rewards, st.integers(1, 9), st.integers(1, 9), discounts)
def test_a_mean_does_not_pay_for_dawdling(
    value: float, short: int, long: int, discount: float
) -> None:
    first = rewards_to_go([value] * short, discount)[0]
    assert first == pytest.approx(rewards_to_go([value] * long, discount)[0])


@pytest.mark.parametrize("credit", CREDITS)
@given(data=episodes, discount=discounts)
def test_advantages_of_what_is_compared_have_mean_zero(
    credit: Credit, data: list[list[float]], discount: float
) -> None:
    some = [trajectory(values) for values in data]
    assign_advantages([group(*some)], credit, discount)
    if credit == "broadcast":
        firsts = [t.steps[0].advantage for t in some]
        _assert_centered(firsts)
        for t in some:
            assert len(set(advantages(t))) == 1
        return
    for i in range(max(map(len, data))):
        _assert_centered([t.steps[i].advantage for t in some if len(t.steps) > i])


def _assert_centered(values: list[float | None]) -> None:
    given_values = [value for value in values if value is not None]
    assert len(given_values) in (0, len(values))
    assert math.fsum(given_values) == pytest.approx(0.0, abs=1e-6)


@given(data=episodes, discount=discounts)
def test_the_better_sibling_has_the_higher_advantage(
    data: list[list[float]], discount: float
) -> None:
    some = [trajectory(values) for values in data]
    assign_advantages([group(*some)], "state", discount)
    for a in some:
        for b in some:
            one, other = a.steps[0].advantage, b.steps[0].advantage
            if one is None or other is None:
                continue
            first = rewards_to_go([s.reward or 0.0 for s in a.steps], discount)[0]
            second = rewards_to_go([s.reward or 0.0 for s in b.steps], discount)[0]
            if first > second + 1e-9:
                assert one > other


@pytest.mark.parametrize("credit", CREDITS)
@given(data=episodes, hole=st.integers(0, 4), discount=discounts)
def test_an_unrewarded_episode_is_left_out_never_taken_as_zero(
    credit: Credit, data: list[list[float]], hole: int, discount: float
) -> None:
    alone = [trajectory(values) for values in data]
    assign_advantages([group(*alone)], credit, discount)

    values: list[float | None] = list(data[0])
    values[hole % len(values)] = None
    unjudged = trajectory(values)
    with_it = [trajectory(values) for values in data]
    signal = assign_advantages([group(unjudged, *with_it)], credit, discount)

    assert signal.unrewarded == 1
    assert advantages(unjudged) == [None] * len(unjudged.steps)
    assert [advantages(t) for t in with_it] == [advantages(t) for t in alone]


def test_an_episode_without_steps_is_unrewarded() -> None:
    signal = assign_advantages([group(trajectory([]), trajectory([1.0]))], "state", 0.9)
    assert signal.unrewarded == 1


@pytest.mark.parametrize("credit", CREDITS)
def test_groups_without_variance_are_counted_and_teach_nothing(
    credit: Credit,
) -> None:
    same = group(trajectory([1.0, 2.0], True), trajectory([1.0, 2.0], True))
    other = group(trajectory([0.0]), trajectory([1.0]))
    signal = assign_advantages([same, other], credit, 0.9)
    assert signal.groups == 2
    assert signal.groups_without_variance == 1
    assert signal.steps_with_advantage == 2
    assert [advantages(t) for t in same.trajectories] == [[None, None]] * 2


def test_equally_wrong_siblings_get_zero_and_equally_right_ones_none() -> None:
    wrong = group(trajectory([-1.0], False), trajectory([-1.0], False))
    right = group(trajectory([1.0], True), trajectory([1.0], True))
    unknown = group(trajectory([1.0], None), trajectory([1.0], None))
    assign_advantages([wrong, right, unknown], "state", 0.9)
    assert [advantages(t) for t in wrong.trajectories] == [[0.0], [0.0]]
    assert [advantages(t) for t in right.trajectories] == [[None], [None]]
    assert [advantages(t) for t in unknown.trajectories] == [[None], [None]]
    signal = assign_advantages([right, unknown], "state", 0.9)
    assert signal.groups_without_variance == 2


def test_state_credit_tells_a_wrong_second_step_from_a_right_first_one() -> None:
    good, bad = trajectory([1.0, 1.0]), trajectory([1.0, -1.0])
    elsewhere = trajectory([-1.0], path="other")
    assign_advantages([group(good, bad, elsewhere)], "state", 0.9)
    assert good.steps[1].advantage == pytest.approx(1.0)
    assert bad.steps[1].advantage == pytest.approx(-1.0)
    assert elsewhere.steps[0].advantage is None


def test_broadcast_credit_praises_and_blames_an_episode_as_a_whole() -> None:
    good, bad = trajectory([1.0, 1.0]), trajectory([1.0, -1.0])
    assign_advantages([group(good, bad)], "broadcast", 0.9)
    assert advantages(good) == [pytest.approx(1.0)] * 2
    assert advantages(bad) == [pytest.approx(-1.0)] * 2


def test_parameters_are_compared_among_those_with_the_same_tool() -> None:
    def calling(name: str, reward: float) -> Trajectory:
        made = trajectory([reward], correct=reward > 0)
        made.steps[0].calls = (ToolCall(name, {}),)
        return made

    right, half, other = calling("a", 2.0), calling("a", -1.0), calling("b", -1.0)
    assign_advantages([group(right, half, other)], "state", 0.9)
    assert [parameter_advantages(t) for t in (right, half)] == [
        [pytest.approx(1.0)],
        [pytest.approx(-1.0)],
    ]
    # Alone with its tool and wrong: nothing to compare, something else to try.
    assert parameter_advantages(other) == [0.0]
    assert other.steps[0].advantage == half.steps[0].advantage


def test_repeated_steps_are_neither_judged_nor_compared_with() -> None:
    root = trajectory([1.0, -2.0], correct=True)
    branch = trajectory([3.0, 3.0], correct=True)
    branch.steps[0].replayed = True
    signal = assign_advantages([group(root, branch)], "state", 0.9)
    # The first step was decided once: it has nothing to be compared with.
    assert advantages(root) == [None, pytest.approx(-1.0)]
    assert advantages(branch) == [None, pytest.approx(1.0)]
    assert parameter_advantages(branch)[0] is None
    assert signal.steps_with_advantage == 2


@given(data=episodes, discount=discounts)
def test_broadcast_judges_tools_and_parameters_alike(
    data: list[list[float]], discount: float
) -> None:
    some = [trajectory(values) for values in data]
    assign_advantages([group(*some)], "broadcast", discount)
    for t in some:
        assert parameter_advantages(t) == advantages(t)


def test_old_advantages_are_forgotten() -> None:
    some = group(trajectory([1.0], True), trajectory([1.0], True))
    for t in some.trajectories:
        t.steps[0].advantage = t.steps[0].parameter_advantage = 5.0
    assign_advantages([some], "state", 0.9)
    assert [advantages(t) for t in some.trajectories] == [[None], [None]]
    assert [parameter_advantages(t) for t in some.trajectories] == [[None], [None]]


@pytest.mark.parametrize("credit", CREDITS)
def test_steps_of_a_solved_episode_are_praised_even_without_variance(
    credit: Credit,
) -> None:
    both = [trajectory([1.0, 1.0], correct=True) for _ in range(2)]
    for one in both:
        one.success = True
    both[1].steps[0].replayed = True
    signal = assign_advantages([group(*both)], credit, 0.9)
    assert advantages(both[0]) == parameter_advantages(both[0]) == [0.5, 0.5]
    assert advantages(both[1]) == [None, 0.5]
    assert signal.groups_without_variance == 1
    assert signal.steps_with_advantage == 3


@pytest.mark.parametrize("credit", CREDITS)
def test_a_wrong_step_is_not_praised_because_its_episode_recovered(
    credit: Credit,
) -> None:
    episode = trajectory([1.0, 1.0, 1.0])
    episode.success = True
    for step, correct in zip(episode.steps, (True, False, True), strict=True):
        step.correct = correct
    assign_advantages([group(episode)], credit, 0.9)
    for found in (advantages(episode), parameter_advantages(episode)):
        assert (found[0], found[2]) == (0.5, 0.5)
        assert not found[1]  # None, or 0: something else is worth a try.


def test_praise_takes_nothing_from_what_siblings_say() -> None:
    good, bad = trajectory([4.0], correct=True), trajectory([0.0], correct=False)
    good.success, bad.success = True, False
    assign_advantages([group(good, bad)], "state", 0.9)
    assert advantages(good) == [1.0] and advantages(bad) == [-1.0]


def test_an_unrewarded_success_is_not_praised() -> None:
    lost = trajectory([None])
    lost.success = True
    assign_advantages([group(lost)], "state", 0.9)
    assert advantages(lost) == [None]


def test_a_parameter_is_judged_by_itself_where_the_judge_tells() -> None:
    step = Step({}, reward=-1.0, wrong_arguments=frozenset({"order"}))
    step.parameter_advantage = 0.3
    blamed, praised = (argument_advantage(step, name) for name in ("order", "column"))
    assert blamed is not None and praised is not None
    assert blamed < 0 < praised


def test_a_parameter_has_its_siblings_advantage_where_nobody_tells() -> None:
    step = Step({}, reward=-1.0, parameter_advantage=0.3)
    assert argument_advantage(step, "order") == 0.3


def test_a_step_that_was_not_judged_has_no_signal_for_parameters() -> None:
    step = Step({}, wrong_arguments=frozenset({"order"}))
    assert argument_advantage(step, "order") is None


def test_of_a_repeated_step_no_parameter_is_learned_again() -> None:
    step = Step({}, reward=1.0, wrong_arguments=frozenset(), replayed=True)
    assert argument_advantage(step, "order") is None


# Agents of several kinds ------------------------------------------------------------


def of(kind: str, *values: float) -> Trajectory:
    made = trajectory(values)
    made.agent_kind = kind
    return made


def test_rewards_of_kinds_are_comparable() -> None:
    made = [of("a", 10, 20), of("a", 30, 40), of("b", 1), of("b", 3), of("c", 5, 7)]
    assert comparable_rewards(made) == [[-1.5, -0.5], [0.5, 1.5], [-1], [1], [-1, 1]]
    # What was earned stays on record.
    assert made[0].mean_reward == 15
    assert comparable_rewards(made[:2]) == [[10, 20], [30, 40]]


@pytest.mark.parametrize("credit", CREDITS)
def test_kinds_that_earn_more_by_nature_do_not_drown_others(credit: Credit) -> None:
    some = [of("rich", 11), of("rich", 10), of("poor", 1), of("poor", 0)]
    assign_advantages([group(*some)], credit, 0.9)
    assert [advantages(t) for t in some] == [[1], [-1], [1], [-1]]
    same = [of("one", 11), of("one", 10), of("one", 1), of("one", 0)]
    assign_advantages([group(*same)], credit, 0.9)
    # As one kind, everything that the poor did would be blamed.
    assert [t.steps[0].advantage > 0 for t in same if t.steps[0].advantage] == [
        True,
        True,
        False,
        False,
    ]

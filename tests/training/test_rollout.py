"""Rollouts: groups and their branches, faults, scenarios that raise."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import pytest

from agentgym.core.task import Message, Split, Task
from agentgym.core.tools import FailureKind, Tool, ToolCall, ToolResult
from agentgym.core.trajectory import Group, GroupPlan, Trajectory
from agentgym.errors import ScenarioError
from agentgym.policies.base import GREEDY, Decision, DecisionRequest, Sampling
from agentgym.scenarios.base import Scenario
from agentgym.scenarios.environment import RIGHT, Environment, Verdict
from agentgym.training.rollout import _ROOTS, FORK_EXPLORATION, Rollout

KEY = {"type": "object", "properties": {"key": {"type": "string"}}, "required": ["key"]}


def _press(world: list[str], key: str) -> str:
    world.append(key)
    return key


class Lock(Environment):
    """Press the keys of a word in order, then say that it is done."""

    raising: str = ""
    """Where a task named "bad" raises."""

    def tools(self) -> Sequence[Tool]:
        return [Tool("press", "Presses a key", KEY, _press, takes_world=True)]

    def make_world(self, task: Task) -> list[str]:
        self._fail("reset", task)
        return []

    def judge_call(self, call: ToolCall, result: ToolResult) -> Verdict:
        self._fail("act", self.task)
        assert self.task is not None
        place = len(self.world) - result.ok
        if self.task.goal[place : place + 1] == call.arguments["key"]:
            return RIGHT
        return Verdict(False, FailureKind.BAD_ARGUMENTS)

    def judge_message(self, content: str) -> Verdict:
        return RIGHT if self._open() else Verdict(False, FailureKind.NO_CALL)

    def outcome(self) -> tuple[bool, float]:
        self._fail("outcome", self.task)
        return self._open(), float(self._open())

    def _open(self) -> bool:
        assert self.task is not None
        return bool("".join(self.world) == self.task.goal)

    def _fail(self, where: str, task: Task | None) -> None:
        if self.raising == where and task is not None and task.id == "bad":
            raise RuntimeError(f"no luck in {where}")


class Locks(Scenario):
    """Words to type."""

    name = "locks"
    description = "Words to type"
    difficulty = "easy"
    estimated_time = "no time"
    options = {"faults": 0.0, "raising": "", "patience": 1}

    def tasks(self, split: Split, seed: int, count: int) -> list[Task]:
        return [task("abc", f"{split}-{seed}-{i}") for i in range(count)]

    def create_environment(
        self, tasks: Sequence[Task] = (), *, max_steps: int = 10, runner: Any = None
    ) -> Lock:
        made = Lock(
            tasks,
            max_steps=max_steps,
            patience=self.settings["patience"],
            tool_failure_rate=self.settings["faults"],
            runner=runner,
        )
        made.raising = self.settings["raising"]
        return made

    def success_criteria(self) -> dict[str, float]:
        return {"tool_reliability": 0.9}


def task(word: str, name: str = "task") -> Task:
    opening: Message = {"role": "user", "content": word}
    return Task(name, (opening,), goal=word, best_steps=len(word) + 1)


class Typist:
    """Knows the first keys of every word; the next it finds where it explores."""

    def __init__(self, known: int) -> None:
        self.known = known
        self.asked: list[tuple[float | None, int]] = []
        """Exploration and number of messages of each request."""
        self.told: list[ToolCall | None] = []

    def decide(
        self, requests: Sequence[DecisionRequest], sampling: Sampling = GREEDY
    ) -> list[Decision]:
        self.asked += [(r.exploration, len(r.messages)) for r in requests]
        self.told += [r.known for r in requests]
        return [self._decide(request) for request in requests]

    def _decide(self, request: DecisionRequest) -> Decision:
        word = request.messages[0]["content"]
        pressed = sum(
            message["role"] == "tool" and "error" not in message["content"]
            for message in request.messages
        )
        if pressed == len(word):
            return Decision({"content": "Done."}, "finish", prompt_tokens=7)
        right = pressed < self.known or request.exploration == FORK_EXPLORATION
        call = ToolCall("press", {"key": word[pressed] if right else "?"})
        message = {"content": None, "tool_calls": [call.to_openai()]}
        return Decision(message, "call", (call,), prompt_tokens=5, trace="mine")


Make = Callable[..., Rollout]


@pytest.fixture
def make() -> Iterator[Make]:
    """Makes rollouts and closes them in the end."""
    made: list[Rollout] = []

    def create(
        scenario: Scenario | None = None, max_steps: int = 10, **options: Any
    ) -> Rollout:
        made.append(Rollout(scenario or Locks(**options), max_steps=max_steps))
        return made[-1]

    yield create
    for rollout in made:
        rollout.close()


def groups(
    rollout: Rollout, policy: Any, tasks: list[Task], size: int, **settings: Any
) -> list[Group]:
    seed = (settings.pop("seed", 0),)
    plans = [GroupPlan(t, size, seed, i, **settings) for i, t in enumerate(tasks)]
    return rollout.groups(policy, plans)


def play(
    rollout: Rollout, policy: Any, tasks: list[Task], **settings: Any
) -> list[Trajectory]:
    return rollout.play(policy, tasks, **settings)


def replayed(trajectory: Trajectory) -> int:
    """Steps that were repeated; they are the first ones."""
    flags = [step.replayed for step in trajectory.steps]
    assert flags == sorted(flags, reverse=True)
    return sum(flags)


# Groups


@pytest.mark.parametrize("size", [2, 3, 4, 8, 16])
def test_a_solved_group_stays_small(make: Make, size: int) -> None:
    (group,) = groups(make(), Typist(known=3), [task("abc")], size)
    assert len(group.trajectories) == min(_ROOTS, size)
    assert all(t.success for t in group.trajectories)
    assert not any(map(replayed, group.trajectories))


@pytest.mark.parametrize("size", [2, 4, 5, 6, 7, 8, 9, 16])
def test_an_unsolved_group_grows_at_most_to_its_size(make: Make, size: int) -> None:
    tasks = [task("abcdefgh", "long"), task("a", "short"), task("abcdef", "other")]
    long, short, other = groups(make(), Typist(known=1), tasks, size)
    assert [g.task.id for g in (long, short, other)] == ["long", "short", "other"]
    assert len(short.trajectories) == min(_ROOTS, size)
    for group in (long, other):
        assert all(t.task is group.task for t in group.trajectories)
        assert min(size, _ROOTS) <= len(group.trajectories) <= size
        if (size - _ROOTS) % 2 == 0:  # the rest comes in two rounds of one size
            assert len(group.trajectories) == size
        if size > _ROOTS:
            assert len(group.trajectories) > _ROOTS


def test_without_branches_all_siblings_start_from_the_beginning(make: Make) -> None:
    policy = Typist(known=1)
    (group,) = groups(make(), policy, [task("abc")], 8, branch=False)
    assert len(group.trajectories) == 8
    assert not any(map(replayed, group.trajectories))
    assert {exploration for exploration, _ in policy.asked} == {0.0}


def test_branches_repeat_what_was_right_and_explore_there(make: Make) -> None:
    policy = Typist(known=1)
    (group,) = groups(make(), policy, [task("abc")], _ROOTS + 4)
    # Roots press one key, the first branches find the second, the others the third.
    assert [replayed(t) for t in group.trajectories] == [0] * _ROOTS + [1, 1, 2, 2]
    assert [t.success for t in group.trajectories[-3:]] == [False, True, True]
    right = [sum(s.correct is True for s in t.steps) for t in group.trajectories]
    assert right == [1] * _ROOTS + [2, 2, 4, 4]
    # Once each, right after the opening and one or two calls with their answers.
    explored = Counter(asked for asked in policy.asked if asked[0])
    assert explored == {(FORK_EXPLORATION, 3): 2, (FORK_EXPLORATION, 5): 2}


def test_what_was_repeated_is_told_from_what_was_decided(make: Make) -> None:
    (group,) = groups(make(), Typist(known=1), [task("abc")], 8)
    root, branch = group.trajectories[0], group.trajectories[_ROOTS]
    first, again = root.steps[0], branch.steps[0]
    assert again.replayed and not first.replayed
    assert again.message == first.message
    assert again.state_key == first.state_key
    assert [r.content for r in again.results] == [r.content for r in first.results]
    # It was read and written once more, but there is nothing to learn from it.
    assert again.prompt_tokens == first.prompt_tokens == 5
    assert again.trace is None and first.trace == "mine"
    assert branch.steps[1].trace == "mine"
    # Where it branched off, it stands at the state of the step that was wrong.
    assert branch.steps[1].state_key == root.steps[1].state_key
    assert branch.seed == root.seed


def test_the_furthest_sibling_is_branched_off(make: Make) -> None:
    class Uneven(Typist):
        """Of the siblings that start, the second knows two keys."""

        def decide(self, requests: Any, sampling: Sampling = GREEDY) -> Any:
            decisions = []
            for i, request in enumerate(requests):
                start = len(request.messages) == 1
                self.known = (2 if i == 1 else 0) if start else 2
                decisions.append(self._decide(request))
            return decisions

    (group,) = groups(make(), Uneven(0), [task("abcd")], _ROOTS + 1)
    *roots, branch = group.trajectories
    assert [len(t.steps) for t in roots] == [1, 3] + [1] * (_ROOTS - 2)
    assert replayed(branch) == 2
    assert branch.seed == roots[1].seed


def test_all_steps_are_rewarded(make: Make) -> None:
    for group in groups(make(), Typist(known=1), [task("abc"), task("a")], 8):
        for trajectory in group.trajectories:
            assert trajectory.mean_reward is not None


# Faults


def _story(trajectory: Trajectory) -> list[Any]:
    return [
        (step.state_key, step.correct, [(r.content, r.failure) for r in step.results])
        for step in trajectory.steps
    ]


def test_branches_meet_the_faults_of_the_sibling_again(make: Make) -> None:
    rollout = make(faults=0.5, max_steps=30)
    tasks = [task("abcdef", f"t{i}") for i in range(8)]
    found = groups(rollout, Typist(known=2), tasks, 8, seed=5)
    faults = 0
    for group in found:
        roots = {t.seed: t for t in group.trajectories[:_ROOTS]}
        assert len(roots) == _ROOTS
        for branch in group.trajectories[_ROOTS:]:
            n = replayed(branch)
            assert n >= 2
            root = roots[branch.seed]
            common = min(n, next(i for i, s in enumerate(root.steps) if not s.correct))
            assert _story(branch)[:common] == _story(root)[:common]
            assert all(step.correct for step in branch.steps[:n])
            faults += sum(not r.ok for s in branch.steps[:n] for r in s.results)
    assert faults > 10


def test_a_fault_is_no_mistake_and_the_retry_is_right(make: Make) -> None:
    tasks = [task("abc", f"t{i}") for i in range(40)]
    played = play(make(faults=0.3, max_steps=60), Typist(known=3), tasks, seed=1)
    assert all(t.success for t in played)
    assert all(step.correct for t in played for step in t.steps)
    kinds = Counter(step.failure for t in played for step in t.steps)
    assert kinds[FailureKind.TIMEOUT] > 5 and kinds[FailureKind.TOOL_ERROR] > 5
    assert set(kinds) == {None, FailureKind.TIMEOUT, FailureKind.TOOL_ERROR}


def test_the_seed_decides_the_faults(make: Make) -> None:
    tasks = [task("abc", f"t{i}") for i in range(20)]

    def stories(seed: int) -> list[Any]:
        played = play(make(faults=0.5, max_steps=60), Typist(known=3), tasks, seed=seed)
        return [_story(t) for t in played]

    assert stories(3) == stories(3)
    assert stories(3) != stories(4)
    # Siblings of one call are not all struck alike.
    assert len({str(story) for story in stories(3)}) > 10


# Playing


def test_episodes_come_back_in_order_however_many_fit_at_once(make: Make) -> None:
    tasks = [task("abc"[: 1 + i % 3], f"t{i}") for i in range(11)]
    for at_once in (1, 4, 11, 256):
        rollout = make()
        rollout.at_once = at_once
        played = play(rollout, Typist(known=3), tasks)
        assert [t.task.id for t in played] == [t.id for t in tasks]
        assert [len(t.steps) for t in played] == [t.best_steps for t in tasks]
        assert len(rollout._environments) == min(at_once, 11)


def test_an_episode_is_cut_off(make: Make) -> None:
    (played,) = play(make(max_steps=2), Typist(known=3), [task("abc")])
    assert (played.success, len(played.steps), played.failure) == (False, 2, None)


def test_an_episode_ends_after_so_many_mistakes(make: Make) -> None:
    def steps(**settings: Any) -> list[int]:
        rollout = make(patience=3)
        (group,) = groups(rollout, Typist(1), [task("abc")], 4, **settings)
        return [len(t.steps) for t in group.trajectories]

    # One right step, then wrong ones; who branches off finds one or two more.
    assert steps() == steps(max_mistakes=3) == steps(max_mistakes=9) == [4, 4, 4, 4]
    assert steps(max_mistakes=2) == [3, 3, 4, 4]
    assert steps(max_mistakes=1) == [2, 2, 3, 4]


# What siblings know


class Dial(Environment):
    """Set three digits at once; the judge tells which of them are wrong."""

    def tools(self) -> Sequence[Tool]:
        digits = {"type": "object", "properties": {key: {} for key in "abc"}}
        return [Tool("dial", "Sets digits", digits, lambda **_: "set")]

    def make_world(self, task: Task) -> str:
        return task.goal

    def judge_call(self, call: ToolCall, result: ToolResult) -> Verdict:
        assert self.task is not None
        wanted = dict(zip("abc", self.task.goal, strict=True))
        wrong = frozenset(n for n in wanted if call.arguments[n] != wanted[n])
        failure = FailureKind.BAD_ARGUMENTS if wrong else None
        return Verdict(not wrong, failure, wrong_arguments=wrong)

    def judge_message(self, content: str) -> Verdict:
        return Verdict(False, FailureKind.NO_CALL)

    def outcome(self) -> tuple[bool, float]:
        return False, 0.0


class Dials(Locks):
    """Digits to set."""

    def create_environment(
        self, tasks: Sequence[Task] = (), *, max_steps: int = 10, runner: Any = None
    ) -> Any:
        return Dial(tasks, max_steps=max_steps, runner=runner)


class Guesser:
    """Sets some digits, one guess after the other."""

    def __init__(self, guesses: Sequence[str]) -> None:
        self.guesses = iter(guesses)
        self.known: list[ToolCall | None] = []

    def decide(
        self, requests: Sequence[DecisionRequest], sampling: Sampling = GREEDY
    ) -> list[Decision]:
        decisions = []
        for request in requests:
            self.known.append(request.known)
            guess = next(self.guesses)
            if guess == "-":
                decisions.append(Decision({"content": "No idea."}, "finish"))
                continue
            call = ToolCall("dial", dict(zip("abc", guess, strict=True)))
            message = {"content": None, "tool_calls": [call.to_openai()]}
            decisions.append(Decision(message, "call", (call,)))
        return decisions


def test_who_branches_off_is_told_what_siblings_found_to_be_right(make: Make) -> None:
    policy = Guesser(["1xx", "x2x", "xxx", "x2y", "-", "-"])
    rollout = make(Dials())
    groups(rollout, policy, [task("123")], 6, max_mistakes=1)
    # Roots know nothing of each other.
    assert policy.known[:2] == [None, None]
    # Each of them had one digit: together that is two.
    assert policy.known[2:] == [ToolCall("dial", {"a": "1", "b": "2"})] * 4


def test_nothing_is_known_where_nobody_had_the_tool(make: Make) -> None:
    policy = Guesser(["-"] * 6)
    groups(make(Dials()), policy, [task("123")], 6, max_mistakes=1)
    assert policy.known == [None] * 6
    # Nor where the judge does not tell which arguments were wrong.
    typist = Typist(known=1)
    groups(make(), typist, [task("abc")], 6)
    assert set(typist.told) == {None}


# Scenarios that raise


@pytest.mark.parametrize(("where", "steps"), [("reset", 0), ("act", 0), ("outcome", 4)])
def test_what_a_scenario_raises_costs_only_its_episode(
    make: Make, where: str, steps: int
) -> None:
    rollout = make(raising=where)
    tasks = [task("abc", "good"), task("abc", "bad"), task("abc", "fine")]
    for _ in range(2):  # the environments are used again
        good, bad, fine = groups(rollout, Typist(known=3), tasks, 8)
        for group in (good, fine):
            assert all(t.success and t.failure is None for t in group.trajectories)
        # Nothing to branch off, where nothing is known to be right.
        assert len(bad.trajectories) == _ROOTS
        for trajectory in bad.trajectories:
            assert trajectory.failure is FailureKind.AGENT_CRASH
            assert trajectory.failure_text == f"RuntimeError: no luck in {where}"
            assert trajectory.success is None and trajectory.outcome is None
            assert len(trajectory.steps) == steps
            # Never judged is never 0.
            assert trajectory.mean_reward is None
            assert all(step.reward is None for step in trajectory.steps)


def test_our_own_errors_end_the_run(make: Make, monkeypatch: Any) -> None:
    def refuse(self: Lock, task: Task) -> None:
        raise ScenarioError("Mend the scenario.")

    monkeypatch.setattr(Lock, "make_world", refuse)
    with pytest.raises(ScenarioError, match="Mend the scenario"):
        play(make(), Typist(known=3), [task("abc")])


@pytest.mark.parametrize(
    "rewards",
    [
        lambda t: [],
        lambda t: [1.0] * (len(t.steps) + 1),
        lambda t: [math.nan] * len(t.steps),
        lambda t: [math.inf] * len(t.steps),
    ],
    ids=["none", "too many", "nan", "infinite"],
)
def test_rewards_are_one_finite_number_for_each_step(make: Make, rewards: Any) -> None:
    class Odd(Locks):
        def broadcast_rewards(self, trajectory: Trajectory) -> list[float]:
            found: list[float] = rewards(trajectory)
            return found

    problem = r"'locks' must return one finite .* 4 steps"
    with pytest.raises(ScenarioError, match=problem):
        groups(make(Odd()), Typist(known=3), [task("abc")], 2)


@pytest.mark.parametrize("answer", [1 / 3, ["much"], None])
def test_rewards_that_cannot_be_read(make: Make, answer: Any) -> None:
    class Odd(Locks):
        def broadcast_rewards(self, trajectory: Trajectory) -> list[float]:
            return answer  # type: ignore[no-any-return]

    with pytest.raises(ScenarioError, match=r"of scenario 'locks' failed: \w+Error: "):
        groups(make(Odd()), Typist(known=3), [task("abc")], 2)

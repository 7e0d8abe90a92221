"""Turns rewards into advantages: credit assignment for single steps.

Siblings are episodes of one task, sampled from the same weights. There are two ways to
compare them:

- `broadcast` compares an episode's mean reward with its siblings'; all steps of an
  episode get the same advantage. A wrong second step after a right first one is
  reinforced or penalised together with it.
- `state` compares steps that siblings took *at the same state* (the same conversation
  so far) by the discounted mean of the rewards from there on. This separates right
  from wrong steps within an episode.

If an episode solved its task, each of its steps gets an advantage of at least
`_PRAISE`, regardless of its siblings: a right choice with a probability of 0.7 can
still improve, and siblings that all succeeded show no difference. As a choice becomes
certain, its gradient vanishes. Steps that were judged wrong are left out.

If the judge tells which arguments of a call were wrong, each parameter gets its own
advantage (`argument_advantage`), with either kind of credit.

If siblings are agents of different kinds, their rewards are first made comparable: see
`comparable_rewards`.

`benchmarks/credit.py` compares both.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

from agentgym.core.trajectory import Group, Step, Trajectory

Credit = Literal["broadcast", "state"]

_PRAISE = 0.5
_BLAME = -1.0
_EPSILON = 1e-6


@dataclass(slots=True)
class Signal:
    """The learning signal in a set of groups."""

    groups: int = 0
    groups_without_variance: int = 0
    """Groups whose siblings all did equally well."""
    unrewarded: int = 0
    """Episodes with an unjudged step; these are skipped, not counted as 0."""
    steps_with_advantage: int = 0


def assign_advantages(
    groups: Sequence[Group], credit: Credit, discount: float
) -> Signal:
    """Sets `advantage` on every comparable step, and None on the others."""
    signal = Signal(groups=len(groups))
    for group in groups:
        rewarded = []
        for trajectory in group.trajectories:
            for step in trajectory.steps:
                step.advantage = step.parameter_advantage = None
            if trajectory.mean_reward is None:
                signal.unrewarded += 1
            else:
                rewarded.append(trajectory)
        compare = _broadcast if credit == "broadcast" else _by_state
        episodes = [
            list(zip(trajectory.steps, rewards, strict=True))
            for trajectory, rewards in zip(
                rewarded, comparable_rewards(rewarded), strict=True
            )
        ]
        signal.groups_without_variance += not compare(episodes, discount)
        for trajectory in group.trajectories:
            if trajectory.success and trajectory.mean_reward is not None:
                _praise(trajectory.steps)
            signal.steps_with_advantage += sum(
                step.advantage is not None or step.parameter_advantage is not None
                for step in trajectory.steps
            )
    return signal


def argument_advantage(step: Step, name: str) -> float | None:
    """The advantage of one parameter's value; None means "no signal"."""
    if step.wrong_arguments is None or step.reward is None or step.replayed:
        return step.parameter_advantage
    return _BLAME if name in step.wrong_arguments else _PRAISE


def _praise(steps: Sequence[Step]) -> None:
    for step in steps:
        # A wrong step isn't right because the episode recovered from it.
        if not step.replayed and step.correct is not False:
            step.advantage = max(step.advantage or 0.0, _PRAISE)
            step.parameter_advantage = max(step.parameter_advantage or 0.0, _PRAISE)


Episode = Sequence[tuple[Step, float]]
"""Steps with their rewards."""


def _broadcast(episodes: Sequence[Episode], discount: float) -> bool:
    """Whether there was anything to compare."""
    returns = [_mean([reward for _, reward in steps]) for steps in episodes]
    advantages = normalized(returns)
    if advantages is None:
        return False
    for steps, advantage in zip(episodes, advantages, strict=True):
        for step, _ in steps:
            step.advantage = step.parameter_advantage = advantage
    return True


def _by_state(episodes: Sequence[Episode], discount: float) -> bool:
    """Whether there was anything to compare."""
    at_state: dict[str, list[tuple[Step, float]]] = {}
    with_tool: dict[tuple[str, ...], list[tuple[Step, float]]] = {}
    for steps in episodes:
        values = rewards_to_go([reward for _, reward in steps], discount)
        for (step, _), value in zip(steps, values, strict=True):
            if step.replayed:
                continue
            at_state.setdefault(step.state_key, []).append((step, value))
            # Parameters are compared among those who chose the same tools.
            tools = (step.state_key, *(call.name for call in step.calls))
            with_tool.setdefault(tools, []).append((step, value))
    compared = False
    for siblings in at_state.values():
        for step, advantage in _compare(siblings):
            step.advantage = advantage
            compared = True
    for siblings in with_tool.values():
        for step, advantage in _compare(siblings):
            step.parameter_advantage = advantage
            compared = True
    return compared


def _compare(siblings: Sequence[tuple[Step, float]]) -> list[tuple[Step, float]]:
    advantages = normalized([value for _, value in siblings])
    if advantages is not None:
        pairs = zip(siblings, advantages, strict=True)
        return [(step, advantage) for (step, _), advantage in pairs]
    # All equally wrong: none is better, but other choices are worth trying.
    return [(step, 0.0) for step, _ in siblings if step.correct is False]


def comparable_rewards(trajectories: Sequence[Trajectory]) -> list[list[float]]:
    """Returns siblings' rewards, normalised if they are agents of several kinds.

    Each kind's rewards are shifted and scaled so that its episodes have mean 0 and
    standard deviation 1. A kind that earns more by design, for example because it takes
    more steps, then doesn't dominate the others. If all episodes of a kind earned the
    same, its steps keep their differences, around 0. Siblings of a single kind keep
    their rewards.

    Args:
        trajectories: Siblings, all with rewards.
    """
    rewards = [[_reward(step) for step in t.steps] for t in trajectories]
    kinds = [trajectory.agent_kind for trajectory in trajectories]
    if len(set(kinds)) < 2:
        return rewards
    for kind in dict.fromkeys(kinds):
        own = [r for r, k in zip(rewards, kinds, strict=True) if k == kind]
        totals = [_mean(one) for one in own]
        mean = _mean(totals)
        deviation = math.sqrt(_mean([(total - mean) ** 2 for total in totals])) or 1.0
        for one in own:
            one[:] = [(reward - mean) / deviation for reward in one]
    return rewards


def rewards_to_go(rewards: Sequence[float], discount: float) -> list[float]:
    """Returns the discounted mean of the rewards from each step on.

    A mean, not a sum: every reward already includes the episode's outcome, so a sum
    would reward longer episodes.
    """
    result = [0.0] * len(rewards)
    total = weight = 0.0
    for i in reversed(range(len(rewards))):
        total = rewards[i] + discount * total
        weight = 1.0 + discount * weight
        result[i] = total / weight
    return result


def normalized(values: Sequence[float]) -> list[float] | None:
    """Values minus their mean, divided by their deviation; None if all are equal."""
    if len(values) < 2:
        return None
    mean = _mean(values)
    deviation = math.sqrt(_mean([(v - mean) ** 2 for v in values]))
    if deviation <= _EPSILON * max(1.0, abs(mean)):
        return None
    return [(v - mean) / deviation for v in values]


def _reward(step: Step) -> float:
    assert step.reward is not None
    return step.reward


def _mean(values: Sequence[float]) -> float:
    return math.fsum(values) / len(values)

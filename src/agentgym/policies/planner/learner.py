"""The planner's update: policy-gradient passes over the current weights' samples.

A step is a product of factors (see `factors`): p(tool) times p(value) of each
parameter. The tool and the parameters are credited apart, with the advantages that
each of them has among its siblings. For a factor with the advantage A, of which the
choice had the probability p_sampled when it was drawn, and now has p:

    loss = - w A p / p_sampled          (PPO's ratio; 1 in the first pass)
         - entropy bonus * H            (once for each distribution)

- A factor whose ratio has left 1 +- `_CLIP` in its favoured direction has no gradient
  any more.
- w is 1 for what went well. What went badly counts `_BLAME`, and less where only
  exploration made it likely (p_sampled / q, with q the sampler's own probability): a
  lucky find counts in full, a blunder that the policy would not have made does not.
- The bonus is `_LOST` times larger where all siblings went wrong alike, so that no
  choice there has anything to say for it.

Each of `_PASSES` passes computes the loss's gradient with respect to the logits of
every distribution (`_upstream`), takes it through the heads (`_backward`), and moves
the weights by Adam with the norm of the gradient bounded (`_apply`).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from agentgym.core.errors import TrainingDiverged
from agentgym.core.trajectory import Group
from agentgym.policies.base import UpdateStats
from agentgym.policies.planner.factors import Choice, FactorKey, Heads, Trace
from agentgym.policies.planner.features import State
from agentgym.policies.planner.heads import Adam, Array, PointerHead

COMPONENTS = {
    "tool": "tool_selection",
    "value": "parameter_selection",
    "pointer": "parameter_selection",
}
"""The component of an agent that each head is part of."""

# What is shared by all options moves them all at once: a small share of the rate.
_RATES = {"match": 0.03, "described": 0.1, "facts": 0.3}

_PASSES = 6
"""Times that an update goes over its samples."""
_CLIP = 0.3
"""How far the later passes may move the ratio of probabilities from 1."""
_BLAME = 0.5
"""Weight of what went wrong, relative to what went right."""
_LOST = 10.0
"""Entropy bonus where all siblings went wrong alike, relative to elsewhere."""
_MAX_GRADIENT = 5.0


@dataclass(frozen=True, slots=True, eq=False)
class _Sample:
    """A factor that was drawn, and what came of it."""

    state: State
    choice: Choice
    advantage: float
    drawn: float
    """Log-probability under the sampler, exploration included."""


@dataclass(frozen=True, slots=True, eq=False)
class _Push:
    """A distribution of today's weights and the loss's gradient of its logits."""

    state: State
    choice: Choice
    gradient: Array


class Learner:
    """Updates heads from judged groups. See the module's docstring."""

    def __init__(self, heads: Heads) -> None:
        self.heads = heads
        self.optimizer = Adam()

    def update(
        self,
        groups: Sequence[Group],
        *,
        learning_rate: float,
        entropy: float,
        trainable: frozenset[str],
    ) -> UpdateStats:
        """Takes all passes; heads of components that are not trainable stay."""
        samples, steps = _samples(groups)
        stats = UpdateStats(steps_learned=steps)
        stats.gradient_norms = dict.fromkeys(COMPONENTS.values(), 0.0)
        learnable = [n for n in self.heads.by_name if COMPONENTS[n] in trainable]
        for _ in range(_PASSES if samples else 0):
            pushes = self._upstream(samples, entropy, stats)
            gradients = self._backward(pushes, learnable, len(samples))
            self._apply(gradients, learning_rate, stats)
            for sample in samples:
                sample.state.distributions.clear()
        return stats

    def _upstream(
        self, samples: Sequence[_Sample], entropy: float, stats: UpdateStats
    ) -> list[_Push]:
        """The loss's gradient with respect to the logits of each distribution."""
        pushes: dict[tuple[int, FactorKey], _Push] = {}
        informed: set[tuple[int, FactorKey]] = set()
        stats.loss = stats.entropy = 0.0
        for sample in samples:
            key = (id(sample.state), sample.choice.key)
            if key not in pushes:
                now = self.heads.choice(sample.state, sample.choice.key)
                pushes[key] = _Push(sample.state, now, np.zeros_like(now.logprobs))
            now, gradient = pushes[key].choice, pushes[key].gradient
            chosen = sample.choice.chosen
            logprob = float(now.logprobs[chosen])
            before = float(sample.choice.logprobs[chosen])
            weight = sample.advantage
            if weight < 0:
                weight *= _BLAME * min(1.0, float(np.exp(before - sample.drawn)))
            if weight:
                informed.add(key)
            stats.loss -= weight * logprob / len(samples)
            ratio = float(np.exp(logprob - before))
            if (ratio > 1 + _CLIP) if weight > 0 else (ratio < 1 - _CLIP):
                continue
            gradient += weight * ratio * np.exp(now.logprobs)
            gradient[chosen] -= weight * ratio
        for key, push in pushes.items():
            logprobs = push.choice.logprobs
            finite = np.where(np.isfinite(logprobs), logprobs, 0.0)
            probabilities = np.exp(logprobs)
            spread = -float((probabilities * finite).sum())
            stats.entropy += spread / len(pushes)
            bonus = entropy if key in informed else _LOST * entropy
            gradient = push.gradient
            gradient += bonus * probabilities * (finite + spread)
        return list(pushes.values())

    def _backward(
        self, pushes: Sequence[_Push], learnable: Sequence[str], samples: int
    ) -> dict[str, dict[str, Array]]:
        """The gradient of the mean loss, by head and array."""
        heads = self.heads.by_name
        gradients = {name: heads[name].parameters.zeros() for name in learnable}
        matches: dict[str, dict[int, Any]] = {name: {} for name in learnable}
        for push in pushes:
            choice, state = push.choice, push.state
            name = choice.head
            if name not in gradients:
                continue
            upstream = (push.gradient / samples).astype(np.float32)
            head = heads[name]
            if isinstance(head, PointerHead):
                assert choice.parameter is not None
                head.backward(
                    gradients[name],
                    matches[name],
                    choice.parameter.slot,
                    choice.parameter.query,
                    state.features[choice.key],
                    upstream,
                )
            else:
                assert choice.options is not None and choice.facts is not None
                head.backward(
                    gradients[name],
                    matches[name],
                    choice.options,
                    state.clauses,
                    state.history,
                    choice.facts,
                    choice.way,
                    upstream,
                )
        for name, waiting in matches.items():
            heads[name].finish(gradients[name], waiting)
        return gradients

    def _apply(
        self,
        gradients: dict[str, dict[str, Array]],
        learning_rate: float,
        stats: UpdateStats,
    ) -> None:
        """Moves the weights; a gradient that is too long is shrunk."""
        stats.gradient_norms = dict.fromkeys(COMPONENTS.values(), 0.0)
        for name, arrays in gradients.items():
            squares = sum(float((g * g).sum()) for g in arrays.values())
            stats.gradient_norms[COMPONENTS[name]] += squares
        total = float(np.sqrt(sum(stats.gradient_norms.values())))
        stats.gradient_norms = {
            k: float(np.sqrt(v)) for k, v in stats.gradient_norms.items()
        }
        stats.gradient_norm = total
        if not np.isfinite(total):
            raise TrainingDiverged(
                "The update is not finite. Lower the learning rate and resume the run "
                "from its last checkpoint."
            )
        shrink = 1.0
        if total > _MAX_GRADIENT:
            shrink = _MAX_GRADIENT / total
            stats.clipped = True
        for name, arrays in gradients.items():
            parameters = self.heads.by_name[name].parameters
            for array, gradient in arrays.items():
                if shrink != 1.0:
                    gradient *= np.float32(shrink)
                rate = learning_rate * _RATES.get(array, 1.0)
                self.optimizer.step(
                    f"{name}.{array}", parameters.arrays[array], gradient, rate
                )
            parameters.version += 1


def _samples(groups: Sequence[Group]) -> tuple[list[_Sample], int]:
    """All factors that have an advantage, and in how many steps they stand."""
    samples: list[_Sample] = []
    steps = 0
    for step in (s for g in groups for t in g.trajectories for s in t.steps):
        trace: Trace | None = step.trace
        if trace is None:
            continue
        before = len(samples)
        for i, (choice, drawn) in enumerate(
            zip(trace.choices, trace.drawn, strict=True)
        ):
            advantage = step.advantage if i == 0 else step.parameter_advantage
            if advantage is not None:
                samples.append(_Sample(trace.state, choice, advantage, drawn))
        steps += len(samples) > before
    return samples, steps

"""The planner's update: policy-gradient passes over the current weights' samples.

A step is a product of factors (see `factors`): p(tool) times p(value) of each
parameter. The tool and the parameters are credited separately, with the advantages that
each of them has among its siblings, or, for a parameter, by the judge's word on its
value. For a factor with the advantage A, of which the choice had the probability
p_sampled when it was drawn, and now has p:

    loss = - w A p / p_sampled          (PPO's ratio; 1 in the first pass)
         - entropy bonus * H            (once for each distribution)

- A factor whose ratio has left 1 +- `clip` in its favoured direction has no gradient
  any more.
- w is 1 for what went well. What went badly counts `blame`, and less where only
  exploration made it likely (p_sampled / q, with q the sampler's own probability): a
  lucky find counts in full, a blunder that the policy would not have made does not.
- Distributions in which all went well, and nearly surely so, are left out: they would
  cost as much as all others, and move nothing.
- The bonus is `_LOST` times larger where all siblings went wrong alike, so that no
  choice there has anything to say for it.

Each of `passes` passes computes the loss's gradient with respect to the logits of
every distribution (`_upstream`), takes it through the heads (`_pass`), and moves the
weights by Adam with the norm of the gradient bounded (`_apply`).
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from pydantic import Field, FiniteFloat

from agentgym.core.options import PolicyOptions
from agentgym.core.rewards import argument_advantage
from agentgym.core.trajectory import Group
from agentgym.errors import TrainingDiverged
from agentgym.policies.base import UpdateStats
from agentgym.policies.planner.factors import Heads, Pointing, Trace
from agentgym.policies.planner.heads import Array, Case, PointerHead, Stack, log_softmax

COMPONENTS = {
    "tool": "tool_selection",
    "value": "parameter_selection",
    "pointer": "parameter_selection",
}
"""The component of an agent that each head is part of."""

# What is shared by all options moves them all at once: a small share of the rate.
_RATES = {
    "match": 0.03,
    "described": 0.1,
    "facts": 0.3,
    "habit": 3.0,
    "shared_rows": 30.0,
}

_LOST = 10.0
"""Entropy bonus where all siblings went wrong alike, relative to elsewhere."""
_SETTLED = -0.03
"""Log-probability above which a choice that went well has nothing to teach."""
_MAX_GRADIENT = 5.0
_BETA1, _BETA2 = 0.9, 0.98
"""How much of the gradient's moments is kept at each step."""
_AT_ONCE = 256
"""Distributions whose gradient is computed together: it bounds the memory."""


class PlannerOptions(PolicyOptions):
    """How the planner learns."""

    passes: int = Field(4, ge=1, description="Passes over the samples of an update.")
    clip: FiniteFloat = Field(
        0.3,
        gt=0,
        description="How far later passes may move the ratio of probabilities from 1.",
    )
    blame: FiniteFloat = Field(
        0.5, ge=0, description="Weight of failures relative to successes."
    )


DEFAULTS = PlannerOptions()


@dataclass(frozen=True, slots=True, eq=False)
class _Sample:
    """A choice that was drawn, and its outcome."""

    chosen: int
    advantage: float
    before: float
    """Its log-probability when it was drawn."""
    drawn: float
    """The same under the sampler, exploration included."""


@dataclass(frozen=True, slots=True, eq=False)
class _Distribution:
    """A distribution and what was drawn from it by all siblings."""

    case: Case | Pointing
    samples: list[_Sample]


class Learner:
    """Updates heads from judged groups. See the module's docstring."""

    def __init__(self, heads: Heads, options: PlannerOptions = DEFAULTS) -> None:
        self.heads = heads
        self.options = options
        self.optimizer = Adam()

    def update(
        self,
        groups: Sequence[Group],
        *,
        learning_rate: float,
        entropy: float,
        trainable: frozenset[str],
    ) -> UpdateStats:
        """Takes all passes; heads of components that aren't trainable stay."""
        distributions, steps = _distributions(groups)
        everything = [d for of_head in distributions.values() for d in of_head]
        samples = sum(len(d.samples) for d in everything)
        count = len(everything)
        stats = UpdateStats(steps_learned=steps)
        stats.gradient_norms = dict.fromkeys(COMPONENTS.values(), 0.0)
        parts = [
            (name, some, _stack(some))
            for name, of_head in distributions.items()
            for some in _chunks([d for d in of_head if not _is_settled(d)])
        ]
        for _ in range(self.options.passes if samples else 0):
            stats.loss = stats.entropy = 0.0
            gradients = {
                name: head.parameters.zeros()
                for name, head in self.heads.by_name.items()
                if COMPONENTS[name] in trainable
            }
            for name, some, stack in parts:
                loss, spread = self._pass(name, some, stack, entropy, gradients)
                stats.loss += loss / samples
                stats.entropy += spread / count
            for arrays in gradients.values():
                for array in arrays.values():
                    array *= np.float32(1 / samples)
            self._apply(gradients, learning_rate, stats)
        return stats

    def _pass(
        self,
        name: str,
        distributions: Sequence[_Distribution],
        stack: Stack | None,
        entropy: float,
        gradients: dict[str, dict[str, Array]],
    ) -> tuple[float, float]:
        """Adds the loss's gradient; returns the loss and the entropies, summed up."""
        head = self.heads.by_name[name]
        pointings = [
            (d.case.parameter.slot, d.case.parameter.query, d.case.values)
            for d in distributions
            if isinstance(d.case, Pointing)
        ]
        if isinstance(head, PointerHead):
            logits = [head.scores(*pointing) for pointing in pointings]
        else:
            assert stack is not None
            logits, way = head.scores(stack)
        loss = spread = 0.0
        upstreams = []
        for distribution, scored in zip(distributions, logits, strict=True):
            lost, width, upstream = _upstream(
                distribution.samples, log_softmax(scored), entropy, self.options
            )
            loss += lost
            spread += width
            upstreams.append(upstream)
        gradient = gradients.get(name)
        if gradient is None:
            return loss, spread
        if isinstance(head, PointerHead):
            head.backward(gradient, pointings, upstreams)
        else:
            assert stack is not None
            head.backward(gradient, stack, way, upstreams)
        return loss, spread

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
                "The update isn't finite. Lower the learning rate, and resume the run "
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


class Adam:
    """Adam on named arrays, each with its own rate."""

    def __init__(self) -> None:
        self.steps: dict[str, int] = {}
        self.first: dict[str, Array] = {}
        self.second: dict[str, Array] = {}

    def step(self, name: str, array: Array, gradient: Array, rate: float) -> None:
        """Moves an array against its gradient, in place."""
        first, second = self._moments(name, array)
        count = self.steps[name] = self.steps.get(name, 0) + 1
        first *= _BETA1
        first += (1 - _BETA1) * gradient
        second *= _BETA2
        second += (1 - _BETA2) * gradient * gradient
        scale = np.sqrt(second)
        scale *= np.float32(1 / np.sqrt(1 - _BETA2**count))
        scale += np.float32(1e-8)
        np.divide(first, scale, out=scale)
        scale *= np.float32(rate / (1 - _BETA1**count))
        array -= scale

    def _moments(self, name: str, array: Array) -> tuple[Array, Array]:
        for table in (self.first, self.second):
            known = table.get(name)
            if known is None:
                table[name] = np.zeros_like(array)
            elif len(known) < len(array):
                more = np.zeros((len(array) - len(known), *array.shape[1:]), np.float32)
                table[name] = np.concatenate([known, more])
        return self.first[name], self.second[name]

    def state(self) -> dict[str, Any]:
        """Everything to save."""
        return {
            "steps": dict(self.steps),
            "first": dict(self.first),
            "second": dict(self.second),
        }

    def load_state(self, state: Mapping[str, Any]) -> None:
        """Restores what `state` returned."""
        self.steps = {name: int(n) for name, n in state["steps"].items()}
        self.first = {n: np.array(a, np.float32) for n, a in state["first"].items()}
        self.second = {n: np.array(a, np.float32) for n, a in state["second"].items()}


def _upstream(
    samples: Sequence[_Sample],
    logprobs: Array,
    entropy: float,
    options: PlannerOptions,
) -> tuple[float, float, Array]:
    """Loss, entropy, and the loss's gradient with respect to the logits."""
    probabilities = np.exp(logprobs)
    gradient = np.zeros_like(logprobs)
    loss, informed, clip = 0.0, False, options.clip
    for sample in samples:
        logprob = float(logprobs[sample.chosen])
        weight = sample.advantage
        if weight < 0:
            weight *= options.blame * min(1.0, math.exp(sample.before - sample.drawn))
        informed |= weight != 0
        loss -= weight * logprob
        ratio = math.exp(logprob - sample.before)
        if (ratio > 1 + clip) if weight > 0 else (ratio < 1 - clip):
            continue
        gradient += np.float32(weight * ratio) * probabilities
        gradient[sample.chosen] -= weight * ratio
    finite = np.where(np.isfinite(logprobs), logprobs, np.float32(0))
    spread = -float((probabilities * finite).sum())
    bonus = entropy if informed else _LOST * entropy
    gradient += np.float32(bonus) * probabilities * (finite + np.float32(spread))
    return loss, spread, gradient


def _distributions(
    groups: Sequence[Group],
) -> tuple[dict[str, list[_Distribution]], int]:
    """Distributions with an advantage, by head, and their number of steps."""
    found: dict[str, dict[Any, _Distribution]] = {}
    taken = [
        (number, step)
        for number, group in enumerate(groups)
        for trajectory in group.trajectories
        for step in trajectory.steps
        if step.trace is not None
    ]
    steps = 0
    for at, (group, step) in enumerate(taken):
        trace: Trace = step.trace
        # Siblings at one state share its distributions; without a key, none are shared.
        state = (group, trace.state_key or at, trace.state.toolset.key)
        learned = False
        for i, (choice, drawn) in enumerate(
            zip(trace.choices, trace.drawn, strict=True)
        ):
            advantage = step.advantage
            if i > 0:
                name = trace.state.parameter_name(choice.key)
                advantage = argument_advantage(step, name)
            if advantage is None:
                continue
            learned = True
            known = found.setdefault(choice.head, {}).setdefault(
                (*state, choice.key), _Distribution(choice.case, [])
            )
            before = float(choice.logprobs[choice.chosen])
            known.samples.append(_Sample(choice.chosen, advantage, before, drawn))
        steps += learned
    return {head: list(by_case.values()) for head, by_case in found.items()}, steps


def _is_settled(distribution: _Distribution) -> bool:
    """Whether all went well and hardly anything else could have been drawn."""
    return all(
        sample.advantage > 0 and sample.before > _SETTLED
        for sample in distribution.samples
    )


def _chunks(distributions: Sequence[_Distribution]) -> list[Sequence[_Distribution]]:
    starts = range(0, len(distributions), _AT_ONCE)
    return [distributions[start : start + _AT_ONCE] for start in starts]


def _stack(distributions: Sequence[_Distribution]) -> Stack | None:
    cases = [d.case for d in distributions if isinstance(d.case, Case)]
    return Stack(cases) if cases else None

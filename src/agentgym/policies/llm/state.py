"""A conversation as the language model's policy sees it, and draws from it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
import numpy.typing as npt

from agentgym.core.trajectory import SampledTokens
from agentgym.policies.base import Sampling
from agentgym.policies.llm.engine import Branch, Segment
from agentgym.policies.llm.options import Option
from agentgym.policies.llm.trie import TOOL, Trie

Floats = npt.NDArray[np.float64]

_EXPLORE_GROUP = 0.8
"""Share of exploration that goes to the group; the options within get the rest."""


class State:
    """Options with their probabilities, known as far as they were needed.

    Attributes:
        segment: The prompt.
        completions: Token ids of each option, the end of the answer included.
        edges: Log-probability of each edge of the trie; NaN where it was not needed.
        hidden: At the model's cut, by node of the trie, of those that were read.
        untried: Groups, or options of a group, that siblings have not explored yet.
    """

    def __init__(
        self,
        segment: Segment,
        options: Sequence[Option],
        completions: Sequence[Sequence[int]],
    ) -> None:
        self.segment = segment
        self.options = options
        self.completions = completions
        self.trie = Trie(completions, [o.group for o in options])
        self.edges: Floats = np.full(len(self.trie.rows), np.nan)
        self.hidden: dict[int, Any] = {}
        self.untried: dict[int, list[int]] = {}
        self.groups: dict[int, list[int]] = {}
        for i, option in enumerate(options):
            self.groups.setdefault(option.group, []).append(i)

    def branch(self, places: Sequence[int], *, read: bool) -> tuple[Branch, list[int]]:
        """The part of a forest that tells what is decided at some places.

        Returns:
            The branch, and the trie's nodes in it.
        """
        nodes = self.trie.to_read(places)
        number = {-1: -1} | {n: i for i, n in enumerate(nodes)}
        tokens = [self.trie.tokens[n] for n in nodes]
        parents = [number[self.trie.parents[n]] for n in nodes]
        return Branch(self.segment, tokens, parents, read=read), nodes

    def group_logprobs(self) -> tuple[list[int], Floats]:
        """The groups, and the log-probability of each."""
        groups = list(self.groups)
        totals = []
        for group in groups:
            ways = {self._tool_path(o) for o in self.groups[group]}
            values = [self.edges[list(way)].sum() for way in sorted(ways)]
            totals.append(float(np.logaddexp.reduce(values)))
        return groups, np.array(totals)

    def option_logprobs(self, group: int) -> Floats:
        """Log-probability of each option of a group, given the group."""
        totals: Floats = np.array(
            [self.edges[self.trie.paths[o]].sum() for o in self.groups[group]]
        )
        return totals - float(np.logaddexp.reduce(totals))

    def undecided(self, group: int) -> list[int]:
        """Places within a group of which the probabilities are not known yet."""
        if len(self.groups[group]) == 1:
            return []
        trie = self.trie
        return [
            p
            for p in trie.places(self.groups[group])
            if np.isnan(self.edges[trie.nodes == p]).any()
        ]

    @cached_property
    def prompt(self) -> tuple[int, ...]:
        """Token ids of the prompt; one object for all decisions at this state."""
        return tuple(t for segment in self.segment.chain for t in segment.tokens)

    def sampled(self, option: int, group: Drawn, value: Drawn) -> SampledTokens:
        """An option as it was drawn, token by token.

        A token that was certain has the log-probability 0; where options part, it is
        that of the edge under the weights and the constraint. What exploration made
        likelier or less likely than that is added where the tool, or the arguments,
        begin to part. Arguments that were drawn uniformly were not read by the model:
        all of their log-probability stands there. So the sum is always that of the
        decision.
        """
        path = self.trie.paths[option]
        edges = np.nan_to_num(self.edges[path])
        if len(path):
            edges[0] += group.drawn - group.logprob
            inside = np.flatnonzero(self.trie.kinds[path] != TOOL)
            at = int(inside[0]) if len(inside) else -1
            edges[at] += group.drawn + value.drawn - edges.sum()
        tokens = self.completions[option]
        logprobs = [0.0] * len(tokens)
        for depth, logprob in zip(self.trie.depths[option], edges, strict=True):
            logprobs[depth] = float(logprob)
        return SampledTokens(self.prompt, tuple(tokens), tuple(logprobs))

    def _tool_path(self, option: int) -> tuple[int, ...]:
        path = self.trie.paths[option]
        return tuple(int(e) for e in path[self.trie.kinds[path] == TOOL])


@dataclass(slots=True, eq=False)
class Trace:
    """What `learn` needs of a decision.

    Attributes:
        option: Which one was taken.
        logprobs: Of the group, and of the option in it, under the weights. The latter
            is NaN where it was not needed: any option would do.
    """

    state: State
    option: int
    logprobs: tuple[float, float]


@dataclass(slots=True)
class Drawn:
    """One of some choices.

    Attributes:
        chosen: Which.
        logprob: Under the weights; NaN if that is not known.
        drawn: Log-probability with which it was drawn.
        explored: Whether it was drawn uniformly.
    """

    chosen: int
    logprob: float
    drawn: float
    explored: bool = False


def draw(
    state: State,
    logprobs: Floats,
    sampling: Sampling,
    share: float,
    key: int,
) -> Drawn:
    """Draws one of some choices.

    Args:
        state: Remembers what siblings have tried.
        logprobs: Of the choices; they are not needed if the share is 1.
        sampling: How; but for the share of exploration.
        share: Of uniform draws.
        key: Names the choices within the state.
    """
    rng = sampling.rng
    if rng is None:
        best = int(logprobs.argmax())
        return Drawn(best, float(logprobs[best]), float(logprobs[best]))
    count = len(logprobs)
    odds = np.exp(logprobs)
    order = rng
    before = 0
    if sampling.turn is not None:
        order = np.random.default_rng([*sampling.turn.order, 1 + key])
        # Those of the siblings before it that explore here, if as much as this one.
        before = int((order.random(sampling.turn.number) < share).sum())
    explored = bool(order.random() < share)
    if explored:
        # Siblings at one state take turns through a random order, so that they try
        # different things; each of them alone still draws uniformly.
        untried = state.untried.setdefault(key, [])
        if sampling.turn is not None:
            seed = [*sampling.turn.order, 1 + key, count]
            turns = np.random.default_rng(seed).permutation(count)
            chosen = int(turns[before % count])
        else:
            if not untried:
                untried.extend(int(i) for i in rng.permutation(count))
            chosen = untried.pop()
    else:
        total = odds.cumsum()
        chosen = int(np.searchsorted(total, rng.random() * total[-1], side="right"))
        chosen = min(chosen, count - 1)
    odd = share / count + (0.0 if share == 1.0 else (1 - share) * odds[chosen])
    return Drawn(chosen, float(logprobs[chosen]), float(np.log(odd)), explored)


def shares(exploration: float) -> tuple[float, float]:
    """How much of the exploration goes to the group, and to the option in it."""
    return _EXPLORE_GROUP * exploration, (1 - _EXPLORE_GROUP) * exploration

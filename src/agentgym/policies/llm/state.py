"""A conversation as the language model's policy sees it, and draws from it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

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
        drawn: The same under the sampler, exploration included.
    """

    state: State
    option: int
    logprobs: tuple[float, float]
    drawn: tuple[float, float]


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
    rng: np.random.Generator | None,
    share: float,
    key: int,
) -> Drawn:
    """Draws one of some choices.

    Args:
        state: Remembers what siblings have tried.
        logprobs: Of the choices; they are not needed if the share is 1.
        rng: None for the likeliest.
        share: Of uniform draws.
        key: Names the choices within the state.
    """
    if rng is None:
        best = int(logprobs.argmax())
        return Drawn(best, float(logprobs[best]), float(logprobs[best]))
    count = len(logprobs)
    odds = np.exp(logprobs)
    explored = bool(rng.random() < share)
    if explored:
        # Siblings at one state take turns through a random order, so that they try
        # different things; each of them alone still draws uniformly.
        untried = state.untried.setdefault(key, [])
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

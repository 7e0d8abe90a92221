"""A conversation as the language model's policy sees it, and draws from it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
import numpy.typing as npt

from agentgym.core.tools import ToolCall
from agentgym.core.trajectory import SampledTokens
from agentgym.policies.base import DecisionRequest, Sampling
from agentgym.policies.built_in import pick
from agentgym.policies.llm.cache import Segment
from agentgym.policies.llm.engine import Branch
from agentgym.policies.llm.options import Option
from agentgym.policies.llm.trie import TOOL, Trie

Floats = npt.NDArray[np.float64]

_EXPLORE_GROUP = 0.8
"""Share of exploration that goes to the group; the options within get the rest."""
_AHEAD = 32
"""Tokens that are read at once where options part again and again."""


class State:
    """Options with their probabilities, as far as they were needed.

    Attributes:
        segment: The prompt.
        completions: Token ids of each option, the end of the answer included.
        edges: Log-probability of each edge of the trie; NaN where it wasn't needed.
        hidden: At the model's cut, by node of the trie, of those that were read.
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

    @cached_property
    def ways(self) -> dict[int, dict[tuple[int, ...], list[int]]]:
        """For each group, the edges that lead into it, and the options behind them."""
        found: dict[int, dict[tuple[int, ...], list[int]]] = {}
        for group, options in self.groups.items():
            own = found.setdefault(group, {})
            for option in options:
                path = self.trie.paths[option]
                way = tuple(path[self.trie.kinds[path] == TOOL].tolist())
                own.setdefault(way, []).append(option)
        return found

    @cached_property
    def group_logprobs(self) -> Floats:
        """Log-probability of each group, in the order of `groups`."""
        return np.array(
            [
                np.logaddexp.reduce([self.edges[list(way)].sum() for way in ways])
                for ways in self.ways.values()
            ]
        )

    def agreeing(self, known: ToolCall) -> tuple[int, list[int]] | None:
        """The group of a call, and which of its options have the arguments given.

        None if no such option exists.
        """
        for group, options in self.groups.items():
            if self.options[options[0]].tool != known.name:
                continue
            wanted = known.arguments.items()
            given = [self.options[option].arguments or {} for option in options]
            among = [
                i
                for i, own in enumerate(given)
                if all(name in own and own[name] == value for name, value in wanted)
            ]
            return (group, among) if among else None
        return None

    def parameters(self, option: int) -> list[str]:
        """For each edge within a call, the parameter whose value it is part of."""
        trie, completions = self.trie, self.completions
        own = completions[option]
        names = []
        for edge, depth in zip(trie.paths[option], trie.depths[option], strict=True):
            if trie.kinds[edge] == TOOL:
                continue
            # Of those that part here, any other one tells in what they differ.
            other = next(
                o
                for o in self.groups[self.options[option].group]
                if completions[o][:depth] == own[:depth]
                and completions[o][depth] != own[depth]
            )
            names.append(_differing(self.options[option], self.options[other]))
        return names

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


def _differing(one: Option, other: Option) -> str:
    """The first parameter that two calls of one tool give different values."""
    a, b = one.arguments or {}, other.arguments or {}
    return next((n for n in [*a, *b] if n not in a or n not in b or a[n] != b[n]), "")


class Walk:
    """Draws an option of a group, one branching of the trie after the other.

    Nodes off the path are never read, even if a group has many options.

    Attributes:
        place: Where the options left part, and one of the edges is to be drawn; None
            when a single option is left.
        drawn: The option, by its number in the group, as far as it is drawn.
    """

    def __init__(self, state: State, group: int, rng: Any) -> None:
        self.state = state
        self._group = group
        self._rng = rng
        ways = state.ways[group]
        logprobs = np.array([state.edges[list(way)].sum() for way in ways])
        chosen, logprob = self._choose(logprobs - np.logaddexp.reduce(logprobs))
        way = list(ways)[chosen]
        self._left = ways[way]
        self._depth = len(way)
        self.drawn = Drawn(-1, logprob, logprob)
        self._find_place()

    def wanted(self) -> list[int]:
        """Places to read for the next draw: if they are few, for all draws to come."""
        assert self.place is not None
        if not self._unknown(self.place):
            return []
        trie = self.state.trie
        if len(self._left) <= _AHEAD:
            ahead = [p for p in trie.places(self._left) if self._unknown(p)]
            if len(trie.to_read(ahead)) <= _AHEAD:
                return ahead
        return [self.place]

    def go(self) -> None:
        """Draws an edge at a place whose edges are known."""
        assert self.place is not None
        edges = self.state.trie.edges_at(self.place)
        chosen, logprob = self._choose(self.state.edges[edges])
        paths = self.state.trie.paths
        edge = edges[chosen]
        self._left = [o for o in self._left if paths[o][self._depth] == edge]
        self._depth += 1
        self.drawn.logprob += logprob
        self.drawn.drawn += logprob
        self._find_place()

    def _find_place(self) -> None:
        path = self.state.trie.paths[self._left[0]]
        self.place: int | None = None
        if self._depth < len(path):
            self.place = int(self.state.trie.nodes[path[self._depth]])
        else:
            group = self.state.groups[self._group]
            self.drawn.chosen = group.index(self._left[0])

    def _unknown(self, place: int) -> bool:
        edges = self.state.trie.edges_at(place)
        return bool(np.isnan(self.state.edges[edges]).any())

    def _choose(self, logprobs: Floats) -> tuple[int, float]:
        if self._rng is None or len(logprobs) == 1:
            chosen = int(logprobs.argmax())
        else:
            chosen = pick(np.exp(logprobs), self._rng)
        return chosen, float(logprobs[chosen])


@dataclass(slots=True, eq=False)
class Trace:
    """What `learn` needs of a decision.

    Attributes:
        request: What was asked. Siblings at the same state share what they learn.
        option: Which one was taken.
        logprobs: Of the group, and of the option in it, under the weights. The latter
            is NaN where it wasn't needed: any option could be taken.
    """

    request: DecisionRequest
    state: State
    option: int
    logprobs: tuple[float, float]

    def small(self) -> dict[str, Any]:
        """Plain data. Which probabilities were needed is part of it."""
        edges = self.state.edges
        known = np.flatnonzero(~np.isnan(edges))
        return {
            "state_key": self.request.state_key,
            "messages": self.request.messages,
            "tools": self.request.tools,
            "option": self.option,
            "logprobs": self.logprobs,
            "edges": [known.tolist(), edges[known].tolist()],
        }

    @classmethod
    def rebuilt(
        cls, small: Mapping[str, Any], request: DecisionRequest, state: State
    ) -> Trace:
        """What `small` was made of."""
        edges, values = small["edges"]
        state.edges[edges] = values
        group, value = small["logprobs"]
        return cls(request, state, small["option"], (group, value))


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


def draw_group(state: State, sampling: Sampling) -> tuple[Drawn, Sequence[int]]:
    """Draws what to do, and the options of it among which any can be taken.

    Where the tool or its arguments are explored, they are drawn uniformly, and nothing
    more must be read. At most one of the two is explored at a time: an explored tool
    shows with any arguments whether it is the right one.
    """
    share = _EXPLORE_GROUP * sampling.exploration
    group = _draw(state.group_logprobs, sampling, share, -1)
    anything = group.explored or (
        sampling.rng is not None
        and bool(sampling.rng.random() < sampling.exploration - share)
    )
    group.chosen = list(state.groups)[group.chosen]
    return group, range(len(state.groups[group.chosen])) if anything else ()


def draw_known(
    state: State, known: ToolCall | None, sampling: Sampling
) -> tuple[Drawn, Sequence[int]] | None:
    """The same where siblings know the tool, and perhaps some of its arguments.

    Returns:
        None if nothing is known, or it is not the turn of exploration.
    """
    if known is None or sampling.rng is None:
        return None
    agreeing = state.agreeing(known)
    if agreeing is None or sampling.rng.random() >= sampling.exploration:
        return None
    group, among = agreeing
    logprob = float(state.group_logprobs[list(state.groups).index(group)])
    return Drawn(group, logprob, float(np.log(sampling.exploration)), True), among


def _draw(
    logprobs: Floats,
    sampling: Sampling,
    share: float,
    key: int,
) -> Drawn:
    """Draws one of some choices.

    Args:
        logprobs: Of the choices; they are not needed if the share is 1.
        sampling: How, and what siblings have not tried; but for the share of
            exploration.
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
        untried = sampling.untried.setdefault(key, [])
        if sampling.turn is not None:
            seed = [*sampling.turn.order, 1 + key, count]
            turns = np.random.default_rng(seed).permutation(count)
            chosen = int(turns[before % count])
        else:
            if not untried:
                untried.extend(int(i) for i in rng.permutation(count))
            chosen = untried.pop()
    else:
        chosen = pick(odds, rng)
    odd = share / count + (0.0 if share == 1.0 else (1 - share) * odds[chosen])
    return Drawn(chosen, float(logprobs[chosen]), float(np.log(odd)), explored)


def draw_any(
    state: State, among: Sequence[int], sampling: Sampling, group: int
) -> Drawn:
    """Draws some option of a group, any of those given."""
    count = len(state.groups[group])
    if len(among) == count or sampling.rng is None:
        return _draw(np.full(count, np.nan), sampling, 1.0, group)
    # Options that siblings haven't tried come first.
    untried = sampling.untried.setdefault(group, [])
    if not untried:
        untried.extend(int(i) for i in sampling.rng.permutation(count))
    allowed = set(among)
    left = [i for i in untried if i in allowed]
    chosen = left[-1] if left else int(sampling.rng.choice(list(among)))
    if left:
        untried.remove(chosen)
    return Drawn(chosen, np.nan, -float(np.log(len(among))), True)

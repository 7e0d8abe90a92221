"""The planner's trainable parts: two kinds of heads, in numpy.

A *choice head* scores options that have a description (tools, enum values). For each
clause c that the user said, a hidden layer sees its mean vector, the maximum over its
tokens of a learned projection, flags (has a call taken it up?) and what has happened:

    z_c = relu(m_c A + max_t(x_t B) + f_c F + sum_h H[h] + b)
    logit_o = log sum_c exp(z_c . (e_o D + u_o) + s sim(c, o))  +  d_o . (v + v_o)
              + sum_h G[o, h]

with e_o the encoded description of option o, sim the likeness of a clause to the most
similar sentence of that description, and d_o facts about the option, such as whether
it has been called already. The likeness and the facts have weights from the start, so
that an untrained head already chooses sensibly. Options never seen in training are
still scored by their description. u_o, v_o and G_o belong to one option and start at
zero. G, the habits, lets what has happened favour an option without regard to what was
said: "escalate when the ticket is overdue" holds in every conversation. Only the tools'
head has it.

Where tools come and go, tools have no rows of their own: they *share the rows* of their
kind, without u, and the facts have further weights that all of them share and
that learn fast: how well a tool fits what was said is all that can be learned of it.
The hidden layer then says which tool is the best, but not whether any is right: words
that it memorized would favour a call wherever they are said. So, as long as nothing
was called, with l_o the logits of the tools as above, and f_o the same without
z, their logits are

    l_o - log sum_t exp(l_t) + log sum_t exp(f_t)

A *pointer head* scores values found in the conversation: phi . (sum_b W_b q + u), with
phi the features of the place where the value stands and q the encoded parameter.

Gradients are written out by hand; `tests/policies/planner/test_heads.py` compares them
with finite differences.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from agentgym.policies.planner.encoder import WIDTH

Array = npt.NDArray[np.float32]
Indices = npt.NDArray[np.int64]

HISTORY = 1024
"""Buckets into which history features are hashed."""


class Block:
    """A message as the heads see it: a mean vector for each clause, and their tokens.

    All states of a conversation share the blocks of its messages.
    """

    def __init__(self, text: str, means: Array, tokens: Array, starts: Indices) -> None:
        self.text = text
        """Of the message: blocks of the same text are equal."""
        self.means = means
        self.tokens = tokens
        self.starts = starts
        """Row of `tokens` at which each clause begins; every clause has one or more."""
        self.read: dict[int, tuple[int, Array]] = {}
        """Kept by heads: what they read here, for as long as their weights stay."""
        self.alike: dict[int, tuple[Options, Array]] = {}
        """Kept by heads: the likeness of each clause to each option."""


@dataclass(frozen=True, slots=True, eq=False)
class Clauses:
    """What was said. The last clause stands for nothing said at all."""

    blocks: Sequence[Block]
    flags: Array
    """Facts about each clause, such as whether a call has taken it up."""


FLAGS = 5
"""Facts about a clause."""

HIDDEN = 128
"""Units of a choice head's hidden layer."""


NO_ROW = -1
"""Stands for the last row of an array: zeros, until the row is given a name."""


class Options:
    """What a choice head chooses from: encoded descriptions and their rows.

    Unseen options share the row of their kind. What was said is then matched with
    their descriptions alone: a shared row could only memorize the words after which
    any tool is right.
    """

    def __init__(
        self, key: tuple[str, ...], sentences: Sequence[Array], shared_rows: bool
    ) -> None:
        self.key = key
        """Options with the same key are equal."""
        self.sentences = np.concatenate(sentences)
        """The encoded sentences of all descriptions, one below the other."""
        lengths = [len(rows) for rows in sentences]
        self.starts = np.cumsum([0, *lengths[:-1]])
        self.embeddings = np.stack([rows.mean(axis=0) for rows in sentences])
        self.slots = np.full(len(sentences), NO_ROW, np.int64)
        self.shared_rows = shared_rows


@dataclass(frozen=True, slots=True, eq=False)
class Case:
    """What one distribution of a choice head is computed from.

    Attributes:
        history: Buckets of what has happened.
        facts: One row for each option.
        open: Options that can be chosen at all; None if all can.
        detached: So many first options look at no clause, only at what has happened.
        gated: Fit alone tells whether any of the other options is right.
    """

    options: Options
    clauses: Clauses
    history: Indices
    facts: Array
    open: npt.NDArray[np.bool_] | None = None
    detached: int = 0
    gated: bool = False


@dataclass(frozen=True, slots=True, eq=False)
class Gate:
    """The total weight of the options that aren't detached, by fit alone.

    Attributes:
        attention: How much each of them looks at each clause, by likeness.
        fitting: The share of each among them by fit.
        preferred: The same by everything.
    """

    attention: Array
    fitting: Array
    preferred: Array


class Stack:
    """Cases laid one below the other, so that they share their matrix products.

    What several cases share, the messages of their conversation, is stored only
    once.
    """

    def __init__(self, cases: Sequence[Case]) -> None:
        self.cases = cases
        blocks = {b.text: b for case in cases for b in case.clauses.blocks}
        self.means = np.concatenate([b.means for b in blocks.values()])
        self.tokens = np.concatenate([b.tokens for b in blocks.values()])
        first_token = _firsts(len(b.tokens) for b in blocks.values())
        self.starts = np.concatenate(
            [b.starts + n for b, n in zip(blocks.values(), first_token, strict=False)]
        )
        self.lengths = np.diff(self.starts, append=len(self.tokens))
        """Tokens of each clause."""

        first_row = _firsts(len(b.means) for b in blocks.values())
        where = {
            key: np.arange(row, row + len(block.means))
            for (key, block), row in zip(blocks.items(), first_row, strict=False)
        }
        self.clause = np.concatenate(
            [where[b.text] for case in cases for b in case.clauses.blocks]
        )
        """The clause of each row; a row is a clause in one of the cases."""
        self.flags = np.concatenate([case.clauses.flags for case in cases])
        ends = _firsts(len(case.clauses.flags) for case in cases)
        self.rows = [slice(a, b) for a, b in itertools.pairwise(ends)]
        """Rows of each case."""
        self.by_clause = np.argsort(self.clause, kind="stable")
        """Rows in the order of their clauses, every one of which has some."""
        self.changes = np.flatnonzero(np.diff(self.clause[self.by_clause], prepend=-1))


@dataclass(frozen=True, slots=True, eq=False)
class Way:
    """What a choice head's `backward` needs of the way to the logits."""

    hidden: Array
    peaks: npt.NDArray[np.bool_]
    """Whether a token has the greatest projection of its clause, by unit."""
    attention: list[Array]
    gates: list[Gate | None]


def _firsts(counts: Iterable[int]) -> list[int]:
    return list(itertools.accumulate(counts, initial=0))


class Parameters:
    """Named arrays; some have a row for each slot and grow as slots appear."""

    def __init__(self, arrays: Mapping[str, Array], rows: Iterable[str]) -> None:
        self.arrays: dict[str, Array] = dict(arrays)
        self.row_arrays = frozenset(rows)
        self.version = 0
        """Counts changes, so that what was computed from the arrays can be kept."""

    def grow(self, slots: int) -> None:
        """Makes room for more slots; new rows are zero."""
        for name in self.row_arrays:
            array = self.arrays[name]
            if len(array) < slots:
                more = np.zeros((slots - len(array), *array.shape[1:]), np.float32)
                self.arrays[name] = np.concatenate([array, more])
                self.version += 1

    def zeros(self) -> dict[str, Array]:
        """An array of zeros for each parameter."""
        return {name: np.zeros_like(array) for name, array in self.arrays.items()}


class ChoiceHead:
    """Scores described options. See the module's docstring for the formula."""

    def __init__(
        self,
        facts: Sequence[float],
        similarity: float,
        seed: int,
        habits: bool = False,
    ) -> None:
        """Makes an untrained head.

        Args:
            facts: Weights of the facts.
            similarity: Weight of the likeness of clause and description.
            seed: Draws the hidden layer.
            habits: Whether what has happened also favours options directly.
        """
        self.habits = habits
        rng = np.random.default_rng(seed)

        def normal(*shape: int, scale: float) -> Array:
            return (scale * rng.standard_normal(shape)).astype(np.float32)

        self.parameters = Parameters(
            {
                "clause": normal(WIDTH, HIDDEN, scale=0.2),
                "token": normal(WIDTH, HIDDEN, scale=0.1),
                "flag": normal(FLAGS, HIDDEN, scale=0.5),
                "history": normal(HISTORY, HIDDEN, scale=0.6),
                "bias": np.zeros(HIDDEN, np.float32),
                "described": np.zeros((WIDTH, HIDDEN), np.float32),
                "similarity": np.full(1, similarity, np.float32),
                "facts": np.array(facts, np.float32),
                "shared_rows": np.zeros(len(facts), np.float32),
                "slot": np.zeros((0, HIDDEN), np.float32),
                "habit": np.zeros((0, HISTORY if habits else 0), np.float32),
                "facts_slot": np.zeros((0, len(facts)), np.float32),
            },
            rows=("slot", "habit", "facts_slot"),
        )
        self._compiled: dict[int, tuple[int, Options, tuple[Array, Array]]] = {}

    def logits(self, case: Case) -> Array:
        """Logits of all options of one case."""
        a = self.parameters.arrays
        hidden = np.concatenate([self._read(block) for block in case.clauses.blocks])
        hidden += case.clauses.flags @ a["flag"]
        hidden += a["history"][case.history].sum(axis=0) + a["bias"]
        np.maximum(hidden, 0.0, out=hidden)
        return self._score(case, hidden)[0]

    def scores(self, stack: Stack) -> tuple[list[Array], Way]:
        """Logits of all options, case by case, and the way there."""
        a = self.parameters.arrays
        words = stack.tokens @ a["token"]
        peaks = np.maximum.reduceat(words, stack.starts, axis=0)
        hidden = (stack.means @ a["clause"] + peaks)[stack.clause]
        hidden += stack.flags @ a["flag"]
        for case, rows in zip(stack.cases, stack.rows, strict=True):
            hidden[rows] += a["history"][case.history].sum(axis=0) + a["bias"]
        np.maximum(hidden, 0.0, out=hidden)
        scored = [
            self._score(case, hidden[rows])
            for case, rows in zip(stack.cases, stack.rows, strict=True)
        ]
        highest = words == np.repeat(peaks, stack.lengths, axis=0)
        attention, gates = [s[1] for s in scored], [s[2] for s in scored]
        return [s[0] for s in scored], Way(hidden, highest, attention, gates)

    def _read(self, block: Block) -> Array:
        """What the hidden layer takes from the words of each clause."""
        version = self.parameters.version
        known = block.read.get(id(self))
        if known is None or known[0] != version:
            a = self.parameters.arrays
            words = block.tokens @ a["token"]
            peaks = np.maximum.reduceat(words, block.starts, axis=0)
            taken: Array = block.means @ a["clause"] + peaks
            known = block.read[id(self)] = version, taken
        return known[1]

    def _score(self, case: Case, hidden: Array) -> tuple[Array, Array, Gate | None]:
        """Logits, how much each option looks at each clause, and the gate, if any."""
        a = self.parameters.arrays
        weights, own = self._compile(case.options)
        likeness = a["similarity"] * _alike(case)
        scores = hidden @ weights.T + likeness
        scores[:-1, : case.detached] = -np.inf
        scores[-1, case.detached :] = -np.inf
        matched, attention = _attend(scores)
        logits: Array = matched + (case.facts * own).sum(axis=1)
        if self.habits:
            habits = a["habit"][np.ix_(case.options.slots, case.history)]
            logits += habits.sum(axis=1)
        if case.open is not None:
            logits[~case.open] = -np.inf
        tools = slice(case.detached, None)
        if not case.gated or not np.isfinite(logits[tools]).any():
            return logits, attention, None
        alike, by_likeness = _attend(likeness[:-1, tools])
        weight, fitting = _attend(logits[tools] - matched[tools] + alike)
        before, preferred = _attend(logits[tools])
        logits[tools] += weight - before
        return logits, attention, Gate(by_likeness, fitting, preferred)

    def backward(
        self,
        gradient: dict[str, Array],
        stack: Stack,
        way: Way,
        upstreams: Sequence[Array],
    ) -> None:
        """Adds the gradient of the sum over cases of `upstream . logits`."""
        inner = np.empty_like(way.hidden)
        matches: dict[tuple[str, ...], tuple[Options, Array]] = {}
        for case, rows, attention, gate, upstream in zip(
            stack.cases, stack.rows, way.attention, way.gates, upstreams, strict=True
        ):
            options = case.options
            weights, _ = self._compile(options)
            pull: Array = attention * upstream
            if gate is not None:
                tools = slice(case.detached, None)
                together = upstream[tools].sum()
                pull[:, tools] -= attention[:, tools] * (gate.preferred * together)
                by_fit = gate.fitting * together
                alike = _alike(case)[:-1, tools]
                gradient["similarity"] += (gate.attention * by_fit * alike).sum()
                upstream = upstream.copy()
                upstream[tools] += by_fit - gate.preferred * together
            by_option: Array = np.matmul(pull.T, way.hidden[rows])
            total = matches.setdefault(options.key, (options, np.zeros_like(by_option)))
            total[1][...] += by_option
            gradient["similarity"] += (pull * _alike(case)).sum()
            inner[rows] = pull @ weights
            if self.habits:
                places = np.ix_(options.slots, case.history)
                _add(gradient["habit"], places, upstream[:, None], options.shared_rows)
            weighted = case.facts * upstream[:, None]
            gradient["facts"] += weighted.sum(axis=0)
            if options.shared_rows:
                gradient["shared_rows"] += weighted.sum(axis=0)
            _add(gradient["facts_slot"], options.slots, weighted, options.shared_rows)
        for options, by_option in matches.values():
            if not options.shared_rows:
                gradient["slot"][options.slots] += by_option
            gradient["described"] += options.embeddings.T @ by_option
        inner *= way.hidden > 0
        gradient["flag"] += stack.flags.T @ inner
        for case, rows in zip(stack.cases, stack.rows, strict=True):
            past = inner[rows].sum(axis=0)
            gradient["history"][case.history] += past
            gradient["bias"] += past
        by_clause = np.add.reduceat(inner[stack.by_clause], stack.changes, axis=0)
        gradient["clause"] += stack.means.T @ by_clause
        spread = np.repeat(by_clause, stack.lengths, axis=0)
        spread *= way.peaks
        gradient["token"] += stack.tokens.T @ spread

    def _compile(self, options: Options) -> tuple[Array, Array]:
        p = self.parameters
        known = self._compiled.get(id(options))
        if known is not None and known[0] == p.version and known[1] is options:
            return known[2]
        if len(self._compiled) > 256:
            self._compiled.clear()
        a = p.arrays
        weights = options.embeddings @ a["described"]
        own = a["facts"] + a["facts_slot"][options.slots]
        if options.shared_rows:
            own = own + a["shared_rows"]
        else:
            weights += a["slot"][options.slots]
        self._compiled[id(options)] = (p.version, options, (weights, own))
        return weights, own


def _attend(scores: Array) -> tuple[Array, Array]:
    """For each column, the logarithm of the sum of exponentials, and their shares."""
    peak = scores.max(axis=0)
    shares = np.exp(scores - peak)
    total = shares.sum(axis=0)
    shares /= total
    return peak + np.log(total), shares


def _add(gradient: Array, places: Any, values: Array, shared: bool) -> None:
    """Adds to rows, of which shared ones are named more than once."""
    if shared:
        np.add.at(gradient, places, values)
    else:
        gradient[places] += values


def _alike(case: Case) -> Array:
    """Likeness of each clause to each option: to its most similar sentence."""
    options, found = case.options, []
    for block in case.clauses.blocks:
        known = block.alike.get(id(options))
        if known is None or known[0] is not options:
            alike = np.maximum.reduceat(
                block.means @ options.sentences.T, options.starts, axis=1
            )
            known = block.alike[id(options)] = options, alike
        found.append(known[1])
    return np.concatenate(found)


class PointerHead:
    """Scores values found in the conversation."""

    def __init__(self, blocks: int, features: int, similarity: Sequence[float]) -> None:
        self.blocks = blocks
        self.features = features
        match = np.zeros((blocks, WIDTH, WIDTH), np.float32)
        for block, strength in enumerate(similarity):
            match[block] = strength * np.eye(WIDTH, dtype=np.float32)
        self.parameters = Parameters(
            {"match": match, "slot": np.zeros((0, features), np.float32)},
            rows=("slot",),
        )
        self._compiled: dict[int, tuple[int, Array, Array]] = {}

    def scores(self, slot: int, query: Array, values: Array) -> Array:
        """Logits of all values (rows of features) of a parameter."""
        scores: Array = values @ self._compile(slot, query)
        return scores

    def backward(
        self,
        gradient: dict[str, Array],
        cases: Sequence[tuple[int, Array, Array]],
        upstreams: Sequence[Array],
    ) -> None:
        """Adds the gradient of the sum over cases of `upstream . logits`.

        A case is what `scores` is given.
        """
        matches: dict[int, tuple[Array, Array]] = {}
        for (slot, query, values), upstream in zip(cases, upstreams, strict=True):
            by_feature = upstream @ values
            gradient["slot"][slot] += by_feature
            known = matches.setdefault(
                slot, (query, np.zeros(self.blocks * WIDTH, by_feature.dtype))
            )
            known[1][...] += by_feature[: self.blocks * WIDTH]
        for query, by_feature in matches.values():
            blocks = by_feature.reshape(self.blocks, WIDTH)
            gradient["match"] += blocks[:, :, None] * query

    def _compile(self, slot: int, query: Array) -> Array:
        p = self.parameters
        known = self._compiled.get(slot)
        if known is not None and known[0] == p.version and known[1] is query:
            return known[2]
        weights: Array = p.arrays["slot"][slot].copy()
        weights[: self.blocks * WIDTH] += (p.arrays["match"] @ query).ravel()
        self._compiled[slot] = (p.version, query, weights)
        return weights


def log_softmax(logits: Array) -> Array:
    """Log-probabilities."""
    shifted = logits - logits.max()
    result: Array = shifted - np.log(np.exp(shifted).sum())
    return result

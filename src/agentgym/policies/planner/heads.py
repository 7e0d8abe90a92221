"""The planner's trainable parts: two kinds of heads and an optimiser, in numpy.

A *choice head* scores options that have a description (tools, enum values). For each
clause c that the user said, a hidden layer sees its mean vector, the maximum over its
tokens of a learned projection, flags (has a call taken it up?) and what has happened:

    z_c = relu(m_c A + max_t(x_t B) + f_c F + sum_h H[h] + b)
    logit_o = log sum_c exp(z_c . (e_o D + u_o) + s sim(c, o))  +  d_o . (v + v_o)

with e_o the encoded description of option o, sim the likeness of a clause to the most
similar sentence of that description, and d_o facts about the option, such as whether
it has been called already. The likeness and the facts have weights from the start, so
that an untrained head is no fool, and options never seen in training are still scored
by their description. u_o and v_o belong to one option and start at zero.

A *pointer head* scores values found in the conversation: phi . (sum_b W_b q + u), with
phi the features of the place where the value stands and q the encoded parameter.

Gradients are written out by hand; `tests/policies/planner/test_heads.py` compares them
with finite differences.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from agentgym.policies.planner.encoder import WIDTH

Array = npt.NDArray[np.float32]
Indices = npt.NDArray[np.int64]

HISTORY = 1024
"""Buckets into which history features are hashed."""


_BETA1, _BETA2 = 0.9, 0.98
"""How much of the gradient's moments Adam keeps at each step."""


class Clauses:
    """What was said, clause by clause: a mean vector each, and their tokens.

    The last row stands for nothing said at all.
    """

    def __init__(
        self, means: Array, tokens: Array, starts: Indices, flags: Array
    ) -> None:
        self.means = means
        self.tokens = tokens
        self.starts = starts
        """Row of `tokens` at which each clause begins; every clause has one or more."""
        self.flags = flags
        """Facts about each clause, such as whether a call has taken it up."""


FLAGS = 5
"""Facts about a clause."""

HIDDEN = 128
"""Units of a choice head's hidden layer."""


class Options:
    """What a choice head chooses from: encoded descriptions and their own rows."""

    def __init__(self, sentences: Sequence[Array], slots: Indices) -> None:
        self.sentences = np.concatenate(sentences)
        """The encoded sentences of all descriptions, one below the other."""
        lengths = [len(rows) for rows in sentences]
        self.starts = np.cumsum([0, *lengths[:-1]])
        self.embeddings = np.stack([rows.mean(axis=0) for rows in sentences])
        self.slots = slots


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

    def __init__(self, facts: Sequence[float], similarity: float, seed: int) -> None:
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
                "slot": np.zeros((0, HIDDEN), np.float32),
                "facts_slot": np.zeros((0, len(facts)), np.float32),
            },
            rows=("slot", "facts_slot"),
        )
        self._compiled: dict[int, tuple[int, Options, tuple[Array, Array]]] = {}

    def scores(
        self,
        options: Options,
        clauses: Clauses,
        history: Indices,
        facts: Array,
        detached: int = 0,
    ) -> tuple[Array, tuple[Array, ...]]:
        """Logits of all options, and what `backward` needs of the way there.

        The first `detached` options look at no clause, only at what has happened.
        """
        a = self.parameters.arrays
        weights, own = self._compile(options)
        past = a["history"][history].sum(axis=0) + a["bias"]
        words = clauses.tokens @ a["token"]
        peaks = np.maximum.reduceat(words, clauses.starts, axis=0)
        flags = clauses.flags @ a["flag"]
        hidden = np.maximum(clauses.means @ a["clause"] + peaks + flags + past, 0.0)
        alike = np.maximum.reduceat(
            clauses.means @ options.sentences.T, options.starts, axis=1
        )
        scores = hidden @ weights.T + a["similarity"] * alike
        scores[:-1, :detached] = -np.inf
        scores[-1, detached:] = -np.inf
        peak = scores.max(axis=0)
        attention = np.exp(scores - peak)
        total = attention.sum(axis=0)
        attention /= total
        logits = peak + np.log(total) + (facts * own).sum(axis=1)
        return logits, (hidden, alike, attention, words)

    def backward(
        self,
        gradient: dict[str, Array],
        matches: dict[int, tuple[Options, Array]],
        options: Options,
        clauses: Clauses,
        history: Indices,
        facts: Array,
        way: tuple[Array, ...],
        upstream: Array,
    ) -> None:
        """Adds the gradient of `upstream . logits`; `matches` waits for `finish`."""
        hidden, alike, attention, words = way
        weights, _ = self._compile(options)
        pull = attention * upstream
        by_option: Array = np.matmul(pull.T, hidden)
        known = matches.get(id(options))
        if known is None:
            matches[id(options)] = (options, by_option)
        else:
            known[1][...] += by_option
        gradient["similarity"] += (pull * alike).sum()
        inner = (pull @ weights) * (hidden > 0)
        gradient["clause"] += clauses.means.T @ inner
        gradient["flag"] += clauses.flags.T @ inner
        spread = np.zeros_like(words)
        units = np.arange(spread.shape[1])
        ends = [*clauses.starts[1:], len(words)]
        for row, (start, end) in enumerate(zip(clauses.starts, ends, strict=True)):
            spread[start + words[start:end].argmax(axis=0), units] = inner[row]
        gradient["token"] += clauses.tokens.T @ spread
        past = inner.sum(axis=0)
        gradient["history"][history] += past
        gradient["bias"] += past
        weighted = facts * upstream[:, None]
        gradient["facts"] += weighted.sum(axis=0)
        gradient["facts_slot"][options.slots] += weighted

    @staticmethod
    def finish(
        gradient: dict[str, Array], matches: Mapping[int, tuple[Options, Array]]
    ) -> None:
        """Adds what `backward` collected: one product for each set of options."""
        for options, by_option in matches.values():
            gradient["slot"][options.slots] += by_option
            gradient["described"] += options.embeddings.T @ by_option

    def _compile(self, options: Options) -> tuple[Array, Array]:
        p = self.parameters
        known = self._compiled.get(id(options))
        if known is not None and known[0] == p.version and known[1] is options:
            return known[2]
        if len(self._compiled) > 256:
            self._compiled.clear()
        a = p.arrays
        weights = options.embeddings @ a["described"] + a["slot"][options.slots]
        own = a["facts"] + a["facts_slot"][options.slots]
        self._compiled[id(options)] = (p.version, options, (weights, own))
        return weights, own


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
        matches: dict[int, tuple[Array, Array]],
        slot: int,
        query: Array,
        values: Array,
        upstream: Array,
    ) -> None:
        """Adds the gradient of `upstream . logits`; `matches` waits for `finish`."""
        by_feature = upstream @ values
        gradient["slot"][slot] += by_feature
        known = matches.get(slot)
        if known is None:
            matches[slot] = (query, by_feature[: self.blocks * WIDTH].copy())
        else:
            known[1][...] += by_feature[: self.blocks * WIDTH]

    def finish(
        self, gradient: dict[str, Array], matches: Mapping[int, tuple[Array, Array]]
    ) -> None:
        """Adds what `backward` collected."""
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


class Adam:
    """Adam on named arrays, each with a rate of its own."""

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
        """All there is to save."""
        return {
            "steps": dict(self.steps),
            "first": dict(self.first),
            "second": dict(self.second),
        }

    def load_state(self, state: Mapping[str, Any]) -> None:
        """Takes on what `state` returned."""
        self.steps = {name: int(n) for name, n in state["steps"].items()}
        self.first = {n: np.array(a, np.float32) for n, a in state["first"].items()}
        self.second = {n: np.array(a, np.float32) for n, a in state["second"].items()}


def log_softmax(logits: Array) -> Array:
    """Log-probabilities."""
    shifted = logits - logits.max()
    result: Array = shifted - np.log(np.exp(shifted).sum())
    return result

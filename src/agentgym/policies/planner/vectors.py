"""Encoded texts, and vectors of what was said: clauses, tokens, spans, words around."""

from __future__ import annotations

import re
import zlib
from collections.abc import Iterable, Sequence
from concurrent.futures import Future, ThreadPoolExecutor

import numpy as np
import numpy.typing as npt

from agentgym.policies.calls.conversation import Said
from agentgym.policies.planner.encoder import WIDTH, EncodedText, SentenceEncoder
from agentgym.policies.planner.heads import Array, Block, Indices

EMBEDDING_SCALE = np.float32(4.0)
"""Length of every vector that the heads are given."""

_SHORTEST = np.float32(1e-6)
_TEXT_BYTES = 4096
"""What a cached text takes besides its hidden states, about."""
_AHEAD = 8
"""Texts that are encoded ahead at a time."""
_WORD = re.compile(r"[A-Za-z']+|[().,:?!]")


class TextCache:
    """Encoded texts, the most recently used within a memory bound.

    A worker thread encodes ahead. The encoder always gives the same bits for a text,
    so only the time depends on which thread was first.
    """

    def __init__(self, encoder: SentenceEncoder, limit: int) -> None:
        self._encoder = encoder
        self._limit = limit
        self._texts: dict[str, EncodedText] = {}
        self._ahead: dict[str, Future[list[EncodedText]]] = {}
        self._worker: ThreadPoolExecutor | None = None
        self.size = 0
        """Bytes that the texts take, about."""

    def prefetch(self, texts: Iterable[str]) -> None:
        """Starts to encode texts that will be needed soon."""
        # Texts encoded ahead but never used count as well.
        for future in {f for f in self._ahead.values() if f.done()}:
            self._take(future.result())
        self._forget(keep=0)
        fresh = [
            text
            for text in dict.fromkeys(texts)
            if text not in self._texts and text not in self._ahead
        ]
        if self._worker is None:
            self._worker = ThreadPoolExecutor(1, "agentgym-encoder")
        for start in range(0, len(fresh), _AHEAD):
            some = fresh[start : start + _AHEAD]
            future = self._worker.submit(self._encoder.encode, some)
            self._ahead.update(dict.fromkeys(some, future))

    def get(self, texts: Iterable[str]) -> dict[str, EncodedText]:
        """All the texts, encoded; waits for those that the worker has started."""
        wanted = dict.fromkeys(texts)
        for text in wanted:
            if text in self._ahead:
                self._take(self._ahead[text].result())
        self._take(self._encoder.encode([t for t in wanted if t not in self._texts]))
        found = {}
        for text in wanted:
            # Taken out and put back: a dict keeps the order of insertion.
            found[text] = self._texts[text] = self._texts.pop(text)
        self._forget(keep=len(wanted))
        return found

    def _take(self, texts: Sequence[EncodedText]) -> None:
        for encoded in texts:
            self._ahead.pop(encoded.text, None)
            if encoded.text not in self._texts:
                self.size += encoded.hidden.nbytes + _TEXT_BYTES
            self._texts[encoded.text] = encoded

    def _forget(self, keep: int) -> None:
        while self.size > self._limit and len(self._texts) > keep:
            oldest = next(iter(self._texts))
            self.size -= self._texts.pop(oldest).hidden.nbytes + _TEXT_BYTES


def message_block(said: Said, encoded: EncodedText) -> Block:
    """A message's clauses: the mean over the tokens of each, and the tokens."""
    known: Block | None = said.block
    if known is None:
        means = np.zeros((len(said.clauses), WIDTH), np.float32)
        tokens = []
        for row, clause in zip(means, said.clauses, strict=True):
            row[:] = span_vector(said, encoded, clause.start, clause.end)
            tokens.append(_tokens(encoded, clause.start, clause.end))
        starts = np.cumsum([0, *(len(rows) for rows in tokens[:-1])])
        known = said.block = Block(said.text, means, np.concatenate(tokens), starts)
    return known


def _tokens(encoded: EncodedText, start: int, end: int) -> Array:
    """The tokens of a clause, each of fixed length; at least one row."""
    inside = _inside(encoded, start, end)
    rows = encoded.hidden[inside] if inside.any() else encoded.hidden[:1]
    if not len(rows):
        rows = np.zeros((1, WIDTH), np.float32)
    norms = np.sqrt((rows * rows).sum(axis=1, keepdims=True))
    scaled: Array = EMBEDDING_SCALE / np.maximum(norms, _SHORTEST) * rows
    return scaled


def span_vector(said: Said, encoded: EncodedText, start: int, end: int) -> Array:
    """The mean over the tokens of a span, of fixed length; zero if it has none."""
    known: Array | None = said.vectors.get((start, end))
    if known is None:
        known = said.vectors[start, end] = _mean(encoded, start, end)
    return known


def _mean(encoded: EncodedText, start: int, end: int) -> Array:
    inside = _inside(encoded, start, end)
    if not inside.any():
        return np.zeros(WIDTH, np.float32)
    vector: Array = encoded.hidden[inside].mean(axis=0)
    norm = np.sqrt((vector * vector).sum())
    scaled: Array = (EMBEDDING_SCALE / max(norm, _SHORTEST)) * vector
    return scaled


def _inside(encoded: EncodedText, start: int, end: int) -> npt.NDArray[np.bool_]:
    inside: npt.NDArray[np.bool_] = (encoded.offsets[:, 0] < end) & (
        encoded.offsets[:, 1] > start
    )
    return inside


def word_vectors(encoded: EncodedText, words: Sequence[str]) -> Array:
    """A vector of length one for each of the words, which stand in a text in order."""
    rows, end = np.zeros((len(words), WIDTH), np.float32), 0
    for row, word in zip(rows, words, strict=True):
        start = encoded.text.index(word, end)
        end = start + len(word)
        row[:] = _mean(encoded, start, end)
    rows /= EMBEDDING_SCALE
    return rows


def weakest_match(words: Array, blocks: Iterable[Block]) -> float:
    """The least that any of the words resembles the token said that is closest to it.

    Args:
        words: A vector of length one for each.
        blocks: What was said.
    """
    heard = [block.tokens for block in blocks]
    if not len(words) or not heard:
        return 0.0
    best = (words @ np.concatenate(heard).T).max(axis=1)
    return float(best.min() / EMBEDDING_SCALE)


def hashed(names: Iterable[str], buckets: int) -> Indices:
    """Distinct buckets of the names, sorted."""
    return np.array(
        sorted({zlib.crc32(_bytes(name)) % buckets for name in names}), np.int64
    )


def _bytes(name: str) -> bytes:
    # JSON in a tool's result can smuggle in surrogates that stand alone.
    return name.encode("utf-8", "replace")


def neighbours(text: str, start: int, end: int) -> list[str]:
    """The words right before and after a span."""
    before = _WORD.findall(text[max(0, start - 40) : start].lower())[-2:]
    after = _WORD.findall(text[end : end + 30].lower())[:1]
    names = [f"-1 {before[-1]}" if before else "-1 ^"]
    if len(before) > 1:
        names.append(f"-2 {' '.join(before)}")
    names += [f"+1 {word}" for word in after]
    return names

"""Vectors of what was said: clauses, their tokens, spans, and the words around."""

from __future__ import annotations

import re
import zlib
from collections.abc import Iterable

import numpy as np
import numpy.typing as npt

from agentgym.policies.calls.conversation import Said
from agentgym.policies.planner.encoder import WIDTH, EncodedText
from agentgym.policies.planner.heads import Array, Indices

EMBEDDING_SCALE = np.float32(4.0)
"""Length of every vector that the heads are given."""

_SHORTEST = np.float32(1e-6)
_WORD = re.compile(r"[A-Za-z']+|[().,:?!]")


def clause_vectors(said: Said, encoded: EncodedText) -> Array:
    """One vector for each clause: the mean over its tokens, of fixed length."""
    known: Array | None = said.vectors
    if known is None:
        known = np.zeros((len(said.clauses), WIDTH), np.float32)
        for row, clause in zip(known, said.clauses, strict=True):
            row[:] = span_vector(encoded, clause.start, clause.end)
        said.vectors = known
    return known


def clause_tokens(said: Said, encoded: EncodedText) -> list[Array]:
    """The tokens of each clause, each of fixed length."""
    known: list[Array] | None = said.tokens
    if known is None:
        known = []
        for clause in said.clauses:
            inside = _inside(encoded, clause.start, clause.end)
            rows = encoded.hidden[inside] if inside.any() else encoded.hidden[:1]
            if not len(rows):
                rows = np.zeros((1, WIDTH), np.float32)
            norms = np.sqrt((rows * rows).sum(axis=1, keepdims=True))
            known.append(EMBEDDING_SCALE / np.maximum(norms, _SHORTEST) * rows)
        said.tokens = known
    return known


def span_vector(encoded: EncodedText, start: int, end: int) -> Array:
    """The mean over the tokens of a span, of fixed length; zero if it has none."""
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


def hashed(names: Iterable[str], buckets: int) -> Indices:
    """Distinct buckets of the names, sorted."""
    return np.array(
        sorted({zlib.crc32(name.encode()) % buckets for name in names}), np.int64
    )


def neighbours(text: str, start: int, end: int) -> list[str]:
    """The words right before and after a span."""
    before = _WORD.findall(text[max(0, start - 40) : start].lower())[-2:]
    after = _WORD.findall(text[end : end + 30].lower())[:1]
    names = [f"-1 {before[-1]}" if before else "-1 ^"]
    if len(before) > 1:
        names.append(f"-2 {' '.join(before)}")
    names += [f"+1 {word}" for word in after]
    return names

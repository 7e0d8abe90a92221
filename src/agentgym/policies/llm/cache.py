"""Keeps what was read, so that a conversation that continues is not read again.

Segments are found by all tokens up to their end. It doesn't matter what they hold: the
tools of a scenario, a framework's prompt, the turns of a conversation. Memory is
bounded; the least recently used segment is dropped first.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Sequence

import torch

KV = tuple[torch.Tensor, torch.Tensor]


class Segment:
    """Tokens that follow another segment, and what the model made of them.

    Attributes:
        parent: What comes before; None for an opening.
        tokens: Their ids.
        start: Depth of the first one.
        hidden: At the cut, one row for each token.
        keys: Keys and values of each layer, by layer number.
        version: Of the weights that the upper layers' keys and values are from.
    """

    __slots__ = ("hidden", "keys", "parent", "start", "tokens", "version")

    def __init__(self, parent: Segment | None, tokens: Sequence[int]) -> None:
        self.parent = parent
        self.tokens = list(tokens)
        self.start = parent.end if parent else 0
        self.hidden: torch.Tensor | None = None
        self.keys: dict[int, KV] = {}
        self.version = -1

    @property
    def end(self) -> int:
        """Depth behind the last token."""
        return self.start + len(self.tokens)

    @property
    def chain(self) -> list[Segment]:
        """This segment and all before it, first one first."""
        result: list[Segment] = []
        segment: Segment | None = self
        while segment is not None:
            result.append(segment)
            segment = segment.parent
        return result[::-1]

    @property
    def unread(self) -> int:
        """Tokens in this segment and before it that were not read yet."""
        return sum(len(s.tokens) for s in self.chain if not s.keys)

    @property
    def nbytes(self) -> int:
        """Memory it takes."""
        tensors = [t for pair in self.keys.values() for t in pair]
        if self.hidden is not None:
            tensors.append(self.hidden)
        return sum(t.nbytes for t in tensors)


class PrefixCache:
    """Segments by what they end.

    Attributes:
        limit: Bytes that may be kept.
        hits: Tokens that need not be read again.
        misses: Tokens that had to be read.
    """

    def __init__(self, limit: int) -> None:
        self.limit = limit
        self.hits = 0
        self.misses = 0
        self._known: OrderedDict[int, Segment] = OrderedDict()
        self._bytes = 0

    def find(self, tokens: Sequence[int]) -> Segment | None:
        """The longest known beginning of a prompt that leaves a token to read."""
        hashes = _hashes(tokens[:-1])
        for length in range(len(hashes), 0, -1):
            segment = self._known.get(hashes[length - 1])
            if segment is not None and _matches(segment, tokens):
                for part in segment.chain:
                    if hashes[part.end - 1] in self._known:
                        self._known.move_to_end(hashes[part.end - 1])
                self.hits += segment.end
                self.misses += len(tokens) - segment.end
                return segment
        self.misses += len(tokens)
        return None

    def add(self, segment: Segment) -> None:
        """Keeps a segment that was read, with all before it."""
        chain = segment.chain
        hashes = _hashes([token for part in chain for token in part.tokens])
        for part in chain:
            key = hashes[part.end - 1]
            before = self._known.get(key)
            if before is not part:
                self._bytes += part.nbytes - (before.nbytes if before else 0)
                self._known[key] = part
            self._known.move_to_end(key)
        while self._bytes > self.limit and len(self._known) > 1:
            _, oldest = self._known.popitem(last=False)
            self._bytes -= oldest.nbytes

    def forget_turns(self) -> None:
        """Drops all but openings: the weights have changed."""
        kept = {k: s for k, s in self._known.items() if s.parent is None}
        self._known = OrderedDict(kept)
        self._bytes = sum(s.nbytes for s in kept.values())

    def clear(self) -> None:
        """Drops everything."""
        self._known.clear()
        self._bytes = 0


def _hashes(tokens: Sequence[int]) -> list[int]:
    """A number for each beginning."""
    value, result = 0, []
    for token in tokens:
        value = hash((value, token))
        result.append(value)
    return result


def _matches(segment: Segment, tokens: Sequence[int]) -> bool:
    return all(
        part.tokens == list(tokens[part.start : part.end]) for part in segment.chain
    )

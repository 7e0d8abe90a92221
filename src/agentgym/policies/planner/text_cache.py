"""Encoded texts, kept within a memory bound and encoded ahead in a worker thread."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from concurrent.futures import Future, ThreadPoolExecutor

from agentgym.policies.planner.encoder import EncodedText, SentenceEncoder

_TEXT_BYTES = 4096
"""What a cached text takes besides its hidden states, about."""
_AHEAD = 8
"""Texts that are encoded ahead at a time."""


class TextCache:
    """Encoded texts, the most recently used within a memory bound.

    A worker thread encodes ahead. The encoder gives the same bits whichever way a
    text comes to it, so only the time depends on who was first.
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
        """Begins to encode texts that will be asked for soon."""
        # What was encoded ahead and never asked for counts as well.
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
        """All the texts, encoded; waits for those that the worker has begun."""
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

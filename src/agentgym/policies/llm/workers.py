"""Runs pieces of work side by side, one core each.

Two small products on one core each are done sooner than one after the other on both:
most of what surrounds a product runs on one core anyway. Results do not depend on how
many workers there are, nor on who comes first.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from typing import TypeVar

import torch

Item = TypeVar("Item")
Result = TypeVar("Result")


class Workers:
    """Threads for torch's work, which is done without Python's lock.

    Args:
        count: How many; by default as many as torch would use for one product.
    """

    def __init__(self, count: int | None = None) -> None:
        self.count = count or torch.get_num_threads()
        self._pool = ThreadPoolExecutor(
            self.count, "llm", initializer=torch.set_num_threads, initargs=(1,)
        )

    def map(
        self, function: Callable[[Item], Result], items: Iterable[Item]
    ) -> Iterator[Result]:
        """Results in the order of the items.

        Only a few are worked on or waiting at any time, which bounds memory.
        """
        waiting: deque[Future[Result]] = deque()
        try:
            for item in items:
                waiting.append(self._pool.submit(function, item))
                if len(waiting) > self.count:
                    yield waiting.popleft().result()
            while waiting:
                yield waiting.popleft().result()
        finally:
            for future in waiting:
                future.cancel()


def in_chunks(
    items: Iterable[Item], size: Callable[[Item], int], room: int
) -> list[list[Item]]:
    """Parts of at most that size, in order; a larger item stands alone."""
    chunks: list[list[Item]] = []
    left = 0
    for item in items:
        need = size(item)
        if not chunks or need > left:
            chunks.append([])
            left = room
        chunks[-1].append(item)
        left -= need
    return chunks

"""Where the model runs: device, precision, memory, and threads.

Two small products finish sooner on one core each than one after the other on both:
most of the work around a product runs on one core anyway. So `Workers` run pieces of
work in parallel. Results don't depend on their number, or on which finishes first.
"""

from __future__ import annotations

import resource
import sys
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager
from typing import TypeVar

import torch

from agentgym.errors import OutOfMemory

Item = TypeVar("Item")
Result = TypeVar("Result")


def best_device() -> torch.device:
    """A GPU if available, else the CPU."""
    if torch.cuda.is_available():
        return torch.device("cuda")
    if torch.backends.mps.is_available():
        return torch.device("mps")
    return torch.device("cpu")


def half_pays(device: torch.device) -> bool:
    """Whether bfloat16 products are faster there. On nearly all CPUs they aren't."""
    return device.type == "cuda" and bool(
        torch.cuda.is_bf16_supported(including_emulation=False)
    )


@contextmanager
def memory_told() -> Iterator[None]:
    """Explains what to do if memory runs out.

    Raises:
        OutOfMemory: The block ran out of memory.
    """
    try:
        yield
    except (MemoryError, RuntimeError) as error:
        # torch has its own error for GPUs only.
        told = str(error)
        if not (
            isinstance(error, MemoryError | torch.OutOfMemoryError)
            or "can't allocate memory" in told
        ):
            raise
        raise OutOfMemory(
            "Not enough memory for the language model and its input. Lower batch_size "
            "or group_size, choose a smaller model, or free some memory. To resume a "
            "run from its last checkpoint: agentgym runs resume RUN"
        ) from None


def peak_mb() -> float:
    """The peak memory of this process in megabytes."""
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    return peak / (1 << 20 if sys.platform == "darwin" else 1 << 10)


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

        Only a few run or wait at any time, which bounds memory.
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

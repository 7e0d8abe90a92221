"""Batches requests that arrive at the same time.

One thread does all the work, so policies need not be thread-safe. While it is busy,
requests wait; then it takes all waiting requests as one batch. A single request never
waits for others.
"""

from __future__ import annotations

import asyncio
import queue
import threading
from collections.abc import Callable, Sequence
from typing import Generic, TypeVar

T = TypeVar("T")
R = TypeVar("R")
_Job = tuple[T, "asyncio.Future[R]"]

MAX_BATCH = 64
MAX_WAITING = 1024


class Overloaded(Exception):
    """Too many requests are waiting."""


class Batcher(Generic[T, R]):
    """Runs a function on batches of waiting items, in its own thread.

    Attributes:
        batches: Number of batches so far.
        items: Number of items in them.
    """

    def __init__(
        self,
        function: Callable[[Sequence[T]], Sequence[R | Exception]],
        *,
        max_batch: int = MAX_BATCH,
        max_waiting: int = MAX_WAITING,
    ) -> None:
        """Creates the batcher; call `start` to run it.

        Args:
            function: Returns one result per item, in order. An exception as a result
                is raised to the caller who asked for that item. If the function itself
                raises, items are tried one by one, so that one can't fail the others.
            max_batch: Maximum number of items in a batch.
            max_waiting: Maximum number of waiting items.
        """
        self._function = function
        self._max_batch = max_batch
        self._max_waiting = max_waiting
        self._queue: queue.SimpleQueue[_Job[T, R] | None] = queue.SimpleQueue()
        self._thread: threading.Thread | None = None
        self._loop: asyncio.AbstractEventLoop | None = None
        self.batches = 0
        self.items = 0

    def start(self) -> None:
        """Starts the thread; call it in the event loop that uses `ask`."""
        self._loop = asyncio.get_running_loop()
        self._thread = threading.Thread(
            target=self._work, name="agentgym-decide", daemon=True
        )
        self._thread.start()

    async def stop(self) -> None:
        """Ends the thread once all waiting items have a result."""
        if self._thread is not None:
            self._queue.put(None)
            await asyncio.to_thread(self._thread.join)
            self._thread = None

    async def ask(self, item: T) -> R:
        """Returns the result for one item.

        Raises:
            Overloaded: Too many items are waiting.
        """
        if self._thread is None or self._loop is None:
            raise RuntimeError("The batcher is not running.")
        if self._queue.qsize() >= self._max_waiting:
            raise Overloaded
        future: asyncio.Future[R] = self._loop.create_future()
        self._queue.put((item, future))
        return await future

    def _work(self) -> None:
        assert self._loop is not None
        more = True
        while more:
            jobs: list[_Job[T, R]] = []
            waiting = self._queue.get()
            while waiting is not None:
                if not waiting[1].cancelled():
                    jobs.append(waiting)
                if len(jobs) >= self._max_batch or self._queue.empty():
                    break
                waiting = self._queue.get()
            more = waiting is not None
            if jobs:
                self.batches += 1
                self.items += len(jobs)
                results = self._run([item for item, _ in jobs])
                # Once per batch: waking the loop is expensive.
                self._loop.call_soon_threadsafe(_deliver, jobs, results)

    def _run(self, items: list[T]) -> list[R | Exception]:
        try:
            results = list(self._function(items))
            if len(results) != len(items):
                raise ValueError(f"{len(results)} results for {len(items)} items.")
            return results
        except Exception as error:
            if len(items) == 1:
                return [error]
            return [result for item in items for result in self._run([item])]


def _deliver(jobs: list[_Job[T, R]], results: list[R | Exception]) -> None:
    for (_, future), result in zip(jobs, results, strict=True):
        if future.done():  # The client disconnected.
            continue
        if isinstance(result, Exception):
            future.set_exception(result)
        else:
            future.set_result(result)

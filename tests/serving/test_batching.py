from __future__ import annotations

import asyncio
import threading
from collections.abc import Sequence
from typing import Any

import pytest

from agentgym.serving.batching import Batcher, Overloaded


class Gate:
    """Holds up the batcher's thread, and tells when it has come."""

    def __init__(self) -> None:
        self.reached = threading.Event()
        self._go = threading.Event()

    def wait(self) -> None:
        self.reached.set()
        self._go.wait(60)

    def open(self) -> None:
        self._go.set()


async def _ask(batcher: Batcher[int, int], *items: int) -> list[asyncio.Task[int]]:
    """Asks for items; they wait in the batcher when this returns."""
    asked = [asyncio.create_task(batcher.ask(item)) for item in items]
    await asyncio.sleep(0)
    return asked


def _doubled(items: Sequence[int]) -> list[int | Exception]:
    return [2 * item for item in items]


def test_what_waits_goes_together_in_order() -> None:
    seen: list[list[int]] = []
    gate = Gate()

    def work(items: Sequence[int]) -> list[int | Exception]:
        gate.wait()
        seen.append(list(items))
        return _doubled(items)

    async def main() -> list[int]:
        batcher: Batcher[int, int] = Batcher(work, max_batch=4)
        batcher.start()
        asked = await _ask(batcher, *range(10))
        gate.open()
        answers = list(await asyncio.gather(*asked))
        await batcher.stop()
        assert (batcher.batches, batcher.items) == (len(seen), 10)
        return answers

    assert asyncio.run(main()) == [2 * i for i in range(10)]
    assert [i for batch in seen for i in batch] == list(range(10))
    assert max(map(len, seen)) == 4


def test_one_that_fails_spoils_no_other() -> None:
    gate = Gate()

    def work(items: Sequence[int]) -> list[int | Exception]:
        gate.wait()
        if 3 in items:
            raise ValueError("three")
        return [KeyError("four") if item == 4 else item for item in items]

    async def main() -> list[Any]:
        batcher: Batcher[int, int] = Batcher(work)
        batcher.start()
        asked = await _ask(batcher, *range(6))
        gate.open()
        answers = await asyncio.gather(*asked, return_exceptions=True)
        await batcher.stop()
        return list(answers)

    answers = asyncio.run(main())
    assert answers[:3] == [0, 1, 2] and answers[5] == 5
    assert isinstance(answers[3], ValueError) and isinstance(answers[4], KeyError)


def test_who_has_gone_is_not_worked_for() -> None:
    seen: list[int] = []
    gate = Gate()

    def work(items: Sequence[int]) -> list[int | Exception]:
        gate.wait()
        seen.extend(items)
        return _doubled(items)

    async def main() -> None:
        batcher: Batcher[int, int] = Batcher(work)
        batcher.start()
        (first,) = await _ask(batcher, 1)
        await asyncio.to_thread(gate.reached.wait)
        gone = await _ask(batcher, 2, 3)
        gone[0].cancel()
        first.cancel()
        await asyncio.wait([first, gone[0]])
        gate.open()
        assert await gone[1] == 6
        await batcher.stop()

    asyncio.run(main())
    assert seen == [1, 3]


def test_limits_and_life() -> None:
    gate = Gate()

    def work(items: Sequence[int]) -> list[int | Exception]:
        gate.wait()
        return _doubled(items)

    async def main() -> None:
        batcher: Batcher[int, int] = Batcher(work, max_waiting=2)
        with pytest.raises(RuntimeError):
            await batcher.ask(0)
        await batcher.stop()
        batcher.start()
        asked = await _ask(batcher, 0)
        await asyncio.to_thread(gate.reached.wait)
        asked += await _ask(batcher, 1, 2)
        with pytest.raises(Overloaded):
            await batcher.ask(3)
        stopping = asyncio.create_task(batcher.stop())
        await asyncio.sleep(0)
        gate.open()
        # What waited when it was told to stop is still answered.
        assert await asyncio.gather(*asked) == [0, 2, 4]
        await stopping
        with pytest.raises(RuntimeError):
            await batcher.ask(0)

    asyncio.run(main())

from __future__ import annotations

import asyncio
import threading
from collections.abc import Sequence
from typing import Any

import pytest

from agentgym.serving.batching import Batcher, Overloaded


def _doubled(items: Sequence[int]) -> list[int | Exception]:
    return [2 * item for item in items]


def test_what_waits_goes_together_in_order() -> None:
    seen: list[list[int]] = []
    go = threading.Event()

    def work(items: Sequence[int]) -> list[int | Exception]:
        go.wait(10)
        seen.append(list(items))
        return _doubled(items)

    async def main() -> list[int]:
        batcher: Batcher[int, int] = Batcher(work, max_batch=4)
        batcher.start()
        asked = [asyncio.create_task(batcher.ask(i)) for i in range(10)]
        await asyncio.sleep(0.05)
        go.set()
        answers = list(await asyncio.gather(*asked))
        await batcher.stop()
        assert (batcher.batches, batcher.items) == (len(seen), 10)
        return answers

    assert asyncio.run(main()) == [2 * i for i in range(10)]
    assert [i for batch in seen for i in batch] == list(range(10))
    assert max(map(len, seen)) == 4


def test_one_that_fails_spoils_no_other() -> None:
    go = threading.Event()

    def work(items: Sequence[int]) -> list[int | Exception]:
        go.wait(10)
        if 3 in items:
            raise ValueError("three")
        return [KeyError("four") if item == 4 else item for item in items]

    async def main() -> list[Any]:
        batcher: Batcher[int, int] = Batcher(work)
        batcher.start()
        asked = [asyncio.create_task(batcher.ask(i)) for i in range(6)]
        await asyncio.sleep(0.05)
        go.set()
        answers = await asyncio.gather(*asked, return_exceptions=True)
        await batcher.stop()
        return list(answers)

    answers = asyncio.run(main())
    assert answers[:3] == [0, 1, 2] and answers[5] == 5
    assert isinstance(answers[3], ValueError) and isinstance(answers[4], KeyError)


def test_who_has_gone_is_not_worked_for() -> None:
    seen: list[int] = []
    go = threading.Event()

    def work(items: Sequence[int]) -> list[int | Exception]:
        go.wait(10)
        seen.extend(items)
        return _doubled(items)

    async def main() -> None:
        batcher: Batcher[int, int] = Batcher(work)
        batcher.start()
        first = asyncio.create_task(batcher.ask(1))
        await asyncio.sleep(0.05)
        gone = [asyncio.create_task(batcher.ask(i)) for i in (2, 3)]
        await asyncio.sleep(0.01)
        gone[0].cancel()
        first.cancel()
        await asyncio.sleep(0.01)
        go.set()
        assert await gone[1] == 6
        await batcher.stop()

    asyncio.run(main())
    assert seen == [1, 3]


def test_limits_and_life() -> None:
    go = threading.Event()

    def work(items: Sequence[int]) -> list[int | Exception]:
        go.wait(10)
        return _doubled(items)

    async def main() -> None:
        batcher: Batcher[int, int] = Batcher(work, max_waiting=2)
        with pytest.raises(RuntimeError):
            await batcher.ask(0)
        await batcher.stop()
        batcher.start()
        asked = [asyncio.create_task(batcher.ask(0))]
        await asyncio.sleep(0.05)
        asked += [asyncio.create_task(batcher.ask(i)) for i in (1, 2)]
        await asyncio.sleep(0.05)
        with pytest.raises(Overloaded):
            await batcher.ask(3)
        stopping = asyncio.create_task(batcher.stop())
        await asyncio.sleep(0.01)
        go.set()
        # What waited when it was told to stop is still answered.
        assert await asyncio.gather(*asked) == [0, 2, 4]
        await stopping
        with pytest.raises(RuntimeError):
            await batcher.ask(0)

    asyncio.run(main())

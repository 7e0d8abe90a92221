"""Threads for loops of asyncio."""

from __future__ import annotations

import threading
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from typing import Any


class ThreadForEachCall(ThreadPoolExecutor):
    """A thread for each call; none of them keeps the program from ending.

    Python waits at its end for the threads of its own pools. Those are also small:
    calls that wait for further calls in the same pool would wait forever.
    """

    def submit(
        self, function: Callable[..., Any], /, *args: Any, **kwargs: Any
    ) -> Future[Any]:
        """Runs a function."""
        future: Future[Any] = Future()

        def work() -> None:
            if not future.set_running_or_notify_cancel():
                return
            try:
                result = function(*args, **kwargs)
            except BaseException as error:
                future.set_exception(error)
            else:
                future.set_result(result)

        threading.Thread(target=work, name="agentgym-call", daemon=True).start()
        return future

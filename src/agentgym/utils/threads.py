"""An executor for asyncio whose threads never block the exit of the program."""

from __future__ import annotations

import threading
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from typing import Any


class ThreadForEachCall(ThreadPoolExecutor):
    """Runs each call in its own daemon thread.

    Python waits at exit for the threads of its standard pools. Those pools are also
    small: calls that wait for other calls in the same pool could wait forever.
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

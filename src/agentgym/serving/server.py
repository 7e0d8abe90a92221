"""Opens the port and runs an application until it is told to stop."""

from __future__ import annotations

import errno
import ipaddress
import signal
import socket
import threading
from collections.abc import Callable
from typing import Any

import uvicorn

from agentgym.errors import ServingError, UsageError

GRACE_SECONDS = 30
"""That requests on their way have to finish after the server was told to stop."""
_BACKLOG = 2048


def bind(host: str, port: int, *, guarded: bool) -> socket.socket:
    """Takes a port; who connects waits until `run` runs.

    Args:
        host: Name or address of an interface.
        port: 0 takes any that is free.
        guarded: Whether clients need a key. Without one only this machine may ask.

    Raises:
        UsageError: Other machines could ask, and need no key.
        ServingError: The port or the interface is not to be had.
    """
    try:
        found = socket.getaddrinfo(
            host or "0.0.0.0", port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE
        )
    except (OSError, UnicodeError):
        raise ServingError(f"There is no interface '{host}' on this machine.") from None
    if not guarded and not all(_is_loopback(entry[4][0]) for entry in found):
        raise UsageError(
            f"'{host}' can be reached from other machines: set a key with --api-key or"
            " AGENTGYM_API_KEY, or stay on 127.0.0.1."
        )
    family, kind, protocol, _, address = found[0]
    taken = socket.socket(family, kind, protocol)
    try:
        taken.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        taken.bind(address)
        # Two sockets may share a bound address until one of them listens.
        taken.listen(_BACKLOG)
    except OSError as error:
        taken.close()
        raise ServingError(_why(error, host, port)) from None
    return taken


def run(
    app: Any, listener: socket.socket, started: Callable[[], None] | None = None
) -> None:
    """Serves until SIGINT or SIGTERM; requests on their way are finished first.

    Args:
        app: An ASGI application.
        listener: From `bind`.
        started: Called once requests are answered.
    """
    server = _Server(_config(app, GRACE_SECONDS), started)
    if threading.current_thread() is not threading.main_thread():
        server.run([listener])
        return
    # uvicorn raises the signal again when it has shut down, for whoever had a handler
    # before. To be told to stop is how a server ends, so nothing is left to do then.
    numbers = (signal.SIGINT, signal.SIGTERM)
    before = {number: signal.signal(number, _ignore) for number in numbers}
    try:
        server.run([listener])
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


class Background:
    """Serves an application to this machine, in a thread of its own.

    Attributes:
        port: That it listens on.
    """

    def __init__(self, app: Any, grace_seconds: int = 2) -> None:
        """Starts; returns once requests are answered.

        Args:
            app: An ASGI application.
            grace_seconds: That requests on their way have to finish at the end.

        Raises:
            ServingError: It cannot be started.
        """
        self._listener = bind("127.0.0.1", 0, guarded=False)
        self.port: int = self._listener.getsockname()[1]
        started = threading.Event()
        self._server = _Server(_config(app, grace_seconds, "critical"), started.set)
        self._thread = threading.Thread(
            target=self._serve, args=(started,), name="agentgym-server", daemon=True
        )
        self._thread.start()
        started.wait()
        if not self._server.started:
            self.stop()
            raise ServingError("The server could not be started.")

    def stop(self) -> None:
        """Ends the server and gives the port back."""
        self._server.should_exit = True
        self._thread.join()
        self._listener.close()

    def _serve(self, started: threading.Event) -> None:
        try:
            self._server.run([self._listener])
        finally:
            started.set()


def _config(app: Any, grace_seconds: int, log_level: str = "error") -> uvicorn.Config:
    return uvicorn.Config(
        app,
        lifespan="on",
        ws="none",
        access_log=False,
        log_config=None,
        log_level=log_level,
        server_header=False,
        timeout_graceful_shutdown=grace_seconds,
    )


class _Server(uvicorn.Server):
    def __init__(
        self, config: uvicorn.Config, started: Callable[[], None] | None
    ) -> None:
        super().__init__(config)
        self._on_start = started

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        await super().startup(sockets)
        if self.started and self._on_start is not None:
            self._on_start()


def _ignore(number: int, frame: Any) -> None:
    pass


def _is_loopback(address: str | int) -> bool:
    return ipaddress.ip_address(str(address).partition("%")[0]).is_loopback


def _why(error: OSError, host: str, port: int) -> str:
    if error.errno == errno.EADDRINUSE:
        return f"Port {port} of {host} is in use: choose another with --port."
    if error.errno == errno.EACCES:
        return f"Port {port} needs more rights: choose one above 1023 with --port."
    return f"Cannot listen on {host}, port {port}: {error.strerror or error}."

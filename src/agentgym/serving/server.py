"""Opens a port and serves an application until it is told to stop."""

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
"""Time limit for open requests after the server was told to stop."""
_BACKLOG = 2048


def bind(host: str, port: int, *, guarded: bool) -> socket.socket:
    """Binds a port; clients that connect wait until `run` starts.

    Args:
        host: Name or address of an interface.
        port: The port; 0 takes any free one.
        guarded: Whether clients need an API key. If not, `host` must be local.

    Raises:
        UsageError: Other machines could connect without an API key.
        ServingError: The port is in use or the interface doesn't exist.
    """
    try:
        found = socket.getaddrinfo(
            host or "0.0.0.0", port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE
        )
    except (OSError, UnicodeError):
        raise ServingError(f"Host '{host}' not found on this machine.") from None
    if not guarded and not all(_is_loopback(entry[4][0]) for entry in found):
        raise UsageError(
            f"Other machines can reach '{host}'. Set AGENTGYM_API_KEY or --api-key, or"
            " use --host 127.0.0.1."
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
    """Serves until SIGINT or SIGTERM, then finishes open requests.

    Args:
        app: An ASGI application.
        listener: From `bind`.
        started: Called once the server answers requests.
    """
    server = _Server(_config(app, GRACE_SECONDS), started)
    if threading.current_thread() is not threading.main_thread():
        server.run([listener])
        return
    # uvicorn raises the signal again after shutdown, for handlers that were installed
    # before. Here a signal is the normal end, so nothing remains to be done.
    numbers = (signal.SIGINT, signal.SIGTERM)
    before = {number: signal.signal(number, _ignore) for number in numbers}
    try:
        server.run([listener])
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


class Background:
    """Serves an application on localhost, in a background thread.

    Attributes:
        port: The server's port.
    """

    def __init__(self, app: Any, grace_seconds: int = 2) -> None:
        """Starts the server; returns once it answers requests.

        Args:
            app: An ASGI application.
            grace_seconds: Time limit for open requests when the server stops.

        Raises:
            ServingError: The server can't start.
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
            raise ServingError("The server couldn't start.")

    def stop(self) -> None:
        """Stops the server and frees the port."""
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
        return f"Port {port} on {host} is in use. Choose another with --port."
    if error.errno == errno.EACCES:
        return f"Permission denied for port {port}. Use --port with 1024 or above."
    return f"Can't listen on {host}:{port}: {error.strerror or error}."

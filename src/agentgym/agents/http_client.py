"""A small HTTP/1.1 client: POST, connection reuse, whole or streamed responses.

A gateway must add very little latency. General clients take longer for a request than
everything else in the gateway together: see benchmarks/gateway.py.
"""

from __future__ import annotations

import asyncio
import contextlib
import ssl
from collections.abc import AsyncGenerator, AsyncIterator, Awaitable, Callable, Mapping
from typing import TypeVar
from urllib.parse import urlsplit

T = TypeVar("T")

_LIMIT = 1 << 20
"""Maximum size of a response head or a line of a stream, in bytes."""
_KEPT = 64
"""Maximum number of idle connections."""


class HttpFailed(Exception):
    """The server didn't respond, or not in HTTP."""


class HttpTimeout(HttpFailed):
    """The server didn't send data in time."""


class _Gone(HttpFailed):
    """The server closed an idle connection before it read the request."""


class HttpClient:
    """A client for one server. Use it in one event loop only.

    Args:
        base_url: `http://host:port/path` or `https://...`.
        headers: Headers for each request.
        timeout: Seconds without data before a request fails.
    """

    def __init__(
        self, base_url: str, headers: Mapping[str, str] = {}, timeout: float = 60.0
    ) -> None:
        parts = urlsplit(base_url)
        if parts.scheme not in ("http", "https") or not parts.hostname:
            raise ValueError(f"Invalid URL '{base_url}'")
        self._host = parts.hostname
        self._port = parts.port or (443 if parts.scheme == "https" else 80)
        self._tls = ssl.create_default_context() if parts.scheme == "https" else None
        self._path = parts.path.rstrip("/")
        fixed = {"host": parts.netloc, "content-type": "application/json", **headers}
        self._headers = "".join(f"{k}: {v}\r\n" for k, v in fixed.items())
        self._timeout = timeout
        self._idle: list[_Connection] = []

    async def post(self, path: str, body: bytes) -> HttpResponse:
        """Sends a request, and reads the head of the response.

        Raises:
            HttpFailed: There was no response.
        """
        head = (
            f"POST {self._path}{path} HTTP/1.1\r\n{self._headers}"
            f"content-length: {len(body)}\r\n\r\n"
        )
        data = head.encode("latin-1") + body
        while self._idle:
            with contextlib.suppress(_Gone):
                return await self._send(self._idle.pop(), data)
        try:
            async with asyncio.timeout(self._timeout):
                streams = await asyncio.open_connection(
                    self._host, self._port, ssl=self._tls, limit=_LIMIT
                )
        except TimeoutError:
            raise HttpTimeout("no connection") from None
        except OSError as error:
            raise HttpFailed(f"{type(error).__name__}: {error}") from None
        return await self._send(_Connection(*streams, self._timeout), data)

    async def _send(self, connection: _Connection, data: bytes) -> HttpResponse:
        try:
            status, headers = await connection.exchange(data)
        except BaseException:
            connection.close()
            raise
        return HttpResponse(status, headers, connection, self._keep)

    def _keep(self, connection: _Connection) -> None:
        connection.used = True
        if len(self._idle) < _KEPT:
            self._idle.append(connection)
        else:
            connection.close()

    def close(self) -> None:
        """Closes the idle connections."""
        while self._idle:
            self._idle.pop().close()


class HttpResponse:
    """A response. Read it to its end or close it.

    Attributes:
        headers: The headers, by lowercase name.
    """

    def __init__(
        self,
        status: int,
        headers: dict[str, str],
        connection: _Connection,
        keep: Callable[[_Connection], None],
    ) -> None:
        self.status = status
        self.headers = headers
        self._connection: _Connection | None = connection
        self._keep = keep

    async def read(self) -> bytes:
        """Returns the whole body.

        Raises:
            HttpFailed: The body ended early.
        """
        return b"".join([part async for part in self.parts()])

    async def lines(self) -> AsyncGenerator[bytes, None]:
        """Yields lines as they arrive, without line ends.

        Raises:
            HttpFailed: The body ended early, or a line is too long.
        """
        rest = b""
        async for part in self.parts():
            *whole, rest = (rest + part).split(b"\n")
            for line in whole:
                yield line.rstrip(b"\r")
            if len(rest) > _LIMIT:
                raise HttpFailed("a line of the stream is too long")
        if rest:
            yield rest

    async def parts(self) -> AsyncIterator[bytes]:
        """Yields pieces as they arrive."""
        connection = self._connection
        if connection is None:
            return
        length = self.headers.get("content-length")
        if "chunked" in self.headers.get("transfer-encoding", "").lower():
            while size := int((await connection.line()).split(b";")[0], 16):
                yield await connection.exactly(size)
                await connection.line()
            while await connection.line():
                pass  # Trailers.
        elif length is not None:
            yield await connection.exactly(int(length))
        elif self.status not in (204, 304):
            while part := await connection.some():
                yield part
            self.close()
            return
        if self.headers.get("connection", "").lower() == "close":
            self.close()
        else:
            self._connection = None
            self._keep(connection)

    def close(self) -> None:
        """Discards the unread part."""
        if self._connection is not None:
            self._connection.close()
            self._connection = None


class _Connection:
    def __init__(
        self,
        reader: asyncio.StreamReader,
        writer: asyncio.StreamWriter,
        timeout: float,
    ) -> None:
        self._reader = reader
        self._writer = writer
        self._timeout = timeout
        self.used = False

    async def exchange(self, data: bytes) -> tuple[int, dict[str, str]]:
        """Sends a request, and reads the head of its response."""
        if self.used and self._reader.at_eof():
            raise _Gone("closed")
        try:
            self._writer.write(data)
            await self._in_time(self._writer.drain())
            head = await self._in_time(self._reader.readuntil(b"\r\n\r\n"))
            while head.split(b" ", 2)[1].startswith(b"1"):
                head = await self._in_time(self._reader.readuntil(b"\r\n\r\n"))
        except asyncio.IncompleteReadError as error:
            if self.used and not error.partial:
                raise _Gone("closed") from None
            raise HttpFailed("the connection was closed") from None
        except ConnectionError as error:
            if self.used:
                raise _Gone("closed") from None
            raise HttpFailed(type(error).__name__) from None
        except (asyncio.LimitOverrunError, IndexError):
            raise HttpFailed("no HTTP") from None
        lines = head.decode("latin-1").split("\r\n")
        status = lines[0].split(" ", 2)
        if not lines[0].startswith("HTTP/1.") or not status[1].isdigit():
            raise HttpFailed("no HTTP")
        fields = (line.partition(":") for line in lines[1:] if line)
        return int(status[1]), {k.strip().lower(): v.strip() for k, _, v in fields}

    async def line(self) -> bytes:
        return (await self._read(self._reader.readuntil(b"\r\n")))[:-2]

    async def exactly(self, size: int) -> bytes:
        return await self._read(self._reader.readexactly(size))

    async def some(self) -> bytes:
        return await self._read(self._reader.read(1 << 16))

    def close(self) -> None:
        self._writer.close()

    async def _read(self, reading: Awaitable[bytes]) -> bytes:
        try:
            return await self._in_time(reading)
        except asyncio.IncompleteReadError:
            raise HttpFailed("the response ended early") from None
        except (ConnectionError, asyncio.LimitOverrunError) as error:
            raise HttpFailed(type(error).__name__) from None

    async def _in_time(self, reading: Awaitable[T]) -> T:
        try:
            async with asyncio.timeout(self._timeout):
                return await reading
        except TimeoutError:
            raise HttpTimeout(f"no data for {self._timeout:g} s") from None

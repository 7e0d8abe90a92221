"""The small HTTP client, beside a server that knows all the ways to answer."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Callable
from typing import Any

import pytest

from agentgym.agents.http_client import HttpClient, HttpFailed, HttpTimeout

OK = b"HTTP/1.1 200 OK\r\n"
CHUNKED = b"transfer-encoding: chunked\r\n\r\n"


async def _serve(
    answers: list[bytes | None], use: Callable[[HttpClient], Any], timeout: float
) -> tuple[Any, list[bytes], int]:
    """Answers the requests in turn; None closes the connection instead.

    Returns what `use` did, the heads of the requests, and how many connections came.
    """
    seen: list[bytes] = []
    connections = 0

    async def handle(
        reader: asyncio.StreamReader, writer: asyncio.StreamWriter
    ) -> None:
        nonlocal connections
        connections += 1
        try:
            while True:
                head = await reader.readuntil(b"\r\n\r\n")
                length = int(head.split(b"content-length: ")[1].split(b"\r\n")[0])
                await reader.readexactly(length)
                seen.append(head)
                answer = answers.pop(0) if answers else None
                if answer is None:
                    break
                writer.write(answer)
                await writer.drain()
                if b"close" in answer or b"length" not in answer.replace(
                    b"chunked", b"length"
                ):
                    break
        except (asyncio.IncompleteReadError, ConnectionError):
            pass
        finally:
            writer.close()

    server = await asyncio.start_server(handle, "127.0.0.1", 0)
    port = server.sockets[0].getsockname()[1]
    client = HttpClient(f"http://127.0.0.1:{port}/v1/", {"x-a": "b"}, timeout=timeout)
    try:
        return await use(client), seen, connections
    finally:
        client.close()
        server.close()
        await server.wait_closed()


def _run(
    answers: list[bytes | None],
    use: Callable[[HttpClient], Any],
    timeout: float = 60,
) -> Any:
    return asyncio.run(_serve(answers, use, timeout))


async def _whole(client: HttpClient) -> bytes:
    response = await client.post("/x", b"{}")
    body: bytes = await response.read()
    return body


@pytest.mark.parametrize(
    "answer",
    [
        OK + b"Content-Length: 5\r\n\r\nhello",
        OK + CHUNKED + b"2\r\nhe\r\n3;x=y\r\nllo\r\n0\r\na: b\r\n\r\n",
        OK + b"connection: close\r\n\r\nhello",
        OK + b"content-length: 5\r\nconnection: close\r\n\r\nhello",
        b"HTTP/1.1 103 Early\r\nlink: x\r\n\r\n"
        + OK
        + b"content-length: 5\r\n\r\nhello",
    ],
)
def test_whole_answers(answer: bytes) -> None:
    body, (head,), _ = _run([answer], _whole)
    assert body == b"hello"
    assert head.startswith(b"POST /v1/x HTTP/1.1\r\nhost: 127.0.0.1:")
    assert b"x-a: b\r\n" in head


def test_connections_are_kept() -> None:
    async def use(client: HttpClient) -> list[bytes]:
        return [await _whole(client) for _ in range(3)]

    answer = OK + b"content-length: 1\r\n\r\nx"
    assert _run([answer] * 3, use)[::2] == ([b"x"] * 3, 1)


def test_a_kept_connection_that_was_closed() -> None:
    async def use(client: HttpClient) -> list[bytes]:
        first = await _whole(client)
        await asyncio.sleep(0.05)
        return [first, await _whole(client)]

    answer = OK + b"content-length: 1\r\n\r\nx"
    # The second request finds the connection closed, and takes another.
    said, seen, connections = _run([answer, None, answer], use)
    assert said == [b"x", b"x"] and connections == 2 and len(seen) == 3


def test_lines_as_they_come() -> None:
    async def use(client: HttpClient) -> list[bytes]:
        response = await client.post("/x", b"")
        return [line async for line in response.lines()]

    parts = [b"data: a\r\n\nda", b"ta: b\nrest"]
    chunks = b"".join(b"%x\r\n%b\r\n" % (len(part), part) for part in parts)
    answer = OK + b"transfer-encoding: chunked\r\n\r\n" + chunks + b"0\r\n\r\n"
    assert _run([answer], use)[0] == [b"data: a", b"", b"data: b", b"rest"]


def test_an_answer_that_is_given_up() -> None:
    async def use(client: HttpClient) -> bytes:
        with contextlib.closing(await client.post("/x", b"")) as response:
            assert response.status == 200
        return await _whole(client)

    answer = OK + b"content-length: 1\r\n\r\nx"
    said, _, connections = _run([answer, answer], use)
    assert said == b"x" and connections == 2


@pytest.mark.parametrize(
    "answer",
    [
        None,
        b"nonsense\r\n\r\n",
        b"SSH-2.0 200 OK length\r\n\r\n",
        OK + b"content-length: 9\r\nconnection: close\r\n\r\nhello",
        OK + b"transfer-encoding: chunked\r\nconnection: close\r\n\r\n5\r\nhel",
        b"x" * (2 << 20),
    ],
)
def test_what_is_no_answer(answer: bytes | None) -> None:
    with pytest.raises(HttpFailed):
        _run([answer], _whole)


def test_silence() -> None:
    with pytest.raises(HttpTimeout):
        _run([b"HTTP/1.1 200 OK\r\ncontent-length: 5\r\n\r\n"], _whole, timeout=0.3)


@pytest.mark.parametrize("address", ["", "ftp://x", "http://"])
def test_addresses_that_are_none(address: str) -> None:
    with pytest.raises(ValueError, match="Invalid URL"):
        HttpClient(address)

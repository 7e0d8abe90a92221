"""What every server here does with HTTP: bodies, keys, errors and event streams."""

from __future__ import annotations

import asyncio
import hmac
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable

from starlette.exceptions import HTTPException
from starlette.requests import ClientDisconnect, Request
from starlette.responses import Response, StreamingResponse

from agentgym.serving.answers import encode
from agentgym.serving.errors import ApiError
from agentgym.serving.protocol import MAX_BODY

BODY_SECONDS = 30.0
"""Within which a request must have arrived."""
_READ_ON = 16
"""How many times too long a body may be and still be read to its end: a client that is
busy sending does not see why it is refused."""

Log = Callable[[Exception], None]
Endpoint = Callable[[Request], Awaitable[Response]]


async def read_body(request: Request) -> bytes:
    """The body of a request.

    Raises:
        ApiError: It is too long, or does not arrive in time.
    """
    too_long = ApiError(
        413,
        f"The body is longer than {MAX_BODY:,} bytes.",
        code="request_too_large",
        # What is still on its way would be taken for the next request.
        headers={"connection": "close"},
    )
    parts, size = [], 0
    try:
        async with asyncio.timeout(BODY_SECONDS):
            async for part in request.stream():
                size += len(part)
                if size <= MAX_BODY:
                    parts.append(part)
                elif size > _READ_ON * MAX_BODY:
                    raise too_long
    except TimeoutError:
        raise ApiError(
            408,
            f"The body did not arrive within {BODY_SECONDS:g} s.",
            headers={"connection": "close"},
        ) from None
    if size > MAX_BODY:
        raise too_long
    return b"".join(parts)


def event_stream(parts: AsyncIterator[bytes]) -> Response:
    """Server-sent events."""
    return StreamingResponse(
        parts,
        media_type="text/event-stream",
        headers={"cache-control": "no-cache", "x-accel-buffering": "no"},
    )


async def each(parts: Iterable[bytes]) -> AsyncIterator[bytes]:
    """Parts that are there already, for `event_stream`."""
    # Starlette would run a plain iterator in a pool of threads.
    for part in parts:
        yield part


def bearer(request: Request) -> bytes:
    """The key that a request came with; empty if none."""
    scheme, _, key = request.headers.get("authorization", "").partition(" ")
    return key.strip().encode() if scheme.lower() == "bearer" else b""


def check_key(given: bytes, key: bytes) -> None:
    """Lets in who has the key.

    Raises:
        ApiError: It is missing or wrong.
    """
    if not hmac.compare_digest(given, key):
        what = "is wrong" if given else "is missing"
        raise wrong_key(f"The API key {what}: send it as 'Authorization: Bearer KEY'.")


def wrong_key(message: str) -> ApiError:
    """Whoever asks is not let in."""
    return ApiError(
        401,
        message,
        kind="authentication_error",
        code="invalid_api_key",
        headers={"www-authenticate": "Bearer"},
    )


def overloaded() -> ApiError:
    """Too much waits already; trying again helps."""
    return ApiError(
        503,
        "Too many requests wait already; try again in a moment.",
        kind="server_error",
        code="overloaded",
        headers={"retry-after": "1"},
    )


def guarded(endpoint: Endpoint, log: Log) -> Endpoint:
    """Turns whatever an endpoint raises into an answer."""

    async def call(request: Request) -> Response:
        try:
            return await endpoint(request)
        except ApiError as error:
            return error_response(error)
        except ClientDisconnect:
            return Response(status_code=499)
        except Exception as error:
            log(error)
            return error_response(
                ApiError(
                    500,
                    "The server failed on this request; its log says why.",
                    kind="server_error",
                    code="internal_error",
                )
            )

    return call


async def not_found(request: Request, error: Exception) -> Response:
    """Paths and methods that do not exist."""
    assert isinstance(error, HTTPException)
    text = f"{request.method[:20]} {request.url.path[:100]} is not offered here."
    headers = dict(error.headers or {})
    return error_response(ApiError(error.status_code, text, headers=headers))


def error_response(error: ApiError) -> Response:
    """An error in OpenAI's shape."""
    return json_response(error.status, encode(error.to_dict()), error.headers)


def json_response(
    status: int, body: bytes, headers: dict[str, str] | None = None
) -> Response:
    """A body that is JSON already."""
    return Response(body, status, headers, media_type="application/json")

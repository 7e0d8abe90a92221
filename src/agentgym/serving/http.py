"""HTTP for all servers: request bodies, API keys, errors and event streams."""

from __future__ import annotations

import asyncio
import hmac
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable, Mapping
from contextlib import AbstractAsyncContextManager
from typing import Any

from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.requests import ClientDisconnect, Request
from starlette.responses import Response, StreamingResponse
from starlette.routing import Route

from agentgym.serving.answers import encode
from agentgym.serving.errors import ApiError
from agentgym.serving.protocol import MAX_BODY

BODY_SECONDS = 30.0
"""Time limit for receiving a request body."""
_READ_ON = 16
"""A body up to this many times the limit is read to its end before it is rejected:
clients read the error only after they have sent everything."""

Log = Callable[[Exception], None]
Endpoint = Callable[[Request], Awaitable[Response]]


async def read_body(request: Request) -> bytes:
    """Reads the body of a request.

    Raises:
        ApiError: The body is too long or doesn't arrive in time.
    """
    too_long = ApiError(
        413,
        f"Request body too large: at most {MAX_BODY:,} bytes are allowed.",
        code="request_too_large",
        # The rest of the body would be parsed as the next request.
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
            f"Timed out: the request body didn't arrive within {BODY_SECONDS:g} s.",
            headers={"connection": "close"},
        ) from None
    if size > MAX_BODY:
        raise too_long
    return b"".join(parts)


def event_stream(parts: Iterable[bytes] | AsyncIterator[bytes]) -> Response:
    """A response of server-sent events."""
    return StreamingResponse(
        parts if isinstance(parts, AsyncIterator) else _each(parts),
        media_type="text/event-stream",
        headers={"cache-control": "no-cache", "x-accel-buffering": "no"},
    )


async def _each(parts: Iterable[bytes]) -> AsyncIterator[bytes]:
    # Starlette would run a plain iterator in a thread pool.
    for part in parts:
        yield part


def check_key(request: Request, key: str) -> None:
    """Checks a request's bearer token.

    Raises:
        ApiError: The key is missing or wrong.
    """
    scheme, _, given = request.headers.get("authorization", "").partition(" ")
    given = given.strip() if scheme.lower() == "bearer" else ""
    if not hmac.compare_digest(given.encode(), key.encode()):
        what = "is wrong" if given else "is missing"
        raise wrong_key(f"The API key {what}: send it as 'Authorization: Bearer KEY'.")


def wrong_key(message: str) -> ApiError:
    """A 401 error."""
    return ApiError(
        401,
        message,
        kind="authentication_error",
        code="invalid_api_key",
        headers={"www-authenticate": "Bearer"},
    )


def overloaded() -> ApiError:
    """A 429 error: too many requests are waiting."""
    return ApiError(
        503,
        "Too many requests are waiting. Retry in a moment.",
        kind="server_error",
        code="overloaded",
        headers={"retry-after": "1"},
    )


def application(
    endpoints: Mapping[str, Endpoint],
    log: Log,
    lifespan: Callable[[Starlette], AbstractAsyncContextManager[None]],
) -> Starlette:
    """Creates an application in which every exception becomes an error response.

    Args:
        endpoints: Endpoints by method and path, such as "GET /v1/models".
        log: Receives errors that the client didn't cause.
        lifespan: Runs while the application does.
    """
    routes = []
    for where, endpoint in endpoints.items():
        method, path = where.split(" ")
        routes.append(Route(path, _guarded(endpoint, log), methods=[method]))
    handlers = {HTTPException: _not_found}
    return Starlette(routes=routes, exception_handlers=handlers, lifespan=lifespan)


def _guarded(endpoint: Endpoint, log: Log) -> Endpoint:
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
                    "Internal server error. See the server's log.",
                    kind="server_error",
                    code="internal_error",
                )
            )

    return call


async def _not_found(request: Request, error: Exception) -> Response:
    """The 404 or 405 response for an unknown path or method."""
    assert isinstance(error, HTTPException)
    text = f"Not found: {request.method[:20]} {request.url.path[:100]}."
    headers = dict(error.headers or {})
    return error_response(ApiError(error.status_code, text, headers=headers))


def error_response(error: ApiError) -> Response:
    """An error response in OpenAI's format."""
    return json_response(error.to_dict(), error.status, error.headers)


def json_response(
    value: dict[str, Any], status: int = 200, headers: dict[str, str] | None = None
) -> Response:
    """A JSON response."""
    return Response(encode(value), status, headers, media_type="application/json")

"""The ASGI application: a trained agent behind OpenAI's chat completions.

    POST /v1/chat/completions    streamed or not
    GET  /v1/models, /v1/models/NAME
    GET  /healthz                without a key

`agentgym serve` runs it; any other ASGI server can: `create_app(agent, "name")`.
"""

from __future__ import annotations

import asyncio
import contextlib
import hmac
import re
import time
from collections.abc import (
    AsyncIterator,
    Awaitable,
    Callable,
    Iterable,
    Sequence,
)

from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.requests import ClientDisconnect, Request
from starlette.responses import Response, StreamingResponse
from starlette.routing import Route

from agentgym.core.trained_agent import TrainedAgent
from agentgym.serving.answers import Completion, complete, encode, events, model_dict
from agentgym.serving.batching import Batcher, Overloaded
from agentgym.serving.errors import ApiError
from agentgym.serving.protocol import (
    MAX_BODY,
    ChatRequest,
    check_length,
    parse_chat,
    parse_json,
)
from agentgym.serving.tools import ToolShelf

BODY_SECONDS = 30.0
"""Within which a request must have arrived."""
_READ_ON = 16
"""How many times too long a body may be and still be read to its end: a client that is
busy sending does not see why it is refused."""

Log = Callable[[Exception], None]
Endpoint = Callable[[Request], Awaitable[Response]]


def create_app(
    agent: TrainedAgent,
    name: str,
    *,
    api_key: str | None = None,
    log: Log | None = None,
) -> Starlette:
    """Makes the application.

    Args:
        agent: Decides. Its policy must not be used by anybody else meanwhile.
        name: What the model is called; a name with a version also answers to the name
            alone.
        api_key: What clients must send as a bearer token; None lets everybody in.
        log: Told about errors that are none of the client's.
    """
    return _Server(agent, name, api_key, log or (lambda error: None)).app()


class _Server:
    def __init__(
        self, agent: TrainedAgent, name: str, api_key: str | None, log: Log
    ) -> None:
        self._agent = agent
        self._name = name
        self._names = {name, re.sub(r"_v\d+\.\d+$", "", name)}
        self._key = None if api_key is None else api_key.encode()
        self._log = log
        self._created = int(time.time())
        self._shelf = ToolShelf()
        self._batcher: Batcher[ChatRequest, Completion] = Batcher(self._decide)

    def app(self) -> Starlette:
        return Starlette(
            routes=[
                Route(
                    "/v1/chat/completions", self._guard(self._chat), methods=["POST"]
                ),
                Route("/v1/models", self._guard(self._models)),
                Route("/v1/models/{name}", self._guard(self._model)),
                Route("/healthz", self._health),
            ],
            exception_handlers={HTTPException: _not_found},
            lifespan=self._lifespan,
        )

    @contextlib.asynccontextmanager
    async def _lifespan(self, app: Starlette) -> AsyncIterator[None]:
        self._batcher.start()
        try:
            yield
        finally:
            await self._batcher.stop()

    # In the decision thread ----------------------------------------------------------

    def _decide(self, requests: Sequence[ChatRequest]) -> list[Completion | Exception]:
        policy = self._agent.policy
        results: list[Completion | Exception | None] = []
        for request in requests:
            try:
                check_length(request, policy.count_tokens, policy.context_length)
                results.append(None)
            except ApiError as error:
                results.append(error)
        fit = {i: requests[i].question for i, r in enumerate(results) if r is None}
        # Equal questions have equal answers: one decision will do.
        first = {question: i for i, question in reversed(fit.items())}
        decisions = policy.decide([requests[i].to_decision() for i in first.values()])
        answers = dict(zip(first, decisions, strict=True))
        for i, question in fit.items():
            try:
                results[i] = complete(
                    requests[i], answers[question], policy.count_tokens
                )
            except ApiError as error:
                results[i] = error
        return [result for result in results if result is not None]

    # In the event loop ---------------------------------------------------------------

    async def _chat(self, request: Request) -> Response:
        chat = parse_chat(parse_json(await _body(request)), self._shelf)
        self._check_model(chat.model)
        chat.model = self._name
        chat.messages = self._agent.opening(chat.messages)
        try:
            completion = await self._batcher.ask(chat)
        except Overloaded:
            raise ApiError(
                503,
                "Too many requests wait already; try again in a moment.",
                kind="server_error",
                code="overloaded",
                headers={"retry-after": "1"},
            ) from None
        if not chat.stream:
            return _json(200, encode(completion.to_dict()))
        return StreamingResponse(
            _each(events(completion, include_usage=chat.include_usage)),
            media_type="text/event-stream",
            headers={"cache-control": "no-cache", "x-accel-buffering": "no"},
        )

    async def _models(self, request: Request) -> Response:
        listed = [model_dict(self._name, self._created)]
        return _json(200, encode({"object": "list", "data": listed}))

    async def _model(self, request: Request) -> Response:
        self._check_model(request.path_params["name"])
        return _json(200, encode(model_dict(self._name, self._created)))

    async def _health(self, request: Request) -> Response:
        return _json(200, encode({"status": "ok", "model": self._name}))

    def _check_model(self, name: str) -> None:
        if name not in self._names:
            raise ApiError(
                404,
                f"The model '{name[:100]}' is not served here. Available:"
                f" {self._name}.",
                param="model",
                code="model_not_found",
            )

    def _check_key(self, request: Request) -> None:
        if self._key is None:
            return
        scheme, _, key = request.headers.get("authorization", "").partition(" ")
        given = key.strip().encode() if scheme.lower() == "bearer" else b""
        if not hmac.compare_digest(given, self._key):
            what = "is wrong" if given else "is missing"
            raise ApiError(
                401,
                f"The API key {what}: send it as 'Authorization: Bearer KEY'.",
                kind="authentication_error",
                code="invalid_api_key",
                headers={"www-authenticate": "Bearer"},
            )

    def _guard(self, endpoint: Endpoint) -> Endpoint:
        """Lets in who has the key; turns whatever is raised into an answer."""

        async def guarded(request: Request) -> Response:
            try:
                self._check_key(request)
                return await endpoint(request)
            except ApiError as error:
                return _error(error)
            except ClientDisconnect:
                return Response(status_code=499)
            except Exception as error:
                self._log(error)
                return _error(
                    ApiError(
                        500,
                        "The server failed on this request; its log says why.",
                        kind="server_error",
                        code="internal_error",
                    )
                )

        return guarded


async def _body(request: Request) -> bytes:
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


async def _each(parts: Iterable[bytes]) -> AsyncIterator[bytes]:
    # Starlette would run a plain iterator in a pool of threads.
    for part in parts:
        yield part


async def _not_found(request: Request, error: Exception) -> Response:
    """Paths and methods that do not exist."""
    assert isinstance(error, HTTPException)
    text = f"{request.method[:20]} {request.url.path[:100]} is not offered here."
    headers = dict(error.headers or {})
    return _error(ApiError(error.status_code, text, headers=headers))


def _error(error: ApiError) -> Response:
    return _json(error.status, encode(error.to_dict()), error.headers)


def _json(status: int, body: bytes, headers: dict[str, str] | None = None) -> Response:
    return Response(body, status, headers, media_type="application/json")

"""The ASGI application: serves a trained agent as OpenAI chat completions.

    POST /v1/chat/completions    streamed or not
    GET  /v1/models, /v1/models/NAME
    GET  /healthz                no API key needed

`agentgym serve` runs it. So can any other ASGI server: `create_app(agent, "name")`.
"""

from __future__ import annotations

import contextlib
import re
import time
from collections.abc import AsyncIterator, Sequence

from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from agentgym.policies.saved import SavedAgent
from agentgym.serving.answers import Completion, encode, events, model_dict
from agentgym.serving.batching import Batcher, Overloaded
from agentgym.serving.deciding import answer_all
from agentgym.serving.errors import ApiError
from agentgym.serving.http import (
    Endpoint,
    Log,
    bearer,
    check_key,
    each,
    event_stream,
    guarded,
    json_response,
    not_found,
    overloaded,
    read_body,
)
from agentgym.serving.protocol import ChatRequest, parse_chat, parse_json
from agentgym.serving.tools import ToolCache


def create_app(
    agent: SavedAgent,
    name: str,
    *,
    api_key: str | None = None,
    log: Log | None = None,
) -> Starlette:
    """Creates the application.

    Args:
        agent: The agent to serve. Don't use its policy elsewhere at the same time.
        name: Name of the model. Clients may leave out its version.
        api_key: The bearer token that clients must send; None accepts all requests.
        log: Receives errors that the client didn't cause.
    """
    return _Server(agent, name, api_key, log or (lambda error: None)).app()


class _Server:
    def __init__(
        self, agent: SavedAgent, name: str, api_key: str | None, log: Log
    ) -> None:
        self._agent = agent
        self._name = name
        self._names = {name, re.sub(r"_v\d+\.\d+$", "", name)}
        self._key = None if api_key is None else api_key.encode()
        self._log = log
        self._created = int(time.time())
        self._shelf = ToolCache()
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
            exception_handlers={HTTPException: not_found},
            lifespan=self._lifespan,
        )

    @contextlib.asynccontextmanager
    async def _lifespan(self, app: Starlette) -> AsyncIterator[None]:
        self._batcher.start()
        try:
            yield
        finally:
            await self._batcher.stop()

    # In the thread that decides ------------------------------------------------------

    def _decide(self, requests: Sequence[ChatRequest]) -> list[Completion | Exception]:
        return [
            answer if isinstance(answer, Exception) else answer.completion
            for answer in answer_all(self._agent.policy, requests)
        ]

    # In the event loop ---------------------------------------------------------------

    async def _chat(self, request: Request) -> Response:
        chat = parse_chat(parse_json(await read_body(request)), self._shelf)
        self._check_model(chat.model)
        chat.model = self._name
        chat.messages = self._agent.opening(chat.messages)
        try:
            completion = await self._batcher.ask(chat)
        except Overloaded:
            raise overloaded() from None
        if not chat.stream:
            return json_response(200, encode(completion.to_dict()))
        return event_stream(each(events(completion, include_usage=chat.include_usage)))

    async def _models(self, request: Request) -> Response:
        listed = [model_dict(self._name, self._created)]
        return json_response(200, encode({"object": "list", "data": listed}))

    async def _model(self, request: Request) -> Response:
        self._check_model(request.path_params["name"])
        return json_response(200, encode(model_dict(self._name, self._created)))

    async def _health(self, request: Request) -> Response:
        return json_response(200, encode({"status": "ok", "model": self._name}))

    def _check_model(self, name: str) -> None:
        if name not in self._names:
            raise ApiError(
                404,
                f"Model '{name[:100]}' not found. Available: {self._name}.",
                param="model",
                code="model_not_found",
            )

    def _guard(self, endpoint: Endpoint) -> Endpoint:
        """Checks the API key before calling the endpoint."""

        async def checked(request: Request) -> Response:
            if self._key is not None:
                check_key(bearer(request), self._key)
            return await endpoint(request)

        return guarded(checked, self._log)

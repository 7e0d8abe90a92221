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
from starlette.requests import Request
from starlette.responses import Response

from agentgym.policies.saved import SavedAgent
from agentgym.serving.answers import Completion, events, model_dict
from agentgym.serving.batching import Batcher, Overloaded
from agentgym.serving.deciding import answer_all
from agentgym.serving.errors import ApiError
from agentgym.serving.http import (
    Log,
    application,
    check_key,
    event_stream,
    json_response,
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
        self._key = api_key
        self._log = log
        self._created = int(time.time())
        self._shelf = ToolCache()
        self._batcher: Batcher[ChatRequest, Completion] = Batcher(self._decide)

    def app(self) -> Starlette:
        endpoints = {
            "POST /v1/chat/completions": self._chat,
            "GET /v1/models": self._models,
            "GET /v1/models/{name}": self._model,
            "GET /healthz": self._health,
        }
        return application(endpoints, self._log, self._lifespan)

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
        self._check_key(request)
        chat = parse_chat(parse_json(await read_body(request)), self._shelf)
        self._check_model(chat.model)
        chat.model = self._name
        chat.messages = self._agent.opening(chat.messages)
        try:
            completion = await self._batcher.ask(chat)
        except Overloaded:
            raise overloaded() from None
        if not chat.stream:
            return json_response(completion.to_dict())
        return event_stream(events(completion, include_usage=chat.include_usage))

    async def _models(self, request: Request) -> Response:
        self._check_key(request)
        listed = [model_dict(self._name, self._created)]
        return json_response({"object": "list", "data": listed})

    async def _model(self, request: Request) -> Response:
        self._check_key(request)
        self._check_model(request.path_params["name"])
        return json_response(model_dict(self._name, self._created))

    async def _health(self, request: Request) -> Response:
        return json_response({"status": "ok", "model": self._name})

    def _check_model(self, name: str) -> None:
        if name not in self._names:
            raise ApiError(
                404,
                f"Model '{name[:100]}' not found. Available: {self._name}.",
                param="model",
                code="model_not_found",
            )

    def _check_key(self, request: Request) -> None:
        if self._key is not None:
            check_key(request, self._key)

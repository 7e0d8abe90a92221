"""One server with a private endpoint for each agent, which records all requests.

    POST /s/SESSION/v1/chat/completions    streamed or not
    POST /s/SESSION/v1/completions
    POST /s/SESSION/v1/responses           with or without previous_response_id
    GET  /s/SESSION/v1/models, /v1/models/NAME
    POST /s/SESSION/v1/embeddings          501, unless the backend supports it

    GET  /s/SESSION/task                   the task: id, messages, tools
    POST /s/SESSION/tools/NAME             runs a tool in the task's world
    POST /s/SESSION/reply                  sends a message to the user

Each session has its own key. Requests with a wrong key, or to a closed session, get a
401 error and aren't recorded.

    with Gateway(PolicyBackend(policy)) as gateway:
        session = gateway.open()
        ...                                # gateway.base_url(session), session.key
        gateway.close(session)
"""

from __future__ import annotations

import asyncio
import contextlib
import hashlib
import time
from collections.abc import AsyncIterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any, Self

from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from agentgym.agents.backends import Answered, Backend, Question, Relay
from agentgym.agents.sessions import (
    MAX_REQUESTS,
    Session,
    farewell,
    message_of,
)
from agentgym.core.trajectory import EpisodePlan
from agentgym.episodes.continuity import Context
from agentgym.episodes.episode import AgentTask, Episode
from agentgym.errors import ServingError
from agentgym.serving import server
from agentgym.serving.answers import encode, events, model_dict
from agentgym.serving.completions import (
    chat_of_completion,
    completion_dict,
    completion_events,
)
from agentgym.serving.deciding import Answer
from agentgym.serving.errors import ApiError, invalid
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
    read_body,
    wrong_key,
)
from agentgym.serving.protocol import parse_json
from agentgym.serving.responses import (
    chat_of_response,
    response_dict,
    response_events,
    response_id,
)

MODEL = "agentgym"
"""The model's name in responses; agents may use any name."""
_TOOLS_AT_ONCE = 64
_RETRY = "x-stainless-retry-count"
_SIDE = "x-agentgym-side-call"


class Gateway:
    """The server. It runs in a background thread and listens on localhost only.

    Attributes:
        sessions: The open sessions, by id.
    """

    def __init__(self, backend: Backend, *, log: Log | None = None) -> None:
        """Creates the gateway; call `start` or use `with` to run it.

        Args:
            backend: Answers the requests.
            log: Receives errors that the agents didn't cause.
        """
        self.backend = backend
        self.sessions: dict[str, Session] = {}
        self.port = 0
        self._log = log or (lambda error: None)
        self._created = int(time.time())
        self._loop: asyncio.AbstractEventLoop | None = None
        self._server: server.Background | None = None

    def __enter__(self) -> Self:
        self.start()
        return self

    def __exit__(self, *problem: object) -> None:
        self.stop()

    # For code that runs agents; thread-safe ------------------------------------------

    def start(self) -> None:
        """Starts the server on a free port.

        Raises:
            ServingError: The server can't start or is already running.
        """
        if self._server is not None:
            raise ServingError("The gateway is already running.")
        self._server = server.Background(self.app())
        self.port = self._server.port

    def stop(self) -> None:
        """Closes all sessions and stops the server."""
        for session in list(self.sessions.values()):
            self.close(session)
        if self._server is not None:
            self._server.stop()
            self._server = None

    def open(
        self,
        episode: Episode | None = None,
        *,
        max_requests: int = MAX_REQUESTS,
        planned: EpisodePlan | None = None,
    ) -> Session:
        """Opens a session with its own endpoint.

        Args:
            episode: The episode that its agent plays.
            max_requests: Maximum number of requests.
            planned: Determines its random draws; by default, requests draw in the order
                in which they arrive.
        """
        session = Session(episode, max_requests, planned)
        self.sessions[session.id] = session
        return session

    def close(self, session: Session) -> None:
        """Closes a session: its key becomes invalid, and waiting requests are dropped.

        The session's record doesn't change after this returns.
        """
        self.sessions.pop(session.id, None)
        session.close()
        if self._loop is not None and (session.running or session.deciding):
            with contextlib.suppress(RuntimeError):  # The event loop may have ended.
                self._loop.call_soon_threadsafe(_cancel, session)

    def url(self, session: Session) -> str:
        """The URL of a session."""
        return f"http://127.0.0.1:{self.port}/s/{session.id}"

    def base_url(self, session: Session) -> str:
        """The base URL of a session's OpenAI-compatible API."""
        return f"{self.url(session)}/v1"

    def app(self) -> Starlette:
        """The ASGI application, for other servers."""
        posts: dict[str, Endpoint] = {
            "/v1/chat/completions": self._chat,
            "/v1/completions": self._text,
            "/v1/responses": self._responses,
            "/v1/embeddings": self._embeddings,
            "/tools/{name}": self._tool,
            "/reply": self._reply,
        }
        gets: dict[str, Endpoint] = {
            "/v1/models": self._models,
            "/v1/models/{name:path}": self._model,
            "/task": self._task,
        }
        routes = [
            Route("/s/{session}" + path, self._guard(endpoint), methods=[method])
            for method, endpoints in (("POST", posts), ("GET", gets))
            for path, endpoint in endpoints.items()
        ]
        return Starlette(
            routes=routes,
            exception_handlers={HTTPException: not_found},
            lifespan=self._lifespan,
        )

    @contextlib.asynccontextmanager
    async def _lifespan(self, app: Starlette) -> AsyncIterator[None]:
        self._loop = asyncio.get_running_loop()
        # Runs tools: a hanging tool must not block other agents' tools.
        self._loop.set_default_executor(
            ThreadPoolExecutor(_TOOLS_AT_ONCE, thread_name_prefix="agentgym-tool")
        )
        await self.backend.start()
        try:
            yield
        finally:
            for session in self.sessions.values():
                _cancel(session)
            await self.backend.stop()
            self._loop = None

    def ask(
        self, session: Session, chat: dict[str, Any], *, side: bool = False
    ) -> Answer:
        """Answers an agent in this process, without HTTP.

        Call it from any thread except the gateway's.

        Args:
            session: The agent's session.
            chat: The body of a chat completion request.
            side: Whether the request isn't one of the agent's decisions.

        Raises:
            ApiError: The request failed.
        """
        if self._loop is None or session.closed:
            raise wrong_key("Session not found or already closed.")
        return asyncio.run_coroutine_threadsafe(
            self._asked(session, chat, side), self._loop
        ).result()

    async def _asked(
        self, session: Session, chat: dict[str, Any], side: bool
    ) -> Answer:
        task = asyncio.current_task()
        assert task is not None
        session.running.add(task)
        task.add_done_callback(session.running.discard)
        try:
            session.admit()
            return await self._decide(session, Question(chat, body=chat), side=side)
        except ApiError as error:
            session.refused[error.code or "invalid"] += 1
            raise

    # OpenAI's endpoints --------------------------------------------------------------

    async def _chat(self, request: Request) -> Response:
        body = await read_body(request)
        payload = parse_json(body)
        question = Question(payload, body=payload)
        if payload.get("stream"):
            return await self._streamed(request, body, question)
        answer = await self._answer(request, body, question)
        if isinstance(answer, Answered) and answer.body is not None:
            return json_response(200, encode(answer.body))
        return json_response(200, encode(answer.completion.to_dict()))

    async def _text(self, request: Request) -> Response:
        body = await read_body(request)
        payload = parse_json(body)
        question = Question(chat_of_completion(payload), "text", payload)
        answer = await self._answer(request, body, question)
        if payload.get("stream"):
            usage = _wants_usage(payload)
            parts = completion_events(answer.completion, include_usage=usage)
            return event_stream(each(parts))
        if isinstance(answer, Answered) and answer.body is not None:
            return json_response(200, encode(answer.body))
        return json_response(200, encode(completion_dict(answer.completion)))

    async def _responses(self, request: Request) -> Response:
        session: Session = request.state.session
        body = await read_body(request)
        payload = parse_json(body)
        previous = session.conversation(payload.get("previous_response_id"))
        chat = chat_of_response(payload, previous)
        answer = await self._answer(request, body, Question(chat, body=chat))
        completion = answer.completion
        if payload.get("store") is not False:
            said = chat["messages"]
            if payload.get("instructions"):
                said = said[1:]
            session.keep_conversation(
                response_id(completion), [*said, message_of(completion)]
            )
        if payload.get("stream"):
            return event_stream(each(response_events(completion, payload)))
        return json_response(200, encode(response_dict(completion, payload)))

    async def _models(self, request: Request) -> Response:
        listed = [model_dict(MODEL, self._created)]
        return json_response(200, encode({"object": "list", "data": listed}))

    async def _model(self, request: Request) -> Response:
        name = request.path_params["name"]
        return json_response(200, encode(model_dict(name, self._created)))

    async def _embeddings(self, request: Request) -> Response:
        body = await self.backend.embed(parse_json(await read_body(request)))
        return json_response(200, encode(body))

    # Endpoints of the episode --------------------------------------------------------

    async def _task(self, request: Request) -> Response:
        task = AgentTask.of(self._episode(request))
        about = {"id": task.id, "messages": task.messages, "tools": task.tools}
        return json_response(200, encode(about))

    async def _tool(self, request: Request) -> Response:
        episode = self._episode(request)
        arguments = parse_json(await read_body(request) or b"{}")
        name = request.path_params["name"]
        result = await asyncio.to_thread(episode.call, name, arguments)
        return json_response(
            200,
            encode(
                {
                    "content": result.content,
                    "failure": result.failure,
                    "over": episode.over,
                }
            ),
        )

    async def _reply(self, request: Request) -> Response:
        episode = self._episode(request)
        content = parse_json(await read_body(request)).get("content")
        if not isinstance(content, str):
            raise invalid("content must be the message to the user.", "content")
        answer = await asyncio.to_thread(episode.say, content)
        return json_response(200, encode({"content": answer, "over": episode.over}))

    def _episode(self, request: Request) -> Episode:
        session: Session = request.state.session
        if session.episode is None:
            raise ApiError(
                404, "This session has no task and no tools: its agent brings its own."
            )
        return session.episode

    # ---------------------------------------------------------------------------------

    def _guard(self, endpoint: Endpoint) -> Endpoint:
        """Checks the session's key and tracks the open requests."""

        async def admitted(request: Request) -> Response:
            session = self.sessions.get(request.path_params["session"])
            if session is None:
                raise wrong_key("Session not found or already closed.")
            check_key(bearer(request), session.key.encode())
            request.state.session = session
            task = asyncio.current_task()
            assert task is not None
            session.running.add(task)
            task.add_done_callback(session.running.discard)
            try:
                if endpoint in (self._chat, self._text, self._responses):
                    session.admit()
                return await endpoint(request)
            except ApiError as error:
                session.refused[error.code or "invalid"] += 1
                raise
            except Exception:
                session.refused["internal_error"] += 1
                raise

        return guarded(admitted, self._log)

    async def _answer(
        self, request: Request, body: bytes, question: Question
    ) -> Answer:
        """The answer to a request; for a retry, the same answer as before."""
        session: Session = request.state.session
        digest = _digest(request, body)
        if _is_retry(request) and (known := session.earlier(digest)) is not None:
            return await asyncio.shield(known)
        # A separate task: if the client disconnects, its retry finds the answer.
        side = _SIDE in request.headers
        deciding = asyncio.create_task(self._decide(session, question, side=side))
        session.deciding.add(deciding)
        deciding.add_done_callback(session.deciding.discard)
        session.remember(digest, deciding)
        return await asyncio.shield(deciding)

    async def _decide(
        self, session: Session, question: Question, *, side: bool
    ) -> Answer:
        model = str(question.chat.get("model") or MODEL)
        if session.over:
            return farewell(model)
        context = Context.of(question.chat)
        answer = None if side else session.scripted(context, model)
        replayed = answer is not None
        if answer is None:
            question.asked = session.asked(context.state_key, side=side)
            answer = await self.backend.answer(question)
        session.record(context, answer, side=side, replayed=replayed)
        return answer

    async def _streamed(
        self, request: Request, body: bytes, question: Question
    ) -> Response:
        session: Session = request.state.session
        known = session.earlier(_digest(request, body)) if _is_retry(request) else None
        relay = None
        # Repeated answers of a sibling are sent as a whole.
        forked = session.episode is not None and session.episode.forked
        if known is None and not session.over and not forked:
            relay = await self.backend.stream(question)
        if relay is not None:
            return event_stream(self._relayed(request, body, question, relay))
        answer = await self._answer(request, body, question)
        usage = _wants_usage(question.chat)
        return event_stream(each(events(answer.completion, include_usage=usage)))

    async def _relayed(
        self, request: Request, body: bytes, question: Question, relay: Relay
    ) -> AsyncIterator[bytes]:
        session: Session = request.state.session
        passed_on = relay.events()
        try:
            async with contextlib.aclosing(passed_on):
                async for part in passed_on:
                    yield part
        except ApiError as error:
            session.refused[error.code or "invalid"] += 1
            yield b"data: %b\n\n" % encode(error.to_dict())
            return
        answer = relay.answer()
        context = Context.of(question.chat)
        side = _SIDE in request.headers
        session.record(context, answer, side=side, replayed=False)
        given: asyncio.Future[Answer] = asyncio.get_running_loop().create_future()
        given.set_result(answer)
        session.remember(_digest(request, body), given)
        for part in relay.tail:
            yield part


def _cancel(session: Session) -> None:
    for task in [*session.running, *session.deciding]:
        task.cancel()


def _digest(request: Request, body: bytes) -> bytes:
    return hashlib.blake2b(request.url.path.encode() + body, digest_size=16).digest()


def _is_retry(request: Request) -> bool:
    return request.headers.get(_RETRY, "0") not in ("", "0")


def _wants_usage(payload: dict[str, Any]) -> bool:
    options = payload.get("stream_options")
    return isinstance(options, dict) and bool(options.get("include_usage"))

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
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import Any, Self

from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import Response

from agentgym.agents.backends import Answered, Backend, Question, Relay
from agentgym.agents.sessions import MAX_REQUESTS, Session, farewell, message_of
from agentgym.core.trajectory import EpisodePlan
from agentgym.episodes.continuity import Context
from agentgym.episodes.episode import AgentTask, Episode
from agentgym.errors import ServingError
from agentgym.serving import server, translations
from agentgym.serving.answers import encode, events, model_dict
from agentgym.serving.deciding import Answer
from agentgym.serving.errors import ApiError, invalid
from agentgym.serving.http import (
    Endpoint,
    Log,
    application,
    check_key,
    event_stream,
    json_response,
    read_body,
    wrong_key,
)
from agentgym.serving.protocol import parse_json

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
        asking = {
            "POST /s/{session}/v1/chat/completions": self._chat,
            "POST /s/{session}/v1/completions": self._text,
            "POST /s/{session}/v1/responses": self._responses,
        }
        others = {
            "POST /s/{session}/v1/embeddings": self._embeddings,
            "POST /s/{session}/tools/{name}": self._tool,
            "POST /s/{session}/reply": self._reply,
            "GET /s/{session}/v1/models": self._models,
            "GET /s/{session}/v1/models/{name:path}": self._model,
            "GET /s/{session}/task": self._task,
        }
        endpoints = {path: self._admit(end, True) for path, end in asking.items()}
        endpoints |= {path: self._admit(end, False) for path, end in others.items()}
        return application(endpoints, self._log, self._lifespan)

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
        with _noted(session):
            session.admit()
            return await self._decide(session, Question(chat, body=chat), side=side)

    # OpenAI's endpoints --------------------------------------------------------------

    async def _chat(self, session: Session, request: Request) -> Response:
        asked = await _Asked.read(session, request)
        chat = asked.question.chat
        if not chat.get("stream"):
            answer = await self._answer(asked)
            return json_response(_body_of(answer) or answer.completion.to_dict())
        relay = None
        # Repeated answers of a sibling are sent as a whole.
        forked = session.episode is not None and session.episode.forked
        if asked.earlier is None and not session.over and not forked:
            relay = await self.backend.stream(asked.question)
        if relay is not None:
            return event_stream(_relayed(asked, relay))
        answer = await self._answer(asked)
        usage = _wants_usage(chat)
        return event_stream(events(answer.completion, include_usage=usage))

    async def _text(self, session: Session, request: Request) -> Response:
        asked = await _Asked.read(session, request)
        payload = asked.question.body
        asked.question = Question(
            translations.chat_of_completion(payload), "text", payload
        )
        answer = await self._answer(asked)
        done = answer.completion
        if payload.get("stream"):
            usage = _wants_usage(payload)
            return event_stream(
                translations.completion_events(done, include_usage=usage)
            )
        return json_response(_body_of(answer) or translations.completion_dict(done))

    async def _responses(self, session: Session, request: Request) -> Response:
        asked = await _Asked.read(session, request)
        payload = asked.question.body
        previous = session.conversation(payload.get("previous_response_id"))
        chat = translations.chat_of_response(payload, previous)
        asked.question = Question(chat, body=chat)
        completion = (await self._answer(asked)).completion
        if payload.get("store") is not False:
            said = chat["messages"]
            if payload.get("instructions"):
                said = said[1:]
            session.keep_conversation(
                translations.response_id(completion), [*said, message_of(completion)]
            )
        if payload.get("stream"):
            return event_stream(translations.response_events(completion, payload))
        return json_response(translations.response_dict(completion, payload))

    async def _models(self, session: Session, request: Request) -> Response:
        listed = [model_dict(MODEL, self._created)]
        return json_response({"object": "list", "data": listed})

    async def _model(self, session: Session, request: Request) -> Response:
        return json_response(model_dict(request.path_params["name"], self._created))

    async def _embeddings(self, session: Session, request: Request) -> Response:
        body = parse_json(await read_body(request))
        return json_response(await self.backend.embed(body))

    # Endpoints of the episode --------------------------------------------------------

    async def _task(self, session: Session, request: Request) -> Response:
        task = AgentTask.of(_episode(session))
        about = {"id": task.id, "messages": task.messages, "tools": task.tools}
        return json_response(about)

    async def _tool(self, session: Session, request: Request) -> Response:
        episode = _episode(session)
        arguments = parse_json(await read_body(request) or b"{}")
        name = request.path_params["name"]
        result = await asyncio.to_thread(episode.call, name, arguments)
        about = {"content": result.content, "failure": result.failure}
        return json_response({**about, "over": episode.over})

    async def _reply(self, session: Session, request: Request) -> Response:
        episode = _episode(session)
        content = parse_json(await read_body(request)).get("content")
        if not isinstance(content, str):
            raise invalid("content must be the message to the user.", "content")
        answer = await asyncio.to_thread(episode.say, content)
        return json_response({"content": answer, "over": episode.over})

    # ---------------------------------------------------------------------------------

    def _admit(self, endpoint: _SessionEndpoint, counts: bool) -> Endpoint:
        """Checks the session's key and tracks the open requests.

        Args:
            endpoint: Gets the session and the request.
            counts: Whether the session's request limits apply.
        """

        async def admitted(request: Request) -> Response:
            session = self.sessions.get(request.path_params["session"])
            if session is None:
                raise wrong_key("Session not found or already closed.")
            check_key(request, session.key)
            with _noted(session):
                try:
                    if counts:
                        session.admit()
                    return await endpoint(session, request)
                except ApiError:
                    raise
                except Exception:
                    session.refused["internal_error"] += 1
                    raise

        return admitted

    async def _answer(self, asked: _Asked) -> Answer:
        """The answer to a request; for a retry, the same answer as before."""
        known = asked.earlier
        if known is None:
            # A separate task: if the client disconnects, its retry finds the answer.
            session = asked.session
            deciding = self._decide(session, asked.question, side=asked.side)
            known = task = asyncio.create_task(deciding)
            session.deciding.add(task)
            task.add_done_callback(session.deciding.discard)
            session.remember(asked.digest, task)
        return await asyncio.shield(known)

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


_SessionEndpoint = Callable[[Session, Request], Awaitable[Response]]


@dataclass(slots=True)
class _Asked:
    """A request for an answer.

    Attributes:
        side: Whether the request isn't one of the agent's decisions.
        digest: Equal requests have equal digests.
        retry: Whether the client has sent the request before.
    """

    session: Session
    question: Question
    side: bool
    digest: bytes
    retry: bool

    @classmethod
    async def read(cls, session: Session, request: Request) -> Self:
        body = await read_body(request)
        payload = parse_json(body)
        path = request.url.path.encode()
        return cls(
            session,
            Question(payload, body=payload),
            _SIDE in request.headers,
            hashlib.blake2b(path + body, digest_size=16).digest(),
            request.headers.get(_RETRY, "0") not in ("", "0"),
        )

    @property
    def earlier(self) -> asyncio.Future[Answer] | None:
        """For a retry, the answer as before, given or on its way."""
        return self.session.earlier(self.digest) if self.retry else None


async def _relayed(asked: _Asked, relay: Relay) -> AsyncIterator[bytes]:
    session = asked.session
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
    context = Context.of(asked.question.chat)
    session.record(context, answer, side=asked.side, replayed=False)
    given: asyncio.Future[Answer] = asyncio.get_running_loop().create_future()
    given.set_result(answer)
    session.remember(asked.digest, given)
    for part in relay.tail:
        yield part


@contextlib.contextmanager
def _noted(session: Session) -> Iterator[None]:
    """Tracks a request while it is open, and counts why requests are refused."""
    task = asyncio.current_task()
    assert task is not None
    session.running.add(task)
    task.add_done_callback(session.running.discard)
    try:
        yield
    except ApiError as error:
        session.refused[error.code or "invalid"] += 1
        raise


def _episode(session: Session) -> Episode:
    if session.episode is None:
        raise ApiError(
            404, "This session has no task and no tools: its agent brings its own."
        )
    return session.episode


def _body_of(answer: Answer) -> dict[str, Any] | None:
    """The body of an answer that another server gave; else None."""
    return answer.body if isinstance(answer, Answered) else None


def _cancel(session: Session) -> None:
    for task in [*session.running, *session.deciding]:
        task.cancel()


def _wants_usage(payload: dict[str, Any]) -> bool:
    options = payload.get("stream_options")
    return isinstance(options, dict) and bool(options.get("include_usage"))

"""What answers behind the gateway: a policy in this process, or a server elsewhere."""

from __future__ import annotations

import json
import threading
from abc import ABC, abstractmethod
from collections.abc import AsyncGenerator, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal

import httpx

from agentgym.core.tools import ToolCall
from agentgym.core.trajectory import SampledTokens
from agentgym.policies.base import GREEDY, Decision, Policy, Sampling
from agentgym.serving.answers import DONE, Completion, FinishReason, encode
from agentgym.serving.batching import Batcher, Overloaded
from agentgym.serving.deciding import Answer, answer_all
from agentgym.serving.errors import ApiError
from agentgym.serving.http import overloaded
from agentgym.serving.protocol import ChatRequest, parse_chat
from agentgym.serving.tools import ToolShelf

UPSTREAM = "upstream_error"
"""The `code` of errors that are neither the agent's nor the gateway's."""


@dataclass(slots=True)
class Question:
    """A request to a backend.

    Attributes:
        chat: The body of the chat completion that asks it.
        form: In which form it was asked; `text` is OpenAI's older completions.
        body: The body of the request in that form.
        state_key: See `DecisionRequest`.
        exploration: See `DecisionRequest`.
    """

    chat: dict[str, Any]
    form: Literal["chat", "text"] = "chat"
    body: dict[str, Any] = field(default_factory=dict)
    state_key: str = ""
    exploration: float | None = None


@dataclass(frozen=True, slots=True)
class Answered(Answer):
    """An answer with the body that the server elsewhere gave, if there is one."""

    body: dict[str, Any] | None = None


class Backend(ABC):
    """Answers questions. All its methods run in the gateway's event loop."""

    async def start(self) -> None:  # noqa: B027
        """Makes ready what answering needs."""

    async def stop(self) -> None:  # noqa: B027
        """Frees it."""

    @abstractmethod
    async def answer(self, question: Question) -> Answer:
        """The whole answer.

        Raises:
            ApiError: There is none, and why.
        """

    async def stream(self, question: Question) -> Relay | None:
        """The answer piece by piece; None if it is only to be had as a whole.

        Raises:
            ApiError: There is no answer, and why.
        """
        return None


class PolicyBackend(Backend):
    """The policy that is being trained, in this process.

    Questions of all sessions are decided together, in one thread, as they come.
    """

    def __init__(self, policy: Policy | None = None, sampling: Sampling = GREEDY):
        self._policy = policy
        self._sampling = sampling
        self._shelf = ToolShelf()
        self._deciding = threading.Lock()
        self._batcher: Batcher[tuple[ChatRequest, Question], Answer] = Batcher(
            self._decide
        )

    def use(self, policy: Policy | None, sampling: Sampling = GREEDY) -> None:
        """Answers from another policy from now on, or from none.

        Once it returns, nobody decides with the policy that was used before.
        """
        with self._deciding:
            self._policy, self._sampling = policy, sampling

    async def start(self) -> None:
        """Starts the thread that decides."""
        self._batcher.start()

    async def stop(self) -> None:
        """Ends it, once everybody has an answer."""
        await self._batcher.stop()

    async def answer(self, question: Question) -> Answer:
        """See `Backend.answer`."""
        request = parse_chat(question.chat, self._shelf)
        try:
            return await self._batcher.ask((request, question))
        except Overloaded:
            raise overloaded() from None

    def _decide(
        self, asked: Sequence[tuple[ChatRequest, Question]]
    ) -> list[Answer | Exception]:
        with self._deciding:
            if self._policy is None:
                resting = ApiError(
                    503,
                    "Nothing is being sampled now: the episode is over.",
                    kind="server_error",
                )
                return [resting] * len(asked)
            requests = [request for request, _ in asked]
            return answer_all(
                self._policy,
                requests,
                self._sampling,
                [
                    request.to_decision(question.state_key, question.exploration)
                    for request, question in asked
                ],
            )


class UpstreamBackend(Backend):
    """Any OpenAI-compatible server: vLLM, or another that gives token ids.

    Args:
        base_url: Of its API, with the version: `http://127.0.0.1:8000/v1`.
        model: What it calls the model; by default what agents ask for.
        api_key: What it wants to see.
        token_ids: Ask for token ids and log-probabilities, and record them. vLLM gives
            them; servers that refuse unknown fields do not.
        timeout: Seconds without a sign of life until it is given up.
    """

    def __init__(
        self,
        base_url: str,
        *,
        model: str | None = None,
        api_key: str | None = None,
        token_ids: bool = True,
        timeout: float = 120.0,
    ) -> None:
        self._url = base_url.rstrip("/")
        self._model = model
        self._key = api_key
        self._token_ids = token_ids
        self._timeout = timeout
        self._client: httpx.AsyncClient | None = None

    async def start(self) -> None:
        """Opens the connections."""
        self._client = httpx.AsyncClient(
            headers={"authorization": f"Bearer {self._key}"} if self._key else {},
            timeout=self._timeout,
            # A reader that is slow keeps its connection, and must not take another's.
            limits=httpx.Limits(max_connections=None, max_keepalive_connections=64),
            trust_env=False,
        )

    async def stop(self) -> None:
        """Closes them."""
        if self._client is not None:
            await self._client.aclose()
            self._client = None

    async def answer(self, question: Question) -> Answer:
        """See `Backend.answer`."""
        response = await self._send(question, stream=False)
        try:
            body = json.loads(response.content)
            return _read(body, question)
        except (ValueError, LookupError, TypeError, AttributeError) as error:
            raise _broken(f"no completion ({type(error).__name__})") from None

    async def stream(self, question: Question) -> Relay | None:
        """See `Backend.stream`."""
        if question.form != "chat":
            return None
        return Relay(await self._send(question, stream=True), question)

    async def _send(self, question: Question, *, stream: bool) -> httpx.Response:
        assert self._client is not None
        chat = question.form == "chat"
        body = {**(question.chat if chat else question.body), "stream": stream}
        if not stream:
            body.pop("stream_options", None)
        if self._model is not None:
            body["model"] = self._model
        if self._token_ids:
            body["return_token_ids"] = True
            body["logprobs"] = body.get("logprobs") or (True if chat else 1)
        request = self._client.build_request(
            "POST",
            f"{self._url}/{'chat/completions' if chat else 'completions'}",
            content=json.dumps(body).encode(),
            headers={"content-type": "application/json"},
        )
        try:
            response = await self._client.send(request, stream=stream)
            if response.status_code >= 400:
                await response.aread()
        except httpx.TimeoutException:
            raise _broken(f"no answer within {self._timeout:g} s", 504) from None
        except (httpx.HTTPError, httpx.InvalidURL) as error:
            raise _broken(f"{type(error).__name__}: {error}") from None
        if response.status_code >= 400:
            raise _refused(response)
        return response


class Relay:
    """A streamed answer on its way through: passed on at once, and taken down."""

    def __init__(self, response: httpx.Response, question: Question) -> None:
        self._response = response
        self._question = question
        self._wants_logprobs = bool(question.chat.get("logprobs"))
        self._message: dict[str, Any] = {"role": "assistant", "content": None}
        self._calls: dict[int, dict[str, Any]] = {}
        self._whole: dict[str, Any] = {}
        self._choice: dict[str, Any] = {"index": 0, "finish_reason": None}
        self._ids: list[int] = []
        self._logprobs: list[Any] = []
        self.tail: list[bytes] = []
        """The events from the one on that says why the answer ended. An agent acts as
        soon as it has that one, so the answer must be on record before."""

    async def events(self) -> AsyncGenerator[bytes, None]:
        """The events as the agent gets them, all but the last: see `tail`.

        Raises:
            ApiError: The stream broke off.
        """
        done = False
        try:
            async for line in self._response.aiter_lines():
                if not line.startswith("data:"):
                    continue
                text = line[5:].strip()
                if text == "[DONE]":
                    done = True
                    self.tail.append(DONE)
                    continue
                chunk = json.loads(text)
                self._take(chunk)
                event = b"data: %b\n\n" % encode(chunk)
                if self._choice["finish_reason"] is None:
                    yield event
                else:
                    self.tail.append(event)
        except httpx.TimeoutException:
            raise _broken("the stream stood still", 504) from None
        except httpx.HTTPError as error:
            raise _broken(f"the stream broke off ({type(error).__name__})") from None
        except (ValueError, LookupError, TypeError, AttributeError) as error:
            raise _broken(f"the stream is garbled ({type(error).__name__})") from None
        finally:
            await self._response.aclose()
        if not done and self._choice["finish_reason"] is None:
            raise _broken("the stream broke off")

    def answer(self) -> Answer:
        """The whole of it, once all events have been passed on."""
        if self._calls:
            self._message["tool_calls"] = [self._calls[i] for i in sorted(self._calls)]
        choice = {**self._choice, "message": self._message}
        if self._ids:
            choice["token_ids"] = self._ids
        choice["logprobs"] = {"content": self._logprobs} if self._logprobs else None
        return _read({**self._whole, "choices": [choice]}, self._question)

    def _take(self, chunk: dict[str, Any]) -> None:
        """Takes down a chunk, and out of it what only the record needs."""
        for name in ("id", "created", "model", "usage"):
            if chunk.get(name) is not None:
                self._whole[name] = chunk[name]
        if (ids := chunk.pop("prompt_token_ids", None)) is not None:
            self._whole["prompt_token_ids"] = ids
        for choice in chunk.get("choices") or ():
            self._ids += choice.pop("token_ids", None) or ()
            logprobs = choice.get("logprobs") or {}
            self._logprobs += logprobs.get("content") or ()
            if not self._wants_logprobs:
                choice["logprobs"] = None
            delta = choice.get("delta") or {}
            if delta.get("content"):
                text = self._message["content"] or ""
                self._message["content"] = text + delta["content"]
            for part in delta.get("tool_calls") or ():
                self._take_call(part)
            if choice.get("finish_reason") is not None:
                self._choice["finish_reason"] = choice["finish_reason"]

    def _take_call(self, part: dict[str, Any]) -> None:
        call = self._calls.setdefault(
            int(part.get("index") or 0),
            {
                "id": None,
                "type": "function",
                "function": {"name": "", "arguments": ""},
            },
        )
        call["id"] = part.get("id") or call["id"]
        function = part.get("function") or {}
        for name in ("name", "arguments"):
            call["function"][name] += function.get(name) or ""


@dataclass(frozen=True, slots=True)
class _UnreadCall(ToolCall):
    """A call whose arguments are no JSON object; the agent sees them as they are."""

    raw: str = ""

    def to_openai(self) -> dict[str, Any]:
        function = {"name": self.name, "arguments": self.raw}
        return {"id": self.id, "type": "function", "function": function}


def _read(body: dict[str, Any], question: Question) -> Answered:
    """An answer out of a completion's body, which loses what was not asked for."""
    choice = body["choices"][0]
    prompt_ids = body.pop("prompt_token_ids", None)
    prompt_ids = choice.pop("prompt_token_ids", None) or prompt_ids or ()
    ids = choice.pop("token_ids", None) or ()
    logprobs = choice.get("logprobs") or {}
    if question.form == "chat":
        message = choice["message"]
        values = [token["logprob"] for token in logprobs.get("content") or ()]
    else:
        message = {"role": "assistant", "content": choice["text"]}
        values = list(logprobs.get("token_logprobs") or ())
    if not question.body.get("logprobs"):
        choice["logprobs"] = None
    calls = tuple(
        _call(raw, i) for i, raw in enumerate(message.get("tool_calls") or ())
    )
    usage = body.get("usage") or {}
    completion = Completion(
        str(body.get("model") or question.chat.get("model")),
        message.get("content"),
        calls,
        _reason(choice.get("finish_reason"), calls),
        int(usage.get("prompt_tokens") or len(prompt_ids)),
        int(usage.get("completion_tokens") or len(ids)),
    )
    decision = Decision(
        {"role": "assistant", "content": message.get("content")},
        "call" if calls else "finish",
        calls,
        logprob=float(sum(values)),
        prompt_tokens=completion.prompt_tokens,
        completion_tokens=completion.completion_tokens,
        sampled=SampledTokens(
            tuple(map(int, prompt_ids)), tuple(map(int, ids)), tuple(map(float, values))
        )
        if ids
        else None,
    )
    return Answered(decision, completion, body)


def _call(raw: dict[str, Any], index: int) -> ToolCall:
    function = raw["function"]
    # Agents hang or raise without an id.
    name, text = str(function["name"]), str(function.get("arguments") or "{}")
    raw["id"] = raw.get("id") or f"call_{index}"
    try:
        arguments = json.loads(text)
    except ValueError:
        arguments = None
    if isinstance(arguments, dict):
        return ToolCall(name, arguments, raw["id"])
    return _UnreadCall(name, {}, raw["id"], text)


def _reason(given: Any, calls: Sequence[ToolCall]) -> FinishReason:
    if given == "length":
        return "length"
    return "tool_calls" if calls else "stop"


def _broken(why: str, status: int = 502) -> ApiError:
    return ApiError(
        status,
        f"The server behind this endpoint failed: {why}.",
        kind="server_error",
        code=UPSTREAM,
    )


def _refused(response: httpx.Response) -> ApiError:
    """What the server said, with its status: clients know which are worth a retry."""
    try:
        said = response.json()["error"]["message"]
    except (ValueError, LookupError, TypeError):
        said = response.text[:200]
    wait = response.headers.get("retry-after")
    ours = response.status_code < 500 and response.status_code not in (401, 403, 429)
    return ApiError(
        # Our key is none of the agent's business.
        502 if response.status_code in (401, 403) else response.status_code,
        f"The server behind this endpoint said: {said}",
        kind="invalid_request_error" if ours else "server_error",
        code=None if ours else UPSTREAM,
        headers={"retry-after": wait} if wait else {},
    )

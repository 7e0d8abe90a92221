"""A gateway backend that forwards requests to any OpenAI-compatible server."""

from __future__ import annotations

import json
from collections.abc import AsyncGenerator, Sequence
from dataclasses import dataclass
from typing import Any

from agentgym.agents.backends import Answered, Backend, Question, Relay
from agentgym.agents.http_client import (
    HttpClient,
    HttpFailed,
    HttpResponse,
    HttpTimeout,
)
from agentgym.core.tools import ToolCall, openai_call
from agentgym.core.trajectory import SampledTokens
from agentgym.errors import UsageError
from agentgym.policies.base import Decision
from agentgym.serving.answers import DONE, Completion, FinishReason, encode
from agentgym.serving.deciding import Answer
from agentgym.serving.errors import ApiError

UPSTREAM = "upstream_error"
"""The `code` of errors that the server behind the gateway caused."""


class UpstreamBackend(Backend):
    """Any OpenAI-compatible server, for example vLLM.

    Args:
        base_url: URL of its API, with the version: `http://127.0.0.1:8000/v1`.
        model: Name of the model; default: the name that the agent asks for.
        api_key: The server's API key.
        token_ids: Request token ids and log-probabilities, and record them. Works with
            vLLM; set it to False for servers that reject unknown fields.
        embedding_model: Model for embeddings, if the server has one.
        timeout: Seconds without data before a request fails.
    """

    def __init__(
        self,
        base_url: str,
        *,
        model: str | None = None,
        api_key: str | None = None,
        token_ids: bool = True,
        embedding_model: str | None = None,
        timeout: float = 120.0,
    ) -> None:
        try:
            self._client = HttpClient(
                base_url,
                {"authorization": f"Bearer {api_key}"} if api_key else {},
                timeout,
            )
        except ValueError as error:
            raise UsageError(f"{error}. Use http://host:port/v1.") from None
        self._model = model
        self._token_ids = token_ids
        self._embedding_model = embedding_model

    async def stop(self) -> None:
        """Closes the connections."""
        self._client.close()

    async def answer(self, question: Question) -> Answer:
        """See `Backend.answer`."""
        response = await self._send(question, stream=False)
        body = await _whole(response)
        try:
            return _read(body, question)
        except (ValueError, LookupError, TypeError, AttributeError) as error:
            raise _broken(f"no completion ({type(error).__name__})") from None

    async def embed(self, body: dict[str, Any]) -> dict[str, Any]:
        """See `Backend.embed`."""
        if self._embedding_model is None:
            return await super().embed(body)
        body = {**body, "model": self._embedding_model}
        return await _whole(await self._post("/embeddings", body))

    async def stream(self, question: Question) -> Relay | None:
        """See `Backend.stream`."""
        if question.form != "chat":
            return None
        return _UpstreamRelay(await self._send(question, stream=True), question)

    async def _send(self, question: Question, *, stream: bool) -> HttpResponse:
        chat = question.form == "chat"
        body = {**(question.chat if chat else question.body), "stream": stream}
        if not stream:
            body.pop("stream_options", None)
        if self._model is not None:
            body["model"] = self._model
        if self._token_ids:
            body["return_token_ids"] = True
            body["logprobs"] = body.get("logprobs") or (True if chat else 1)
        return await self._post("/chat/completions" if chat else "/completions", body)

    async def _post(self, path: str, body: dict[str, Any]) -> HttpResponse:
        try:
            response = await self._client.post(path, encode(body))
            if response.status < 400:
                return response
            raise _refused(response, await response.read())
        except HttpFailed as error:
            raise _broken(error) from None


class _UpstreamRelay(Relay):
    def __init__(self, response: HttpResponse, question: Question) -> None:
        super().__init__()
        self._response = response
        self._question = question
        self._wants_logprobs = bool(question.chat.get("logprobs"))
        self._message: dict[str, Any] = {"role": "assistant", "content": None}
        self._calls: dict[int, dict[str, Any]] = {}
        self._whole: dict[str, Any] = {}
        self._choice: dict[str, Any] = {"index": 0, "finish_reason": None}
        self._ids: list[int] = []
        self._logprobs: list[Any] = []

    async def events(self) -> AsyncGenerator[bytes, None]:
        """See `Relay.events`."""
        done = False
        try:
            async for line in self._response.lines():
                if not line.startswith(b"data:"):
                    continue
                text = line[5:].strip()
                if text == b"[DONE]":
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
        except HttpFailed as error:
            raise _broken(error) from None
        except (ValueError, LookupError, TypeError, AttributeError) as error:
            raise _broken(f"the stream is invalid ({type(error).__name__})") from None
        finally:
            self._response.close()
        if not done and self._choice["finish_reason"] is None:
            raise _broken("the stream ended early")

    def answer(self) -> Answer:
        """See `Relay.answer`."""
        if self._calls:
            self._message["tool_calls"] = [self._calls[i] for i in sorted(self._calls)]
        choice = {**self._choice, "message": self._message}
        if self._ids:
            choice["token_ids"] = self._ids
        choice["logprobs"] = {"content": self._logprobs} if self._logprobs else None
        return _read({**self._whole, "choices": [choice]}, self._question)

    def _take(self, chunk: dict[str, Any]) -> None:
        """Records a chunk, and removes fields that only the record needs."""
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
            int(part.get("index") or 0), openai_call(None, "", "")
        )
        call["id"] = part.get("id") or call["id"]
        function = part.get("function") or {}
        for name in ("name", "arguments"):
            call["function"][name] += function.get(name) or ""


@dataclass(frozen=True, slots=True)
class _UnreadCall(ToolCall):
    """A call with invalid arguments; the agent sees them unchanged."""

    raw: str = ""

    def to_openai(self) -> dict[str, Any]:
        return openai_call(self.id, self.name, self.raw)


async def _whole(response: HttpResponse) -> dict[str, Any]:
    try:
        body = json.loads(await response.read())
    except HttpFailed as error:
        raise _broken(error) from None
    except ValueError:
        raise _broken("invalid JSON") from None
    finally:
        response.close()
    if not isinstance(body, dict):
        raise _broken("the body isn't a JSON object")
    return body


def _read(body: dict[str, Any], question: Question) -> Answered:
    """The answer in a completion's body; removes fields the agent didn't ask for."""
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


def _broken(why: HttpFailed | str) -> ApiError:
    return ApiError(
        504 if isinstance(why, HttpTimeout) else 502,
        f"The server behind this endpoint failed: {why}.",
        kind="server_error",
        code=UPSTREAM,
    )


def _refused(response: HttpResponse, body: bytes) -> ApiError:
    """The server's error with its status, which tells clients whether to retry."""
    try:
        said = json.loads(body)["error"]["message"]
    except (ValueError, LookupError, TypeError):
        said = body[:200].decode(errors="replace")
    wait = response.headers.get("retry-after")
    status = response.status
    ours = status < 500 and status not in (401, 403, 429)
    return ApiError(
        # Hides our API key from the agent.
        502 if status in (401, 403) else status,
        f"The server behind this endpoint returned an error: {said}",
        kind="invalid_request_error" if ours else "server_error",
        code=None if ours else UPSTREAM,
        headers={"retry-after": wait} if wait else {},
    )

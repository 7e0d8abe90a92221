"""Responses in the format of OpenAI's chat completions, whole or streamed.

The counterpart of `protocol`, which reads the requests. Pure functions as well.
"""

from __future__ import annotations

import json
import re
import secrets
import time
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any, Literal

from agentgym.core.tools import ToolCall
from agentgym.policies.base import Decision
from agentgym.serving.errors import invalid
from agentgym.serving.protocol import ChatRequest, CountTokens

FinishReason = Literal["stop", "length", "tool_calls"]

DONE = b"data: [DONE]\n\n"
"""The closing event of a stream."""


@dataclass(frozen=True, slots=True)
class Completion:
    """A completion: its text or calls, finish reason and token counts."""

    model: str
    content: str | None
    calls: tuple[ToolCall, ...]
    finish_reason: FinishReason
    prompt_tokens: int
    completion_tokens: int
    id: str = field(default_factory=lambda: f"chatcmpl-{secrets.token_hex(12)}")
    created: int = field(default_factory=lambda: int(time.time()))

    @property
    def usage(self) -> dict[str, int]:
        """Token counts, by the policy's tokenizer."""
        return {
            "prompt_tokens": self.prompt_tokens,
            "completion_tokens": self.completion_tokens,
            "total_tokens": self.prompt_tokens + self.completion_tokens,
        }

    def to_dict(self) -> dict[str, Any]:
        """The response body, not streamed."""
        message: dict[str, Any] = {
            "role": "assistant",
            "content": self.content,
            "refusal": None,
        }
        if self.calls:
            message["tool_calls"] = [call.to_openai() for call in self.calls]
        return {
            **self._head("chat.completion"),
            "choices": [choice(self.finish_reason, message=message)],
            "usage": self.usage,
        }

    def chunks(self, *, include_usage: bool = False) -> Iterator[dict[str, Any]]:
        """The stream's chunks: role, deltas, finish reason and usage."""
        head = self._head("chat.completion.chunk")
        if include_usage:
            head["usage"] = None
        for delta, reason in self._deltas():
            yield {**head, "choices": [choice(reason, delta=delta)]}
        if include_usage:
            yield {**head, "choices": [], "usage": self.usage}

    def _deltas(self) -> Iterator[tuple[dict[str, Any], FinishReason | None]]:
        yield {"role": "assistant", "content": None if self.calls else ""}, None
        if self.content:
            yield {"content": self.content}, None
        for index, call in enumerate(self.calls):
            whole = call.to_openai()
            function = {"name": call.name, "arguments": ""}
            first = {**whole, "index": index, "function": function}
            yield {"tool_calls": [first]}, None
            rest = {"arguments": whole["function"]["arguments"]}
            yield {"tool_calls": [{"index": index, "function": rest}]}, None
        yield {}, self.finish_reason

    def _head(self, kind: str) -> dict[str, Any]:
        return {
            "id": self.id,
            "object": kind,
            "created": self.created,
            "model": self.model,
            "system_fingerprint": None,
        }


def choice(reason: FinishReason | None, **said: Any) -> dict[str, Any]:
    """The only choice of a completion, with its message, delta or text."""
    return {"index": 0, **said, "logprobs": None, "finish_reason": reason}


def complete(
    request: ChatRequest, decision: Decision, count: CountTokens
) -> Completion:
    """Turns a policy's decision into the completion of a request.

    Calls get unique ids. A text ends before a stop string and within the token limit.
    A call that exceeds the limit is left out: half a call is useless.

    Args:
        request: The request.
        decision: The policy's decision.
        count: Counts the tokens of a text.

    Raises:
        ApiError: The request requires a call, and the policy couldn't make one.
    """
    answer = request.answer_tool
    if answer is not None and [c.name for c in decision.calls] == [answer.name]:
        return _in_words(
            json.dumps(decision.calls[0].arguments), request, decision, count
        )
    if decision.calls:
        calls = tuple(
            ToolCall(call.name, call.arguments, f"call_{secrets.token_hex(12)}")
            for call in decision.calls
        )
        tokens = decision.completion_tokens
        if request.max_tokens is not None and tokens > request.max_tokens:
            return Completion(
                request.model, None, (), "length", decision.prompt_tokens, 0
            )
        return Completion(
            request.model, None, calls, "tool_calls", decision.prompt_tokens, tokens
        )
    if request.must_call or answer is not None:
        raise invalid(
            "This request requires a tool call or an answer that fits a schema, but"
            " the conversation has no value for a required parameter.",
            "tool_choice" if request.must_call else "response_format",
            "no_call_possible",
        )
    whole = str(decision.message.get("content") or "")
    return _in_words(whole, request, decision, count)


def _in_words(
    whole: str, request: ChatRequest, decision: Decision, count: CountTokens
) -> Completion:
    text, reason = _ended(whole, request, count)
    tokens = decision.completion_tokens if text == whole else count(text)
    return Completion(request.model, text, (), reason, decision.prompt_tokens, tokens)


def events(completion: Completion, *, include_usage: bool = False) -> Iterator[bytes]:
    """The server-sent events of a streamed completion, including the final one."""
    for chunk in completion.chunks(include_usage=include_usage):
        yield b"data: %b\n\n" % encode(chunk)
    yield DONE


def model_dict(name: str, created: int) -> dict[str, Any]:
    """A model as `/v1/models` lists it."""
    return {
        "id": name,
        "object": "model",
        "created": created,
        "owned_by": "agentgym",
    }


def encode(value: dict[str, Any]) -> bytes:
    """Compact, strict JSON in ASCII."""
    return json.dumps(value, separators=(",", ":"), allow_nan=False).encode()


def _ended(
    text: str, request: ChatRequest, count: CountTokens
) -> tuple[str, FinishReason]:
    found = [at for stop in request.stop if (at := text.find(stop)) >= 0]
    text = text[: min(found)] if found else text
    limit = request.max_tokens
    if limit is None or count(text) <= limit:
        return text, "stop"
    # The token count grows with the number of words: find the last word that fits.
    ends = [0, *(match.end() for match in re.finditer(r"\S+", text))]
    low, high = 0, len(ends) - 1
    while low < high:
        middle = (low + high + 1) // 2
        if count(text[: ends[middle]]) <= limit:
            low = middle
        else:
            high = middle - 1
    return text[: ends[low]], "length"

"""Translates OpenAI's legacy text completions to chat completions and back."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from agentgym.serving.answers import DONE, Completion, encode
from agentgym.serving.errors import invalid

_PASSED_ON = ("model", "stream", "stream_options", "stop", "max_tokens", "n", "user")
_REFUSED = ("best_of", "echo", "suffix", "logprobs")


def chat_of_completion(payload: dict[str, Any]) -> dict[str, Any]:
    """Returns the equivalent chat request: the prompt becomes a user message.

    Raises:
        ApiError: The request has no single text prompt, or an unsupported parameter.
    """
    for name in _REFUSED:
        if payload.get(name) and (name, payload[name]) != ("best_of", 1):
            raise invalid(f"{name} is not supported.", name, "unsupported_parameter")
    prompt = payload.get("prompt")
    if isinstance(prompt, list) and len(prompt) == 1:
        prompt = prompt[0]
    if not isinstance(prompt, str):
        raise invalid("prompt must be a single string.", "prompt")
    chat = {name: payload[name] for name in _PASSED_ON if name in payload}
    return {**chat, "messages": [{"role": "user", "content": prompt}]}


def completion_dict(completion: Completion) -> dict[str, Any]:
    """The response body, not streamed."""
    return {**_part(completion, completion.content or ""), "usage": completion.usage}


def completion_events(
    completion: Completion, *, include_usage: bool = False
) -> Iterator[bytes]:
    """The server-sent events of a streamed completion."""
    whole = _part(completion, completion.content or "")
    if include_usage:
        whole["usage"] = None
    yield b"data: %b\n\n" % encode(whole)
    if include_usage:
        yield b"data: %b\n\n" % encode(
            {**whole, "choices": [], "usage": completion.usage}
        )
    yield DONE


def _part(completion: Completion, text: str) -> dict[str, Any]:
    reason = "length" if completion.finish_reason == "length" else "stop"
    return {
        "id": completion.id.replace("chatcmpl", "cmpl"),
        "object": "text_completion",
        "created": completion.created,
        "model": completion.model,
        "system_fingerprint": None,
        "choices": [
            {"index": 0, "text": text, "logprobs": None, "finish_reason": reason}
        ],
    }

"""Translates OpenAI's other APIs to chat completions and back.

These are the Responses API and the legacy text completions.

A request becomes the equivalent chat completion request, and the completion becomes a
response, whole or as events:

    chat = chat_of_response(payload, previous)
    completion = ...                             # as for any other chat completion
    body = response_dict(completion, payload)    # or, one by one, response_events(...)

Pure functions. A server that supports `previous_response_id` keeps the conversations
and passes the messages of the one that a request continues.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

from agentgym.core.task import Message
from agentgym.core.tools import openai_call
from agentgym.serving.answers import DONE, Completion, choice, encode
from agentgym.serving.errors import invalid

_TEXT_PASSED_ON = "model stream stream_options stop max_tokens n user".split()
_TEXT_REFUSED = ("best_of", "echo", "suffix", "logprobs")
_PASSED_ON = ("model", "stream", "temperature", "top_p", "user", "parallel_tool_calls")
_ECHOED = (
    "instructions max_output_tokens previous_response_id temperature top_p".split()
)
"""Fields of the request that the response repeats."""
_REFUSED = ("background", "conversation", "prompt", "max_tool_calls")


def chat_of_response(
    payload: dict[str, Any], previous: Sequence[Message] = ()
) -> dict[str, Any]:
    """Returns the equivalent chat completion request.

    Args:
        payload: The body of the request.
        previous: Messages of the conversation that `previous_response_id` names.

    Raises:
        ApiError: The request is invalid or has no equivalent.
    """
    for name in _REFUSED:
        if payload.get(name):
            raise invalid(f"{name} is not supported.", name, "unsupported_parameter")
    chat = {name: payload[name] for name in _PASSED_ON if name in payload}
    instructions = payload.get("instructions")
    if not isinstance(instructions, str | None):
        raise invalid("instructions must be a string.", "instructions")
    # As in OpenAI's API, instructions apply to one response only.
    system = [{"role": "system", "content": instructions}] if instructions else []
    chat["messages"] = [*system, *previous, *input_messages(payload.get("input"))]
    if payload.get("max_output_tokens") is not None:
        chat["max_completion_tokens"] = payload["max_output_tokens"]
    if payload.get("tools"):
        chat["tools"] = _tools(payload["tools"])
    choice = payload.get("tool_choice")
    if isinstance(choice, dict) and choice.get("type") == "function":
        choice = {"type": "function", "function": {"name": choice.get("name")}}
    if choice is not None:
        chat["tool_choice"] = choice
    text = payload.get("text")
    format_ = text.get("format") if isinstance(text, dict) else None
    if isinstance(format_, dict):
        chat["response_format"] = (
            {"type": "json_schema", "json_schema": format_}
            if format_.get("type") == "json_schema"
            else format_
        )
    return chat


def input_messages(given: Any) -> list[Message]:
    """Returns the `input` of a request as chat messages.

    Raises:
        ApiError: The input is invalid.
    """
    if isinstance(given, str):
        return [{"role": "user", "content": given}]
    if not isinstance(given, list):
        raise invalid("input must be a string or a list of items.", "input")
    messages: list[Message] = []
    for i, item in enumerate(given):
        where = f"input[{i}]"
        if not isinstance(item, dict):
            raise invalid(f"{where} must be an object.", where)
        kind = item.get("type", "message")
        if kind == "message":
            content = _content(item.get("content"))
            messages.append({"role": item.get("role"), "content": content})
        elif kind == "function_call":
            arguments = item.get("arguments")
            call = openai_call(item.get("call_id"), item.get("name"), arguments)
            # One decision may make several calls; they are consecutive items.
            if not messages or messages[-1]["role"] != "assistant":
                messages.append({"role": "assistant", "content": None})
            messages[-1].setdefault("tool_calls", []).append(call)
        elif kind == "function_call_output":
            content = _content(item.get("output"))
            answered = item.get("call_id")
            messages.append(
                {"role": "tool", "tool_call_id": answered, "content": content}
            )
        elif kind != "reasoning":
            raise invalid(
                f"{where}.type must be message, function_call or function_call_output.",
                where,
            )
    return messages


def response_dict(completion: Completion, payload: dict[str, Any]) -> dict[str, Any]:
    """The response body, not streamed."""
    cut_off = completion.finish_reason == "length"
    usage = completion.usage
    return {
        **_head(completion, payload),
        "status": "incomplete" if cut_off else "completed",
        "incomplete_details": {"reason": "max_output_tokens"} if cut_off else None,
        "output": _items(completion),
        "usage": {
            "input_tokens": usage["prompt_tokens"],
            "input_tokens_details": {"cached_tokens": 0, "cache_write_tokens": 0},
            "output_tokens": usage["completion_tokens"],
            "output_tokens_details": {"reasoning_tokens": 0},
            "total_tokens": usage["total_tokens"],
        },
    }


def response_events(completion: Completion, payload: dict[str, Any]) -> Iterator[bytes]:
    """The server-sent events of a streamed response."""
    for number, event in enumerate(_events(completion, payload)):
        whole = {**event, "sequence_number": number}
        yield b"event: %b\ndata: %b\n\n" % (event["type"].encode(), encode(whole))


def response_id(completion: Completion) -> str:
    """The response's id."""
    return f"resp_{completion.id.rpartition('-')[2]}"


def _events(
    completion: Completion, payload: dict[str, Any]
) -> Iterator[dict[str, Any]]:
    whole = response_dict(completion, payload)
    opening = {**whole, "status": "in_progress", "output": [], "usage": None}
    opening["incomplete_details"] = None
    yield {"type": "response.created", "response": opening}
    yield {"type": "response.in_progress", "response": opening}
    for index, item in enumerate(whole["output"]):
        place = {"output_index": index}
        at = {**place, "item_id": item["id"]}
        begun = {**item, "status": "in_progress"}
        if item["type"] == "function_call":
            begun["arguments"] = ""
            inner = _call_events(item, at)
        else:
            begun["content"] = []
            inner = _text_events(item["content"][0], {**at, "content_index": 0})
        yield {"type": "response.output_item.added", "item": begun, **place}
        yield from inner
        yield {"type": "response.output_item.done", "item": item, **place}
    yield {"type": f"response.{whole['status']}", "response": whole}


def _call_events(item: dict[str, Any], at: dict[str, Any]) -> Iterator[dict[str, Any]]:
    name, text = "response.function_call_arguments", item["arguments"]
    if text:
        yield {"type": f"{name}.delta", "delta": text, **at}
    yield {"type": f"{name}.done", "arguments": text, "name": item["name"], **at}


def _text_events(part: dict[str, Any], at: dict[str, Any]) -> Iterator[dict[str, Any]]:
    name, text = "response.output_text", part["text"]
    empty = {**part, "text": ""}
    yield {"type": "response.content_part.added", "part": empty, **at}
    if text:
        yield {"type": f"{name}.delta", "delta": text, "logprobs": [], **at}
    yield {"type": f"{name}.done", "text": text, "logprobs": [], **at}
    yield {"type": "response.content_part.done", "part": part, **at}


def _head(completion: Completion, payload: dict[str, Any]) -> dict[str, Any]:
    return {
        **{name: payload.get(name) for name in _ECHOED},
        "id": response_id(completion),
        "object": "response",
        "created_at": completion.created,
        "model": completion.model,
        "error": None,
        "metadata": payload.get("metadata") or {},
        "parallel_tool_calls": payload.get("parallel_tool_calls") is not False,
        "text": payload.get("text") or {"format": {"type": "text"}},
        "tool_choice": payload.get("tool_choice") or "auto",
        "tools": payload.get("tools") or [],
        "store": payload.get("store") is not False,
    }


def _items(completion: Completion) -> list[dict[str, Any]]:
    name = response_id(completion).removeprefix("resp_")
    items: list[dict[str, Any]] = []
    if completion.content or not completion.calls:
        text = completion.content or ""
        part = {"type": "output_text", "text": text, "annotations": [], "logprobs": []}
        items.append(
            {
                "id": f"msg_{name}",
                "type": "message",
                "role": "assistant",
                "status": "completed",
                "content": [part],
            }
        )
    for i, call in enumerate(completion.calls):
        items.append(
            {
                "id": f"fc_{name}_{i}",
                "type": "function_call",
                "status": "completed",
                "call_id": call.id,
                **call.to_openai()["function"],
            }
        )
    return items


def _tools(given: Any) -> Any:
    if not isinstance(given, list):
        return given  # `parse_chat` reports the error.
    tools = []
    for i, tool in enumerate(given):
        if not isinstance(tool, dict) or tool.get("type") != "function":
            raise invalid(
                f"tools[{i}].type must be function: hosted tools are not supported.",
                f"tools[{i}]",
                "unsupported_parameter",
            )
        inner = {name: tool[name] for name in tool if name != "type"}
        tools.append({"type": "function", "function": inner})
    return tools


def _content(content: Any) -> Any:
    if not isinstance(content, list):
        return content
    parts = []
    for part in content:
        kind = part.get("type") if isinstance(part, dict) else None
        if kind in ("input_text", "output_text"):
            part = {"type": "text", "text": part.get("text")}
        parts.append(part)
    return parts


# Text completions --------------------------------------------------------------------


def chat_of_completion(payload: dict[str, Any]) -> dict[str, Any]:
    """Returns the equivalent chat request: the prompt becomes a user message.

    Raises:
        ApiError: The request has no single text prompt, or an unsupported parameter.
    """
    for name in _TEXT_REFUSED:
        if payload.get(name) and (name, payload[name]) != ("best_of", 1):
            raise invalid(f"{name} is not supported.", name, "unsupported_parameter")
    prompt = payload.get("prompt")
    if isinstance(prompt, list) and len(prompt) == 1:
        prompt = prompt[0]
    if not isinstance(prompt, str):
        raise invalid("prompt must be a single string.", "prompt")
    chat = {name: payload[name] for name in _TEXT_PASSED_ON if name in payload}
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
    cut_off = completion.finish_reason == "length"
    return {
        "id": completion.id.replace("chatcmpl", "cmpl"),
        "object": "text_completion",
        "created": completion.created,
        "model": completion.model,
        "system_fingerprint": None,
        "choices": [choice("length" if cut_off else "stop", text=text)],
    }

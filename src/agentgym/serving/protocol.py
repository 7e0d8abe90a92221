"""Parses and validates OpenAI chat completion requests; see `answers` for responses.

Pure functions on bytes and dictionaries, without a web framework, so that all servers
read the same requests and give the same responses:

    request = parse_chat(parse_json(body), shelf)
    decision = policy.decide([request.to_decision()])[0]
    completion = complete(request, decision, policy.count_tokens)
    body = completion.to_dict()                    # or, one by one, events(completion)

Unsupported parameters that would change what the response means (`n`, `logprobs`) are
rejected with a clear error. Sampling parameters (`temperature`, `seed` and the like)
are validated but have no effect: the server always takes the most likely decision. A
response that must fit a JSON schema is decided as a call with that schema as its
parameters, so that every policy can give one.
"""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from agentgym.core.task import Message
from agentgym.core.tools import Tool, openai_call
from agentgym.policies.base import DecisionRequest
from agentgym.serving.errors import invalid
from agentgym.serving.tools import NO_TOOLS, ToolCache, Tools

MAX_BODY = 1 << 20
"""Maximum size of a request in bytes."""
MAX_STOPS = 16
CHARACTERS_PER_TOKEN = 8
"""Maximum average number of characters per token of the context."""

CountTokens = Callable[[str], int]

_ROLES = ("system", "developer", "user", "assistant", "tool")
_RANGES = {
    "temperature": (0, 2),
    "top_p": (0, 1),
    "presence_penalty": (-2, 2),
    "frequency_penalty": (-2, 2),
}
_FLAGS = ("stream", "parallel_tool_calls", "store")
_REFUSED = {
    "functions": "Use tools instead of functions.",
    "function_call": "Use tool_choice instead of function_call.",
    "logprobs": "Log-probabilities are not supported.",
    "top_logprobs": "Log-probabilities are not supported.",
    "audio": "This model outputs text only.",
}


@dataclass(slots=True)
class ChatRequest:
    """A valid chat completion request.

    Attributes:
        messages: The messages, with each content as a string or None.
        tools: All tools of the request.
        allowed: The tools that `tool_choice` allows.
        must_call: Whether `tool_choice` requires a call.
        answer_tool: Stands for a JSON response that fits `response_format`.
        stop: The response ends before the first of these strings.
        max_tokens: Token limit of the response.
    """

    model: str
    messages: list[Message]
    tools: Tools = NO_TOOLS
    allowed: tuple[Tool, ...] = ()
    must_call: bool = False
    answer_tool: Tool | None = None
    stream: bool = False
    include_usage: bool = False
    stop: tuple[str, ...] = ()
    max_tokens: int | None = None

    @property
    def question(self) -> tuple[Any, ...]:
        """A key: a policy answers requests with equal keys alike."""
        allowed = tuple(tool.name for tool in self.allowed)
        texts = json.dumps(self.messages), id(self.tools), allowed
        return *texts, self.must_call, id(self.answer_tool)

    def to_decision(self, **asked: Any) -> DecisionRequest:
        """The request for a policy.

        Args:
            **asked: More fields of `DecisionRequest`.
        """
        tools, must_call = self.allowed, self.must_call
        if self.answer_tool is not None:
            tools, must_call = (*tools, self.answer_tool), True
        return DecisionRequest(self.messages, tools, must_call=must_call, **asked)


def parse_json(body: bytes) -> dict[str, Any]:
    """Parses the body of a request.

    Raises:
        ApiError: The body isn't a JSON object.
    """
    try:
        value = json.loads(body, parse_constant=_refuse, parse_float=_finite)
        if b"\\ud" in body or b"\\uD" in body:
            # Lone surrogates aren't valid text: nothing could encode them.
            clean = json.dumps(value, ensure_ascii=False).encode("utf-8", "replace")
            value = json.loads(clean)
    except RecursionError:
        raise invalid("Invalid JSON body: nested too deeply.") from None
    except ValueError as error:
        raise invalid(f"Invalid JSON body: {error}.") from None
    if not isinstance(value, dict):
        raise invalid("The request body must be a JSON object.")
    return value


def parse_chat(payload: dict[str, Any], shelf: ToolCache) -> ChatRequest:
    """Parses a chat completion request.

    Raises:
        ApiError: The request is invalid or not supported.
    """
    _check_options(payload)
    model = payload.get("model")
    if not isinstance(model, str) or not model:
        raise invalid("model must be the model's name.", "model")
    tools = shelf.get(payload.get("tools"))
    allowed, must_call = _tool_choice(payload.get("tool_choice"), tools.offered)
    answer_tool = None if must_call else _answer_tool(payload, tools, shelf)
    options = _object(payload, "stream_options")
    return ChatRequest(
        model=model,
        messages=_messages(payload.get("messages")),
        tools=tools,
        allowed=allowed,
        must_call=must_call,
        answer_tool=answer_tool,
        stream=bool(payload.get("stream")),
        include_usage=bool(options.get("include_usage")),
        stop=_stop(payload.get("stop")),
        max_tokens=min((n for n in _limits(payload) if n is not None), default=None),
    )


def check_length(request: ChatRequest, count: CountTokens, limit: int) -> None:
    """Rejects a request that exceeds the policy's context.

    Args:
        request: Messages and tool definitions count.
        count: Counts the tokens of a text.
        limit: The policy's context, in tokens.

    Raises:
        ApiError: The request is too long. AgentGym never truncates one.
    """
    texts = [
        request.tools.text,
        *(text for m in request.messages for text in _texts(m)),
    ]
    characters = sum(map(len, texts))
    # A token has at least one byte, so most requests need no exact count.
    if sum(len(t) if t.isascii() else 4 * len(t) for t in texts) <= limit:
        return
    if characters > CHARACTERS_PER_TOKEN * limit:
        size = f"{characters:,} characters"
        most = f"{CHARACTERS_PER_TOKEN * limit:,} characters"
    else:
        tokens = sum(map(count, texts))
        if tokens <= limit:
            return
        size, most = f"{tokens:,} tokens", f"{limit:,} tokens"
    raise invalid(
        f"Messages and tools have {size}; this model reads at most {most}."
        " Shorten the conversation or remove tools.",
        "messages",
        "context_length_exceeded",
    )


def _texts(message: Message) -> Iterator[str]:
    yield message["content"] or ""
    for call in message.get("tool_calls", ()):
        yield call["function"]["name"]
        yield call["function"]["arguments"]


def _check_options(payload: dict[str, Any]) -> None:
    for name, text in _REFUSED.items():
        if payload.get(name):
            raise invalid(text, name, "unsupported_parameter")
    if payload.get("n") not in (None, 1) or isinstance(payload.get("n"), bool):
        raise invalid("n must be 1: each request gets one choice.", "n")
    for name, (low, high) in _RANGES.items():
        value = payload.get(name)
        if value is not None and not (_is_number(value) and low <= value <= high):
            raise invalid(f"{name} must be a number from {low} to {high}.", name)
    for name in _FLAGS:
        if not isinstance(payload.get(name, False), bool | None):
            raise invalid(f"{name} must be true or false.", name)
    if payload.get("modalities") not in (None, ["text"]):
        raise invalid("This model outputs text only.", "modalities")


def _answer_tool(
    payload: dict[str, Any], tools: Tools, shelf: ToolCache
) -> Tool | None:
    """The tool that stands for a JSON response; None for a text response."""
    format_ = _object(payload, "response_format")
    kind = format_.get("type", "text")
    if kind == "text":
        return None
    given = format_.get("json_schema")
    if kind != "json_schema" or not isinstance(given, dict):
        raise invalid(
            "response_format must be text or json_schema. This model needs a schema to"
            " write JSON.",
            "response_format",
            "unsupported_parameter",
        )
    name = str(given.get("name") or "answer")
    if any(tool.name == name for tool in tools.offered):
        name += "_answer"
    function = {
        "name": name,
        "description": given.get("description") or "The answer.",
        "parameters": given.get("schema"),
    }
    if not isinstance(function["parameters"], dict):
        raise invalid(
            "response_format.json_schema.schema must be a JSON schema of type object.",
            "response_format",
        )
    return shelf.get([{"type": "function", "function": function}]).offered[0]


def _messages(given: Any) -> list[Message]:
    if not isinstance(given, list) or not given:
        raise invalid("messages must be a non-empty list.", "messages")
    return [_message(raw, f"messages[{i}]") for i, raw in enumerate(given)]


def _message(raw: Any, where: str) -> Message:
    role = raw.get("role") if isinstance(raw, dict) else None
    if not isinstance(role, str) or role not in _ROLES:
        known = ", ".join(_ROLES)
        raise invalid(f"{where}.role must be one of {known}.", f"{where}.role")
    message: Message = {
        "role": "system" if role == "developer" else role,
        "content": _content(raw.get("content"), f"{where}.content"),
    }
    name = raw.get("name")
    if name is not None:
        if not isinstance(name, str):
            raise invalid(f"{where}.name must be a string.", f"{where}.name")
        message["name"] = name
    if role == "assistant" and raw.get("tool_calls"):
        message["tool_calls"] = _calls(raw["tool_calls"], f"{where}.tool_calls")
    if role == "tool":
        answered = raw.get("tool_call_id")
        where = f"{where}.tool_call_id"
        if not isinstance(answered, str):
            raise invalid(f"{where} must be the id of the answered tool call.", where)
        message["tool_call_id"] = answered
    return message


def _content(content: Any, where: str) -> str | None:
    if content is None or isinstance(content, str):
        return content
    if not isinstance(content, list):
        raise invalid(f"{where} must be a string, null or a list of parts.", where)
    texts = []
    for i, part in enumerate(content):
        kind = part.get("type") if isinstance(part, dict) else None
        text = part.get(kind) if kind in ("text", "refusal") else None
        if not isinstance(text, str):
            raise invalid(
                f"{where}[{i}] must be a text part: this model reads text only.",
                where,
            )
        texts.append(text)
    return "\n".join(texts)


def _calls(given: Any, where: str) -> list[dict[str, Any]]:
    if not isinstance(given, list):
        raise invalid(f"{where} must be a list.", where)
    calls = []
    for i, raw in enumerate(given):
        function = raw.get("function") if isinstance(raw, dict) else None
        parts = function if isinstance(function, dict) else {}
        name, arguments = parts.get("name"), parts.get("arguments")
        if not isinstance(name, str) or not isinstance(arguments, str):
            raise invalid(
                f"{where}[{i}].function needs a name and arguments, both strings.",
                where,
            )
        if not isinstance(raw.get("id"), str):
            raise invalid(f"{where}[{i}].id must be a string.", where)
        calls.append(openai_call(raw["id"], name, arguments))
    return calls


def _tool_choice(choice: Any, tools: Sequence[Tool]) -> tuple[tuple[Tool, ...], bool]:
    """The tools that may be called, and whether a call is required."""
    if choice is None or choice == "auto":
        return tuple(tools), False
    if choice == "none":
        return (), False
    if choice == "required":
        allowed = tuple(tools)
    elif isinstance(choice, dict) and choice.get("type") == "function":
        function = choice.get("function")
        name = function.get("name") if isinstance(function, dict) else None
        allowed = tuple(tool for tool in tools if tool.name == name)
    else:
        raise invalid(
            'tool_choice must be "auto", "required", "none" or'
            ' {"type": "function", "function": {"name": ...}}.',
            "tool_choice",
        )
    if not allowed:
        raise invalid("tool_choice names a tool that isn't in tools.", "tool_choice")
    return allowed, True


def _stop(given: Any) -> tuple[str, ...]:
    if given is None:
        return ()
    stops = [given] if isinstance(given, str) else given
    if (
        not isinstance(stops, list)
        or len(stops) > MAX_STOPS
        or not all(isinstance(text, str) for text in stops)
    ):
        raise invalid(
            f"stop must be a string or a list of up to {MAX_STOPS} strings.", "stop"
        )
    return tuple(text for text in stops if text)


def _limits(payload: dict[str, Any]) -> Iterator[int | None]:
    for name in ("max_tokens", "max_completion_tokens"):
        value = payload.get(name)
        whole = isinstance(value, int) and not isinstance(value, bool)
        if value is not None and not (whole and value >= 1):
            raise invalid(f"{name} must be an integer of at least 1.", name)
        yield value


def _object(payload: dict[str, Any], name: str) -> dict[str, Any]:
    value = payload.get(name)
    if value is None:
        return {}
    if not isinstance(value, dict):
        raise invalid(f"{name} must be an object.", name)
    return value


def _is_number(value: Any) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool)


def _refuse(name: str) -> Any:
    raise ValueError(f"{name} isn't valid JSON")


def _finite(text: str) -> float:
    value = float(text)
    if not math.isfinite(value):
        raise ValueError(f"{text[:20]} is too large")
    return value

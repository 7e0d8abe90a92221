"""Translates agents that call tools in plain text (ReAct) to chat messages and back.

LangChain's older agents put the tools and the whole conversation into one prompt:

    Question: Where is A-1042?
    Thought: Action: lookup_order
    Action Input: {"order_id": "A-1042"}
    Observation: {"status": "shipped"}
    Thought:

`read` turns the prompt into chat messages, so that a policy sees a normal agent with
tool calls; `write` turns the policy's answer back into text.
"""

from __future__ import annotations

import json
import re
from collections.abc import Sequence
from typing import Any

from agentgym.core.task import Message
from agentgym.core.tools import ToolCall

_STEP = re.compile(
    r"Action\s*:[ \t]*(?P<name>[^\n`]+?)[ \t]*\n\s*Action Input\s*:[ \t]*(?P<input>.*?)"
    r"\n\s*Observation\s*:[ \t]?(?P<seen>.*?)(?=\n\s*Thought\s*:|\Z)",
    re.DOTALL,
)
_BLOB = re.compile(
    r"Action\s*:\s*```(?:json)?\s*(?P<blob>\{.*?\})\s*```\s*"
    r"Observation\s*:[ \t]?(?P<seen>.*?)(?=\n\s*Thought\s*:|\Z)",
    re.DOTALL,
)
_ASKED = re.compile(
    r"(?:Question|New input)\s*:[ \t]*(?P<text>.*?)"
    r"(?=\n\s*(?:Thought|Action)\s*:|\Z)",
    re.DOTALL,
)
_HISTORY = re.compile(
    r"^(?P<who>Human|AI)\s*:[ \t]*(?P<text>.*?)(?=^\s*(?:Human|AI|New input)\s*:|\Z)",
    re.DOTALL | re.MULTILINE,
)
_REMINDER = re.compile(r"\s*\(reminder to [^)]*\)\s*\Z")
_WORK = re.compile(r"This was your previous work|(?:Thought\s*:.*?)?Action\s*:\s*```")


def is_text_style(messages: Sequence[Message], stop: Sequence[str] | None) -> bool:
    """Whether a request without tools comes from an agent that calls tools in text."""
    return any("Observation" in text for text in stop or ())


def is_structured(messages: Sequence[Message]) -> bool:
    """Whether the agent writes calls as JSON in a code block."""
    return any("action_input" in str(m.get("content")) for m in messages[:-1])


def read(messages: Sequence[Message], tools: Sequence[dict[str, Any]]) -> list[Message]:
    """Returns a prompt's conversation as chat messages.

    Args:
        messages: The prompt; the last message contains the conversation so far.
        tools: Tool definitions, to find the parameter that a plain text is for.
    """
    only = _only_parameters(tools)
    text = str(messages[-1].get("content") or "")
    before = [m for m in messages[:-1] if m.get("role") in ("user", "assistant")]
    if is_structured(messages):
        text = _REMINDER.sub("", text)
        work = _WORK.search(text)
        asked = text[: work.start()] if work else text
        return [*before, _user(asked), *_steps(_BLOB, text, only)]
    text = text.rpartition("Begin!")[2] or text
    found = _ASKED.search(text)
    if found is None:
        return [*before, _user(text)]
    for said in _HISTORY.finditer(text[: found.start()]):
        role = "user" if said["who"] == "Human" else "assistant"
        before.append({"role": role, "content": said["text"].strip()})
    return [*before, _user(found["text"]), *_steps(_STEP, text[found.end() :], only)]


def write(
    content: str | None,
    calls: Sequence[ToolCall],
    tools: Sequence[dict[str, Any]],
    *,
    structured: bool,
) -> str:
    """Returns an answer as text; of several calls, only the first."""
    if structured:
        blob = (
            {"action": calls[0].name, "action_input": calls[0].arguments}
            if calls
            else {"action": "Final Answer", "action_input": content or ""}
        )
        return f"Action:\n```\n{json.dumps(blob)}\n```"
    if not calls:
        return f"Thought: I now know the final answer\nFinal Answer: {content or ''}"
    call = calls[0]
    name = _only_parameters(tools).get(call.name)
    given = call.arguments.get(name) if name else None
    line = given if isinstance(given, str) else json.dumps(call.arguments)
    return f"Thought: I use a tool\nAction: {call.name}\nAction Input: {line}"


def parse_input(text: Any, only: str | None) -> dict[str, Any]:
    """Returns the arguments of an `Action Input`.

    Args:
        text: The input's text.
        only: The tool's parameter, if it has only one and that is a string.
    """
    if isinstance(text, dict):
        return text
    try:
        value = json.loads(text)
    except ValueError:
        value = text
    if isinstance(value, dict):
        return value
    return {only: text} if only else {}


def only_parameter(parameters: Any) -> str | None:
    """The name of a schema's only parameter, if that is a string."""
    properties = dict(parameters.get("properties") or {})
    if len(properties) != 1:
        return None
    name, schema = next(iter(properties.items()))
    return name if schema.get("type") == "string" else None


def _only_parameters(tools: Sequence[dict[str, Any]]) -> dict[str, str]:
    found = {}
    for tool in tools:
        function = tool["function"]
        name = only_parameter(function.get("parameters") or {})
        if name is not None:
            found[function["name"]] = name
    return found


def _steps(pattern: re.Pattern[str], text: str, only: dict[str, str]) -> list[Message]:
    steps: list[Message] = []
    for i, found in enumerate(pattern.finditer(text)):
        if pattern is _BLOB:
            try:
                blob = json.loads(found["blob"])
            except ValueError:
                continue
            name, given = str(blob.get("action")), blob.get("action_input")
        else:
            name, given = found["name"].strip(), found["input"].strip()
        arguments = parse_input(given, only.get(name))
        call = ToolCall(name, arguments, f"call_{i}")
        steps.append(
            {"role": "assistant", "content": None, "tool_calls": [call.to_openai()]}
        )
        steps.append(
            {"role": "tool", "tool_call_id": call.id, "content": found["seen"].strip()}
        )
    return steps


def _user(text: str) -> Message:
    return {"role": "user", "content": text.strip()}

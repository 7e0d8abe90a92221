"""Prompts and completions as the model's own chat template writes them.

A template that supports tools gets them as such, and its own wrapping of a call
(`<tool_call>` and the like) is found by having it write one. For other templates, tools
are listed in the system message, calls are *pythonic* (`[name(key="x")]`, as in some
model families and servers; half as many tokens as JSON), and results come back as
messages of the user. A stock runtime does the same in both cases: `ChatFormat.messages`
are ordinary chat messages for `apply_chat_template`.
"""

from __future__ import annotations

import json
import keyword
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from agentgym.core.task import Message
from agentgym.core.tools import Tool
from agentgym.policies.calls.candidates import described_values, parameter_schemas
from agentgym.policies.calls.conversation import content_text
from agentgym.policies.llm.options import Option

if TYPE_CHECKING:
    from transformers import PreTrainedTokenizerBase

_PROBE = Tool(
    "probe_tool",
    "probe",
    {"type": "object", "properties": {"probe_key": {"type": "string"}}},
)
_MARK = "\u2063mark\u2063"
_INSTRUCTION = (
    'Answer with one call, like [tool(parameter="value")], or with a message to the '
    "user when something must be asked or everything is done."
)


class ChatFormat:
    """How to talk to one model.

    Attributes:
        native: Whether the template supports tools.
        end: The token that ends an answer.
    """

    def __init__(self, tokenizer: PreTrainedTokenizerBase) -> None:
        self._tokenizer: Any = tokenizer
        self.native = False
        self._around, self._key = ("", ""), "arguments"
        self._probe_template()
        self.end = self._end_token()

    # Prompts ---------------------------------------------------------------------

    def messages(
        self, messages: Sequence[Message], tools: Sequence[Tool]
    ) -> list[dict[str, Any]]:
        """The conversation as the template can take it."""
        if self.native:
            return [_plain(message) for message in messages]
        told = [self._told(message) for message in messages]
        if not told or told[0]["role"] != "system":
            told.insert(0, {"role": "system", "content": ""})
        listing = "\n".join(_signature(tool) for tool in tools)
        parts = [told[0]["content"], f"Tools:\n{listing}", _INSTRUCTION]
        told[0] = {"role": "system", "content": "\n\n".join(filter(None, parts))}
        return told

    def prompt(
        self, messages: Sequence[Message], tools: Sequence[Tool]
    ) -> tuple[list[int], int]:
        """Token ids up to where the answer begins, and how many of them open it.

        The opening (system prompt and tools) is the same for every conversation with
        these tools, so that it is worth keeping.
        """
        text = self.render(messages, tools)
        opening = [m for m in messages if m.get("role") == "system"][:1]
        probe = self.render([*opening, {"role": "user", "content": _MARK}], tools)
        head = self._encode(probe[: probe.index(_MARK)])
        ids = self._encode(text)
        shared = 0
        while shared < min(len(head), len(ids) - 1) and head[shared] == ids[shared]:
            shared += 1
        return ids, shared

    def render(self, messages: Sequence[Message], tools: Sequence[Tool]) -> str:
        """The prompt as text."""
        definitions = [tool.to_openai() for tool in tools] if self.native else None
        return self._render(self.messages(messages, tools), definitions)

    # Completions -----------------------------------------------------------------

    def text(self, option: Option) -> str:
        """What the model would write for an option."""
        if option.kind != "call":
            return option.text
        arguments = option.arguments or {}
        if not self.native:
            return pythonic(option.tool, arguments)
        before, after = self._around
        return f"{before}{call_json(option.tool, arguments, self._key)}{after}"

    def completions(self, options: Sequence[Option]) -> list[list[int]]:
        """The same as token ids, with the end of the answer."""
        texts = [self.text(option) for option in options]
        encoded = self._tokenizer(texts, add_special_tokens=False)["input_ids"]
        return [[*ids, self.end] for ids in encoded]

    def count(self, text: str) -> int:
        """Tokens of a text."""
        return len(self._encode(text))

    # -----------------------------------------------------------------------------

    def _encode(self, text: str) -> list[int]:
        ids: list[int] = self._tokenizer.encode(text, add_special_tokens=False)
        return ids

    def _render(self, messages: list[dict[str, Any]], tools: Any) -> str:
        text: str = self._tokenizer.apply_chat_template(
            messages, tools=tools, add_generation_prompt=True, tokenize=False
        )
        return text

    def _told(self, message: Mapping[str, Any]) -> dict[str, Any]:
        role, content = message.get("role"), content_text(message.get("content"))
        if role == "assistant" and message.get("tool_calls"):
            calls = [
                pythonic(function["name"], _arguments(function["arguments"]))
                for call in message["tool_calls"]
                for function in [call["function"]]
            ]
            content = "\n".join(filter(None, [content, *calls]))
        if role == "tool":
            return {"role": "user", "content": f"Result: {content}"}
        return {"role": role, "content": content}

    def _probe_template(self) -> None:
        """Finds out whether the template supports tools, and how it writes a call."""
        call = {"name": _PROBE.name, "arguments": {"probe_key": "probe_value"}}
        opening = [{"role": "user", "content": "probe"}]
        answer = {
            "role": "assistant",
            "content": "",
            "tool_calls": [{"type": "function", "id": "c0", "function": call}],
        }
        try:
            tools = [_PROBE.to_openai()]
            before = self._render(opening, tools)
            if _PROBE.name not in before:
                return
            after: str = self._tokenizer.apply_chat_template(
                [*opening, answer], tools=tools, tokenize=False
            )
        except Exception:
            # Templates are programs; one that fails here doesn't support tools.
            return
        written = after.removeprefix(before)
        for key in ("arguments", "parameters"):
            text = call_json(_PROBE.name, {"probe_key": "probe_value"}, key)
            if after.startswith(before) and text in written:
                start = written.index(text)
                end = self._tokenizer.eos_token or ""
                tail = written[start + len(text) :]
                tail = tail[: tail.index(end)] if end and end in tail else tail.rstrip()
                self._around, self._key = (written[:start], tail), key
                self.native = True
                return

    def _end_token(self) -> int:
        """The special token that the template writes after an answer, else EOS."""
        asked = [{"role": "user", "content": "probe"}]
        said = {"role": "assistant", "content": _MARK}
        text: str = self._tokenizer.apply_chat_template([*asked, said], tokenize=False)
        ids = self._encode(text[text.index(_MARK) + len(_MARK) :].lstrip())
        if ids and ids[0] in self._tokenizer.all_special_ids:
            return ids[0]
        return int(self._tokenizer.eos_token_id)


def call_json(name: str, arguments: Mapping[str, Any], key: str = "arguments") -> str:
    """A call as JSON, written as chat templates write it."""
    return json.dumps({"name": name, key: arguments}, ensure_ascii=False)


def pythonic(name: str, arguments: Mapping[str, Any]) -> str:
    """A call as Python writes it, in a list; as JSON where Python has no such name."""
    if not all(map(_is_name, [name, *arguments])):
        return call_json(name, arguments)
    given = ", ".join(f"{key}={_literal(value)}" for key, value in arguments.items())
    return f"[{name}({given})]"


def _is_name(text: str) -> bool:
    return text.isidentifier() and not keyword.iskeyword(text)


def _literal(value: Any) -> str:
    if isinstance(value, Mapping):
        inner = (f"{_literal(str(k))}: {_literal(v)}" for k, v in value.items())
        return "{" + ", ".join(inner) + "}"
    if isinstance(value, list | tuple):
        return "[" + ", ".join(map(_literal, value)) + "]"
    if isinstance(value, str):
        return json.dumps(value, ensure_ascii=False)
    return repr(value)


def _plain(message: Mapping[str, Any]) -> dict[str, Any]:
    """A message whose arguments are objects: templates write those as JSON."""
    result = {**message, "content": content_text(message.get("content"))}
    if message.get("tool_calls"):
        result["tool_calls"] = [
            {
                **call,
                "function": {
                    **call["function"],
                    "arguments": _arguments(call["function"]["arguments"]),
                },
            }
            for call in message["tool_calls"]
        ]
    return result


def _arguments(raw: Any) -> Any:
    if isinstance(raw, str):
        try:
            return json.loads(raw)
        except ValueError:
            return {}
    return raw


def _signature(tool: Tool) -> str:
    """A tool in one line: its parameters with their values or types, and its use."""
    parameters = [
        f"{name}{'' if name in tool.required else '?'}: {_type(schema)}"
        for name, schema in parameter_schemas(tool).items()
    ]
    return f"{tool.name}({', '.join(parameters)}): {tool.description}"


def _type(schema: Mapping[str, Any]) -> str:
    listed = schema.get("enum") or [value for value, _ in described_values(schema)]
    if listed:
        return "|".join(map(str, listed))
    if "const" in schema:
        return str(schema["const"])
    form = schema.get("format")
    kind = schema.get("type", "any")
    return str(form or (kind if isinstance(kind, str) else "|".join(map(str, kind))))

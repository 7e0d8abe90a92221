"""How a request relates to those before it: does the agent go on, or begin anew?

A learner needs to know which requests make up one conversation. Agents do not say so:
each request brings its whole context. So contexts are compared, message by message,
and a request that does not simply go on is told apart by what it shares with the
earlier ones:

    continued    an earlier context, the answer to it, and more
    branched     an earlier context that was answered, or gone on with, already
    summarised   the same agent, with its history cut or retold
    sub_agent    another agent (its system prompt differs) of the same team
    unrelated    nothing is shared

Names of messages, ids of calls and the form in which contents came do not count.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import Any

_QUOTE = 12
"""Characters that a text must have to be recognised where it is quoted."""


class Continuity(StrEnum):
    """What a request does with the conversations before it."""

    FIRST = "first"
    CONTINUED = "continued"
    BRANCHED = "branched"
    SUMMARISED = "summarised"
    SUB_AGENT = "sub_agent"
    UNRELATED = "unrelated"


@dataclass(frozen=True, slots=True)
class Context:
    """What a request brings.

    Attributes:
        keys: One for each message; equal messages have equal keys.
        system: How many system messages it opens with.
        tools: Names of the tools that may be called.
        texts: What others than the assistant said.
    """

    keys: tuple[str, ...]
    system: int
    tools: frozenset[str]
    texts: tuple[str, ...] = ()

    @classmethod
    def of(cls, payload: Mapping[str, Any]) -> Context:
        """Reads a chat completion's request; whatever it cannot read does not count."""
        given = payload.get("messages")
        listed = given if isinstance(given, list) else []
        messages = [message for message in listed if isinstance(message, Mapping)]
        roles = [_role(message) for message in messages]
        system = next((i for i, r in enumerate(roles) if r != "system"), len(roles))
        return cls(
            tuple(map(message_key, messages)),
            system,
            frozenset(_tool_names(payload)),
            tuple(
                text_of(message)
                for message, role in zip(messages, roles, strict=True)
                if role != "assistant"
            ),
        )

    @property
    def state_key(self) -> str:
        """Names the conversation and the tools: equal for equal requests."""
        text = "\n".join([*self.keys, *sorted(self.tools)])
        return hashlib.blake2b(text.encode(), digest_size=12).hexdigest()

    @property
    def said(self) -> frozenset[str]:
        """Keys of all but the opening system messages."""
        return frozenset(self.keys[self.system :])

    def begins_with(self, keys: Sequence[str]) -> bool:
        """Whether these messages are its first."""
        return self.keys[: len(keys)] == tuple(keys)

    def same_agent(self, other: Context) -> bool:
        """Whether the system prompts are the same."""
        return self.keys[: self.system] == other.keys[: other.system]

    def quotes(self, texts: Sequence[str]) -> bool:
        """Whether somebody but the assistant says one of these texts."""
        return any(
            text in whole
            for text in texts
            if len(text) >= _QUOTE
            for whole in self.texts
        )


@dataclass(frozen=True, slots=True)
class Earlier:
    """An earlier request with its answer.

    Attributes:
        reply: Key of the answer.
        quotable: Texts of the answer, those within its calls included.
        gone_on: Whether a later request continued it already.
    """

    context: Context
    reply: str
    quotable: tuple[str, ...]
    gone_on: bool


def classify(
    context: Context, earlier: Sequence[Earlier]
) -> tuple[Continuity, int | None]:
    """Compares a request with the earlier ones of its session.

    Returns:
        What it does, and which of the earlier ones it directly goes on from: the
        latest whose context and answer both stand in it.
    """
    if not earlier:
        return Continuity.FIRST, None
    parent = max(
        (
            i
            for i, before in enumerate(earlier)
            if context.begins_with((*before.context.keys, before.reply))
        ),
        key=lambda i: (len(earlier[i].context.keys), i),
        default=None,
    )
    # Asked again, or with another answer in the place of the one that was given.
    again = any(
        context.begins_with(before.context.keys)
        and len(before.context.keys)
        > (0 if parent is None else len(earlier[parent].context.keys))
        and before.context.said
        for before in earlier
    )
    if again:
        return Continuity.BRANCHED, parent
    if parent is not None:
        gone_on = earlier[parent].gone_on
        return (Continuity.BRANCHED if gone_on else Continuity.CONTINUED), parent
    known = [b for b in earlier if b.context.same_agent(context)]
    if any(_related(context, before) for before in known):
        return Continuity.SUMMARISED, None
    if not known and any(_related(context, before) for before in earlier):
        return Continuity.SUB_AGENT, None
    return Continuity.UNRELATED, None


def message_key(message: Mapping[str, Any]) -> str:
    """Equal for messages that say the same."""
    value = [_role(message), text_of(message), list(_calls(message))]
    text = json.dumps(value, sort_keys=True, default=str)
    return hashlib.blake2b(text.encode(), digest_size=12).hexdigest()


def quotable(message: Mapping[str, Any]) -> tuple[str, ...]:
    """The texts of an answer that others may quote."""
    texts = [text_of(message)]
    for _, arguments in _calls(message):
        if isinstance(arguments, dict):
            texts += [value for value in arguments.values() if isinstance(value, str)]
    return tuple(text.strip() for text in texts)


def text_of(message: Mapping[str, Any]) -> str:
    """A message's content as one text, whatever form it came in."""
    content = message.get("content")
    if isinstance(content, str):
        return content
    if not isinstance(content, list):
        return ""
    return "\n".join(
        part["text"] if isinstance(part.get("text"), str) else json.dumps(part)
        for part in content
        if isinstance(part, dict)
    )


def _related(context: Context, before: Earlier) -> bool:
    shared = context.said & {*before.context.said, before.reply}
    return bool(shared) or context.quotes(before.quotable)


def _role(message: Mapping[str, Any]) -> str:
    role = str(message.get("role"))
    return "system" if role == "developer" else role


def _calls(message: Mapping[str, Any]) -> Iterator[tuple[Any, Any]]:
    calls = message.get("tool_calls")
    for call in calls if isinstance(calls, list) else ():
        function = call.get("function") if isinstance(call, Mapping) else None
        if not isinstance(function, Mapping):
            continue
        arguments = function.get("arguments")
        try:
            arguments = json.loads(arguments or "{}")
        except (TypeError, ValueError, RecursionError):
            arguments = str(arguments)
        yield function.get("name"), arguments


def _tool_names(payload: Mapping[str, Any]) -> Iterator[str]:
    tools = payload.get("tools")
    if payload.get("tool_choice") == "none" or not isinstance(tools, list):
        return
    for tool in tools:
        function = tool.get("function") if isinstance(tool, Mapping) else None
        if isinstance(function, Mapping):
            yield str(function.get("name"))

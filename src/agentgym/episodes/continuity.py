"""Classifies requests: does a request continue an earlier conversation?

A learner needs to know which requests form one conversation. Agents don't say so: each
request contains its whole context. So contexts are compared message by message, and
requests are classified by what they share with earlier ones:

    continued    an earlier context, its answer, and more
    branched     an earlier context that was already answered or continued
    summarised   the same agent, with a shortened or rewritten history
    sub_agent    another agent of the same team, with a different system prompt
    unrelated    nothing in common

Names of messages, ids of calls and the format of contents don't matter.
"""

from __future__ import annotations

import dataclasses
import hashlib
import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import Any

_QUOTE = 12
"""Minimum length of a text to be recognised as a quotation."""


class Continuity(StrEnum):
    """How a request relates to earlier conversations."""

    FIRST = "first"
    CONTINUED = "continued"
    BRANCHED = "branched"
    SUMMARISED = "summarised"
    SUB_AGENT = "sub_agent"
    UNRELATED = "unrelated"


@dataclass(frozen=True, slots=True)
class Context:
    """The context of a request.

    Attributes:
        keys: One key per message; equal messages have equal keys.
        system: Number of system messages at the beginning.
        tools: Names of the tools.
        texts: Texts of all messages except the assistant's.
    """

    keys: tuple[str, ...]
    system: int
    tools: frozenset[str]
    texts: tuple[str, ...] = ()

    @classmethod
    def of(cls, payload: Mapping[str, Any]) -> Context:
        """Reads a chat completion request; ignores anything invalid."""
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
        """A key for the conversation and the tools: equal for equal requests."""
        text = "\n".join([*self.keys, *sorted(self.tools)])
        return hashlib.blake2b(text.encode(), digest_size=12).hexdigest()

    @property
    def said(self) -> frozenset[str]:
        """Keys of all but the opening system messages."""
        return frozenset(self.keys[self.system :])

    def same_agent(self, other: Context) -> bool:
        """Whether the system prompts are the same."""
        return self.keys[: self.system] == other.keys[: other.system]

    def quotes(self, texts: Sequence[str]) -> bool:
        """Whether a message that isn't the assistant's contains one of these texts."""
        return any(
            text in whole
            for text in texts
            if len(text) >= _QUOTE
            for whole in self.texts
        )


@dataclass(slots=True)
class _Earlier:
    context: Context
    reply: str
    quotable: tuple[str, ...]
    gone_on: bool = False


class History:
    """The requests of one session so far, with their answers."""

    def __init__(self) -> None:
        self._earlier: list[_Earlier] = []
        self._asked: dict[tuple[str, ...], int] = {}
        """By context: the latest request that had it."""
        self._answered: dict[tuple[str, ...], int] = {}
        """By context and answer."""

    def add(
        self, context: Context, reply: Mapping[str, Any]
    ) -> tuple[Continuity, int | None]:
        """Compares a request with the earlier ones, then adds it and its answer.

        Returns:
            Its class, and the index of the earlier request that it directly continues:
            the latest one whose context and answer it contains.
        """
        continuity, parent = self._classify(context)
        if parent is not None:
            self._earlier[parent].gone_on = True
        key = message_key({**reply, "role": "assistant"})
        self._asked[context.keys] = self._answered[(*context.keys, key)] = len(
            self._earlier
        )
        # Drops the texts, which are large and were only needed to classify.
        kept = dataclasses.replace(context, texts=())
        self._earlier.append(_Earlier(kept, key, quotable(reply)))
        return continuity, parent

    def _classify(self, context: Context) -> tuple[Continuity, int | None]:
        if not self._earlier:
            return Continuity.FIRST, None
        keys = context.keys
        for length in range(len(keys), context.system, -1):
            parent = self._answered.get(keys[:length])
            if parent is not None:
                gone_on = self._earlier[parent].gone_on
                return Continuity.BRANCHED if gone_on else Continuity.CONTINUED, parent
            if keys[:length] in self._asked:
                # Repeated, or with another answer instead of the one given.
                return Continuity.BRANCHED, self._parent(keys[: length - 1])
        known = [e for e in self._earlier if e.context.same_agent(context)]
        if any(_related(context, before) for before in known):
            return Continuity.SUMMARISED, None
        if not known and any(_related(context, before) for before in self._earlier):
            return Continuity.SUB_AGENT, None
        return Continuity.UNRELATED, None

    def _parent(self, keys: tuple[str, ...]) -> int | None:
        lengths = range(len(keys), 0, -1)
        found = (self._answered.get(keys[:length]) for length in lengths)
        return next((parent for parent in found if parent is not None), None)


def message_key(message: Mapping[str, Any]) -> str:
    """A key that is equal for messages with the same content."""
    value = [_role(message), text_of(message), list(_calls(message))]
    text = json.dumps(value, sort_keys=True, default=str)
    return hashlib.blake2b(text.encode(), digest_size=12).hexdigest()


def quotable(message: Mapping[str, Any]) -> tuple[str, ...]:
    """The texts of an answer that later requests may quote."""
    texts = [text_of(message)]
    for _, arguments in _calls(message):
        if isinstance(arguments, dict):
            texts += [value for value in arguments.values() if isinstance(value, str)]
    return tuple(text.strip() for text in texts)


def text_of(message: Mapping[str, Any]) -> str:
    """A message's content as one text, in any format."""
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


def _related(context: Context, before: _Earlier) -> bool:
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

"""Parses a chat into parts: user messages, tool calls and their results.

Also the fixed wording of messages to the user: questions and final answers.

Nothing here is specific to a scenario: texts are split into clauses and typed spans,
tool results are flattened into fields (`orders[0].order_id` becomes "orders order id").
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

MAX_FIELDS = 64
"""Maximum number of fields read from one tool result; more are ignored."""
MAX_REMEMBERED = 1024
"""Maximum number of texts, and of tool results, that a reader caches."""
MAX_CHARACTERS = 1 << 20
"""Maximum characters of all cached texts, and of all cached tool results."""
MAX_SCHEMAS = 512
"""Maximum number of schemas whose values a text or tool result caches."""

_NO_ARTICLE = frozenset(
    "a an the this that these those your my their what which who whose when where why "
    "how whether if".split()
)
"""First words of descriptions that take no article."""

_CLAUSE_END = re.compile(
    r"(?<=[.!?;])\s+|\n+|:\s+|\s+-\s+"
    r"|,\s+(?=(?:and|but|also|so|because|since|please|can|could|i|it|my|we)\b)"
    r"|\s+(?=(?:but|because)\b)",
    re.IGNORECASE,
)
_SENTENCE_END = re.compile(r"(?<=[.!?])\s+|\n+")
_NAMED = re.compile(
    r"(?:\d+[a-z]?\s+)?[A-Z][\w'&-]*(?:,?\s+(?:[A-Z][\w'&-]*|\d+[a-z]?\b))*"
    r"(?:,?\s+(?:de|la|of|the|am|an|der)\s+[A-Z][\w'-]*)*"
)
_QUOTED = re.compile(r"[\"“«]([^\"”»]{1,200})[\"”»]|(?<!\w)'([^']{1,200})'(?!\w)")
_NUMBER = re.compile(r"(?<![\w.,/-])[-+]?\d[\d,]*(?:\.\d+)?(?![\w/-]|\.\d)")
_ADDRESS = re.compile(r"[\w.+-]+@[\w-]+(?:\.[\w-]+)+|\w+://[^\s\"'<>]+")
_ID = re.compile(r"(?<!\w)(?=[\w/-]*\d)[A-Za-z0-9][\w/-]{2,}")


@dataclass(frozen=True, slots=True)
class Span:
    """A piece of a text, and how it was found."""

    start: int
    end: int
    kind: str


class Said:
    """A message from the user, or a later system message."""

    def __init__(self, text: str) -> None:
        self.text = text
        self.found: dict[str, list[Found]] = {}
        """Values that a schema (by its key) finds here; see `candidates`."""
        self.vectors: dict[tuple[int, int], Any] = {}
        """Encoded spans; see `vectors.span_vector`."""
        self.block: Any = None
        """Encoded clauses; see `vectors.message_block`."""

    @cached_property
    def clauses(self) -> list[Span]:
        """Clauses with at least one word."""
        return _split(self.text, _CLAUSE_END, "clause") or [
            Span(0, len(self.text), "clause")
        ]

    @cached_property
    def phrases(self) -> list[Span]:
        """Spans that may serve as free text: names, quotations, ids, clauses, all."""
        spans = [Span(m.start(), m.end(), "named") for m in self._named()]
        for match in _QUOTED.finditer(self.text):
            group = 1 if match.group(1) is not None else 2
            spans.append(Span(match.start(group), match.end(group), "quoted"))
        spans += [Span(m.start(), m.end(), "id") for m in _ID.finditer(self.text)]
        spans += self.clauses
        spans += _split(self.text, _SENTENCE_END, "sentence")
        text = self.text.strip()
        start = self.text.find(text)
        spans.append(Span(start, start + len(text), "message"))
        return _unique(spans, self.text)

    @cached_property
    def numbers(self) -> list[Span]:
        """Standalone numbers."""
        return [Span(m.start(), m.end(), "number") for m in _NUMBER.finditer(self.text)]

    @cached_property
    def marks(self) -> frozenset[str]:
        """Texts that look like values: ids, numbers, quotations."""
        taken: list[tuple[int, int]] = []
        # A number in a date or an id in a quotation isn't a separate value.
        for pattern in (_QUOTED, _ADDRESS, _ID, _NUMBER):
            for match in pattern.finditer(self.text):
                start, end = match.span(match.lastindex or 0)
                if not any(start < e and s < end for s, e in taken):
                    taken.append((start, end))
        return frozenset(self.text[start:end] for start, end in taken)

    @cached_property
    def quotations(self) -> frozenset[str]:
        """Texts in quotation marks."""
        return frozenset(m[m.lastindex or 0] for m in _QUOTED.finditer(self.text))

    def clause_of(self, position: int) -> int:
        """Index of the clause that contains a character."""
        last = 0
        for i, clause in enumerate(self.clauses):
            if clause.start <= position:
                last = i
        return last

    def _named(self) -> list[re.Match[str]]:
        # A single capitalised word usually starts a sentence, so it isn't a name.
        return [m for m in _NAMED.finditer(self.text) if " " in m.group()]


@dataclass(frozen=True, slots=True)
class Field:
    """One value in a tool result.

    Attributes:
        key: Its path in words, without list positions: "orders order id".
        value: A string, number, boolean or None.
        record: Index of the object that contains it, within its result.
    """

    key: str
    value: Any
    record: int


class Result:
    """A tool's result, flattened."""

    def __init__(self, fields: list[Field], error: str) -> None:
        self.fields = fields
        self.error = error
        self.found: dict[str, list[Found]] = {}
        """Values that a schema (by its key) finds here; see `candidates`."""

    @cached_property
    def record_words(self) -> dict[int, frozenset[str]]:
        """Words of each record, to compare with the user's messages."""
        words: dict[int, set[str]] = {}
        for fld in self.fields:
            mine = words.setdefault(fld.record, set())
            if isinstance(fld.value, str):
                mine.update(text_words(fld.value))
        return {record: frozenset(found) for record, found in words.items()}


Found = tuple[Any, str, Span | Field]
"""A value that a schema finds, its kind and where it is."""

NO_RESULT = Result([], "")


@dataclass(slots=True)
class Called:
    """A tool call and its result."""

    tool: str
    arguments: Mapping[str, Any]
    result: Result = NO_RESULT

    @property
    def ok(self) -> bool:
        """Whether the call has a result that isn't an error."""
        return self.result is not NO_RESULT and not self.result.error


Part = Said | Called


class Reader:
    """Turns messages into parts and caches recent ones."""

    def __init__(self) -> None:
        self._said: dict[str, Said] = {}
        self._results: dict[str, Result] = {}
        self._characters = {"said": 0, "results": 0}

    def read(self, messages: Sequence[Mapping[str, Any]]) -> list[Part]:
        """Returns a conversation's parts in order, without system prompts."""
        parts: list[Part] = []
        waiting: dict[str, Called] = {}
        for message in messages:
            role = message.get("role")
            if role == "user":
                text = content_text(message.get("content"))
                if text.strip():
                    parts.append(self._said_of(text))
            elif role == "assistant":
                for raw in message.get("tool_calls") or ():
                    function = raw.get("function") or {}
                    called = Called(
                        str(function.get("name")), _arguments(function.get("arguments"))
                    )
                    waiting[str(raw.get("id"))] = called
                    parts.append(called)
            elif role == "tool":
                answered = waiting.pop(str(message.get("tool_call_id")), None)
                if answered is not None:
                    content = content_text(message.get("content"))
                    answered.result = self._result_of(content)
        return parts

    def _said_of(self, text: str) -> Said:
        said = self._said.get(text)
        if said is None:
            self._make_room(self._said, "said", len(text))
            said = self._said[text] = Said(text)
        return said

    def _result_of(self, content: str) -> Result:
        result = self._results.get(content)
        if result is None:
            self._make_room(self._results, "results", len(content))
            result = self._results[content] = read_result(content)
        return result

    def _make_room(self, known: dict[str, Any], kind: str, characters: int) -> None:
        full = self._characters[kind] + characters > MAX_CHARACTERS
        if full or len(known) >= MAX_REMEMBERED:
            known.clear()
            self._characters[kind] = 0
        self._characters[kind] += characters


def read_result(content: str) -> Result:
    """Flattens a tool result. Text that isn't JSON becomes a single field, "text"."""
    try:
        data = json.loads(content)
    except (ValueError, RecursionError):
        lowered = content.lstrip().lower()
        error = "error" if lowered.startswith(("error", "exception")) else ""
        return Result([Field("text", content, 0)], error)
    error = ""
    if isinstance(data, dict) and data.get("error"):
        error = str(data["error"])[:40]
    return Result(_flatten(data), error)


def _flatten(data: Any) -> list[Field]:
    fields: list[Field] = []
    records = 0
    # An explicit stack: results may be nested deeper than Python's recursion limit.
    waiting: list[tuple[Any, tuple[str, ...], int]] = [(data, (), 0)]
    while waiting and len(fields) < MAX_FIELDS:
        value, path, record = waiting.pop()
        if isinstance(value, dict):
            records += 1
            inner = [
                (below, (*path[-1:], spaced(str(key))), records)
                for key, below in value.items()
            ]
            waiting += reversed(inner)
        elif isinstance(value, list):
            waiting += [(below, path, record) for below in reversed(value)]
        else:
            fields.append(Field(" ".join(path) or "value", value, record))
    return fields


def text_words(text: str) -> frozenset[str]:
    """Lowercase words of three letters or more."""
    return frozenset(re.findall(r"[^\W\d_]{3,}", text.lower()))


def content_text(content: Any) -> str:
    """The text of a message's content, which may be null or a list of parts."""
    if content is None:
        return ""
    if isinstance(content, str):
        return content
    if isinstance(content, list):
        texts = [p.get("text") for p in content if isinstance(p, Mapping)]
        return " ".join(t for t in texts if isinstance(t, str))
    return str(content)


def spaced(name: str) -> str:
    """An identifier as words: "orderId" and "order_id" become "order id"."""
    apart = re.sub(r"(?<=[a-z0-9])(?=[A-Z])", " ", name)
    return re.sub(r"[_\-.\s]+", " ", apart).strip().lower()


def _arguments(raw: Any) -> Mapping[str, Any]:
    if isinstance(raw, str):
        try:
            raw = json.loads(raw)
        except (ValueError, RecursionError):
            raw = None
    return raw if isinstance(raw, Mapping) else {}


def _split(text: str, ends: re.Pattern[str], kind: str) -> list[Span]:
    spans = []
    start = 0
    for match in [*ends.finditer(text), None]:
        end = match.start() if match else len(text)
        piece = text[start:end]
        stripped = piece.strip(" \t\n.,!?;:")
        if re.search(r"\w", stripped):
            left = start + piece.find(stripped)
            spans.append(Span(left, left + len(stripped), kind))
        if match:
            start = match.end()
    return spans


def _unique(spans: list[Span], text: str) -> list[Span]:
    seen: set[str] = set()
    kept = []
    for span in spans:
        piece = text[span.start : span.end]
        if piece and piece not in seen:
            seen.add(piece)
            kept.append(span)
    return kept


# Messages to the user ----------------------------------------------------------------


def described(name: str, schema: Mapping[str, Any]) -> str:
    """How a question to the user names a parameter."""
    return str(schema.get("description") or spaced(name))


def asking_words(about: str) -> str:
    """The text of a question."""
    first = about.split(maxsplit=1)[0].lower() if about.split() else ""
    article = "" if first in _NO_ARTICLE else "the "
    return f"Could you please tell me {article}{about}?"


def closing_words(last: Called | None) -> str:
    """The text of a final answer: a summary of the last tool result."""
    if last is None:
        return "Thank you for your message. Nothing else needs to be done."
    facts = [
        f"{f.key}: {f.value}" for f in last.result.fields[:6] if f.value is not None
    ]
    # A final answer must not contain questions, even if the tool's texts do.
    return f"It is done. {'; '.join(facts)}.".replace("?", ".")

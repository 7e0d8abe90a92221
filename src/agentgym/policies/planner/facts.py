"""The facts that the heads are given: their names by column, and how well a tool fits.

How well it fits what was said follows from its name and its schema alone. So that
holds for unseen tools: learning that a tool which leaves half of the given values
unused is the wrong one needs no row for that tool.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from enum import IntEnum, auto
from typing import Any

from agentgym.policies.calls.candidates import Candidate
from agentgym.policies.calls.conversation import Said, spaced, text_words

KIND_OF_TOOLS = "<tool>"
"""Names the row that all strangers share."""

_SPEECH = ("clause", "sentence", "message")
"""Kinds of candidates that are whole passages: they hold every value."""


class _Column(IntEnum):
    @staticmethod
    def _generate_next_value_(
        name: str, start: int, count: int, last_values: list[int]
    ) -> int:
        return count


class ToolFact(_Column):
    """Facts about finishing, asking and the tools."""

    FRESH = auto()
    """Some value for the tool's parameters has not been used with it yet."""
    CALLED = auto()
    FAILED = auto()
    JUST_CALLED = auto()
    JUST_FAILED = auto()
    """Of finishing: the user gave values that no call has used."""
    SAID = auto()
    """The user gave values for all parameters of the tool."""
    RESULT_FITS = auto()
    """The last result gave a value for one of the tool's parameters."""
    IS_TOOL = auto()
    FINISH = auto()
    """Finishing, after a call that succeeded."""
    IDLE = auto()
    """Finishing, without any call."""
    ASK = auto()
    ASKED = auto()
    """Asking, after an answer."""
    # Of unseen tools, which have no rows:
    NAMED = auto()
    """Share of the words of the tool's name that the user said."""
    LEFT_OVER = auto()
    """Share of the numbers, ids, addresses and quotations that the user gave for which
    the tool has no parameter left; of finishing: that no call has used."""
    LISTED = auto()
    """The user said one of the values that the tool's parameters list."""
    UNSAID = auto()
    """Share of the tool's required parameters for which the user said no value."""
    LOOSE = auto()
    """Share of the numbers, ids and addresses that the user gave which only a free text
    of the tool could hold."""
    WEAKEST = auto()
    """How much the word of the tool's name that was least to be heard resembles the
    word said that comes closest to it."""


class ValueFact(_Column):
    """Facts about listed values, and about what could be asked for."""

    SAID = auto()
    """The user said it; of a thing to ask for: it is known already."""
    SAID_PLAINLY = auto()
    """The same, where the schema tells nothing of the values but their names."""
    FOUND = auto()
    """The last result holds it."""
    ABSENT = auto()
    """It stands for leaving the parameter out."""
    ANY = auto()


class PlaceFact(_Column):
    """Facts about the places at which a value was found."""

    SAID = auto()
    SAID_LAST = auto()
    IN_RESULT = auto()
    IN_LAST_RESULT = auto()
    USED = auto()
    USED_LAST = auto()
    REPEATED = auto()
    POSITION = auto()
    """Where in the message it stands, 0 to 1."""
    LENGTH = auto()
    RECORD_SAID = auto()
    """Share of the words of its record that the user said."""
    EARLY_RECORD = auto()
    SHARES_NAME = auto()
    """Its field and the parameter share a word."""
    HOLDS_NAME = auto()
    """Its field has all words of the parameter's name."""
    ANY = auto()


def prior(facts: type[IntEnum], weights: Mapping[IntEnum, float]) -> tuple[float, ...]:
    """Weights of all facts, zero where not given."""
    return tuple(weights.get(fact, 0.0) for fact in facts)


def name_words(name: str) -> list[str]:
    """The words of an identifier, without the shortest."""
    return [word for word in spaced(name).split() if len(word) > 2]


def named(words: Sequence[str], said: Iterable[Said]) -> float:
    """Share of a name's words that were said, endings aside."""
    heard = frozenset().union(*(text_words(part.text) for part in said))
    found = sum(any(_akin(word, other) for other in heard) for word in words)
    return found / len(words) if words else 0.0


def unused(said: Iterable[Said], given: Iterable[str]) -> float:
    """Share of the values said that stand in none of those given to tools."""
    values = list(given)
    marks = _marks(said)
    left = sum(not any(mark in value for value in values) for mark in marks)
    return left / len(marks) if marks else 0.0


def left_over(said: Iterable[Said], offers: Sequence[Sequence[Candidate]]) -> float:
    """Share of the values said for which a tool has no parameter left.

    Args:
        said: What the user said.
        offers: For each parameter, the values said that it could be given.
    """
    marks = _marks(said)
    if not marks:
        return 0.0
    texts = [[str(c.value) for c in found] for found in offers]
    fitting = sum(
        any(mark in text for some in texts for text in some) for mark in marks
    )
    return 1.0 - min(fitting, sum(map(bool, texts))) / len(marks)


def loose(
    said: Iterable[Said],
    typed: Sequence[Sequence[Candidate]],
    free: Sequence[Sequence[Candidate]],
) -> float:
    """Share of the values said that only free text could hold, quotations aside.

    A tool that takes any text also takes every id, but it was hardly meant for ids.

    Args:
        said: What the user said.
        typed: For each parameter that wants a certain form, what it could be given.
        free: The same for each that takes any text.
    """
    parts = list(said)
    marks = _marks(parts)
    if not marks:
        return 0.0
    plain = marks - frozenset().union(*(part.quotations for part in parts))
    held, open_ = (
        {str(c.value) for some in part for c in some} for part in (typed, free)
    )
    alone = sum(
        any(mark in text for text in open_) and not any(mark in text for text in held)
        for mark in plain
    )
    return alone / len(marks)


def is_free(schema: Mapping[str, Any]) -> bool:
    """Whether any text is valid."""
    return kind_of_schema(schema) == "<string free>"


def spoken(found: Sequence[Candidate]) -> list[Candidate]:
    """Values that the user said as such, not as a part of a whole passage."""
    return [c for c in found if c.spans and c.kind not in _SPEECH]


def kind_of_value(value: Any, absent: bool) -> str:
    """Names the kind of a listed value."""
    if absent or isinstance(value, bool):
        return f"<value>={value}"
    return "<value>"


def kind_of_schema(schema: Mapping[str, Any]) -> str:
    """Names the kind of values that a schema wants."""
    form = schema.get("format") or ("pattern" if "pattern" in schema else "free")
    return f"<{schema.get('type', 'string')} {form}>"


def _marks(said: Iterable[Said]) -> frozenset[str]:
    return frozenset().union(*(part.marks for part in said))


def _akin(one: str, other: str) -> bool:
    if one == other:
        return True
    short, long = sorted((one, other), key=len)
    return len(short) > 3 and len(long) - len(short) < 3 and long.startswith(short)

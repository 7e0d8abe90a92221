"""Names of the facts that the heads are given, by column."""

from __future__ import annotations

from collections.abc import Mapping
from enum import IntEnum, auto


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
    # Of strangers, that is of tools without rows of their own:
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

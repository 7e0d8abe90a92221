"""Tells regular expressions that a stranger's text could make run for ever.

A tool's schema may hold a `pattern`, and Python's `re` backtracks: `(a+)+b` takes
longer than anybody lives on forty letters, with the interpreter locked all the while.
So a pattern is looked at before it is used. Refused are repetitions of something that
can itself match one text in several ways, unless a character that occurs nowhere else
in it tells where each turn ends (`[a-z]+(-[a-z]+)*` is fine), and three repetitions in
a row that can trade characters with each other (`.*.*.*`).
"""

from __future__ import annotations

import importlib
import re
import string
from collections.abc import Iterable, Iterator
from typing import Any

# Not public, and stable since 3.11; `sre_parse` is the same with a warning.
_parser: Any = importlib.import_module("re._parser")
_constants: Any = importlib.import_module("re._constants")

LONGEST = 512
"""Characters of a pattern at most."""
_MANY = 16
"""Turns from which on a repetition counts as one that may go on and on."""
_MOST_IN_A_ROW = 2
_ALPHABET = frozenset(string.printable) | frozenset("\0é中\N{GRINNING FACE}")
"""Stands for all characters when sets of them are compared."""

_REPEATS = {
    getattr(_constants, name)
    for name in ("MAX_REPEAT", "MIN_REPEAT", "POSSESSIVE_REPEAT")
}
_CATEGORIES = {
    _constants.CATEGORY_DIGIT: r"\d",
    _constants.CATEGORY_NOT_DIGIT: r"\D",
    _constants.CATEGORY_SPACE: r"\s",
    _constants.CATEGORY_NOT_SPACE: r"\S",
    _constants.CATEGORY_WORD: r"\w",
    _constants.CATEGORY_NOT_WORD: r"\W",
}

_Item = tuple[Any, Any]
_Characters = frozenset[str]


def is_safe(pattern: str) -> bool:
    """Whether a valid pattern may be searched for in texts of others."""
    if len(pattern) > LONGEST:
        return False
    try:
        return _is_safe(_flat(_parser.parse(pattern)))
    except (RecursionError, OverflowError):
        return False


def _is_safe(items: list[_Item]) -> bool:
    in_a_row, reach = 0, frozenset[str]()
    for item in items:
        op, inner = item
        if op in _REPEATS:
            least, most, body = inner[0], inner[1], _flat(inner[2])
            if not _is_safe(body):
                return False
            if most > _MANY:
                if any(map(_is_ambiguous, body)) and not _is_separated(body):
                    return False
                mine = _characters([item])
                in_a_row = in_a_row + 1 if reach & mine else 1
                reach = reach | mine if in_a_row > 1 else mine
                if in_a_row > _MOST_IN_A_ROW:
                    return False
            elif least and not _characters(body) & reach:
                reach = frozenset()
        elif op is _constants.BRANCH:
            if not all(_is_safe(_flat(branch)) for branch in inner[1]):
                return False
        elif op in (_constants.ASSERT, _constants.ASSERT_NOT):
            if not _is_safe(_flat(inner[1])):
                return False
        elif op is not _constants.AT and not _characters([item]) & reach:
            reach = frozenset()
    return True


def _flat(items: Iterable[_Item]) -> list[_Item]:
    """A sequence without its groups."""
    return list(_ungrouped(items))


def _ungrouped(items: Iterable[_Item]) -> Iterator[_Item]:
    for op, inner in items:
        if op is _constants.SUBPATTERN:
            yield from _ungrouped(inner[-1])
        elif op is _constants.ATOMIC_GROUP:
            yield from _ungrouped(inner)
        else:
            yield op, inner


def _is_ambiguous(item: _Item) -> bool:
    """Whether an item can match more than one length, or in more than one way."""
    op, inner = item
    if op in _REPEATS:
        return inner[0] != inner[1] or any(map(_is_ambiguous, _flat(inner[2])))
    return op in (_constants.BRANCH, _constants.GROUPREF, _constants.GROUPREF_EXISTS)


def _is_separated(body: list[_Item]) -> bool:
    """Whether every turn begins, or ends, with what occurs nowhere else in it."""
    single = (_constants.LITERAL, _constants.IN)
    for end, rest in ((body[0], body[1:]), (body[-1], body[:-1])):
        if end[0] in single and not _characters([end]) & _characters(rest):
            return True
    return False


def _characters(items: Iterable[_Item]) -> _Characters:
    """What single characters some items can match, all alternatives together."""
    found: set[str] = set()
    for op, inner in _ungrouped(items):
        if op is _constants.LITERAL:
            found.add(chr(inner))
        elif op is _constants.NOT_LITERAL:
            found |= _ALPHABET - {chr(inner)}
        elif op is _constants.IN:
            found |= _listed(inner)
        elif op in _REPEATS:
            found |= _characters(inner[2])
        elif op is _constants.BRANCH:
            for branch in inner[1]:
                found |= _characters(branch)
        elif op not in (_constants.AT, _constants.ASSERT, _constants.ASSERT_NOT):
            found |= _ALPHABET
    return frozenset(found)


def _listed(members: Iterable[_Item]) -> _Characters:
    found: set[str] = set()
    negated = False
    for op, inner in members:
        if op is _constants.NEGATE:
            negated = True
        elif op is _constants.LITERAL:
            found.add(chr(inner))
        elif op is _constants.RANGE:
            low, high = map(chr, inner)
            found |= {low, high, *(c for c in _ALPHABET if low <= c <= high)}
        else:
            category = _CATEGORIES[inner]
            found |= {c for c in _ALPHABET if re.match(category, c)}
    return frozenset(_ALPHABET - found if negated else found)

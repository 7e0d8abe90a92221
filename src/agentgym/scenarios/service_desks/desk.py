"""Desks: their tools, the requests of their users, and the right calls.

A desk is a JSON file in `data`. An intent has several phrasings (`requests`; the
`vague` ones omit the value that `asks` names, and one of the `replies` provides it),
and `courses`: the right calls for each possible state of the world.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache
from importlib import resources
from typing import Any

from agentgym.core.task import Split
from agentgym.scenarios.wording import read_json

_PACKAGE = "agentgym.scenarios.service_desks"
_VALIDATION = ("internet", "museum")
_HELDOUT = ("hotel", "hr")


@dataclass(frozen=True, slots=True)
class Due:
    """A right call and its result; values are in braces."""

    tool: str
    arguments: dict[str, Any]
    result: dict[str, Any]


@dataclass(frozen=True, slots=True)
class Intent:
    """Something that users want."""

    name: str
    requests: Sequence[str]
    courses: Sequence[Sequence[Due]]
    vague: Sequence[str] = ()
    asks: str = ""
    replies: Sequence[str] = ()


@dataclass(frozen=True, slots=True)
class Desk:
    """A desk with its tools and intents.

    Attributes:
        values: The values in braces, by name: a `pattern` of characters, `choices`,
            or a `kind` such as "date".
    """

    name: str
    system: str
    tools: Sequence[dict[str, Any]]
    values: dict[str, dict[str, Any]]
    intents: Sequence[Intent]

    def about(self, tool: str, parameter: str) -> str:
        """How a question to the user names a parameter."""
        definition = next(t for t in self.tools if t["name"] == tool)
        return str(definition["parameters"]["properties"][parameter]["description"])


def desk_names(split: Split) -> list[str]:
    """The desks of a split; splits share no tools."""
    if split == "validation":
        return list(_VALIDATION)
    if split == "heldout":
        return list(_HELDOUT)
    folder = resources.files(_PACKAGE) / "data"
    names = (f.name.removesuffix(".json") for f in folder.iterdir())
    kept = {*_VALIDATION, *_HELDOUT}
    return sorted(n for n in names if n not in kept and not n.startswith("_"))


@lru_cache(maxsize=64)
def load_desk(name: str) -> Desk:
    """Reads a desk."""
    value = read_json(_PACKAGE, f"{name}.json")
    return Desk(
        name,
        value["system"],
        value["tools"],
        value["values"],
        [_intent(**intent) for intent in value["intents"]],
    )


@lru_cache(maxsize=1)
def load_chatter() -> dict[str, list[str]]:
    """Texts that users write around a request, at any desk."""
    chatter: dict[str, list[str]] = read_json(_PACKAGE, "_chatter.json")
    return chatter


def _intent(courses: list[list[dict[str, Any]]], **value: Any) -> Intent:
    plans = [
        [Due(call["call"], call["with"], call["gives"]) for call in course]
        for course in courses
    ]
    return Intent(courses=plans, **value)

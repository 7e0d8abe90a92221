"""Desks: their tools, the requests of their users, and the right calls.

A desk is a JSON file in `data`. An intent has several phrasings (`requests`; the
`vague` ones omit the value that `asks` names, and one of the `replies` provides it),
and `courses`: the right calls for each possible state of the world.
"""

from __future__ import annotations

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
    requests: tuple[str, ...]
    courses: tuple[tuple[Due, ...], ...]
    vague: tuple[str, ...] = ()
    asks: str = ""
    replies: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Desk:
    """A desk with its tools and intents.

    Attributes:
        values: The values in braces, by name: a `pattern` of characters, `choices`,
            or a `kind` such as "date".
    """

    name: str
    system: str
    tools: tuple[dict[str, Any], ...]
    values: dict[str, dict[str, Any]]
    intents: tuple[Intent, ...]

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
        tuple(value["tools"]),
        value["values"],
        tuple(_intent(intent) for intent in value["intents"]),
    )


@lru_cache(maxsize=1)
def load_chatter() -> dict[str, list[str]]:
    """Texts that users write around a request, at any desk."""
    chatter: dict[str, list[str]] = read_json(_PACKAGE, "_chatter.json")
    return chatter


def _intent(value: dict[str, Any]) -> Intent:
    return Intent(
        value["name"],
        tuple(value["requests"]),
        tuple(
            tuple(Due(call["call"], call["with"], call["gives"]) for call in course)
            for course in value["courses"]
        ),
        tuple(value.get("vague", ())),
        value.get("asks", ""),
        tuple(value.get("replies", ())),
    )

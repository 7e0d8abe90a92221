"""The frozen wording of messages to the user: questions and closing answers."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from agentgym.core.tools import Tool
from agentgym.policies.calls.candidates import NOTHING
from agentgym.policies.calls.conversation import Called, spaced

_NO_ARTICLE = frozenset(
    "a an the this that these those your my their what which who whose when where why "
    "how whether if".split()
)
"""First words of descriptions that no article goes before."""


def parameter_schemas(tool: Tool) -> dict[str, Mapping[str, Any]]:
    """Schemas of all parameters, those included that are only said to be required."""
    given: dict[str, Any] = {**tool.properties}
    for name in sorted(tool.required - given.keys()):
        given[name] = True
    return {
        name: ({} if schema else NOTHING) if isinstance(schema, bool) else schema
        for name, schema in given.items()
    }


def described(name: str, schema: Mapping[str, Any]) -> str:
    """What a parameter is called when the user is asked for it."""
    return str(schema.get("description") or spaced(name))


def asking_words(about: str) -> str:
    """The wording of a question."""
    first = about.split(maxsplit=1)[0].lower() if about.split() else ""
    article = "" if first in _NO_ARTICLE else "the "
    return f"Could you please tell me {article}{about}?"


def closing_words(last: Called | None) -> str:
    """The wording of a closing answer: what the last tool said, in short."""
    if last is None:
        return "Thank you for your message. Nothing else needs to be done."
    facts = [
        f"{f.key}: {f.value}" for f in last.result.fields[:6] if f.value is not None
    ]
    # A closing answer asks nothing, whatever a tool's texts say.
    return f"It is done. {'; '.join(facts)}.".replace("?", ".")

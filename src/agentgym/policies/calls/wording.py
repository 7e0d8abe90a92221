"""The fixed wording of messages to the user: questions and final answers."""

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
"""First words of descriptions that take no article."""


def parameter_schemas(tool: Tool) -> dict[str, Mapping[str, Any]]:
    """Schemas of all parameters, including those that are only listed as required."""
    given: dict[str, Any] = {**tool.properties}
    for name in sorted(tool.required - given.keys()):
        given[name] = True
    return {
        name: ({} if schema else NOTHING) if isinstance(schema, bool) else schema
        for name, schema in given.items()
    }


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

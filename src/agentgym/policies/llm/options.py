"""What could be done in a state: every call that the schemas and the chat allow.

An option is a tool call with all its arguments, a question for something that a tool
needs, or the closing answer. Values come from `policies.calls.candidates`: those
that a schema lists, and those that the conversation offers. So every option is a valid
call, and no rule here depends on a scenario.
"""

from __future__ import annotations

import itertools
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal

from agentgym.core.tools import Tool
from agentgym.policies.calls.candidates import (
    choices,
    find_candidates,
    is_choice,
    parameter_schemas,
    schema_key,
)
from agentgym.policies.calls.conversation import (
    Called,
    Part,
    asking_words,
    closing_words,
    described,
)

MAX_CALLS = 1024
"""Calls of one tool that a state offers; long lists of values are cut evenly."""

_ABSENT: Any = object()
# Keywords of an object schema that hold whenever each parameter is valid alone.
_PLAIN = frozenset(
    "type properties required additionalProperties description title "
    "$defs definitions $schema".split()
)


@dataclass(frozen=True, slots=True, eq=False)
class Option:
    """One thing that could be done.

    Attributes:
        group: What is chosen first: 0 to finish, 1 to ask, then the tools in order.
            Options of one group differ in what is asked for, or in the arguments.
        text: The words, for a message.
        tool: What is called, for a call.
    """

    kind: Literal["call", "ask", "finish"]
    group: int
    text: str = ""
    tool: str = ""
    arguments: Mapping[str, Any] | None = None


@dataclass(frozen=True, slots=True, eq=False)
class _Parameter:
    name: str
    schema: Mapping[str, Any]
    key: str
    required: bool
    listed: list[Any] | None


class ToolSet:
    """The tools of a request, compiled."""

    def __init__(self, tools: Sequence[Tool]) -> None:
        """Compiles tools.

        Raises:
            ScenarioError: A tool's parameters aren't a valid JSON schema.
        """
        self.tools = list(tools)
        for tool in tools:
            tool.check_arguments({})
        self._parameters = [
            [_compile(tool, name, s) for name, s in parameter_schemas(tool).items()]
            for tool in tools
        ]
        self.askable: dict[str, str] = {}
        for parameters in self._parameters:
            for p in parameters:
                if p.required and p.listed is None:
                    self.askable.setdefault(p.name, described(p.name, p.schema))

    def options(self, parts: Sequence[Part]) -> list[Option]:
        """Everything that could be done now, the closing answer first."""
        last = next((p for p in reversed(parts) if isinstance(p, Called)), None)
        found = [Option("finish", 0, closing_words(last))]
        asked = dict.fromkeys(asking_words(about) for about in self.askable.values())
        found += [Option("ask", 1, text) for text in asked]
        for t, tool in enumerate(self.tools):
            found += [
                Option("call", 2 + t, tool=tool.name, arguments=arguments)
                for arguments in self._calls(t, parts)
            ]
        return found

    def _calls(self, t: int, parts: Sequence[Part]) -> list[dict[str, Any]]:
        tool, parameters = self.tools[t], self._parameters[t]
        values: list[list[Any]] = []
        for p in parameters:
            if p.listed is not None:
                offered = list(p.listed)
            else:
                candidates = find_candidates(
                    p.schema, parts, tool.parameters, key=p.key
                )
                offered = [c.value for c in candidates]
            if not p.required:
                offered.append(_ABSENT)
            values.append(offered)
        calls = [
            {
                p.name: value
                for p, value in zip(parameters, chosen, strict=True)
                if value is not _ABSENT
            }
            for chosen in itertools.product(*_cut(values))
        ]
        if not _PLAIN.issuperset(tool.parameters):
            calls = [c for c in calls if tool.check_arguments(c) is None]
        return calls


def _compile(tool: Tool, name: str, schema: Mapping[str, Any]) -> _Parameter:
    listed = choices(schema, tool.parameters) if is_choice(schema) else None
    return _Parameter(
        name, schema, schema_key(schema), name in tool.required, listed or None
    )


def _cut(values: list[list[Any]]) -> list[list[Any]]:
    """Shortens the longest lists until few enough combinations are left."""
    kept = [len(v) for v in values]
    total = 1
    for count in kept:
        total *= count
    while total > MAX_CALLS:
        longest = max(range(len(kept)), key=lambda i: kept[i])
        total = total // kept[longest] * (kept[longest] - 1)
        kept[longest] -= 1
    # An optional parameter may always be left out: the last value stays.
    return [
        v if len(v) == n else [*v[: n - 1], v[-1]]
        for v, n in zip(values, kept, strict=True)
    ]

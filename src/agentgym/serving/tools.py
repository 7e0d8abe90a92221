"""The tool definitions of requests: validated once, then cached by content.

Validating a JSON schema takes longer than a decision, and policies cache what they
compute for a tool. Clients send the same definitions with every request, so equal
definitions become the same `Tool` objects, within a memory limit.
"""

from __future__ import annotations

import json
import re
from dataclasses import dataclass
from typing import Any

from agentgym.core.schemas import SchemaProblem, check_schema
from agentgym.core.tools import Tool
from agentgym.serving.errors import ApiError, invalid

MAX_TOOLS = 128
MAX_DEFINITIONS = 256 << 10
"""Maximum characters of all definitions together, as JSON."""
MAX_VALUES = 1_000
"""Maximum number of parameters and enum values of all tools: policies read each."""
_SHELF_CHARACTERS = 8 << 20
"""Maximum characters of the cached definitions."""

_NAME = re.compile(r"[A-Za-z0-9_.:/-]{1,128}")


@dataclass(frozen=True, slots=True)
class Tools:
    """The tools of a request.

    Attributes:
        offered: The tools, in the order of the request.
        text: Their definitions as JSON.
    """

    offered: tuple[Tool, ...]
    text: str


NO_TOOLS = Tools((), "")


class ToolCache:
    """Caches tools by their definitions; drops the least recently used.

    Not thread-safe: use it in the thread of the event loop only.
    """

    def __init__(self, limit: int = _SHELF_CHARACTERS) -> None:
        self._limit = limit
        self._known: dict[str, Tools] = {}
        self.size = 0
        """Characters of the cached definitions."""

    def get(self, definitions: Any) -> Tools:
        """Returns the tools of a request's `tools`, which may be null.

        Raises:
            ApiError: A definition is invalid, or there are too many.
        """
        if definitions is None or definitions == []:
            return NO_TOOLS
        if not isinstance(definitions, list):
            raise invalid("tools must be a list of function definitions.", "tools")
        key = _key(definitions)
        known = self._known.pop(key, None)
        if known is None:
            known = Tools(parse_tools(definitions), key)
            self.size += len(key)
        self._known[key] = known
        while self.size > self._limit and len(self._known) > 1:
            oldest = next(iter(self._known))
            del self._known[oldest]
            self.size -= len(oldest)
        return known


def _key(definitions: list[Any]) -> str:
    if len(definitions) > MAX_TOOLS:
        raise invalid(
            f"Too many tools: {len(definitions)}. At most {MAX_TOOLS} are allowed.",
            "tools",
            "too_many_tools",
        )
    try:
        key = json.dumps(definitions)
    except RecursionError:
        raise invalid("tools are nested too deeply.", "tools") from None
    if len(key) > MAX_DEFINITIONS:
        raise invalid(
            f"The tools are too long: {len(key):,} characters. At most"
            f" {MAX_DEFINITIONS:,} are allowed.",
            "tools",
            "too_many_tools",
        )
    return key


def parse_tools(definitions: list[Any]) -> tuple[Tool, ...]:
    """Parses tool definitions.

    Raises:
        ApiError: A definition is invalid.
    """
    tools: dict[str, Tool] = {}
    values = 0
    for i, definition in enumerate(definitions):
        tool, size = _parse_tool(definition, f"tools[{i}]")
        if tool.name in tools:
            raise invalid(f"Two tools are named '{tool.name}'.", f"tools[{i}]")
        tools[tool.name] = tool
        values += size
        if values > MAX_VALUES:
            raise invalid(
                f"The tools have too many parameters and enum values: at most"
                f" {MAX_VALUES:,} in total are allowed.",
                "tools",
                "too_many_tools",
            )
    return tuple(tools.values())


def _parse_tool(definition: Any, where: str) -> tuple[Tool, int]:
    function = definition.get("function") if isinstance(definition, dict) else None
    if not isinstance(function, dict) or definition.get("type") != "function":
        raise invalid(
            f'{where} must be {{"type": "function", "function": {{...}}}}.', where
        )
    name = function.get("name")
    if not isinstance(name, str) or not _NAME.fullmatch(name):
        raise invalid(
            f"{where}.function.name must be 1 to 128 letters, digits or any of"
            " '_-.:/'.",
            f"{where}.function.name",
        )
    if not isinstance(function.get("description") or "", str):
        raise invalid(
            f"The description of tool '{name}' must be a string.",
            f"{where}.function.description",
        )
    parameters = function.get("parameters")
    where = f"{where}.function.parameters"
    if parameters is None:
        parameters = {}
    if not isinstance(parameters, dict) or parameters.get("type", "object") != "object":
        raise _bad_schema(name, where, "it must describe an object")
    size = _check_schema(name, where, parameters)
    return Tool.from_openai(definition), size


def _check_schema(name: str, where: str, schema: dict[str, Any]) -> int:
    """Returns the number of parameters and enum values."""
    try:
        check_schema(schema)
    except SchemaProblem as problem:
        raise _bad_schema(name, where, str(problem)) from None
    return _listed(schema)


def _listed(schema: Any) -> int:
    if isinstance(schema, list):
        return sum(map(_listed, schema))
    if not isinstance(schema, dict):
        return 0
    lists = (schema.get(key) for key in ("enum", "properties"))
    own = sum(len(values) for values in lists if isinstance(values, list | dict))
    return own + sum(map(_listed, schema.values()))


def _bad_schema(name: str, where: str, reason: str) -> ApiError:
    return invalid(
        f"Tool '{name}' has an invalid parameter schema: {reason}.",
        where,
        "invalid_function_parameters",
    )

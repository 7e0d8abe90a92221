"""Finds the tool call in a text that a language model wrote.

Supports the usual ways to write calls: JSON objects with `name` and `arguments` (or
`parameters`), alone, in a list, fenced, or within `<tool_call>` tags; and pythonic
calls such as `[lookup(order="1")]`. Anything else is a message to the user.
"""

from __future__ import annotations

import ast
import json
import re
from collections.abc import Iterator, Mapping
from typing import Any

_FENCE = re.compile(r"```(?:json|python|tool_call)?\s*(.*?)```", re.DOTALL)
_TAG = re.compile(r"<(tool_call|function_call|tool)>\s*(.*?)\s*(?:</\1>|$)", re.DOTALL)


def parse_call(text: str) -> tuple[str, dict[str, Any]] | None:
    """The first call in a text; None if it is a message."""
    for piece in _pieces(text):
        call = _from_json(piece) or _from_python(piece)
        if call is not None:
            return call
    return None


def _pieces(text: str) -> Iterator[str]:
    """Where a call may stand, the most explicit place first."""
    yield from (m.group(2) for m in _TAG.finditer(text))
    yield from (m.group(1) for m in _FENCE.finditer(text))
    yield text.strip()
    brace = text.find("{")
    if brace > 0:
        yield text[brace:]


def _from_json(text: str) -> tuple[str, dict[str, Any]] | None:
    try:
        # Ignore what follows the object.
        value, _ = json.JSONDecoder().raw_decode(text)
    except (ValueError, RecursionError):
        return None
    if isinstance(value, list) and value:
        value = value[0]
    if not isinstance(value, Mapping):
        return None
    value = value.get("function", value)
    if not isinstance(value, Mapping):
        return None
    arguments = value.get("arguments", value.get("parameters", {}))
    if isinstance(arguments, str):
        try:
            arguments = json.loads(arguments)
        except ValueError:
            return None
    if not isinstance(value.get("name"), str) or not isinstance(arguments, Mapping):
        return None
    return value["name"], dict(arguments)


def _from_python(text: str) -> tuple[str, dict[str, Any]] | None:
    try:
        node = ast.parse(text, mode="eval").body
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        return None
    if isinstance(node, ast.List) and node.elts:
        node = node.elts[0]
    if not isinstance(node, ast.Call) or not isinstance(node.func, ast.Name):
        return None
    try:
        arguments = {
            keyword.arg: ast.literal_eval(keyword.value)
            for keyword in node.keywords
            if keyword.arg is not None
        }
    except (ValueError, TypeError, SyntaxError, RecursionError):
        return None
    return (node.func.id, arguments) if not node.args else None

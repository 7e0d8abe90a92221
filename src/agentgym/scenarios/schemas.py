"""Shorthand for the JSON schemas of tool parameters."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any


def parameters(**properties: Mapping[str, Any]) -> dict[str, Any]:
    """An object with exactly these properties; those with `optional` may be omitted."""
    return {
        "type": "object",
        "properties": {
            name: {k: v for k, v in schema.items() if k != "optional"}
            for name, schema in properties.items()
        },
        "required": [n for n, s in properties.items() if not s.get("optional")],
        "additionalProperties": False,
    }


def one_of(values: Mapping[str, str], description: str) -> dict[str, Any]:
    """One of several values, each with a description."""
    listed = [{"const": v, "description": about} for v, about in values.items()]
    return {"type": "string", "description": description, "oneOf": listed}

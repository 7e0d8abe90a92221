"""Lines of tasks files, for tests."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any


def tool(name: str, /, **properties: Any) -> dict[str, Any]:
    """A definition; all properties are required, unless they have a default."""
    required = [n for n, schema in properties.items() if "default" not in schema]
    return {
        "type": "function",
        "function": {
            "name": name,
            "description": f"Does {name}.",
            "parameters": {
                "type": "object",
                "properties": properties,
                "required": required,
            },
        },
    }


def task(**fields: Any) -> dict[str, Any]:
    """A line that has no mistakes, with some fields changed; None leaves one out."""
    line = {
        "id": "a",
        "messages": [{"role": "user", "content": "Weather in Oslo?"}],
        "tools": [tool("weather", city={"type": "string"})],
        "expected": [{"name": "weather", "arguments": {"city": "Oslo"}}],
        **fields,
    }
    return {name: value for name, value in line.items() if value is not None}


Write = Callable[..., Path]

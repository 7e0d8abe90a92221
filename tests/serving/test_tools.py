"""Tool definitions from elsewhere: checked, known by content, bounded."""

from __future__ import annotations

import json
from typing import Any

import pytest

from agentgym.serving.errors import ApiError
from agentgym.serving.tools import (
    MAX_DEFINITIONS,
    MAX_TOOLS,
    MAX_VALUES,
    NO_TOOLS,
    ToolCache,
    parse_tools,
)


def _tool(name: Any = "find", parameters: Any = None, **more: Any) -> dict[str, Any]:
    function = {"name": name, "parameters": parameters, **more}
    return {"type": "function", "function": function}


def _with(schema: Any) -> dict[str, Any]:
    return _tool(parameters={"type": "object", "properties": {"x": schema}})


def _nested(depth: int) -> Any:
    schema: Any = {"type": "string"}
    for _ in range(depth):
        schema = {"type": "array", "items": schema}
    return schema


def test_what_is_right_is_read() -> None:
    nested = {
        "type": "object",
        "properties": {"a": {"$ref": "#/$defs/item"}, "b": {"enum": [1, "x", None]}},
        "$defs": {"item": {"type": "array", "items": {"pattern": "^A-\\d+$"}}},
    }
    first, second, third = parse_tools(
        [
            _tool("a.b:c/d-e_1", nested, description="Finds.", strict=True),
            _tool("plain", description=None),
            _tool("empty", {}),
        ]
    )
    assert first.parameters == nested and first.description == "Finds."
    assert second.description == "" and second.properties == third.properties == {}


@pytest.mark.parametrize(
    ("definition", "part"),
    [
        (None, "tools[0] must be"),
        ({"type": "custom", "custom": {"name": "x"}}, "tools[0] must be"),
        ({"type": "function", "function": {}}, "name must be 1 to 128"),
        (_tool(""), "name must be 1 to 128"),
        (_tool("<finish>"), "name must be 1 to 128"),
        (_tool("x" * 129), "name must be 1 to 128"),
        (_tool(7), "name must be 1 to 128"),
        (_tool(description=["x"]), "description of tool 'find' must be a string"),
        (_tool(parameters=[1]), "must describe an object"),
        (_tool(parameters={"type": "string"}), "must describe an object"),
        (_with({"type": "strin"}), "properties.x.type"),
        (_with({"type": "string", "minLength": -1}), "minLength"),
        (_with({"required": "x"}), "required"),
        (_with(7), "properties.x"),
        (_with({"pattern": "("}), "missing )"),
        (_with({"pattern": "(?=a)b"}), "lookaround"),
        (_with({"patternProperties": {r"(a)\1": {}}}), "back-references"),
        (_with({"$ref": "http://127.0.0.1:1/x"}), "points outside"),
        (_with({"$ref": "file:///etc/passwd"}), "points outside"),
        (_with({"$dynamicRef": "other.json"}), "points outside"),
        (_with(_nested(100)), "nested deeper"),
    ],
)
def test_what_is_wrong_is_said(definition: Any, part: str) -> None:
    with pytest.raises(ApiError) as raised:
        ToolCache().get([definition])
    assert part in raised.value.message
    assert raised.value.status == 400
    assert str(raised.value.param).startswith("tools[0]")
    assert "\n" not in raised.value.message and raised.value.message.endswith(".")


@pytest.mark.parametrize(
    "definitions",
    [
        [_tool(f"t{i}") for i in range(MAX_TOOLS + 1)],
        [_tool(description="x" * MAX_DEFINITIONS)],
        [_with({"enum": list(range(MAX_VALUES))}), _tool("other", {"enum": [1, 2]})],
    ],
)
def test_too_many(definitions: Any) -> None:
    with pytest.raises(ApiError) as raised:
        ToolCache().get(definitions)
    assert raised.value.code == "too_many_tools"


@pytest.mark.parametrize("definitions", ["x", {"a": 1}, 7])
def test_no_list(definitions: Any) -> None:
    with pytest.raises(ApiError, match="must be a list"):
        ToolCache().get(definitions)


def test_two_of_one_name() -> None:
    with pytest.raises(ApiError, match="Two tools are named 'find'"):
        ToolCache().get([_tool(), _tool()])


def test_equal_definitions_are_the_same_tools() -> None:
    shelf = ToolCache()
    definitions = [_tool("a"), _tool("b")]
    first = shelf.get(definitions)
    assert shelf.get(json.loads(json.dumps(definitions))) is first
    assert shelf.get(definitions[::-1]) is not first
    assert shelf.get(None) is shelf.get([]) is NO_TOOLS
    with pytest.raises(ApiError):
        shelf.get([_tool("")])
    assert len(shelf._known) == 2


def test_the_shelf_is_bounded() -> None:
    shelf = ToolCache(limit=2_000)
    kept = [_tool("kept")]
    first = shelf.get(kept)
    for i in range(100):
        shelf.get([_tool(f"t{i}", description="x" * 100)])
        assert shelf.get(kept) is first
        assert shelf.size == sum(map(len, shelf._known)) <= 2_000
    assert len(shelf._known) > 2

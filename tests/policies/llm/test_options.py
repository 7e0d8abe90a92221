"""Every option is a valid call, whatever the schemas are."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from agentgym.core.tools import Tool
from agentgym.errors import ScenarioError
from agentgym.policies.calls.conversation import Reader
from agentgym.policies.llm.options import MAX_CALLS, Option, ToolSet
from agentgym.policies.llm.parse import parse_call
from agentgym.policies.llm.prompt import call_json, pythonic

CHAT = [
    {
        "role": "user",
        "content": "Book a table for 4 on 2026-05-01 at 12 Elm Street, Springfield. "
        "I am ann@example.org, and 7 or 9.5 would do. Say “see you there”!",
    },
    {
        "role": "assistant",
        "content": None,
        "tool_calls": [
            {
                "id": "c0",
                "type": "function",
                "function": {"name": "look", "arguments": "{}"},
            }
        ],
    },
    {
        "role": "tool",
        "tool_call_id": "c0",
        "content": json.dumps({"free": [{"id": "T-1", "seats": 4}], "open": True}),
    },
]

names = st.text("abcdefghij_", min_size=1, max_size=8)
simple = st.one_of(
    st.just({"type": "string"}),
    st.just({"type": "boolean"}),
    st.just({"type": "null"}),
    st.fixed_dictionaries(
        {"type": st.sampled_from(["integer", "number"])},
        optional={"minimum": st.integers(-5, 5), "maximum": st.integers(6, 50)},
    ),
    st.fixed_dictionaries(
        {
            "type": st.just("string"),
            "format": st.sampled_from(["date", "email", "date-time", "uri", "uuid"]),
        }
    ),
    st.fixed_dictionaries(
        {"type": st.just("string")},
        optional={"minLength": st.integers(0, 9), "maxLength": st.integers(9, 40)},
    ),
    st.just({"type": "string", "pattern": "^T-[0-9]$"}),
    st.builds(
        lambda v: {"enum": v},
        st.lists(
            st.one_of(names, st.integers(0, 9), st.booleans(), st.none()),
            min_size=1,
            max_size=4,
            unique_by=repr,
        ),
    ),
    st.builds(lambda v: {"const": v}, names),
    st.builds(
        lambda a, b: {"type": [a, b]},
        st.sampled_from(["string", "integer"]),
        st.sampled_from(["null", "boolean"]),
    ),
)


def nested(inner: st.SearchStrategy[Any]) -> st.SearchStrategy[Any]:
    arrays = st.fixed_dictionaries(
        {"type": st.just("array"), "items": inner},
        optional={
            "minItems": st.integers(0, 3),
            "maxItems": st.integers(1, 4),
            "uniqueItems": st.booleans(),
        },
    )
    either = st.builds(lambda a, b: {"anyOf": [a, b]}, inner, inner)
    return st.one_of(arrays, either, objects(inner))


@st.composite
def objects(draw: Any, inner: st.SearchStrategy[Any]) -> dict[str, Any]:
    properties = draw(st.dictionaries(names, inner, max_size=4))
    required = [name for name in properties if draw(st.booleans())]
    schema: dict[str, Any] = {
        "type": "object",
        "properties": properties,
        "required": required,
    }
    if draw(st.booleans()):
        schema["additionalProperties"] = False
    if draw(st.integers(0, 9)) == 0:
        schema["minProperties"] = draw(st.integers(0, 2))
    return schema


schemas = objects(st.recursive(simple, nested, max_leaves=4))
tools = st.lists(schemas, min_size=1, max_size=3).map(
    lambda all_: [Tool(f"tool_{i}", "Does it.", s) for i, s in enumerate(all_)]
)


@settings(max_examples=1000, suppress_health_check=list(HealthCheck))
@given(tools)
def test_only_valid_calls(made: list[Tool]) -> None:
    parts = Reader().read(CHAT)
    options = ToolSet(made).options(parts)
    assert options[0].kind == "finish"
    known = {tool.name: tool for tool in made}
    for option in options:
        if option.kind != "call":
            assert option.text
            continue
        arguments = dict(option.arguments or {})
        assert known[option.tool].check_arguments(arguments) is None
        # What the model would write means the same call, in both ways of writing it.
        for text in (
            call_json(option.tool, arguments),
            pythonic(option.tool, arguments),
        ):
            found = parse_call(text)
            assert found is not None and found[0] == option.tool
            assert json.dumps(found[1]) == json.dumps(arguments)
    for group in {o.group for o in options}:
        assert sum(o.group == group for o in options) <= MAX_CALLS or group < 2


def calls(tool: Tool, chat: list[dict[str, Any]] = CHAT) -> list[Option]:
    options = ToolSet([tool]).options(Reader().read(chat))
    return [option for option in options if option.kind == "call"]


def test_optional_parameters_may_be_left_out() -> None:
    tool = Tool(
        "book",
        "Books.",
        {
            "type": "object",
            "properties": {
                "on": {"type": "string", "format": "date"},
                "note": {"type": "string"},
            },
            "required": ["on"],
        },
    )
    found = [dict(o.arguments or {}) for o in calls(tool)]
    assert {"on": "2026-05-01"} in found
    assert {"on": "2026-05-01", "note": "see you there"} in found


def test_a_tool_without_values_cannot_be_called_but_asked_for() -> None:
    tool = Tool(
        "pay",
        "Pays.",
        {
            "type": "object",
            "properties": {"iban": {"type": "string", "pattern": "^DE[0-9]{20}$"}},
            "required": ["iban"],
        },
    )
    options = ToolSet([tool]).options(Reader().read(CHAT))
    assert [o.kind for o in options] == ["finish", "ask"]
    assert options[1].text == "Could you please tell me the iban?"


def test_many_combinations_are_cut_and_stay_varied() -> None:
    many = {"enum": [f"v{i}" for i in range(40)]}
    tool = Tool(
        "pick",
        "Picks.",
        {
            "type": "object",
            "properties": {"a": many, "b": many, "c": many},
            "required": ["a", "b"],
        },
    )
    found = [dict(o.arguments or {}) for o in calls(tool)]
    assert 32 <= len(found) <= MAX_CALLS
    for name in "abc":
        assert len({call.get(name) for call in found}) >= 3
    assert any("c" not in call for call in found)


def test_a_broken_schema_is_named() -> None:
    tool = Tool("odd", "Odd.", {"type": "object", "properties": {"a": {"type": 3}}})
    with pytest.raises(ScenarioError, match=r"Tool 'odd'.*invalid JSON schema"):
        ToolSet([tool])

"""Candidates: whatever the schema says, every value conforms to it."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from jsonschema import Draft202012Validator

from agentgym.policies.calls.candidates import (
    MAX_CANDIDATES,
    choices,
    described_values,
    find_candidates,
    is_choice,
)
from agentgym.policies.calls.conversation import MAX_SCHEMAS, Part, Reader, Said

TEXT = (
    "I am Ann Lee (ann@example.org), order AB-1234 of 2024-02-31 and 2024-03-05. "
    'It costs 12.50, I want 3 of "blue socks". Host 300.1.1.1 or 10.0.0.1, since '
    "2024-03-05T10:11:12Z at 10:11:12Z, https://example.org/a?b=1, "
    "123e4567-e89b-12d3-a456-426614174000, call +49 30 123456. Minus -7!"
)
RESULT = {
    "orders": [{"id": "ZX-9999", "n": 7, "price": 2.0}],
    "e": "b@c.de",
    "ok": True,
}


def _parts(text: str = TEXT, result: Any = RESULT) -> list[Part]:
    function = {"name": "find", "arguments": "{}"}
    return Reader().read(
        [
            {"role": "user", "content": text},
            {"role": "assistant", "tool_calls": [{"id": "a", "function": function}]},
            {"role": "tool", "tool_call_id": "a", "content": json.dumps(result)},
        ]
    )


PARTS = _parts()


def _valid(schema: Any, value: Any) -> bool:
    checker = Draft202012Validator.FORMAT_CHECKER
    return Draft202012Validator(schema, format_checker=checker).is_valid(value)


def _optional(**fields: st.SearchStrategy[Any]) -> st.SearchStrategy[dict[str, Any]]:
    return st.fixed_dictionaries({}, optional=fields)


def _typed(kind: Any, rest: st.SearchStrategy[dict[str, Any]]) -> Any:
    return rest.map(lambda more: {"type": kind, **more})


_SCALARS = st.sampled_from(["blue", "red", 1, 2.5, True, None, "3"])
_BOUNDS = st.one_of(st.integers(-9, 20), st.floats(-9, 20))
_FORMATS = (
    "email idn-email date date-time time uri uuid ipv4 hostname phone odd".split()
)
_NUMBERS = _optional(
    minimum=_BOUNDS,
    maximum=_BOUNDS,
    exclusiveMinimum=_BOUNDS,
    multipleOf=st.sampled_from([1, 2, 0.5]),
    default=_SCALARS,
)
_STRINGS = _optional(
    format=st.sampled_from(_FORMATS),
    pattern=st.sampled_from(["^[A-Z]{2}-\\d{4}$", "\\d+", "^a", "e", "[A-Z]\\w+"]),
    minLength=st.integers(0, 12),
    maxLength=st.integers(0, 40),
    default=_SCALARS,
)
_LEAVES = st.one_of(
    st.lists(_SCALARS, max_size=4).map(lambda values: {"enum": values}),
    st.builds(
        lambda values, kind: {"enum": values, "type": kind},
        st.lists(_SCALARS, max_size=4),
        st.sampled_from(["string", "integer", "boolean"]),
    ),
    st.just({"type": "boolean"}),
    _SCALARS.map(lambda value: {"const": value}),
    st.booleans(),
    _typed("integer", _NUMBERS),
    _typed("number", _NUMBERS),
    _typed("string", _STRINGS),
    _typed(["string", "null"], _STRINGS),
    _typed(["integer", "null"], _NUMBERS),
)


def _nested(inner: st.SearchStrategy[Any]) -> st.SearchStrategy[Any]:
    arrays = _optional(
        items=inner,
        minItems=st.integers(0, 3),
        maxItems=st.integers(0, 5),
        uniqueItems=st.booleans(),
    )
    objects = st.builds(
        lambda properties, required: {
            "type": "object",
            "properties": properties,
            "required": required,
            "additionalProperties": False,
        },
        st.dictionaries(st.sampled_from("abc"), inner, max_size=3),
        st.lists(st.sampled_from("abc"), unique=True, max_size=2),
    )
    branches = st.lists(inner, min_size=1, max_size=3)
    return st.one_of(
        _typed("array", arrays),
        objects,
        branches.map(lambda some: {"anyOf": some}),
        branches.map(lambda some: {"oneOf": some}),
        branches.map(lambda some: {"anyOf": some, "minLength": 6, "minimum": 3}),
    )


SCHEMAS = st.recursive(_LEAVES, _nested, max_leaves=5).filter(
    lambda schema: isinstance(schema, dict)
)


@settings(max_examples=300)
@given(SCHEMAS)
def test_every_candidate_is_valid(schema: dict[str, Any]) -> None:
    found = find_candidates(schema, PARTS)
    for candidate in found:
        assert _valid(schema, candidate.value), candidate
    assert len(found) <= MAX_CANDIDATES
    if is_choice(schema):
        assert all(_valid(schema, value) for value in choices(schema))
    again = find_candidates(json.loads(json.dumps(schema)), _parts())
    assert [(repr(c.value), c.kind) for c in again] == [
        (repr(c.value), c.kind) for c in found
    ]


def _values(schema: dict[str, Any], *parts: Part) -> list[Any]:
    return [c.value for c in find_candidates(schema, parts or PARTS)]


def test_values_from_text_and_results() -> None:
    pattern = {"type": "string", "pattern": "^[A-Z]{2}-\\d{4}$"}
    found = find_candidates(pattern, PARTS)
    assert [c.value for c in found] == ["ZX-9999", "AB-1234"]
    assert found[0].fields and not found[0].spans
    assert found[1].spans and not found[1].fields
    emails = _values({"type": "string", "format": "email"})
    assert emails == ["b@c.de", "ann@example.org"]
    assert _values({"type": "string", "format": "date"}) == ["2024-03-05"]
    assert _values({"type": "string", "format": "ipv4"}) == ["10.0.0.1"]
    integers = _values({"type": "integer"})
    assert 7 in integers and 3 in integers and 2 in integers
    assert all(type(value) is int for value in integers)
    assert 12.5 in _values({"type": "number"})
    free = _values({"type": "string"})
    assert "blue socks" in free and "ZX-9999" in free


def test_a_value_found_twice_is_one_candidate() -> None:
    parts = _parts("AB-1234, I said AB-1234", {"id": "AB-1234"})
    (found,) = find_candidates({"type": "string", "pattern": "^AB-\\d+$"}, parts)
    assert len(found.spans) == 2 and len(found.fields) == 1


def test_long_numbers_keep_their_digits() -> None:
    (part,) = Reader().read([{"role": "user", "content": "no 12345678901234567891"}])
    assert _values({"type": "integer"}, part) == [12345678901234567891]


def test_references() -> None:
    root = {
        "$defs": {
            "color": {"enum": ["red", "blue"]},
            "any": True,
            "tree": {
                "type": "object",
                "properties": {"next": {"$ref": "#/$defs/tree"}},
                "required": ["next"],
            },
        }
    }

    def values(name: str) -> list[Any]:
        reference = {"$ref": f"#/$defs/{name}"}
        return [c.value for c in find_candidates(reference, PARTS, root)]

    assert values("color") == ["red", "blue"]
    assert values("any")
    assert values("tree") == []
    assert values("missing")
    nowhere = {"type": "integer", "not": {"$ref": "#/nowhere"}}
    assert find_candidates(nowhere, PARTS, root) == []


@pytest.mark.parametrize("keyword", ["oneOf", "anyOf"])
def test_values_that_are_described_one_by_one_are_a_choice(keyword: str) -> None:
    some = [{"const": "up", "description": "Higher."}, {"const": "down"}]
    schema = {"type": "string", keyword: some}
    assert described_values(schema) == [("up", "Higher."), ("down", "")]
    assert is_choice(schema) and choices(schema) == ["up", "down"]
    mixed = {keyword: [*some, {"type": "integer"}]}
    assert described_values(mixed) == [] and not is_choice(mixed)
    # What the schema itself rules out is not offered.
    assert choices({**schema, "maxLength": 3}) == ["up"]


def test_the_cap() -> None:
    parts = _parts(" ".join(f"AB-{i:04}" for i in range(200)))
    assert len(_values({"type": "string", "pattern": "^AB-\\d{4}$"}, *parts)) == (
        MAX_CANDIDATES
    )


@pytest.mark.parametrize(
    "schema",
    [
        {"type": "integer", "minimum": 10**400, "maximum": 10**401},
        {"allOf": [{"$ref": "#/$defs/me"}], "$defs": {"me": {"$ref": "#/$defs/me"}}},
        {"type": "integer", "multipleOf": 1e-320, "maximum": 10**401},
    ],
)
def test_schemas_that_make_no_sense_offer_nothing_invalid(schema: Any) -> None:
    parts = _parts(result={"n": 10**400, "x": "\ud800"})
    for candidate in find_candidates(schema, parts):
        json.dumps(candidate.value)


def test_what_a_text_remembers_is_bounded() -> None:
    parts = _parts()
    for i in range(MAX_SCHEMAS + 50):
        find_candidates({"type": "string", "pattern": f"x{i}"}, parts)
    assert all(
        len(part.found if isinstance(part, Said) else part.result.found) <= MAX_SCHEMAS
        for part in parts
    )

from __future__ import annotations

import re
import socket
import threading
from collections.abc import Iterator
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from agentgym.core.schemas import (
    MAX_PATTERN,
    SchemaProblem,
    check_schema,
    compile_pattern,
    is_valid,
    validator,
)


def _object(**properties: Any) -> dict[str, Any]:
    return {"type": "object", "properties": properties}


@pytest.mark.parametrize(
    ("pattern", "text"),
    [
        ("(?:a{0,16}){0,16}b", "a" * 5_000),
        ("a?" * 40 + "a" * 40, "a" * 39),
        ("(?i:(?:xX*)*b)", "x" * 5_000),
        ("[ ]*[ ]*b", " " * 5_000),
        ("(a+)+b", "a" * 5_000),
        (r"(\w+\s?)*$", "a" * 5_000 + "!"),
        (r".*.*.*x", "a" * 2_000),
    ],
)
def test_patterns_that_freeze_python_are_matched_in_linear_time(
    pattern: str, text: str
) -> None:
    # `re` would not come back from any of these.
    compiled = compile_pattern(pattern)
    assert not compiled.fullmatch(text)
    assert list(compiled.words(text)) in ([], [(0, 5_000)])


@pytest.mark.parametrize(
    "pattern", [r"(?=a)b", r"(?<!a)b", r"(a)\1", "(", "a" * (MAX_PATTERN + 1), "\ud800"]
)
def test_what_cannot_be_matched_in_linear_time_is_refused(pattern: str) -> None:
    with pytest.raises(SchemaProblem):
        check_schema(_object(x={"type": "string", "pattern": pattern}))


@given(
    st.sampled_from(
        [r"^[A-Z]{2}-\d{2}$", r"\d+", r"^[a-c]+$", r"[a-c]+(-[a-c]+)*", "(?:a|ab)b?"]
    ),
    st.text("abAB-01 @.é,", max_size=24),
)
def test_words_are_those_that_python_finds(pattern: str, text: str) -> None:
    body = pattern.removeprefix("^").removesuffix("$")
    python = re.compile(rf"(?<![\w@])(?:{body})(?![\w@])")
    expected = [m.span() for m in python.finditer(text) if m.group()]
    assert list(compile_pattern(pattern).words(text)) == expected


@given(
    st.sampled_from([r"^[A-Z]{2}-\d{2}$", r"\d+", "^(a|b)*$", "x?"]),
    st.text("abABx-01", max_size=8),
)
def test_search_and_fullmatch_agree_with_python(pattern: str, text: str) -> None:
    compiled = compile_pattern(pattern)
    assert compiled.search(text) == (re.search(pattern, text) is not None)
    assert compiled.fullmatch(text) == (re.fullmatch(pattern, text) is not None)


@pytest.fixture
def listener() -> Iterator[tuple[int, list[Any]]]:
    """A host that accepts connections, never answers, and counts them."""
    with socket.create_server(("127.0.0.1", 0)) as server:
        seen: list[Any] = []

        def accept() -> None:
            while True:
                try:
                    seen.append(server.accept())
                except OSError:
                    return

        thread = threading.Thread(target=accept, daemon=True)
        thread.start()
        yield server.getsockname()[1], seen
        server.shutdown(socket.SHUT_RDWR)
        thread.join()
        for connection, _ in seen:
            connection.close()


@pytest.mark.parametrize("key", ["$ref", "$id", "$schema", "$dynamicRef"])
@pytest.mark.parametrize("target", ["http://127.0.0.1:{port}/x", "file:///dev/zero"])
def test_nothing_is_fetched(
    key: str, target: str, listener: tuple[int, list[Any]]
) -> None:
    port, seen = listener
    schema = _object(x={key: target.format(port=port), "$ref": "other"})
    with pytest.raises(SchemaProblem):
        check_schema(schema)
    # Even a schema that nobody checked brings no fetch.
    assert not is_valid(validator(schema), {"x": 1})
    assert not seen


def test_the_dialect_may_be_named_at_the_top() -> None:
    check_schema(
        {"$schema": "http://json-schema.org/draft-07/schema#", **_object(x={})}
    )


def test_references_that_double_at_each_level_are_refused() -> None:
    levels: dict[str, Any] = {
        f"l{i}": {"allOf": [{"$ref": f"#/$defs/l{i + 1}"}] * 2} for i in range(20)
    }
    levels["l20"] = {"type": "string"}
    with pytest.raises(SchemaProblem, match="expand"):
        check_schema({**_object(x={"$ref": "#/$defs/l0"}), "$defs": levels})


def test_a_schema_of_itself_may_be_narrow_but_not_wide() -> None:
    def node(width: int) -> dict[str, Any]:
        inner = {f"p{i}": {"$ref": "#/$defs/node"} for i in range(width)}
        return {
            **_object(tree={"$ref": "#/$defs/node"}),
            "$defs": {"node": {"type": "object", "properties": inner}},
        }

    check_schema(node(2))
    with pytest.raises(SchemaProblem, match="expand"):
        check_schema(node(32))


def test_pattern_properties_work_with_additional_ones() -> None:
    schema = {
        "type": "object",
        "properties": {"a": {}},
        "patternProperties": {"^x-": {"type": "integer"}},
        "additionalProperties": False,
    }
    check_schema(schema)
    checker = validator(schema)
    assert is_valid(checker, {"a": 1, "x-1": 2})
    assert not is_valid(checker, {"x-1": "two"})
    assert not is_valid(checker, {"b": 1})
    assert is_valid(
        validator({**schema, "additionalProperties": {"type": "string"}}), {"b": "c"}
    )
    with pytest.raises(SchemaProblem, match="unevaluatedProperties"):
        check_schema({**schema, "unevaluatedProperties": False})

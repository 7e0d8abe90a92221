"""Reading chats: clauses, spans, results, and whatever else clients send."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from agentgym.policies.calls import conversation as module
from agentgym.policies.calls.conversation import (
    MAX_FIELDS,
    Called,
    Reader,
    Said,
    Span,
    content_text,
    read_result,
    spaced,
)


def _texts(said: Said, spans: list[Span]) -> list[str]:
    return [said.text[span.start : span.end] for span in spans]


def _call(arguments: Any = "{}", id_: str = "a") -> dict[str, Any]:
    function = {"name": "find", "arguments": arguments}
    return {"role": "assistant", "tool_calls": [{"id": id_, "function": function}]}


def test_clauses() -> None:
    said = Said("My parcel is late, but I paid. Refund it please! Order: A-1")
    assert _texts(said, said.clauses) == [
        "My parcel is late",
        "but I paid",
        "Refund it please",
        "Order",
        "A-1",
    ]
    assert said.clause_of(said.text.index("Refund")) == 2
    assert said.clause_of(0) == 0


def test_what_is_remembered_is_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "MAX_CHARACTERS", 100)
    reader = Reader()
    for i in range(31):
        text = f"{i}" * 15
        reader.read([{"role": "user", "content": text}, _call()])
        reader.read([_call(), {"role": "tool", "tool_call_id": "a", "content": text}])
        assert sum(map(len, reader._said)) <= 100
        assert sum(map(len, reader._results)) <= 100
    assert len(reader._said) > 1 and len(reader._results) > 1


def test_phrases_and_numbers() -> None:
    said = Said('Ann Lee wrote "all broken" about AB-123, 4 times, 1,250.50 lost')
    found = {s.kind: said.text[s.start : s.end] for s in reversed(said.phrases)}
    assert found["named"] == "Ann Lee"
    assert found["quoted"] == "all broken"
    assert found["id"] == "AB-123"
    assert _texts(said, said.numbers) == ["4", "1,250.50"]


@given(st.text(min_size=1, max_size=80))
def test_any_text_has_clauses_and_spans_within_it(text: str) -> None:
    said = Said(text)
    assert said.clauses
    for span in (*said.clauses, *said.phrases, *said.numbers):
        assert 0 <= span.start <= span.end <= len(text)
    pieces = _texts(said, said.phrases)
    assert len(pieces) == len(set(pieces))


def test_results_are_flattened() -> None:
    result = read_result(
        json.dumps({"orders": [{"orderId": "A1", "paid": True}, {"orderId": "B2"}]})
    )
    rows = [(f.key, f.value) for f in result.fields]
    assert rows == [
        ("orders order id", "A1"),
        ("orders paid", True),
        ("orders order id", "B2"),
    ]
    records = [f.record for f in result.fields]
    assert records[0] == records[1] != records[2]
    assert not result.error


@pytest.mark.parametrize(
    ("content", "error"),
    [("Error: no such order", "error"), ("it is done", ""), ("", ""), ("{", "")],
)
def test_results_that_are_no_json(content: str, error: str) -> None:
    result = read_result(content)
    assert [(f.key, f.value) for f in result.fields] == [("text", content)]
    assert result.error == error


def test_errors_and_long_numbers() -> None:
    assert read_result('{"error": "not found"}').error == "not found"
    assert read_result("1" * 5000).fields[0].key == "text"


@pytest.mark.parametrize("depth", [100, 900, 100_000])
@pytest.mark.parametrize(("start", "end"), [("[", "]"), ('{"a":', "}")])
def test_deep_nesting(depth: int, start: str, end: str) -> None:
    content = start * depth + "1" + end * depth
    assert len(read_result(content).fields) == 1
    (part,) = Reader().read([_call(content)])
    assert isinstance(part, Called)


def test_long_results_are_cut() -> None:
    assert len(read_result(json.dumps(list(range(1000)))).fields) == MAX_FIELDS


@pytest.mark.parametrize(
    ("content", "text"),
    [
        (None, ""),
        ("hi", "hi"),
        ([{"type": "text", "text": "a"}, {"type": "image_url"}, "x"], "a"),
        ([{"text": "a"}, {"text": "b"}], "a b"),
        (5, "5"),
    ],
)
def test_contents(content: Any, text: str) -> None:
    assert content_text(content) == text


def test_answers_find_their_calls_however_late() -> None:
    messages = [
        {"role": "system", "content": "be kind"},
        {"role": "user", "content": "one"},
        _call(id_="a"),
        _call('{"x": 1}', id_="b"),
        {"role": "user", "content": [{"type": "text", "text": "two"}]},
        {"role": "tool", "tool_call_id": "b", "content": '{"y": 2}'},
        {"role": "tool", "tool_call_id": "stray", "content": "{}"},
        {"role": "user", "content": None},
    ]
    one, first, second, two = Reader().read(messages)
    assert isinstance(one, Said) and isinstance(two, Said) and two.text == "two"
    assert isinstance(first, Called) and not first.ok and not first.result.fields
    assert isinstance(second, Called) and second.ok and second.arguments == {"x": 1}


@pytest.mark.parametrize("raw", ["{", "[1]", None, 3, "1" * 5000])
def test_arguments_that_are_no_object(raw: Any) -> None:
    (part,) = Reader().read([_call(raw)])
    assert isinstance(part, Called) and part.arguments == {}


def test_a_reader_remembers_so_much(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "MAX_REMEMBERED", 3)
    reader = Reader()
    for i in range(20):
        reader.read(
            [
                {"role": "user", "content": f"text {i}"},
                _call(),
                {"role": "tool", "tool_call_id": "a", "content": f"{i}"},
            ]
        )
    assert len(reader._said) <= 3 and len(reader._results) <= 3


def test_spaced() -> None:
    assert spaced("orderId") == spaced("order_id") == spaced("order-id") == "order id"

"""The protocol without a server: what is read, and what is said."""

from __future__ import annotations

import json
from typing import Any

import pytest
from openai.types.chat import ChatCompletion, ChatCompletionChunk

from agentgym.core.tools import ToolCall
from agentgym.policies.base import Decision
from agentgym.serving.answers import complete, encode, events
from agentgym.serving.errors import ApiError
from agentgym.serving.protocol import (
    MAX_STOPS,
    ChatRequest,
    check_length,
    parse_chat,
    parse_json,
)
from agentgym.serving.tools import ToolCache

USER = {"role": "user", "content": "Hi"}
TOOLS = [
    {"type": "function", "function": {"name": name}} for name in ("find", "refund")
]
NAMED = {"type": "function", "function": {"name": "refund"}}


def _parse(**fields: Any) -> ChatRequest:
    return parse_chat({"model": "m", "messages": [USER], **fields}, ToolCache())


def _count(text: str) -> int:
    return len(text.split())


def _said(text: str) -> Decision:
    message = {"role": "assistant", "content": text}
    return Decision(message, "finish", prompt_tokens=7, completion_tokens=_count(text))


def _called(*calls: ToolCall) -> Decision:
    return Decision({}, "call", calls, prompt_tokens=7, completion_tokens=5)


def test_surrogates_that_stand_alone_are_replaced() -> None:
    read = parse_json(b'{"a": "x\\ud800y", "b": "\\ud83d\\ude00"}')
    assert read == {"a": "x?y", "b": "\N{GRINNING FACE}"}


@pytest.mark.parametrize(
    ("choice", "allowed", "must"),
    [
        (None, ["find", "refund"], False),
        ("auto", ["find", "refund"], False),
        ("none", [], False),
        ("required", ["find", "refund"], True),
        (NAMED, ["refund"], True),
    ],
)
def test_tool_choice(choice: Any, allowed: list[str], must: bool) -> None:
    request = _parse(tools=TOOLS, tool_choice=choice).to_decision()
    assert [tool.name for tool in request.tools] == allowed
    assert request.must_call is must


def test_messages_are_made_alike() -> None:
    call = {
        "id": "a",
        "type": "function",
        "function": {"name": "f", "arguments": "{}"},
        "index": 0,
    }
    parts = [{"type": "text", "text": "one"}, {"type": "text", "text": "two"}]
    request = _parse(
        messages=[
            {"role": "developer", "content": "Be kind."},
            {"role": "user", "content": parts, "name": "ann", "extra": 1},
            {"role": "assistant", "tool_calls": [call]},
            {"role": "assistant", "content": "x", "tool_calls": None},
            {"role": "tool", "tool_call_id": "a", "content": None},
        ]
    )
    assert request.messages == [
        {"role": "system", "content": "Be kind."},
        {"role": "user", "content": "one\ntwo", "name": "ann"},
        {
            "role": "assistant",
            "content": None,
            "tool_calls": [
                {k: v for k, v in call.items() if k != "index"},
            ],
        },
        {"role": "assistant", "content": "x"},
        {"role": "tool", "tool_call_id": "a", "content": None},
    ]


def test_options() -> None:
    request = _parse(stop="x", max_tokens=9, max_completion_tokens=4, stream=True, n=1)
    assert (request.stop, request.max_tokens, request.stream) == (("x",), 4, True)
    assert _parse(stop=["", "y"], stream=None, n=None).stop == ("y",)
    assert _parse(stream_options={"include_usage": True}).include_usage


@pytest.mark.parametrize(
    "fields",
    [
        {"model": None},
        {"model": 7},
        {"messages": None},
        {"messages": [7]},
        {"messages": [{"role": ["user"]}]},
        {"messages": [{"role": "user", "content": 7}]},
        {"messages": [{"role": "user", "content": [{"type": "text"}]}]},
        {"messages": [{"role": "user", "content": [{"type": []}]}]},
        {"messages": [{"role": "user", "content": "x", "name": 7}]},
        {"messages": [{"role": "tool", "content": "x"}]},
        {"messages": [{"role": "assistant", "tool_calls": 7}]},
        {"messages": [{"role": "assistant", "tool_calls": [7]}]},
        {"messages": [{"role": "assistant", "tool_calls": [{"function": NAMED}]}]},
        {
            "messages": [
                {
                    "role": "assistant",
                    "tool_calls": [{"function": {"name": "f", "arguments": "{}"}}],
                }
            ]
        },
        {"tool_choice": "maybe"},
        {"tool_choice": {"type": "function", "function": 7}},
        {"tool_choice": "required"},
        {
            "tools": TOOLS,
            "tool_choice": {"type": "function", "function": {"name": "x"}},
        },
        {"n": True},
        {"stream": "yes"},
        {"stream_options": []},
        {"stop": 7},
        {"stop": ["x"] * (MAX_STOPS + 1)},
        {"max_tokens": 1.5},
        {"max_completion_tokens": True},
        {"temperature": "hot"},
        {"top_p": 1.1},
        {"functions": [{}]},
        {"modalities": ["audio"]},
        {"response_format": "json"},
        {"response_format": {"type": "json_schema", "json_schema": {}}},
    ],
)
def test_what_is_refused(fields: dict[str, Any]) -> None:
    with pytest.raises(ApiError) as raised:
        _parse(**fields)
    error = raised.value.to_dict()["error"]
    assert raised.value.status == 400
    assert error["param"].partition("[")[0].partition(".")[0] in fields
    assert error["message"].endswith(".") and "\n" not in error["message"]


def test_the_context_is_never_cut() -> None:
    long = _parse(messages=[{**USER, "content": "word " * 50}])
    check_length(long, _count, 50)
    with pytest.raises(ApiError, match="50 tokens; this model reads at most 49 tokens"):
        check_length(long, _count, 49)
    with pytest.raises(ApiError, match="250 characters; .* at most 240 characters"):
        check_length(long, _count, 30)
    with_tools = _parse(tools=TOOLS)
    with pytest.raises(ApiError, match="remove tools"):
        check_length(with_tools, len, 60)
    call = {"id": "a", "function": {"name": "f", "arguments": "x" * 100}}
    called = _parse(messages=[{"role": "assistant", "tool_calls": [call]}])
    with pytest.raises(ApiError):
        check_length(called, len, 50)


@pytest.mark.parametrize(
    ("fields", "text", "reason", "tokens"),
    [
        ({}, "one two  three four", "stop", 4),
        ({"stop": "three"}, "one two  ", "stop", 2),
        ({"stop": ["four", "two"]}, "one ", "stop", 1),
        ({"stop": "zzz", "max_tokens": 4}, "one two  three four", "stop", 4),
        ({"max_tokens": 3}, "one two  three", "length", 3),
        ({"max_tokens": 1, "stop": "three"}, "one", "length", 1),
        ({"stop": "one"}, "", "stop", 0),
    ],
)
def test_where_an_answer_ends(fields: Any, text: str, reason: str, tokens: int) -> None:
    done = complete(_parse(**fields), _said("one two  three four"), _count)
    assert (done.content, done.finish_reason) == (text, reason)
    assert done.usage == {
        "prompt_tokens": 7,
        "completion_tokens": tokens,
        "total_tokens": 7 + tokens,
    }


def test_a_word_longer_than_the_limit() -> None:
    done = complete(_parse(max_tokens=3), _said("abcdef"), len)
    assert (done.content, done.finish_reason) == ("", "length")


def test_calls_whole_or_not_at_all() -> None:
    call = ToolCall("find", {"x": "é"})
    done = complete(_parse(tools=TOOLS, max_tokens=5), _called(call, call), _count)
    assert done.finish_reason == "tool_calls"
    ids = {made.id for made in done.calls}
    assert len(ids) == 2 and "call_0" not in ids
    short = complete(_parse(tools=TOOLS, max_tokens=4), _called(call), _count)
    assert (short.calls, short.finish_reason) == ((), "length")


def test_a_call_that_must_be_made_and_cannot() -> None:
    request = _parse(tools=TOOLS, tool_choice="required")
    with pytest.raises(ApiError) as raised:
        complete(request, _said("Which order?"), _count)
    assert raised.value.code == "no_call_possible"


def test_an_answer_that_fits_a_schema() -> None:
    schema = {"type": "object", "properties": {"x": {"type": "string"}}}
    format_ = {"type": "json_schema", "json_schema": {"name": "find", "schema": schema}}
    request = _parse(tools=TOOLS, response_format=format_)
    decision = request.to_decision()
    assert decision.must_call
    # The name is taken by a tool already.
    assert [tool.name for tool in decision.tools][-1] == "find_answer"
    done = complete(request, _called(ToolCall("find_answer", {"x": "é"})), _count)
    assert json.loads(done.content or "") == {"x": "é"}
    assert (done.calls, done.finish_reason) == ((), "stop")
    assert complete(request, _called(ToolCall("find", {})), _count).calls
    with pytest.raises(ApiError) as raised:
        complete(request, _said("Which order?"), _count)
    assert raised.value.param == "response_format"


@pytest.mark.parametrize("usage", [False, True])
@pytest.mark.parametrize(
    "decision",
    [_said("some words"), _said(""), _called(*[ToolCall("find", {"a": [1]})] * 2)],
)
def test_a_stream_says_the_same(decision: Decision, usage: bool) -> None:
    done = complete(_parse(), decision, _count)
    whole = ChatCompletion.model_validate(json.loads(encode(done.to_dict())))
    *sent, end = events(done, include_usage=usage)
    assert end == b"data: [DONE]\n\n"
    assert all(e.startswith(b"data: {") and e.endswith(b"}\n\n") for e in sent)
    chunks = [ChatCompletionChunk.model_validate_json(e[6:]) for e in sent]
    assert {chunk.id for chunk in chunks} == {whole.id}
    if usage:
        assert chunks.pop().usage == whole.usage
    assert all(chunk.usage is None for chunk in chunks)
    content, calls = "", {}
    for chunk in chunks:
        delta = chunk.choices[0].delta
        content += delta.content or ""
        for part in delta.tool_calls or ():
            assert part.function is not None
            if part.id:
                calls[part.index] = [part.id, part.function.name, ""]
            calls[part.index][2] += part.function.arguments or ""
    message = whole.choices[0].message
    assert content == (message.content or "")
    made = [
        [c.id, c.function.name, c.function.arguments]  # type: ignore[union-attr]
        for c in message.tool_calls or ()
    ]
    assert list(calls.values()) == made
    assert chunks[-1].choices[0].finish_reason == whole.choices[0].finish_reason

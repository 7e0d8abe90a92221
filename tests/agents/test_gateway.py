"""The gateway, asked by the official client: every form in which agents ask."""

from __future__ import annotations

import json
import threading
from collections.abc import Callable
from typing import Any

import httpx
import openai
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from openai import OpenAI

from agentgym.agents.gateway import Gateway
from agentgym.agents.sessions import MAX_AT_ONCE, MAX_REQUESTS, Session

FIND = {
    "type": "function",
    "function": {
        "name": "find",
        "description": "Finds things",
        "parameters": {
            "type": "object",
            "properties": {"what": {"type": "string"}},
            "required": ["what"],
        },
    },
}
SCHEMA = {
    "name": "thing",
    "schema": {
        "type": "object",
        "properties": {"what": {"type": "string"}},
        "required": ["what"],
        "additionalProperties": False,
    },
    "strict": True,
}


def _user(text: Any) -> dict[str, Any]:
    return {"role": "user", "content": text}


def _chat(client: OpenAI, text: Any = "Hi", **options: Any) -> Any:
    messages = text if isinstance(text, list) else [_user(text)]
    return client.chat.completions.create(
        **{"model": "any-name", "messages": messages, **options}
    )


# Chat completions ------------------------------------------------------------------


def test_words(client: OpenAI, session: Session) -> None:
    answer = _chat(client, "Hello there")
    assert answer.choices[0].message.content == "Hello there"
    assert answer.choices[0].finish_reason == "stop"
    assert answer.model == "any-name"
    assert (answer.usage.prompt_tokens, answer.usage.completion_tokens) == (2, 2)
    (exchange,) = session.recorder.exchanges
    assert exchange.step.logprob == -1.0 and exchange.step.trace == 1
    assert exchange.step.sampled is not None
    assert exchange.step.sampled.completion == (1,)
    assert exchange.step.message["content"] == "Hello there"


def test_a_call(client: OpenAI, session: Session) -> None:
    answer = _chat(client, "call this;that", tools=[FIND])
    calls = answer.choices[0].message.tool_calls
    assert answer.choices[0].finish_reason == "tool_calls"
    assert [json.loads(c.function.arguments) for c in calls] == [
        {"what": "this"},
        {"what": "that"},
    ]
    assert len({c.id for c in calls} | {"call_0"}) == 3
    step = session.recorder.exchanges[0].step
    assert [c.id for c in step.calls] == [c.id for c in calls]


@pytest.mark.parametrize(
    ("text", "options"), [("Hi you", {}), ("call this", {"tools": [FIND]})]
)
def test_a_stream(client: OpenAI, session: Session, text: str, options: Any) -> None:
    chunks = list(
        _chat(
            client, text, stream=True, stream_options={"include_usage": True}, **options
        )
    )
    assert chunks[-1].usage.prompt_tokens == 2 and chunks[-1].choices == []
    deltas = [chunk.choices[0].delta for chunk in chunks[:-1]]
    said = "".join(delta.content or "" for delta in deltas)
    parts = [part for delta in deltas for part in delta.tool_calls or ()]
    if options:
        assert parts[0].id and parts[0].function.name == "find"
        arguments = "".join(part.function.arguments for part in parts)
        assert json.loads(arguments) == {"what": "this"}
        assert chunks[-2].choices[0].finish_reason == "tool_calls"
    else:
        assert said == text and chunks[-2].choices[0].finish_reason == "stop"
    assert len(session.recorder.exchanges) == 1


def test_stop_and_limits(client: OpenAI) -> None:
    text = "Thought: go\nObservation: none of yours"
    cut = _chat(client, text, stop=["\nObservation"]).choices[0]
    assert (cut.message.content, cut.finish_reason) == ("Thought: go", "stop")
    for limit in ("max_tokens", "max_completion_tokens"):
        short = _chat(client, "one two three", **{limit: 2})
        assert short.choices[0].message.content == "one two"
        assert short.choices[0].finish_reason == "length"
        assert short.usage.completion_tokens == 2


def test_what_is_recorded_is_what_the_agent_saw(
    client: OpenAI, session: Session
) -> None:
    _chat(client, "one two three", max_tokens=2)
    assert session.recorder.exchanges[0].step.message["content"] == "one two"


def test_tool_choice(client: OpenAI) -> None:
    def calls(**options: Any) -> Any:
        return _chat(client, "call x", **options).choices[0].message.tool_calls

    other = {**FIND, "function": {**FIND["function"], "name": "other"}}  # type: ignore[dict-item]
    assert calls(tools=[FIND], tool_choice="auto")
    assert calls(tools=[FIND], tool_choice="none") is None
    assert (
        _chat(client, "Hi", tools=[FIND], tool_choice="required")
        .choices[0]
        .message.tool_calls
    )
    named = {"type": "function", "function": {"name": "find"}}
    (call,) = calls(tools=[FIND, other], tool_choice=named)
    assert call.function.name == "find"


def test_json_that_fits_a_schema(client: OpenAI) -> None:
    format_ = {"type": "json_schema", "json_schema": SCHEMA}
    choice = _chat(client, "blue", response_format=format_).choices[0]
    assert json.loads(choice.message.content) == {"what": "blue"}
    assert (choice.finish_reason, choice.message.tool_calls) == ("stop", None)


def test_whatever_form_messages_have(client: OpenAI, policy: Any) -> None:
    call = {
        "id": "c1",
        "type": "function",
        "function": {"name": "find", "arguments": "{}"},
    }
    messages = [
        {"role": "developer", "content": [{"type": "text", "text": "Be kind."}]},
        _user([{"type": "text", "text": "Hi"}]),
        {"role": "assistant", "content": None, "tool_calls": [call]},
        {"role": "tool", "tool_call_id": "c1", "content": "found"},
        {"role": "user", "content": "And now?", "name": "anna"},
        {"role": "system", "content": "Be brief."},
    ]
    assert _chat(client, messages).choices[0].message.content == "Be brief."
    assert [m["role"] for m in policy.requests[0].messages] == [
        "system",
        "user",
        "assistant",
        "tool",
        "user",
        "system",
    ]


def test_models_and_embeddings(client: OpenAI) -> None:
    assert [model.id for model in client.models.list()] == ["agentgym"]
    assert client.models.retrieve("org/name").id == "org/name"
    with pytest.raises(openai.InternalServerError) as raised:
        client.embeddings.create(model="x", input="y")
    assert raised.value.status_code == 501
    assert raised.value.code == "not_implemented"


# Completions -----------------------------------------------------------------------


def test_a_plain_completion(client: OpenAI, session: Session) -> None:
    answer = client.completions.create(model="m", prompt="Once upon", max_tokens=1)
    assert (answer.choices[0].text, answer.choices[0].finish_reason) == (
        "Once",
        "length",
    )
    assert answer.usage and answer.usage.total_tokens == 3
    stream = client.completions.create(
        model="m",
        prompt=["Once upon"],
        stream=True,
        stream_options={"include_usage": True},
    )
    first, last = list(stream)
    assert first.choices[0].text == "Once upon"
    assert last.usage and last.usage.prompt_tokens == 2
    assert len(session.recorder.exchanges) == 2
    with pytest.raises(openai.BadRequestError):
        client.completions.create(model="m", prompt=["a", "b"])
    with pytest.raises(openai.BadRequestError):
        client.completions.create(model="m", prompt="a", echo=True)


# Responses -------------------------------------------------------------------------


def _tool() -> dict[str, Any]:
    return {"type": "function", "strict": False, **FIND["function"]}  # type: ignore[dict-item]


def test_a_response(client: OpenAI, session: Session, policy: Any) -> None:
    answer = client.responses.create(
        model="m", input="Hello there", instructions="Be kind.", max_output_tokens=9
    )
    assert answer.output_text == "Hello there" and answer.status == "completed"
    assert answer.usage and answer.usage.input_tokens == 4
    assert policy.requests[0].messages[0] == {"role": "system", "content": "Be kind."}
    short = client.responses.create(model="m", input="a b c", max_output_tokens=1)
    assert short.status == "incomplete" and short.output_text == "a"
    assert len(session.recorder.exchanges) == 2


def test_a_response_with_calls(client: OpenAI, session: Session, policy: Any) -> None:
    first = client.responses.create(
        model="m",
        input="call this;that",
        tools=[_tool()],
        tool_choice={"type": "function", "name": "find"},
    )
    calls = [item for item in first.output if item.type == "function_call"]
    assert [json.loads(call.arguments)["what"] for call in calls] == ["this", "that"]
    results = [
        {"type": "function_call_output", "call_id": call.call_id, "output": "found"}
        for call in calls
    ]
    # Stateless: all comes back. And with the id of what was said before.
    whole: list[Any] = [{"role": "user", "content": "call this;that"}]
    whole += [item.model_dump(exclude_none=True) for item in first.output]
    client.responses.create(model="m", input=[*whole, *results], tools=[_tool()])
    client.responses.create(
        model="m",
        input=results,
        tools=[_tool()],
        previous_response_id=first.id,
    )
    stateless, continued = policy.requests[1:]
    assert stateless.messages == continued.messages
    assert [m["role"] for m in continued.messages] == [
        "user",
        "assistant",
        "tool",
        "tool",
    ]
    kinds = [exchange.continuity for exchange in session.recorder.exchanges]
    assert kinds == ["first", "continued", "branched"]
    with pytest.raises(openai.BadRequestError) as raised:
        client.responses.create(model="m", input="x", previous_response_id="resp_0")
    assert raised.value.code == "previous_response_not_found"


def test_a_response_in_json(client: OpenAI) -> None:
    answer = client.responses.create(
        model="m",
        input="blue",
        text={"format": {"type": "json_schema", **SCHEMA}},  # type: ignore[dict-item]
    )
    assert json.loads(answer.output_text) == {"what": "blue"}


@pytest.mark.parametrize("text", ["Hi you", "call this;that"])
def test_a_streamed_response(client: OpenAI, text: str) -> None:
    with client.responses.stream(model="m", input=text, tools=[_tool()]) as stream:
        kinds = [event.type for event in stream]
        final = stream.get_final_response()
    assert kinds[0] == "response.created" and kinds[-1] == "response.completed"
    if text == "Hi you":
        assert final.output_text == text
        assert "response.output_text.delta" in kinds
    else:
        assert [item.type for item in final.output] == ["function_call"] * 2
        assert kinds.count("response.function_call_arguments.done") == 2


@pytest.mark.parametrize(
    "payload",
    [
        {"input": 3},
        {"input": [3]},
        {"input": [{"type": "image"}]},
        {"input": "x", "tools": [{"type": "web_search"}]},
        {"input": "x", "tools": "all"},
        {"input": "x", "instructions": 3},
        {"input": "x", "background": True},
        {"input": [{"type": "function_call", "name": "x"}]},
        {"input": "x", "previous_response_id": 3},
    ],
)
def test_responses_that_cannot_be(send: Any, payload: Any) -> None:
    status, body = send({"model": "m", **payload}, "/v1/responses")
    assert status == 400 and body["error"]["type"] == "invalid_request_error"


# Keys ------------------------------------------------------------------------------


def test_keys(
    gateway: Gateway, session: Session, client_of: Callable[..., OpenAI], send: Any
) -> None:
    other = gateway.open()
    for wrong in (client_of(session, api_key=other.key), client_of(other, api_key="x")):
        with pytest.raises(openai.AuthenticationError) as raised:
            _chat(wrong)
        assert raised.value.code == "invalid_api_key"
    for path in ("/v1/responses", "/v1/models", "/task", "/tools/x", "/reply"):
        body = None if path in ("/v1/models", "/task") else b"{}"
        assert send(body, path, authorization="Bearer nothing")[0] == 401
    own = client_of(other)
    assert _chat(own).choices
    gateway.close(other)
    with pytest.raises(openai.AuthenticationError):
        _chat(own)
    assert session.recorder.exchanges == []
    assert len(other.recorder.exchanges) == 1
    assert list(gateway.sessions) == [session.id]


# Retries ---------------------------------------------------------------------------


def test_retries_are_answered_once(send: Any, session: Session, policy: Any) -> None:
    body = {"model": "m", "messages": [_user("Hi")]}
    first = send(body)
    again = send(body, x_stainless_retry_count="1")
    assert first == again and len(policy.requests) == 1
    # The same question without the header is another question.
    other = send(body, x_stainless_retry_count="0")
    assert other[1]["id"] != first[1]["id"]
    assert len(session.recorder.exchanges) == 2
    # A retry of what was never answered is a question.
    status, _ = send({**body, "model": "n"}, x_stainless_retry_count="2")
    assert status == 200 and len(session.recorder.exchanges) == 3


def test_a_client_that_lost_patience(
    session: Session, client_of: Callable[..., OpenAI], policy: Any, eventually: Any
) -> None:
    policy.go.clear()
    tried: list[None] = []

    def decide_late() -> None:
        eventually(lambda: len(tried) > 1)
        policy.go.set()

    class Counting(httpx.HTTPTransport):
        def handle_request(self, request: httpx.Request) -> httpx.Response:
            tried.append(None)
            return super().handle_request(request)

    threading.Thread(target=decide_late).start()
    impatient = client_of(
        session,
        timeout=1,
        max_retries=9,
        http_client=httpx.Client(transport=Counting()),
    )
    assert _chat(impatient, "Hi").choices[0].message.content == "Hi"
    assert len(policy.requests) == len(session.recorder.exchanges) == 1


def test_a_retry_after_a_failure(
    send: Any, session: Session, errors: list[Exception]
) -> None:
    body = {"model": "m", "messages": [_user("fail")]}
    assert send(body)[0] == send(body, x_stainless_retry_count="1")[0] == 500
    assert [str(error) for error in errors] == ["no", "no"]
    assert session.recorder.exchanges == []
    errors.clear()


# Many, and too many ----------------------------------------------------------------


def test_sessions_are_answered_together(
    gateway: Gateway,
    client_of: Callable[..., OpenAI],
    policy: Any,
    batched: list[Any],
    eventually: Any,
) -> None:
    policy.go.clear()
    sessions = [gateway.open() for _ in range(6)]
    threads = [
        threading.Thread(target=_chat, args=(client_of(session), f"Hi {i}"))
        for i, session in enumerate(sessions)
    ]
    for thread in threads:
        thread.start()
    eventually(lambda: len(batched) == 6)
    policy.go.set()
    for thread in threads:
        thread.join()
    # The first may have been alone; the others waited for it, together.
    assert len(policy.batches) <= 2 and sum(policy.batches) == 6
    said = [s.recorder.exchanges[0].step.message["content"] for s in sessions]
    assert said == [f"Hi {i}" for i in range(6)]
    assert all(sampling.rng is not None for sampling in policy.samplings)


def test_a_flood(gateway: Gateway, client_of: Callable[..., OpenAI]) -> None:
    session = gateway.open(max_requests=3)
    client = client_of(session)
    for _ in range(3):
        _chat(client)
    with pytest.raises(openai.RateLimitError) as raised:
        _chat(client)
    assert raised.value.response.headers["retry-after"] == "1"
    assert session.refused == {"flood": 1}
    assert MAX_AT_ONCE < MAX_REQUESTS


def test_a_session_that_closes_while_it_waits(
    gateway: Gateway, client_of: Callable[..., OpenAI], policy: Any, eventually: Any
) -> None:
    session, other = gateway.open(), gateway.open()
    policy.go.clear()
    failed: list[Exception] = []

    def ask() -> None:
        try:
            _chat(client_of(session))
        except openai.OpenAIError as error:
            failed.append(error)

    waiting = threading.Thread(target=ask)
    waiting.start()
    eventually(lambda: session.deciding)
    gateway.close(session)
    waiting.join(60)
    assert len(failed) == 1
    policy.go.set()
    assert _chat(client_of(other)).choices
    assert session.recorder.exchanges == []


# Nonsense --------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("body", "status"),
    [
        (b"", 400),
        (b"{", 400),
        (b"[]", 400),
        (b'{"model": "m"}', 400),
        (b'{"model": "m", "messages": 3}', 400),
        (b'{"model": "m", "messages": [3]}', 400),
        (b'{"messages": [{"role": "user", "content": "x"}]}', 400),
        (
            b'{"model": "m", "messages": [{"role": "user", "content": "x"}], "n": 2}',
            400,
        ),
        (b"x" * (1 << 20 | 1), 413),
    ],
)
def test_garbage(send: Any, session: Session, body: bytes, status: int) -> None:
    answer = send(body)
    assert answer[0] == status and answer[1]["error"]["message"]
    assert session.recorder.exchanges == []
    assert sum(session.refused.values()) == 1


def test_paths_that_do_not_exist(send: Any) -> None:
    assert send(b"{}", "/v1/nothing")[0] == 404
    assert send(None, "/v1/chat/completions")[0] == 405
    assert send(None, "/task")[0] == 404
    assert send(b"{}", "/tools/find")[0] == 404


_JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(max_size=8),
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.dictionaries(
            st.sampled_from(["role", "content", "type", "tool_calls", "function"]),
            inner,
            max_size=3,
        )
    ),
    max_leaves=10,
)
_FIELDS = [
    "messages",
    "input",
    "prompt",
    "tools",
    "tool_choice",
    "stream",
    "stop",
    "response_format",
    "text",
    "instructions",
    "previous_response_id",
    "max_output_tokens",
]


@settings(
    max_examples=60,
    suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow],
)
@given(
    payload=st.dictionaries(st.sampled_from(_FIELDS), _JSON),
    path=st.sampled_from(["/v1/chat/completions", "/v1/completions", "/v1/responses"]),
)
def test_fuzz(gateway: Gateway, payload: Any, path: str) -> None:
    session = gateway.open()
    answer = httpx.post(
        f"{gateway.url(session)}{path}",
        json={"model": "m", **payload},
        headers={"authorization": f"Bearer {session.key}"},
        timeout=60,
    )
    gateway.close(session)
    assert answer.status_code in (200, 400), answer.text
    if answer.status_code == 400:
        assert answer.json()["error"]["message"]

"""A served model, asked by the official client and by whoever knows no manners."""

from __future__ import annotations

import concurrent.futures
import http.client
import json
from typing import Any

import openai
import pytest
from openai import OpenAI

from agentgym.serving.protocol import MAX_BODY

KEY = "secret"
Served = Any
"""See `conftest.py`."""


def _user(text: str) -> dict[str, Any]:
    return {"role": "user", "content": text}


def _ask(client: OpenAI, text: Any = "Please open gate B17", **options: Any) -> Any:
    messages = [_user(text)] if isinstance(text, str) else text
    return client.chat.completions.create(
        **{"model": "gates", "messages": messages, **options}
    )


# What works ------------------------------------------------------------------------


def test_a_call(client: OpenAI, tools: Any) -> None:
    answer = _ask(client, "I am at A10. I want you to close B17", tools=tools)
    (choice,) = answer.choices
    assert choice.finish_reason == "tool_calls"
    assert choice.message.content is None
    (call,) = choice.message.tool_calls
    assert call.type == "function" and call.id.startswith("call_")
    assert call.function.name == "close_gate"
    assert json.loads(call.function.arguments) == {"gate": "B17"}
    assert answer.object == "chat.completion" and answer.model == "gates_v1.0"
    assert answer.usage.prompt_tokens > 100 > answer.usage.completion_tokens > 0
    again = _ask(client, "I am at A10. I want you to close B17", tools=tools)
    assert again.id != answer.id
    assert again.choices[0].message.tool_calls[0].id != call.id


def test_a_conversation_to_its_end(client: OpenAI, gates: Served, tools: Any) -> None:
    text = "It is time to open R42"
    messages: list[Any] = [{"role": "system", "content": "You watch gates."}]
    messages.append(_user(text))
    done = []
    for _ in range(5):
        choice = _ask(client, messages, tools=tools).choices[0]
        messages.append(choice.message.model_dump(exclude_none=True))
        if choice.finish_reason == "stop":
            break
        for call in choice.message.tool_calls:
            arguments = json.loads(call.function.arguments)
            done.append((call.function.name, arguments))
            result = {**arguments, "state": "open"}
            messages.append(
                {
                    "role": "tool",
                    "tool_call_id": call.id,
                    "content": json.dumps(result),
                }
            )
    assert done == [("open_gate", {"gate": "R42"})]
    assert messages[-1]["content"].startswith("It is done.")
    # The same as in process, with the same tools in hand.
    run = gates.agent.run(messages[:2])
    assert [(c.name, c.arguments) for c in run.calls] == done


def test_a_streamed_call(client: OpenAI, tools: Any) -> None:
    chunks = list(
        _ask(client, tools=tools, stream=True, stream_options={"include_usage": True})
    )
    assert len({chunk.id for chunk in chunks}) == 1
    *_, last, usage = chunks
    assert last.choices[0].finish_reason == "tool_calls"
    assert usage.choices == [] and usage.usage.completion_tokens > 0
    assert chunks[0].choices[0].delta.role == "assistant"
    deltas = [
        delta
        for chunk in chunks[:-1]
        for delta in chunk.choices[0].delta.tool_calls or ()
    ]
    assert [delta.index for delta in deltas] == [0] * len(deltas)
    assert deltas[0].id.startswith("call_")
    assert deltas[0].function.name == "open_gate"
    arguments = "".join(delta.function.arguments for delta in deltas)
    assert json.loads(arguments) == {"gate": "B17"}


def test_a_streamed_answer(client: OpenAI) -> None:
    with client.chat.completions.stream(
        model="gates", messages=[{"role": "user", "content": "Thank you"}]
    ) as stream:
        whole = stream.get_final_completion()
    plain = _ask(client, "Thank you")
    assert whole.choices[0].message.content == plain.choices[0].message.content
    chunks = list(_ask(client, "Thank you", stream=True))
    assert all(chunk.usage is None for chunk in chunks)


def test_a_stream_is_made_of_events(gates: Served) -> None:
    payload = {"model": "gates", "messages": [_user("Thanks")], "stream": True}
    status, body = gates.post(json.dumps(payload).encode())
    assert status == 200
    events = body.decode().split("\n\n")
    assert events[-2:] == ["data: [DONE]", ""]
    assert all(json.loads(event.removeprefix("data: ")) for event in events[:-2])


def test_tool_choice(client: OpenAI, tools: Any) -> None:
    def name(choice: Any, text: str = "Please open gate B17") -> str | None:
        answer = _ask(client, text, tools=tools, tool_choice=choice)
        calls = answer.choices[0].message.tool_calls
        return calls[0].function.name if calls else None

    assert name("auto") == "open_gate"
    assert name("none") is None
    named = {"type": "function", "function": {"name": "report_fault"}}
    assert name(named) == "report_fault"
    thanks = "Thank you, B17 is fine now"
    assert name("required", thanks) in {"open_gate", "close_gate", "report_fault"}
    with pytest.raises(openai.BadRequestError) as raised:
        name("required", "Hello")
    assert raised.value.code == "no_call_possible"


def test_what_clients_send(client: OpenAI, tools: Any) -> None:
    """Contents as null or parts, late system messages, parallel results, names."""
    call = {"type": "function", "function": {"name": "open_gate", "arguments": "{"}}
    messages = [
        {"role": "user", "content": [{"type": "text", "text": "Please open"}]},
        {
            "role": "assistant",
            "content": None,
            "tool_calls": [{**call, "id": "a"}, {**call, "id": "b"}],
        },
        {"role": "tool", "tool_call_id": "b", "content": "not JSON"},
        {
            "role": "tool",
            "tool_call_id": "a",
            "content": [{"type": "text", "text": "{}"}],
        },
        {"role": "tool", "tool_call_id": "unknown", "content": ""},
        {"role": "user", "content": "Please close gate B17", "name": "ann"},
        {"role": "assistant", "content": "Well"},
        {"role": "developer", "content": "Be kind."},
        {"role": "system", "content": "Be quick."},
    ]
    answer = _ask(
        client,
        messages,
        tools=tools,
        temperature=0.7,
        seed=1,
        max_completion_tokens=500,
        parallel_tool_calls=True,
        user="me",
        response_format={"type": "text"},
    )
    assert answer.choices[0].finish_reason in ("tool_calls", "stop")


def test_stop_and_token_limits(client: OpenAI, tools: Any) -> None:
    whole = _ask(client, "Thank you").choices[0]
    assert whole.finish_reason == "stop"
    words = whole.message.content.split()
    cut = _ask(client, "Thank you", stop=[words[3], "zzz"])
    assert cut.choices[0].message.content == " ".join(words[:3]) + " "
    assert cut.choices[0].finish_reason == "stop"
    for limit in ("max_tokens", "max_completion_tokens"):
        short = _ask(client, "Thank you", **{limit: 3})
        assert short.choices[0].finish_reason == "length"
        assert short.choices[0].message.content == " ".join(words[:3])
        assert short.usage.completion_tokens == 3
    none = _ask(client, tools=tools, max_tokens=2).choices[0]
    assert none.finish_reason == "length" and not none.message.tool_calls


def test_models_and_health(client: OpenAI, gates: Served) -> None:
    assert [model.id for model in client.models.list()] == ["gates_v1.0"]
    assert client.models.retrieve("gates").id == "gates_v1.0"
    with pytest.raises(openai.NotFoundError):
        client.models.retrieve("other")
    connection = http.client.HTTPConnection("127.0.0.1", gates.port)
    connection.request("GET", "/healthz")
    assert json.loads(connection.getresponse().read())["status"] == "ok"
    connection.close()


def test_32_at_once(client: OpenAI, tools: Any) -> None:
    def one(i: int) -> tuple[str, Any]:
        verb, stream = ("open", "close")[i % 2], i % 3 == 0
        text = f"I want you to {verb} R{10 + i}"
        if not stream:
            call = _ask(client, text, tools=tools).choices[0].message.tool_calls[0]
            return call.function.name, json.loads(call.function.arguments)
        name, arguments = "", ""
        for chunk in _ask(client, text, tools=tools, stream=True):
            for delta in chunk.choices[0].delta.tool_calls or ():
                name += delta.function.name or ""
                arguments += delta.function.arguments
        return name, json.loads(arguments)

    with concurrent.futures.ThreadPoolExecutor(32) as pool:
        answers = list(pool.map(one, range(90)))
    expected = [
        (f"{('open', 'close')[i % 2]}_gate", {"gate": f"R{10 + i}"}) for i in range(90)
    ]
    assert answers == expected


# What does not ---------------------------------------------------------------------


@pytest.mark.parametrize("key", ["wrong", "secre", "secret2", "sécret", " "])
def test_a_wrong_key(gates: Served, key: str) -> None:
    for path, method in (("/v1/models", "GET"), ("/v1/chat/completions", "POST")):
        connection = http.client.HTTPConnection("127.0.0.1", gates.port)
        connection.request(
            method, path, headers={"authorization": f"Bearer {key}".encode("latin-1")}
        )
        answer = connection.getresponse()
        error = json.loads(answer.read())["error"]
        assert answer.status == 401 and error["code"] == "invalid_api_key"
        connection.close()


def test_no_key(gates: Served) -> None:
    with gates.client("wrong") as client, pytest.raises(openai.AuthenticationError):
        client.models.list()
    status, body = gates.post(b"{}", authorization=f"Basic {KEY}")
    assert status == 401 and b"is missing" in body


@pytest.mark.parametrize(
    ("options", "status", "param"),
    [
        ({"model": "other"}, 404, "model"),
        ({"n": 2}, 400, "n"),
        ({"n": 0}, 400, "n"),
        ({"logprobs": True}, 400, "logprobs"),
        ({"response_format": {"type": "json_object"}}, 400, "response_format"),
        ({"temperature": 3}, 400, "temperature"),
        ({"max_tokens": 0}, 400, "max_tokens"),
        ({"stop": [1]}, 400, "stop"),
        ({"messages": []}, 400, "messages"),
        ({"messages": [{"role": "king", "content": "x"}]}, 400, "messages[0].role"),
        ({"tool_choice": "required"}, 400, "tool_choice"),
        ({"messages": [_user("x " * 20_000)]}, 400, "messages"),
        ({"messages": [_user("x" * 200_000)]}, 400, "messages"),
        (
            {"messages": [_user([{"type": "image_url", "image_url": {"url": "x"}}])]},  # type: ignore[arg-type]
            400,
            "messages[0].content",
        ),
    ],
)
def test_errors_are_one_sentence(
    client: OpenAI, options: Any, status: int, param: str
) -> None:
    with pytest.raises(openai.APIStatusError) as raised:
        _ask(client, **{"text": "Hi", **options})
    error = raised.value
    assert (error.status_code, error.param) == (status, param)
    assert error.type == "invalid_request_error"
    message = error.body["message"]  # type: ignore[index]
    assert "\n" not in message and message.endswith(".")


def test_a_conversation_that_is_too_long_says_so(client: OpenAI, tools: Any) -> None:
    with pytest.raises(openai.BadRequestError) as raised:
        _ask(client, "word " * 18_000, tools=tools)
    assert raised.value.code == "context_length_exceeded"
    assert "16,384 tokens" in str(raised.value)


@pytest.mark.parametrize(
    ("body", "status"),
    [
        (b"", 400),
        (b"{", 400),
        (b"[]", 400),
        (b"null", 400),
        (b"\xff\xfe", 400),
        (b'{"model": NaN}', 400),
        (b'{"model": 1e999}', 400),
        (b"[" * 200_000, 400),
        (b'{"model": "gates", "messages": "hello"}', 400),
        (b'{"messages": [{"role": "user", "content": "x"}]}', 400),
        (b" " * (MAX_BODY + 1), 413),
    ],
)
def test_malformed_bodies(gates: Served, body: bytes, status: int) -> None:
    code, answer = gates.post(body)
    assert code == status, answer
    assert set(json.loads(answer)["error"]) == {"message", "type", "param", "code"}


def test_a_body_without_end_is_cut_off(gates: Served) -> None:
    def endless() -> Any:
        for _ in range(400):
            yield b" " * (MAX_BODY // 20)

    connection = http.client.HTTPConnection("127.0.0.1", gates.port, timeout=30)
    headers = {"authorization": f"Bearer {KEY}", "transfer-encoding": "chunked"}
    try:
        connection.request(
            "POST", "/v1/chat/completions", endless(), headers, encode_chunked=True
        )
        assert connection.getresponse().status == 413
    except (BrokenPipeError, ConnectionResetError):
        pass  # It had enough before all was sent.
    finally:
        connection.close()


@pytest.mark.parametrize(
    ("method", "path", "status"),
    [("GET", "/", 404), ("POST", "/v1/embeddings", 404), ("PUT", "/v1/models", 405)],
)
def test_what_is_not_offered(
    gates: Served, method: str, path: str, status: int
) -> None:
    connection = http.client.HTTPConnection("127.0.0.1", gates.port)
    connection.request(method, path, headers={"authorization": f"Bearer {KEY}"})
    answer = connection.getresponse()
    assert answer.status == status
    assert f"{method} {path}" in json.loads(answer.read())["error"]["message"]
    connection.close()

"""A served model in bad times: batches, faults, clients that go away, and fuzz."""

from __future__ import annotations

import concurrent.futures
import http.client
import json
import socket
import threading
from collections.abc import Sequence
from typing import Any

import openai
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from openai import OpenAI

from agentgym import TrainedAgent
from agentgym.policies.base import GREEDY, Decision, DecisionRequest, Sampling
from agentgym.serving import http as module
from agentgym.serving.batching import Overloaded

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


class Echo:
    """A policy that says what was said; slowly, or not at all, if told to."""

    context_length = 1000

    def __init__(self) -> None:
        self.batches: list[int] = []
        self.deciding = threading.Event()
        self.go = threading.Event()
        self.go.set()

    def count_tokens(self, text: str) -> int:
        return len(text.split())

    def decide(
        self, requests: Sequence[DecisionRequest], sampling: Sampling = GREEDY
    ) -> list[Decision]:
        self.deciding.set()
        self.go.wait(60)
        self.batches.append(len(requests))
        texts = [str(request.messages[-1]["content"]) for request in requests]
        if "fail" in texts:
            raise ValueError("no")
        return [Decision({"role": "assistant", "content": t}, "finish") for t in texts]


def test_no_key_is_needed_where_none_is_set(serve: Any, gates: Served) -> None:
    stub = TrainedAgent(Echo(), [], {})
    with serve(stub, key=None) as served, served.client("anything") as client:
        assert _ask(client, "Hi").choices[0].message.content == "Hi"


def test_a_body_that_does_not_come(serve: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "BODY_SECONDS", 0.1)
    with (
        serve(TrainedAgent(Echo(), [], {}), key=None) as served,
        socket.create_connection(("127.0.0.1", served.port), timeout=30) as slow,
    ):
        slow.sendall(
            b"POST /v1/chat/completions HTTP/1.1\r\nhost: x\r\n"
            b"content-length: 10\r\n\r\n{"
        )
        assert b" 408 " in slow.recv(1000).partition(b"\r\n")[0]


def test_requests_that_wait_are_answered_together(
    serve: Any, batched: list[Any], eventually: Any
) -> None:
    echo = Echo()
    with (
        serve(TrainedAgent(echo, [], {}), key=None) as served,
        served.client() as client,
        concurrent.futures.ThreadPoolExecutor(20) as pool,
    ):
        echo.go.clear()
        futures = [pool.submit(_ask, client, f"text {i}") for i in range(20)]
        eventually(lambda: len(batched) == 20)
        echo.go.set()
        answers = [f.result().choices[0].message.content for f in futures]
    assert answers == [f"text {i}" for i in range(20)]
    assert max(echo.batches) >= 5 and sum(echo.batches) == 20


def test_equal_questions_are_decided_once(
    serve: Any, batched: list[Any], eventually: Any
) -> None:
    echo = Echo()
    with (
        serve(TrainedAgent(echo, [], {}), key=None) as served,
        served.client() as client,
        concurrent.futures.ThreadPoolExecutor(12) as pool,
    ):
        echo.go.clear()
        first = pool.submit(_ask, client, "first")
        eventually(echo.deciding.is_set)
        texts = ["one two", "three"] * 5
        futures = [pool.submit(_ask, client, t, max_tokens=1) for t in texts]
        eventually(lambda: len(batched) == 11)
        echo.go.set()
        answers = [first.result(), *(f.result() for f in futures)]
    said = [answer.choices[0].message.content for answer in answers]
    assert said == ["first", *["one", "three"] * 5]
    assert len({answer.id for answer in answers}) == 11
    assert echo.batches == [1, 2]


def test_a_request_that_fails_spoils_no_other(
    serve: Any, batched: list[Any], eventually: Any
) -> None:
    echo = Echo()
    with (
        serve(TrainedAgent(echo, [], {}), key=None) as served,
        served.client() as client,
        concurrent.futures.ThreadPoolExecutor(8) as pool,
    ):
        echo.go.clear()
        texts = ["a", "fail", "b", "word " * 1001, "c"]
        futures = [pool.submit(_ask, client, text) for text in texts]
        eventually(lambda: len(batched) == 5)
        echo.go.set()
        said = [f.result().choices[0].message.content for f in futures[::2]]
        assert said == ["a", "b", "c"]
        with pytest.raises(openai.InternalServerError) as raised:
            futures[1].result()
        assert raised.value.code == "internal_error" and "no" not in str(
            raised.value.param
        )
        assert "Traceback" not in str(raised.value.body)
        with pytest.raises(openai.BadRequestError):
            futures[3].result()
    assert [str(error) for error in served.errors] == ["no"]


def test_too_many_wait(serve: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    echo = Echo()
    monkeypatch.setattr("agentgym.serving.batching.Batcher.ask", _overloaded)
    with serve(TrainedAgent(echo, [], {}), key=None) as served:
        connection = http.client.HTTPConnection("127.0.0.1", served.port)
        payload = {"model": "gates", "messages": [_user("x")]}
        connection.request("POST", "/v1/chat/completions", json.dumps(payload))
        answer = connection.getresponse()
        assert (answer.status, answer.headers["retry-after"]) == (503, "1")
        connection.close()


async def _overloaded(self: Any, item: Any) -> Any:
    raise Overloaded


def test_clients_that_go_away_do_no_harm(serve: Any) -> None:
    echo = Echo()
    payload = json.dumps({"model": "gates", "messages": [_user("x")]}).encode()
    head = (
        "POST /v1/chat/completions HTTP/1.1\r\nhost: x\r\n"
        f"content-length: {len(payload)}\r\n\r\n"
    )
    with serve(TrainedAgent(echo, [], {}), key=None) as served:
        echo.go.clear()
        for cut in (10, len(payload)):
            with socket.create_connection(("127.0.0.1", served.port)) as gone:
                gone.sendall(head.encode() + payload[:cut])
        echo.go.set()
        with served.client() as client:
            assert _ask(client, "still here").choices[0].message.content
        assert served.errors == []


_JSON = st.recursive(
    st.none()
    | st.booleans()
    | st.integers(-(10**30), 10**30)
    | st.floats(allow_nan=False, allow_infinity=False)
    | st.text(max_size=12)
    | st.sampled_from(["user", "tool", "object", "string", "#", "a+", "\ud800", "B17"]),
    lambda inner: (
        st.lists(inner, max_size=4)
        | st.dictionaries(
            st.sampled_from(
                "role content tool_calls function name arguments type parameters"
                " properties required enum pattern items $ref anyOf const minimum"
                " format default text id tool_call_id additionalProperties".split()
            ),
            inner,
            max_size=5,
        )
    ),
    max_leaves=12,
)
_VALID: dict[str, Any] = {
    "model": "gates",
    "messages": [
        _user("Please open gate B17 for 12.5 on 2024-01-02"),
        {
            "role": "assistant",
            "content": None,
            "tool_calls": [
                {
                    "id": "a",
                    "type": "function",
                    "function": {"name": "open_gate", "arguments": '{"gate": "B17"}'},
                }
            ],
        },
        {"role": "tool", "tool_call_id": "a", "content": '{"gate": ["B17", 3, null]}'},
    ],
    "tools": [
        {
            "type": "function",
            "function": {
                "name": "open_gate",
                "description": "Opens",
                "parameters": {
                    "type": "object",
                    "properties": {"gate": {"type": "string", "pattern": "^B"}},
                    "required": ["gate"],
                },
            },
        }
    ],
    "tool_choice": "auto",
    "stop": ["x"],
    "max_tokens": 100,
    "stream": False,
    "stream_options": None,
    "response_format": None,
}


def _places(value: Any, path: tuple[Any, ...] = ()) -> list[tuple[Any, ...]]:
    found = [path] if path else []
    items = (
        value.items()
        if isinstance(value, dict)
        else enumerate(value)
        if isinstance(value, list)
        else ()
    )
    for key, below in items:
        found += _places(below, (*path, key))
    return found


_PLACES = _places(_VALID)


@given(changes=st.lists(st.tuples(st.sampled_from(_PLACES), _JSON), max_size=3))
@settings(
    max_examples=400,
    suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow],
)
def test_no_payload_brings_it_down(gates: Served, changes: Any) -> None:
    payload = json.loads(json.dumps(_VALID))
    for path, value in changes:
        at = payload
        try:
            for key in path[:-1]:
                at = at[key]
            at[path[-1]] = value
        except (KeyError, IndexError, TypeError):
            continue  # An earlier change has taken this place away.
    status, body = gates.post(json.dumps(payload).encode())
    assert gates.errors == []
    assert b"Traceback" not in body
    if status == 200:
        assert body
    else:
        assert 400 <= status < 500
        message = json.loads(body)["error"]["message"]
        assert message and "\n" not in message


@given(st.binary(max_size=200))
@settings(max_examples=100)
def test_no_bytes_bring_it_down(gates: Served, body: bytes) -> None:
    status, answer = gates.post(body)
    assert status == 400 and json.loads(answer)["error"]["message"]

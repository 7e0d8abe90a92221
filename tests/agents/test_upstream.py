"""Agents, the gateway, and a server behind it that gives token ids, or fails."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Iterator
from typing import Any

import openai
import pytest
from openai import OpenAI
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import JSONResponse, Response, StreamingResponse
from starlette.routing import Route

from agentgym.agents.callables import CallableAgentManager
from agentgym.agents.gateway import Gateway
from agentgym.agents.sessions import Session
from agentgym.agents.upstream import UpstreamBackend
from agentgym.core.task import Task
from agentgym.core.tools import FailureKind
from agentgym.core.trajectory import EpisodePlan
from agentgym.episodes.episode import AgentTask
from agentgym.serving.server import Background

CALL = {
    "id": "call_1",
    "type": "function",
    "function": {"name": "find", "arguments": '{"what": "this"}'},
}


class Upstream:
    """A server that answers as vLLM does, and fails in the ways that it is asked to."""

    def __init__(self) -> None:
        self.asked: list[dict[str, Any]] = []
        self.keys: list[str | None] = []
        self.open_streams = 0
        self.go = asyncio.Event()

    def app(self) -> Starlette:
        return Starlette(
            routes=[
                Route("/v1/chat/completions", self.chat, methods=["POST"]),
                Route("/v1/completions", self.text, methods=["POST"]),
                Route("/v1/embeddings", self.embed, methods=["POST"]),
            ]
        )

    async def chat(self, request: Request) -> Response:
        body = json.loads(await request.body())
        self.asked.append(body)
        self.keys.append(request.headers.get("authorization"))
        text = body["messages"][-1]["content"]
        if text.isdigit():
            error = {"error": {"message": "no luck", "type": "x", "code": None}}
            return JSONResponse(error, int(text), {"retry-after": "7"})
        if text == "slow":
            await asyncio.sleep(60)
        if text == "garbage":
            return Response(b"<html>", media_type="text/html")
        if text == "empty":
            return JSONResponse({"choices": []})
        if body["stream"]:
            return StreamingResponse(self.stream(text), media_type="text/event-stream")
        message: dict[str, Any] = {"role": "assistant", "content": text}
        if text.startswith("call"):
            call = {**CALL, "function": dict(CALL["function"])}  # type: ignore[arg-type]
            if text == "call badly":
                call["function"]["arguments"] = '{"what"'  # type: ignore[index]
                del call["id"]
            message = {"role": "assistant", "content": None, "tool_calls": [call]}
        choice = {
            "index": 0,
            "message": message,
            "finish_reason": "tool_calls" if text.startswith("call") else "stop",
            "logprobs": {"content": [_logprob(-0.5), _logprob(-0.25)]},
            "token_ids": [11, 12],
        }
        return JSONResponse(_whole("chat.completion", [choice]))

    async def stream(self, text: str) -> AsyncIterator[bytes]:
        self.open_streams += 1
        try:
            deltas: list[dict[str, Any]] = [{"role": "assistant", "content": ""}]
            if text.startswith("call"):
                opening = {**CALL, "index": 0, "function": {"name": "find"}}
                deltas += [{"tool_calls": [opening]}]
                for part in ('{"what":', ' "this"}'):
                    rest = {"index": 0, "function": {"arguments": part}}
                    deltas += [{"tool_calls": [rest]}]
            else:
                deltas += [{"content": f"{word} "} for word in text.split()]
            for i, delta in enumerate(deltas):
                if text == "break off" and i == 2:
                    raise ConnectionResetError
                if text == "garble it" and i == 2:
                    yield b"data: {nonsense\n\n"
                choice: dict[str, Any] = {
                    "index": 0,
                    "delta": delta,
                    "finish_reason": None,
                    "logprobs": None,
                }
                if i:
                    choice["token_ids"] = [20 + i]
                    choice["logprobs"] = {"content": [_logprob(-0.5)]}
                yield _event(_whole("chat.completion.chunk", [choice], first=i == 0))
                if text.startswith("wait"):
                    await self.go.wait()
            reason = "tool_calls" if text.startswith("call") else "stop"
            last = {"index": 0, "delta": {}, "finish_reason": reason}
            yield _event(_whole("chat.completion.chunk", [last], first=False))
            yield b"data: [DONE]\n\n"
        finally:
            self.open_streams -= 1

    async def embed(self, request: Request) -> Response:
        body = json.loads(await request.body())
        self.asked.append(body)
        vector = {"object": "embedding", "index": 0, "embedding": [0.5, 1.0]}
        usage = {"prompt_tokens": 1, "total_tokens": 1}
        return JSONResponse(
            {"object": "list", "data": [vector], "model": "e", "usage": usage}
        )

    async def text(self, request: Request) -> Response:
        body = json.loads(await request.body())
        self.asked.append(body)
        choice = {
            "index": 0,
            "text": f"{body['prompt']} a time",
            "finish_reason": "length",
            "logprobs": {
                "tokens": ["a", "time"],
                "token_logprobs": [-1.0, -2.0],
                "top_logprobs": None,
                "text_offset": [0, 1],
            },
            "token_ids": [5, 6],
            "prompt_token_ids": [1, 2, 3],
        }
        return JSONResponse(_whole("text_completion", [choice], first=False))


def _logprob(value: float) -> dict[str, Any]:
    return {"token": "x", "logprob": value, "bytes": None, "top_logprobs": []}


def _whole(kind: str, choices: list[Any], *, first: bool = True) -> dict[str, Any]:
    body = {
        "id": "up-1",
        "object": kind,
        "created": 1,
        "model": "served",
        "choices": choices,
        "usage": None if "chunk" in kind else _usage(),
    }
    return {**body, "prompt_token_ids": [1, 2, 3]} if first else body


def _usage() -> dict[str, int]:
    return {"prompt_tokens": 3, "completion_tokens": 2, "total_tokens": 5}


def _event(value: dict[str, Any]) -> bytes:
    return b"data: %b\n\n" % json.dumps(value).encode()


@pytest.fixture
def upstream() -> Upstream:
    return Upstream()


@pytest.fixture
def gateway(upstream: Upstream, errors: list[Exception]) -> Iterator[Gateway]:
    server = Background(upstream.app())
    backend = UpstreamBackend(
        f"http://127.0.0.1:{server.port}/v1",
        model="served",
        api_key="up",
        embedding_model="small",
        timeout=2,
    )
    with Gateway(backend, log=errors.append) as made:
        yield made
    server.stop()
    assert errors == []


def _ask(client: OpenAI, text: str, **options: Any) -> Any:
    return client.chat.completions.create(
        model="m", messages=[{"role": "user", "content": text}], **options
    )


def test_tokens_are_those_of_the_sampler(
    client: OpenAI, session: Session, upstream: Upstream
) -> None:
    answer = _ask(client, "Hi you", temperature=0.7)
    assert answer.choices[0].message.content == "Hi you"
    # The agent did not ask for these.
    assert answer.choices[0].logprobs is None
    assert "token_ids" not in answer.choices[0].model_extra
    assert "prompt_token_ids" not in answer.model_extra
    step = session.recorder.exchanges[0].step
    assert step.sampled is not None
    assert step.sampled.prompt == (1, 2, 3)
    assert step.sampled.completion == (11, 12)
    assert step.sampled.logprobs == (-0.5, -0.25)
    assert step.logprob == -0.75
    assert (step.prompt_tokens, step.completion_tokens) == (3, 2)
    sent = upstream.asked[0]
    assert sent["model"] == "served" and sent["temperature"] == 0.7
    assert sent["return_token_ids"] is True and sent["logprobs"] is True
    assert upstream.keys == ["Bearer up"]
    asked = _ask(client, "Hi", logprobs=True)
    assert len(asked.choices[0].logprobs.content) == 2


def test_calls(client: OpenAI, session: Session) -> None:
    answer = _ask(client, "call it")
    assert answer.choices[0].message.tool_calls[0].id == "call_1"
    assert session.recorder.exchanges[0].step.calls[0].arguments == {"what": "this"}
    broken = _ask(client, "call badly").choices[0].message.tool_calls[0]
    assert broken.function.arguments == '{"what"' and broken.id
    response = client.responses.create(model="m", input="call badly")
    assert response.output[0].arguments == '{"what"'  # type: ignore[union-attr]


@pytest.mark.parametrize("text", ["one two", "call it"])
def test_a_relayed_stream(client: OpenAI, session: Session, text: str) -> None:
    chunks = list(_ask(client, text, stream=True))
    assert all("token_ids" not in c.choices[0].model_extra for c in chunks)
    assert all(c.choices[0].logprobs is None for c in chunks)
    step = session.recorder.exchanges[0].step
    assert step.sampled is not None and step.sampled.prompt == (1, 2, 3)
    if text == "one two":
        assert step.message["content"] == "one two "
        assert step.sampled.completion == (21, 22)
    else:
        assert step.calls[0].arguments == {"what": "this"}
        assert step.sampled.completion == (21, 22, 23)
    assert len(step.sampled.logprobs) == len(step.sampled.completion)


def test_a_stream_is_passed_on_at_once(
    client: OpenAI, upstream: Upstream, session: Session, eventually: Any
) -> None:
    stream = _ask(client, "wait a bit", stream=True)
    assert next(stream).choices[0].delta.role == "assistant"
    assert upstream.open_streams == 1 and session.recorder.exchanges == []
    # The client goes away: so does the stream behind it.
    stream.close()
    eventually(lambda: not upstream.open_streams and not session.running)
    assert session.recorder.exchanges == []


def test_a_session_that_closes_ends_its_streams(
    client: OpenAI, upstream: Upstream, gateway: Gateway, session: Session
) -> None:
    stream = _ask(client, "wait a bit", stream=True)
    next(stream)
    gateway.close(session)
    with pytest.raises((openai.APIError, Exception)):
        list(stream)
    assert session.recorder.exchanges == []


def test_plain_completions(
    client: OpenAI, session: Session, upstream: Upstream
) -> None:
    answer = client.completions.create(model="m", prompt="Once upon", max_tokens=2)
    assert answer.choices[0].text == "Once upon a time"
    assert answer.choices[0].logprobs is None
    step = session.recorder.exchanges[0].step
    assert step.sampled is not None
    assert step.sampled.completion == (5, 6) and step.sampled.prompt == (1, 2, 3)
    assert upstream.asked[0]["prompt"] == "Once upon"
    assert upstream.asked[0]["logprobs"] == 1


def test_embeddings(client: OpenAI, session: Session, upstream: Upstream) -> None:
    answer = client.embeddings.create(model="m", input="x", encoding_format="float")
    assert answer.data[0].embedding == [0.5, 1.0]
    assert upstream.asked[0]["model"] == "small"
    assert session.recorder.exchanges == []


def test_responses(client: OpenAI, session: Session) -> None:
    with client.responses.stream(model="m", input="Hi you") as stream:
        assert stream.get_final_response().output_text == "Hi you"
    assert session.recorder.exchanges[0].step.sampled is not None


@pytest.mark.parametrize("stream", [False, True])
@pytest.mark.parametrize(
    ("text", "status"),
    [("500", 500), ("503", 503), ("429", 429), ("400", 400), ("401", 502)],
)
def test_what_the_server_refuses(
    client: OpenAI, session: Session, text: str, status: int, stream: bool
) -> None:
    with pytest.raises(openai.APIStatusError) as raised:
        _ask(client, text, stream=stream)
    assert raised.value.status_code == status
    assert raised.value.response.headers["retry-after"] == "7"
    assert session.recorder.exchanges == []
    assert bool(session.refused["upstream_error"]) is (status != 400)


@pytest.mark.parametrize(
    ("text", "status"), [("slow", 504), ("garbage", 502), ("empty", 502)]
)
def test_a_server_that_fails(
    client: OpenAI, session: Session, text: str, status: int
) -> None:
    with pytest.raises(openai.APIStatusError) as raised:
        _ask(client, text)
    assert raised.value.status_code == status
    assert raised.value.code == "upstream_error"
    # Others are not kept from their answers.
    assert _ask(client, "Hi").choices[0].message.content == "Hi"
    assert len(session.recorder.exchanges) == 1


@pytest.mark.parametrize("text", ["break off", "garble it", "wait"])
def test_a_stream_that_breaks_off(
    client: OpenAI, session: Session, upstream: Upstream, text: str
) -> None:
    with pytest.raises(openai.APIError, match="behind this endpoint"):
        list(_ask(client, text, stream=True))
    assert session.recorder.exchanges == []
    assert session.refused["upstream_error"] == 1


def test_a_server_that_fails_costs_the_agents_that_it_failed(gateway: Gateway) -> None:
    def agent(task: AgentTask, base_url: str, api_key: str) -> None:
        with OpenAI(base_url=base_url, api_key=api_key, max_retries=0) as client:
            for text in ("Hi", task.prompt):
                list(_ask(client, text, stream=text != "slow"))

    said = ["500", "Hello", "slow", "break off", "Bye"]
    tasks = [
        Task(f"{i}", ({"role": "user", "content": text},))
        for i, text in enumerate(said)
    ]
    played = CallableAgentManager(agent, gateway).play([EpisodePlan(t) for t in tasks])
    failed = FailureKind.UPSTREAM_ERROR
    assert [{t.failure for t in one} for one in played] == [
        {failed},
        {None},
        {failed},
        {failed},
        {None},
    ]
    # What was answered before is kept, with the sampler's tokens.
    for one in played:
        first = one[0].steps[0]
        assert first.sampled is not None and first.sampled.completion == (21,)


def test_a_server_that_is_not_there(errors: list[Exception]) -> None:
    backend = UpstreamBackend("http://127.0.0.1:9/v1")
    with Gateway(backend, log=errors.append) as gateway:
        session = gateway.open()
        client = OpenAI(
            base_url=gateway.base_url(session), api_key=session.key, max_retries=0
        )
        with client, pytest.raises(openai.InternalServerError) as raised:
            _ask(client, "Hi")
        assert raised.value.code == "upstream_error"
    assert errors == []

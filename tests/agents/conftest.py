"""Gateways with a policy that does what it is told, and clients for their sessions."""

from __future__ import annotations

import http.client
import json
import threading
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import numpy as np
import pytest
from openai import OpenAI

from agentgym.agents.backends import PolicyBackend
from agentgym.agents.gateway import Gateway
from agentgym.agents.sessions import Session
from agentgym.core.tools import ToolCall
from agentgym.core.trajectory import SampledTokens
from agentgym.policies.base import GREEDY, Decision, DecisionRequest, Policy, Sampling


class Obedient(Policy):
    """Calls what the last user message says after "call", else repeats its words."""

    name = "obedient"
    context_length = 4_000

    def __init__(self) -> None:
        self.requests: list[DecisionRequest] = []
        self.batches: list[int] = []
        self.samplings: list[Sampling] = []
        self.says: Callable[[DecisionRequest], str] | None = None
        """What it says instead of repeating."""
        self.go = threading.Event()
        self.go.set()

    def decide(
        self, requests: Sequence[DecisionRequest], sampling: Sampling = GREEDY
    ) -> list[Decision]:
        self.go.wait(60)
        self.requests += requests
        self.batches.append(len(requests))
        self.samplings.append(sampling)
        return [self._decide(request) for request in requests]

    def _decide(self, request: DecisionRequest) -> Decision:
        last = request.messages[-1]
        text = str(last["content"] or "")
        number = len(self.requests)
        common: dict[str, Any] = {
            "logprob": -float(number),
            "prompt_tokens": sum(
                self.count_tokens(str(m["content"])) for m in request.messages
            ),
            "trace": number,
            "sampled": SampledTokens((1, 2), (number,), (-float(number),)),
        }
        if text == "fail":
            raise ValueError("no")
        if request.tools and (
            request.must_call or (last["role"] == "user" and text.startswith("call"))
        ):
            words = text.removeprefix("call").split(";")
            calls = tuple(
                ToolCall(request.tools[-1].name, {"what": word.strip()})
                for word in words
            )
            message = {"content": None, "tool_calls": [c.to_openai() for c in calls]}
            return Decision(message, "call", calls, completion_tokens=3, **common)
        text = self.says(request) if self.says is not None else text
        said = {"content": text}
        size = self.count_tokens(text)
        return Decision(said, "finish", completion_tokens=size, **common)

    def count_tokens(self, text: str) -> int:
        return len(text.split())

    def learn(self, *arguments: Any, **options: Any) -> Any:
        raise NotImplementedError

    def state(self) -> dict[str, Any]:
        return {}

    def load_state(self, state: Any) -> None:
        pass

    def save(self, folder: Any) -> None:
        pass

    @classmethod
    def load(cls, folder: Any) -> Obedient:
        return cls()


@pytest.fixture
def policy() -> Obedient:
    return Obedient()


@pytest.fixture
def errors() -> list[Exception]:
    """What went wrong on the gateway's side."""
    return []


@pytest.fixture
def gateway(policy: Obedient, errors: list[Exception]) -> Iterator[Gateway]:
    sampling = Sampling(np.random.default_rng(0), 0.1)
    with Gateway(PolicyBackend(policy, sampling), log=errors.append) as made:
        yield made
    assert errors == []


@pytest.fixture
def session(gateway: Gateway) -> Session:
    return gateway.open()


@pytest.fixture
def client_of(gateway: Gateway) -> Iterator[Callable[..., OpenAI]]:
    """The official client for a session."""
    made = []

    def client(session: Session, **options: Any) -> OpenAI:
        made.append(
            OpenAI(
                **{
                    "base_url": gateway.base_url(session),
                    "api_key": session.key,
                    "max_retries": 0,
                    "_strict_response_validation": True,
                    **options,
                }
            )
        )
        return made[-1]

    yield client
    for one in made:
        one.close()


@pytest.fixture
def client(session: Session, client_of: Callable[..., OpenAI]) -> OpenAI:
    return client_of(session)


@pytest.fixture
def send(gateway: Gateway, session: Session) -> Callable[..., tuple[int, Any]]:
    """Sends a body as it is; returns the status and what came back."""

    def post(
        body: bytes | dict[str, Any] | None = None,
        path: str = "/v1/chat/completions",
        **headers: str,
    ) -> tuple[int, Any]:
        connection = http.client.HTTPConnection("127.0.0.1", gateway.port, timeout=60)
        try:
            data = json.dumps(body).encode() if isinstance(body, dict) else body
            connection.request(
                "GET" if body is None else "POST",
                f"/s/{session.id}{path}",
                data,
                {
                    "authorization": f"Bearer {session.key}",
                    **{
                        name.replace("_", "-"): value for name, value in headers.items()
                    },
                },
            )
            answer = connection.getresponse()
            return answer.status, json.loads(answer.read())
        finally:
            connection.close()

    return post

"""What answers the gateway's requests; by default a policy in this process."""

from __future__ import annotations

import threading
from abc import ABC, abstractmethod
from collections.abc import AsyncGenerator, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal

from agentgym.policies.base import GREEDY, Policy, Sampling
from agentgym.serving.batching import Batcher, Overloaded
from agentgym.serving.deciding import Answer, answer_all
from agentgym.serving.errors import ApiError
from agentgym.serving.http import overloaded
from agentgym.serving.protocol import ChatRequest, parse_chat
from agentgym.serving.tools import ToolCache


@dataclass(slots=True)
class Question:
    """A request to a backend.

    Attributes:
        chat: The body of the chat completion that asks it.
        form: In which form it was asked; `text` is OpenAI's older completions.
        body: The body of the request in that form.
        asked: Further fields of the `DecisionRequest` that a policy gets.
    """

    chat: dict[str, Any]
    form: Literal["chat", "text"] = "chat"
    body: dict[str, Any] = field(default_factory=dict)
    asked: dict[str, Any] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Answered(Answer):
    """An answer, with the body of the upstream server if one gave it."""

    body: dict[str, Any] | None = None


class Relay(ABC):
    """A streamed answer on its way through: passed on at once, and recorded.

    Attributes:
        tail: The events from the one on that says why the answer ended, once `events`
            is through. An agent acts as soon as it has that one, so the answer must be
            on record before.
    """

    def __init__(self) -> None:
        self.tail: list[bytes] = []

    @abstractmethod
    def events(self) -> AsyncGenerator[bytes, None]:
        """The events as the agent gets them, all but the tail.

        Raises:
            ApiError: The stream ended early.
        """

    @abstractmethod
    def answer(self) -> Answer:
        """The whole answer, once all events have been passed on."""


class Backend(ABC):
    """Answers questions. All its methods run in the gateway's event loop."""

    async def start(self) -> None:  # noqa: B027
        """Prepares what answering needs."""

    async def stop(self) -> None:  # noqa: B027
        """Frees it."""

    @abstractmethod
    async def answer(self, question: Question) -> Answer:
        """The whole answer.

        Raises:
            ApiError: No answer is possible; the error says why.
        """

    async def embed(self, body: dict[str, Any]) -> dict[str, Any]:
        """The embeddings for a request.

        Raises:
            ApiError: Embeddings aren't available.
        """
        raise ApiError(
            501,
            "Embeddings aren't supported. Connect the agent's memory to a server that"
            " has them, or turn it off.",
            code="not_implemented",
        )

    async def stream(self, question: Question) -> Relay | None:
        """The answer piece by piece; None if only the whole answer is available.

        Raises:
            ApiError: No answer is possible; the error says why.
        """
        return None


class PolicyBackend(Backend):
    """The policy that is being trained, in this process.

    Questions of all sessions are decided together, in one thread, as they come.
    """

    def __init__(self, policy: Policy | None = None, sampling: Sampling = GREEDY):
        self._policy = policy
        self._sampling = sampling
        self._shelf = ToolCache()
        self._deciding = threading.Lock()
        self._batcher: Batcher[tuple[ChatRequest, Question], Answer] = Batcher(
            self._decide
        )

    def use(self, policy: Policy | None, sampling: Sampling = GREEDY) -> None:
        """Answers from another policy from now on, or from none.

        Once it returns, the previous policy makes no more decisions.
        """
        with self._deciding:
            self._policy, self._sampling = policy, sampling

    async def start(self) -> None:
        """Starts the thread that decides."""
        self._batcher.start()

    async def stop(self) -> None:
        """Stops the thread once all requests are answered."""
        await self._batcher.stop()

    async def answer(self, question: Question) -> Answer:
        """See `Backend.answer`."""
        request = parse_chat(question.chat, self._shelf)
        try:
            return await self._batcher.ask((request, question))
        except Overloaded:
            raise overloaded() from None

    def _decide(
        self, asked: Sequence[tuple[ChatRequest, Question]]
    ) -> list[Answer | Exception]:
        with self._deciding:
            if self._policy is None:
                resting = ApiError(
                    503,
                    "The policy isn't sampling now: the episode is over.",
                    kind="server_error",
                )
                return [resting] * len(asked)
            requests = [request for request, _ in asked]
            return answer_all(
                self._policy,
                requests,
                self._sampling,
                [request.to_decision(**question.asked) for request, question in asked],
            )

"""One agent's session at the gateway: its key, record and recent requests."""

from __future__ import annotations

import asyncio
import secrets
import threading
import zlib
from collections import Counter
from typing import Any

import numpy as np

from agentgym.core.task import Message
from agentgym.core.tools import ToolCall, parse_calls
from agentgym.core.trajectory import EpisodePlan, Step
from agentgym.episodes.continuity import Context
from agentgym.episodes.episode import Episode
from agentgym.episodes.recorder import Exchange, Recorder
from agentgym.policies.base import Decision, Turn
from agentgym.serving.answers import Completion
from agentgym.serving.deciding import Answer
from agentgym.serving.errors import ApiError
from agentgym.training.rollout import FORK_EXPLORATION, step_of

MAX_REQUESTS = 200
"""Default limit of requests per session."""
MAX_AT_ONCE = 16
"""Requests of one session that may wait together."""
_RECENT = 16
"""Answers that are kept for clients that try again."""
_CONVERSATIONS = 64
"""Conversations that are kept for `previous_response_id`."""


class Session:
    """A private endpoint for one episode.

    Attributes:
        id: Part of its address.
        key: What its agent must send as a bearer token.
        recorder: What was asked and answered.
        episode: The world that the agent works in; None without one.
        refused: How many requests were not answered, by error code.
        closed: Whether it has stopped answering.
    """

    def __init__(
        self,
        episode: Episode | None,
        max_requests: int,
        planned: EpisodePlan | None = None,
    ) -> None:
        self.id = secrets.token_hex(8)
        self.key = f"sk-{secrets.token_hex(16)}"
        self.episode = episode
        self.recorder = Recorder()
        self.refused: Counter[str] = Counter()
        self.requests = 0
        self.closed = False
        self.running: set[asyncio.Task[Any]] = set()
        """Requests on their way; these belong to the gateway's event loop."""
        self.deciding: set[asyncio.Task[Any]] = set()
        """Decisions on their way, also those whose client has gone."""
        self._max_requests = max_requests
        self._planned = planned
        self._asked: Counter[str] = Counter()
        self._recent: dict[bytes, asyncio.Future[Answer]] = {}
        self._conversations: dict[str, list[Message]] = {}
        self._lock = threading.Lock()

    # Limits --------------------------------------------------------------------------

    def admit(self) -> None:
        """Counts a request.

        Raises:
            ApiError: There were too many.
        """
        self.requests += 1
        if self.requests > self._max_requests:
            raise _too_many(
                f"This episode has used all {self._max_requests} requests.", "flood"
            )
        if len(self.running) > MAX_AT_ONCE:
            raise _too_many(
                f"Limit of {MAX_AT_ONCE} requests at once reached. Wait for an answer.",
                "too_many_at_once",
            )

    # Retries -------------------------------------------------------------------------

    def earlier(self, digest: bytes) -> asyncio.Future[Answer] | None:
        """The answer to the same request, given or on its way."""
        known = self._recent.get(digest)
        failed = (
            known is not None
            and known.done()
            and (known.cancelled() or known.exception() is not None)
        )
        return None if failed else known

    def remember(self, digest: bytes, answer: asyncio.Future[Answer]) -> None:
        """Keeps an answer for a client that didn't get it and tries again."""
        self._recent[digest] = answer
        while len(self._recent) > _RECENT:
            del self._recent[next(iter(self._recent))]

    # Conversations -------------------------------------------------------------------

    def conversation(self, response: Any) -> list[Message]:
        """The messages up to a response, its own included.

        Raises:
            ApiError: The session has no such response.
        """
        if response is None:
            return []
        known = self._conversations.get(response) if isinstance(response, str) else None
        if known is None:
            raise ApiError(
                400,
                f"Response '{str(response)[:100]}' not found in this session.",
                param="previous_response_id",
                code="previous_response_not_found",
            )
        return known

    def keep_conversation(self, response: str, messages: list[Message]) -> None:
        """Keeps the messages up to a response for requests that continue it."""
        self._conversations[response] = messages
        while len(self._conversations) > _CONVERSATIONS:
            del self._conversations[next(iter(self._conversations))]

    # The record ----------------------------------------------------------------------

    @property
    def over(self) -> bool:
        """Whether the episode is over, so that no decision is left."""
        return self.episode is not None and self.episode.over

    def scripted(self, context: Context, model: str) -> Answer | None:
        """The answer that the sibling got here, where one is to be repeated."""
        step = self.episode.scripted(context.state_key) if self.episode else None
        if step is None:
            return None
        calls = tuple(
            ToolCall(call.name, call.arguments, f"call_{secrets.token_hex(12)}")
            for call in parse_calls(step.message)
        )
        decision = Decision(
            step.message,
            "call" if calls else "finish",
            calls,
            prompt_tokens=step.prompt_tokens,
            completion_tokens=step.completion_tokens,
        )
        return Answer(decision, _completion(model, decision))

    def asked(self, state_key: str, *, side: bool) -> dict[str, Any]:
        """Fields of the `DecisionRequest` that is due at a state."""
        fields: dict[str, Any] = {"state_key": state_key}
        branching = not side and self.episode is not None and self.episode.branching
        planned = self._planned
        if planned is not None and planned.draws is not None:
            state = zlib.crc32(state_key.encode())
            own = (*planned.draws, planned.number, state, self._asked[state_key])
            self._asked[state_key] += 1
            fields["rng"] = np.random.default_rng(own)
            fields["exploration"] = planned.exploration
            # Siblings are sure to meet only where they branch off.
            fields["turn"] = (
                Turn((*planned.draws, state), planned.turn)
                if branching
                else Turn(own, 0)
            )
        if branching:
            fields["exploration"] = FORK_EXPLORATION
        return fields

    def record(
        self, context: Context, answer: Answer, *, side: bool, replayed: bool
    ) -> Exchange | None:
        """Records an answer, unless the client is gone."""
        step: Step = step_of(answer.decision, context.state_key)
        step.calls = answer.completion.calls
        step.message = message_of(answer.completion)
        step.replayed = replayed
        with self._lock:
            if self.closed:
                return None
            exchange = self.recorder.add(context, step, side=side)
        if self.episode is not None and not side:
            self.episode.decided(exchange)
        return exchange

    def close(self) -> None:
        """Records nothing from now on."""
        with self._lock:
            self.closed = True


def message_of(completion: Completion) -> Message:
    """The assistant message of an answer, as the agent will send it back."""
    message: Message = {"role": "assistant", "content": completion.content}
    if completion.calls:
        message["tool_calls"] = [call.to_openai() for call in completion.calls]
    return message


def farewell(model: str) -> Answer:
    """The answer to agents that send requests after their episode: it ends loops."""
    message = {"role": "assistant", "content": "The conversation is over."}
    decision = Decision(message, "finish")
    return Answer(decision, _completion(model, decision))


def _completion(model: str, decision: Decision) -> Completion:
    return Completion(
        model,
        decision.message.get("content"),
        decision.calls,
        "tool_calls" if decision.calls else "stop",
        decision.prompt_tokens,
        decision.completion_tokens,
    )


def _too_many(text: str, code: str) -> ApiError:
    return ApiError(
        429,
        text,
        kind="rate_limit_error",
        code=code,
        headers={"retry-after": "1"},
    )

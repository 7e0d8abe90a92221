"""What every framework asks: a chat completion with tools, decided by a policy.

A framework's model class turns its messages and tools into OpenAI's request, asks a
`ChatModel`, and turns the answer back. That is the only place that knows a policy,
and the only one that says when a language model of the user's is asked instead.
"""

from __future__ import annotations

import json
import re
import threading
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any

from agentgym.core.task import Message
from agentgym.errors import UsageError
from agentgym.policies.base import Decision
from agentgym.policies.calls.conversation import content_text
from agentgym.policies.saved import SavedAgent
from agentgym.serving.answers import Completion
from agentgym.serving.deciding import Answer, answer_all
from agentgym.serving.errors import ApiError
from agentgym.serving.protocol import parse_chat
from agentgym.serving.tools import ToolCache

Complete = Callable[[dict[str, Any]], Answer]
"""Answers OpenAI's request for a chat completion."""

MODEL = "agentgym"
MAX_CALLS = 20
"""Calls in a row after which an agent that is handed out has to stop."""
_STUCK = (
    f"I stop here: {MAX_CALLS} calls in a row have not brought me to an answer. Please "
    "tell me more about what you need."
)


_ROLES = re.compile(r"select the next role from \[(?P<names>.*?)\]", re.DOTALL)
"""How the groups of AutoGen, old and new, ask who is to speak."""


class Turn(StrEnum):
    """Who speaks."""

    ACT = "act"
    """The policy's answer stands."""
    WORDS = "words"
    """The policy has decided to speak; the language model writes the words."""
    DEFER = "defer"
    """The policy is unsure; the language model decides."""


@dataclass(slots=True)
class Savings:
    """What a language model was asked, and what it was spared; all of it counted.

    Attributes:
        decided: Turns that the policy decided alone.
        worded: Turns that it decided, and the language model put into words.
        deferred: Turns that it left to the language model.
        tokens_saved: Of the turns it decided alone, read and written, as the policy's
            own tokenizer counts them.
        llm_tokens: Of all calls to the language model, as it counts them.
    """

    decided: int = 0
    worded: int = 0
    deferred: int = 0
    tokens_saved: int = 0
    llm_tokens: int = 0
    _lock: threading.Lock = field(default_factory=threading.Lock, repr=False)

    @property
    def llm_calls(self) -> int:
        """How often the language model was asked."""
        return self.worded + self.deferred

    def note(self, turn: Turn, answer: Answer) -> None:
        """Counts a turn."""
        with self._lock:
            if turn is Turn.ACT:
                self.decided += 1
                self.tokens_saved += answer.completion.usage["total_tokens"]
            elif turn is Turn.WORDS:
                self.worded += 1
            else:
                self.deferred += 1

    def note_llm(self, tokens: int) -> None:
        """Counts what the language model took."""
        with self._lock:
            self.llm_tokens += tokens


class ChatModel:
    """Decides for a framework's agent.

    Attributes:
        savings: Counts who decided.
    """

    def __init__(
        self,
        complete: Complete,
        *,
        has_llm: bool = False,
        defer_below: float = 0.0,
        limited: bool = True,
    ) -> None:
        """Prepares.

        Args:
            complete: Answers.
            has_llm: Whether there is a language model for words and doubts.
            defer_below: The language model decides where the policy is less sure.
            limited: Whether it stops after `MAX_CALLS`; in training, episodes end by
                themselves.

        Raises:
            UsageError: `defer_below` is no share, or there is nobody to defer to.
        """
        if not 0.0 <= defer_below <= 1.0:
            raise UsageError("defer_below must be a share from 0 to 1.")
        if defer_below and not has_llm:
            raise UsageError(
                "defer_below needs a language model to defer to. Give one with llm=."
            )
        self._complete = complete
        self._has_llm = has_llm
        self._defer_below = defer_below
        self._limited = limited
        self.savings = Savings()

    @classmethod
    def of(
        cls, trained: SavedAgent, llm: Any = None, defer_below: float = 0.0
    ) -> ChatModel:
        """The chat of a trained agent."""
        return cls(
            trained_chat(trained), has_llm=llm is not None, defer_below=defer_below
        )

    def decide(
        self,
        messages: Sequence[Message],
        tools: Sequence[dict[str, Any]] = (),
        **options: Any,
    ) -> tuple[Turn, Answer]:
        """Who speaks next, and what the policy would say.

        Args:
            messages: As OpenAI has them.
            tools: Likewise.
            **options: Further fields of OpenAI's request (`tool_choice`, `stop`, ...);
                those that are None count as not given.
        """
        request: dict[str, Any] = {"model": MODEL, "messages": list(messages)}
        if tools:
            request["tools"] = list(tools)
        request |= {name: v for name, v in options.items() if v is not None}
        if not tools:
            request.pop("tool_choice", None)
        answer = self._complete(request)
        if self._limited and _calls_in_a_row(messages) >= MAX_CALLS:
            # Frameworks let agents go on for thousands of calls.
            answer = _stuck(answer)
        turn = Turn.ACT
        if self._has_llm:
            if answer.decision.confidence < self._defer_below:
                turn = Turn.DEFER
            elif not answer.completion.calls:
                turn = Turn.WORDS
        self.savings.note(turn, answer)
        return turn, answer


def trained_chat(trained: SavedAgent) -> Complete:
    """A trained agent's answers; safe for several threads."""
    lock = threading.Lock()
    shelf = ToolCache()

    def complete(request: dict[str, Any]) -> Answer:
        with lock:
            try:
                parsed = parse_chat(request, shelf)
                parsed.messages = trained.opening(parsed.messages)
                answer = answer_all(trained.policy, [parsed])[0]
            except ApiError as error:
                raise UsageError(error.message) from None
        if isinstance(answer, ApiError):
            raise UsageError(answer.message) from None
        if isinstance(answer, Exception):
            raise answer
        return answer

    return complete


def _calls_in_a_row(messages: Sequence[Message]) -> int:
    roles = [message.get("role") for message in reversed(messages)]
    since = roles[: roles.index("user")] if "user" in roles else roles
    return since.count("tool")


def _stuck(answer: Answer) -> Answer:
    decision = Decision({"role": "assistant", "content": _STUCK}, "finish")
    given = answer.completion
    completion = Completion(given.model, _STUCK, (), "stop", given.prompt_tokens, 0)
    return Answer(decision, completion)


def plain_message(given: Mapping[str, Any]) -> Message:
    """A message of a framework that speaks OpenAI's language, without its additions."""
    names = ("role", "content", "tool_calls", "tool_call_id")
    message = {name: given[name] for name in names if given.get(name) is not None}
    return {"content": None, **message}


def json_form(schema: dict[str, Any]) -> dict[str, Any]:
    """What `response_format` has to be for an answer in JSON of this schema."""
    named = {"name": "answer", "schema": schema}
    return {"type": "json_schema", "json_schema": named}


def speaker_form(messages: Sequence[Message]) -> dict[str, Any] | None:
    """A choice among the members of a group, if that is what is asked for.

    Returns:
        What `response_format` has to be; `speaker_of` reads the answer.
    """
    found = [_ROLES.search(str(m.get("content") or "")) for m in messages]
    asked = next((match for match in found if match is not None), None)
    if asked is None:
        return None
    names = [name.strip(" '\"\n") for name in asked["names"].split(",")]
    schema = {
        "type": "object",
        "properties": {"role": {"type": "string", "enum": names}},
        "required": ["role"],
    }
    return json_form(schema)


def speaker_of(content: str | None) -> str:
    """The member that was chosen."""
    return str(json.loads(content or "{}").get("role", ""))


TO_SAY = (
    "Say the following to the user now, in your own words. Ask for what it asks for, "
    "and promise nothing that it does not say: "
)
"""What a language model that only writes words is told, with what these are about."""


def retold(messages: Sequence[Message], answer: Answer) -> list[Message]:
    """A conversation for a language model that only writes words.

    Its system message, the first of all, says what these are about: the policy may have
    decided to ask for something, which a model that does not know might leave out.

    Calls and their results are told as text: models refuse calls of tools that they are
    not offered, and one that is offered tools might call them.
    """
    system = [content_text(m.get("content")) for m in messages if m["role"] == "system"]
    system.append(f"{TO_SAY}{answer.completion.content}")
    told: list[Message] = [{"role": "system", "content": "\n\n".join(system)}]
    for message in messages:
        if message["role"] == "system":
            continue
        calls = message.get("tool_calls") or ()
        if calls:
            names = ", ".join(
                f"{c['function']['name']}({c['function']['arguments']})" for c in calls
            )
            told.append({"role": "assistant", "content": f"(I call {names}.)"})
        elif message.get("role") == "tool":
            text = f"(The tool answers: {message.get('content')})"
            told.append({"role": "user", "content": text})
        else:
            told.append(dict(message))
    return told


def jsonable(value: Any) -> Any:
    """A value that a framework's tool took or gave, as JSON can hold it."""
    if hasattr(value, "model_dump"):
        return value.model_dump(mode="json")
    try:
        # Enums of text, dates and the like become what their texts say.
        return json.loads(json.dumps(value, default=_plain, allow_nan=False))
    except (TypeError, ValueError, RecursionError):
        return str(value)


def _plain(value: Any) -> Any:
    if hasattr(value, "model_dump"):
        return value.model_dump(mode="json")
    return str(value)

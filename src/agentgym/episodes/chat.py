"""Chat completions with tools, decided by a policy, for all framework adapters.

A framework's model class converts its messages and tools to OpenAI's request, asks a
`ChatModel`, and converts the answer back. Only this module knows the policy and decides
when to ask the user's language model instead.
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
"""Maximum number of consecutive calls of an exported agent."""
_STUCK = (
    f"I stop here: {MAX_CALLS} calls in a row have not brought me to an answer. Please "
    "tell me more about what you need."
)


_ROLES = re.compile(r"select the next role from \[(?P<names>.*?)\]", re.DOTALL)
"""How AutoGen's groups, classic and new, ask for the next speaker."""


class Turn(StrEnum):
    """Who speaks."""

    ACT = "act"
    """The policy's answer stands."""
    WORDS = "words"
    """The policy has decided to speak; the language model writes the text."""
    DEFER = "defer"
    """The policy is unsure; the language model decides."""


@dataclass(slots=True)
class Savings:
    """Counts who decided, and the tokens used and saved.

    Attributes:
        decided: Turns that the policy decided alone.
        worded: Turns that the policy decided and the language model put into words.
        deferred: Turns that the language model decided.
        tokens_saved: Tokens read and written in the turns that the policy decided
            alone, counted with the policy's tokenizer.
        llm_tokens: Tokens of all calls to the language model, by its own count.
    """

    decided: int = 0
    worded: int = 0
    deferred: int = 0
    tokens_saved: int = 0
    llm_tokens: int = 0
    _lock: threading.Lock = field(default_factory=threading.Lock, repr=False)

    @property
    def llm_calls(self) -> int:
        """Number of calls to the language model."""
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
        """Counts the language model's tokens."""
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
        """Creates the chat model.

        Args:
            complete: Answers the requests.
            has_llm: Whether a language model writes texts and takes uncertain
                decisions.
            defer_below: The language model decides when the confidence is below this.
            limited: Whether to stop after `MAX_CALLS`. Not needed in training, where
                episodes have limits.

        Raises:
            UsageError: `defer_below` is out of range, or set without a language model.
        """
        if not 0.0 <= defer_below <= 1.0:
            raise UsageError("defer_below must be a number from 0 to 1.")
        if defer_below and not has_llm:
            raise UsageError(
                "defer_below needs a language model to defer to. Pass one with llm=."
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
        """Returns who speaks next, and the policy's answer.

        Args:
            messages: Messages in OpenAI's format.
            tools: Tools in OpenAI's format.
            **options: More fields of OpenAI's request (`tool_choice`, `stop`, ...);
                None means not set.
        """
        request: dict[str, Any] = {"model": MODEL, "messages": list(messages)}
        if tools:
            request["tools"] = list(tools)
        request |= {name: v for name, v in options.items() if v is not None}
        if not tools:
            request.pop("tool_choice", None)
        answer = self._complete(request)
        if self._limited and _calls_in_a_row(messages) >= MAX_CALLS:
            # Frameworks let agents make thousands of calls.
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
    """Returns a function with a trained agent's answers; thread-safe."""
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
    """A message in OpenAI's format, without the framework's additional fields."""
    names = ("role", "content", "tool_calls", "tool_call_id")
    message = {name: given[name] for name in names if given.get(name) is not None}
    return {"content": None, **message}


def json_form(schema: dict[str, Any]) -> dict[str, Any]:
    """The `response_format` for a JSON answer with this schema."""
    named = {"name": "answer", "schema": schema}
    return {"type": "json_schema", "json_schema": named}


def speaker_form(messages: Sequence[Message]) -> dict[str, Any] | None:
    """The `response_format` for selecting a group's next speaker.

    Returns:
        None if the messages don't ask for a speaker; `speaker_of` reads the answer.
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
    """The selected member."""
    return str(json.loads(content or "{}").get("role", ""))


TO_SAY = (
    "Say the following to the user now, in your own words. Ask for what it asks for, "
    "and promise nothing that it does not say: "
)
"""The instruction for a language model that only writes texts."""


def retold(messages: Sequence[Message], answer: Answer) -> list[Message]:
    """Returns a conversation for a language model that only writes texts.

    Its first system message contains the content: the policy may have decided to ask
    for something, and the model has to know that.

    Calls and their results become text: models reject calls of tools that aren't in the
    request, and with tools in the request they might call them.
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
    """Converts an argument or result of a framework's tool to a JSON value."""
    if hasattr(value, "model_dump"):
        return value.model_dump(mode="json")
    try:
        # String enums, dates and similar values become their text.
        return json.loads(json.dumps(value, default=_plain, allow_nan=False))
    except (TypeError, ValueError, RecursionError):
        return str(value)


def _plain(value: Any) -> Any:
    if hasattr(value, "model_dump"):
        return value.model_dump(mode="json")
    return str(value)

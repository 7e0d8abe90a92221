"""A trained agent as a LangChain chat model and as a middleware."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Callable, Iterator, Sequence
from typing import Any

from langchain.agents.middleware import AgentMiddleware
from langchain_core.language_models.chat_models import BaseChatModel
from langchain_core.messages import (
    AIMessage,
    AIMessageChunk,
    BaseMessage,
    convert_to_messages,
    convert_to_openai_messages,
)
from langchain_core.messages.tool import tool_call_chunk
from langchain_core.outputs import ChatGeneration, ChatGenerationChunk, ChatResult
from langchain_core.runnables import Runnable
from langchain_core.utils.function_calling import convert_to_openai_tool

from agentgym.core.task import Message
from agentgym.episodes.chat import ChatModel, Savings, Turn, retold
from agentgym.integrations import react
from agentgym.policies.saved import SavedAgent
from agentgym.serving.deciding import Answer


class AgentGymChat(BaseChatModel):
    """A trained agent as a chat model.

    Attributes:
        chat: Decides and counts tokens.
        llm: Writes texts and takes uncertain decisions; None if not used.
        text_tools: Tool definitions, for agents that call tools in text.
    """

    chat: Any
    llm: Any = None
    text_tools: list[dict[str, Any]] = []

    @property
    def _llm_type(self) -> str:
        return "agentgym"

    @property
    def savings(self) -> Savings:
        """The calls and tokens saved by not asking the language model."""
        return self.chat.savings

    def bind_tools(
        self, tools: Sequence[Any], *, tool_choice: Any = None, **options: Any
    ) -> Runnable[Any, Any]:
        """Returns the model with these tools."""
        definitions = [convert_to_openai_tool(tool) for tool in tools]
        return self.bind(tools=definitions, tool_choice=tool_choice, **options)

    def _generate(
        self, messages: list[BaseMessage], stop: list[str] | None = None, **options: Any
    ) -> ChatResult:
        asked = Asked(messages, stop, options, self.text_tools)
        turn, answer = asked.decide(self.chat)
        if turn is Turn.ACT:
            return result_of(asked.message(answer))
        model, given = self._ask_llm(turn, asked, answer, options)
        said = model.invoke(given, stop=stop if turn is Turn.DEFER else None)
        return result_of(self._said(turn, asked, said))

    async def _agenerate(
        self, messages: list[BaseMessage], stop: list[str] | None = None, **options: Any
    ) -> ChatResult:
        asked = Asked(messages, stop, options, self.text_tools)
        turn, answer = await asyncio.to_thread(asked.decide, self.chat)
        if turn is Turn.ACT:
            return result_of(asked.message(answer))
        model, given = self._ask_llm(turn, asked, answer, options)
        said = await model.ainvoke(given, stop=stop if turn is Turn.DEFER else None)
        return result_of(self._said(turn, asked, said))

    def _stream(
        self,
        messages: list[BaseMessage],
        stop: list[str] | None = None,
        run_manager: Any = None,
        **options: Any,
    ) -> Iterator[ChatGenerationChunk]:
        whole = self._generate(messages, stop, **options)
        for chunk in _chunks(whole.generations[0].message):
            if run_manager is not None and chunk.text:
                run_manager.on_llm_new_token(chunk.text, chunk=chunk)
            yield chunk

    async def _astream(
        self,
        messages: list[BaseMessage],
        stop: list[str] | None = None,
        run_manager: Any = None,
        **options: Any,
    ) -> AsyncIterator[ChatGenerationChunk]:
        whole = await self._agenerate(messages, stop, **options)
        for chunk in _chunks(whole.generations[0].message):
            if run_manager is not None and chunk.text:
                await run_manager.on_llm_new_token(chunk.text, chunk=chunk)
            yield chunk

    def _ask_llm(
        self, turn: Turn, asked: Asked, answer: Answer, options: dict[str, Any]
    ) -> tuple[Runnable[Any, Any], list[BaseMessage]]:
        if turn is Turn.WORDS:
            return self.llm, convert_to_messages(retold(asked.messages, answer))
        tools = options.get("tools")
        model = self.llm.bind_tools(tools) if tools else self.llm
        return model, asked.given

    def _said(self, turn: Turn, asked: Asked, said: AIMessage) -> AIMessage:
        self.savings.note_llm((said.usage_metadata or {}).get("total_tokens", 0))
        if turn is Turn.WORDS and asked.in_text:
            words = react.write(said.text, (), (), structured=asked.structured)
            return said.model_copy(update={"content": words})
        return said


class AgentGymMiddleware(AgentMiddleware):
    """Lets a trained agent decide inside an agent from `create_agent`.

        create_agent("openai:...", tools, middleware=[AgentGymMiddleware(trained)])

    The agent's own model only writes texts, and decides when the trained agent's
    confidence is below `defer_below`.

    Attributes:
        savings: The calls and tokens saved by not asking the agent's own model.
    """

    def __init__(self, trained: SavedAgent, *, defer_below: float = 0.0) -> None:
        super().__init__()
        self._chat = ChatModel.of(trained, True, defer_below)
        self.savings = self._chat.savings

    def wrap_model_call(self, request: Any, handler: Callable[[Any], Any]) -> Any:
        """Decides instead of the model, or passes the request on."""
        asked = _asked_of(request)
        turn, answer = asked.decide(self._chat)
        if turn is Turn.ACT:
            return asked.message(answer)
        response = handler(_handed_on(turn, asked, answer, request))
        self._count(response)
        return response

    async def awrap_model_call(
        self, request: Any, handler: Callable[[Any], Any]
    ) -> Any:
        """See `wrap_model_call`."""
        asked = _asked_of(request)
        turn, answer = await asyncio.to_thread(asked.decide, self._chat)
        if turn is Turn.ACT:
            return asked.message(answer)
        response = await handler(_handed_on(turn, asked, answer, request))
        self._count(response)
        return response

    def _count(self, response: Any) -> None:
        for message in getattr(response, "result", None) or [response]:
            usage = getattr(message, "usage_metadata", None) or {}
            self.savings.note_llm(usage.get("total_tokens", 0))


def _asked_of(request: Any) -> Asked:
    head = [request.system_message] if request.system_message is not None else []
    options = {"tools": request.tools, "tool_choice": request.tool_choice}
    return Asked([*head, *request.messages], None, options, [])


def _handed_on(turn: Turn, asked: Asked, answer: Answer, request: Any) -> Any:
    if turn is Turn.DEFER:
        return request
    head, *told = convert_to_messages(retold(asked.messages, answer))
    return request.override(messages=told, system_message=head, tools=[])


class Asked:
    """A request to a chat model, translated for a policy.

    Attributes:
        given: The messages in LangChain's format.
        messages: The messages in OpenAI's format.
        in_text: Whether the agent calls tools in plain text.
        structured: Whether it writes calls as JSON in a code block.
    """

    def __init__(
        self,
        given: Sequence[BaseMessage],
        stop: list[str] | None,
        options: dict[str, Any],
        text_tools: list[dict[str, Any]],
    ) -> None:
        self.given = list(given)
        raw = convert_to_openai_messages(self.given, text_format="string")
        self._tools = [convert_to_openai_tool(t) for t in options.get("tools") or ()]
        self.in_text = not self._tools and react.is_text_style(raw, stop)
        self.structured = self.in_text and react.is_structured(raw)
        self._stop = None if self.in_text else stop
        self._choice = _tool_choice(options.get("tool_choice"))
        form = options.get("response_format")
        self._form = form if isinstance(form, dict) and "json_schema" in form else None
        self.messages: list[Message] = raw
        if self.in_text:
            self._tools = text_tools
            self.messages = react.read(raw, text_tools)

    def decide(self, chat: ChatModel) -> tuple[Turn, Answer]:
        """Asks a chat model to decide."""
        return chat.decide(
            self.messages,
            self._tools,
            tool_choice=self._choice,
            stop=self._stop,
            response_format=self._form,
        )

    def message(self, answer: Answer) -> AIMessage:
        """The answer as a LangChain message."""
        done = answer.completion
        content, calls, usage = done.content or "", done.calls, done.usage
        if self.in_text:
            content = react.write(
                content, calls, self._tools, structured=self.structured
            )
            calls = ()
        return AIMessage(
            content=content,
            tool_calls=[
                {"name": c.name, "args": c.arguments, "id": c.id, "type": "tool_call"}
                for c in calls
            ],
            usage_metadata={
                "input_tokens": usage["prompt_tokens"],
                "output_tokens": usage["completion_tokens"],
                "total_tokens": usage["total_tokens"],
            },
            response_metadata={
                "finish_reason": done.finish_reason,
                "confidence": answer.decision.confidence,
            },
        )


def _tool_choice(choice: Any) -> Any:
    """Translates the tool choice of LangChain and its providers to OpenAI's format."""
    if choice in (None, "auto", "none", "required"):
        return choice
    if choice in ("any", True):
        return "required"
    if isinstance(choice, str):
        return {"type": "function", "function": {"name": choice}}
    if isinstance(choice, dict) and choice.get("type") in ("any", "auto", "none"):
        return "required" if choice["type"] == "any" else choice["type"]
    if isinstance(choice, dict) and choice.get("type") == "tool":
        return {"type": "function", "function": {"name": choice.get("name")}}
    return choice


def result_of(message: BaseMessage) -> ChatResult:
    """A message as a chat model's result."""
    return ChatResult(generations=[ChatGeneration(message=message)])


def _chunks(message: Any) -> Iterator[ChatGenerationChunk]:
    words = message.text.split(" ") if message.text else []
    for i, word in enumerate(words):
        text = word if i == 0 else f" {word}"
        yield ChatGenerationChunk(message=AIMessageChunk(content=text))
    chunks = [
        tool_call_chunk(
            name=call["name"], args=json.dumps(call["args"]), id=call["id"], index=i
        )
        for i, call in enumerate(message.tool_calls)
    ]
    last = AIMessageChunk(
        content="",
        tool_call_chunks=chunks,
        usage_metadata=message.usage_metadata,
        response_metadata=message.response_metadata,
        chunk_position="last",
    )
    yield ChatGenerationChunk(message=last)

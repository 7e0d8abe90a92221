"""A trained agent as an AutoGen model client."""

from __future__ import annotations

import asyncio
import functools
from collections.abc import AsyncGenerator, Callable, Mapping, Sequence
from typing import Any

from autogen_core import CancellationToken, FunctionCall
from autogen_core.models import (
    ChatCompletionClient,
    CreateResult,
    LLMMessage,
    ModelInfo,
    RequestUsage,
)
from autogen_core.tools import ToolSchema
from pydantic import BaseModel

from agentgym.core.task import Message
from agentgym.episodes.chat import (
    ChatModel,
    Savings,
    Turn,
    json_form,
    retold,
    speaker_form,
    speaker_of,
)
from agentgym.serving.deciding import Answer


class AgentGymClient(ChatCompletionClient):
    """A trained agent as a model client.

    As the client of a `SelectorGroupChat`, it selects one of the members by name.

    Attributes:
        savings: The calls and tokens saved by not asking the language model.
    """

    def __init__(
        self, chat: ChatModel, llm: ChatCompletionClient | None = None
    ) -> None:
        self._chat = chat
        self._llm = llm
        self._usage = RequestUsage(0, 0)

    @property
    def savings(self) -> Savings:
        """The calls and tokens saved by not asking the language model."""
        return self._chat.savings

    async def create(
        self,
        messages: Sequence[LLMMessage],
        *,
        tools: Sequence[Any] = (),
        tool_choice: Any = "auto",
        json_output: bool | type[BaseModel] | None = None,
        extra_create_args: Mapping[str, Any] = {},
        cancellation_token: CancellationToken | None = None,
    ) -> CreateResult:
        """Decides."""
        said = [part for message in messages for part in _openai_messages(message)]
        form = _form_of(json_output) or speaker_form(said)
        decide = functools.partial(
            self._chat.decide,
            said,
            [definition_of(tool) for tool in tools],
            tool_choice=_tool_choice(tool_choice),
            response_format=form,
        )
        turn, answer = await asyncio.to_thread(decide)
        if turn is Turn.ACT or self._llm is None:
            usage = answer.completion.usage
            self._count(usage["prompt_tokens"], usage["completion_tokens"])
            return _result(answer, chosen=form is not None and json_output is None)
        if turn is Turn.DEFER:
            result = await self._llm.create(
                messages,
                tools=tools,
                tool_choice=tool_choice,
                json_output=json_output,
                extra_create_args=extra_create_args,
                cancellation_token=cancellation_token,
            )
        else:
            result = await self._llm.create(
                _native_messages(retold(said, answer)),
                cancellation_token=cancellation_token,
            )
        used = result.usage
        self.savings.note_llm(used.prompt_tokens + used.completion_tokens)
        self._count(used.prompt_tokens, used.completion_tokens)
        return result

    async def create_stream(
        self, messages: Sequence[LLMMessage], **options: Any
    ) -> AsyncGenerator[str | CreateResult, None]:
        """Decides, and streams the text word by word."""
        result = await self.create(messages, **options)
        if isinstance(result.content, str):
            for i, word in enumerate(result.content.split(" ")):
                yield word if i == 0 else f" {word}"
        yield result

    async def close(self) -> None:
        """Closes the language model's client."""
        if self._llm is not None:
            await self._llm.close()

    def actual_usage(self) -> RequestUsage:
        """All tokens so far."""
        return self._usage

    def total_usage(self) -> RequestUsage:
        """All tokens so far."""
        return self._usage

    def count_tokens(
        self, messages: Sequence[LLMMessage], *, tools: Sequence[Any] = ()
    ) -> int:
        """Estimated tokens of a conversation: one per four characters."""
        return sum(len(str(message.content)) for message in messages) // 4

    def remaining_tokens(
        self, messages: Sequence[LLMMessage], *, tools: Sequence[Any] = ()
    ) -> int:
        """Tokens left in the context."""
        return 16_384 - self.count_tokens(messages, tools=tools)

    @property
    def capabilities(self) -> Any:
        """Deprecated name of `model_info`."""
        return self.model_info

    @property
    def model_info(self) -> ModelInfo:
        """The model's capabilities."""
        return ModelInfo(
            vision=False,
            function_calling=True,
            json_output=True,
            family="unknown",
            structured_output=True,
        )

    def _count(self, read: int, written: int) -> None:
        self._usage = RequestUsage(
            self._usage.prompt_tokens + read, self._usage.completion_tokens + written
        )


def _result(answer: Answer, *, chosen: bool) -> CreateResult:
    done = answer.completion
    calls = [
        FunctionCall(
            id=c.id, name=c.name, arguments=c.to_openai()["function"]["arguments"]
        )
        for c in done.calls
    ]
    content: Any = calls or done.content or ""
    if chosen and isinstance(content, str):
        content = speaker_of(content)
    return CreateResult(
        finish_reason="function_calls" if calls else "stop",
        content=content,
        usage=RequestUsage(done.prompt_tokens, done.completion_tokens),
        cached=False,
    )


def _openai_messages(message: LLMMessage) -> list[Message]:
    if message.type == "FunctionExecutionResultMessage":
        return [
            {"role": "tool", "tool_call_id": part.call_id, "content": part.content}
            for part in message.content
        ]
    if message.type == "AssistantMessage" and not isinstance(message.content, str):
        calls = [
            {
                "id": call.id,
                "type": "function",
                "function": {"name": call.name, "arguments": call.arguments},
            }
            for call in message.content
        ]
        return [{"role": "assistant", "content": message.thought, "tool_calls": calls}]
    roles = {"SystemMessage": "system", "UserMessage": "user"}
    content = message.content
    if not isinstance(content, str):
        content = "\n".join(part for part in content if isinstance(part, str))
    return [{"role": roles.get(message.type, "assistant"), "content": content}]


def _native_messages(messages: Sequence[Message]) -> list[LLMMessage]:
    from autogen_core.models import AssistantMessage, SystemMessage, UserMessage

    made: dict[str, Callable[[str], LLMMessage]] = {
        "system": lambda text: SystemMessage(content=text),
        "assistant": lambda text: AssistantMessage(content=text, source="assistant"),
        "user": lambda text: UserMessage(content=text, source="user"),
    }
    return [made[m["role"]](str(m.get("content") or "")) for m in messages]


def definition_of(tool: Any) -> dict[str, Any]:
    """Returns a tool in OpenAI's format."""
    schema: ToolSchema = tool if isinstance(tool, dict) else tool.schema
    function = {name: v for name, v in schema.items() if name != "strict"}
    return {"type": "function", "function": function}


def _tool_choice(choice: Any) -> Any:
    if isinstance(choice, str):
        return choice
    return {"type": "function", "function": {"name": choice.name}}


def _form_of(
    json_output: bool | type[BaseModel] | None,
) -> dict[str, Any] | None:
    if json_output is None or isinstance(json_output, bool):
        return None
    return json_form(json_output.model_json_schema())

"""Adapter for AutoGen's agentchat: assistants and teams.

AutoGen has no public API to list a team's members or an agent's tools, or to replace
the model of an existing agent. To train agents, this module uses private names.
"""

from __future__ import annotations

import asyncio
import functools
import inspect
import json
import threading
from collections.abc import AsyncGenerator, Coroutine, Iterable, Mapping, Sequence
from dataclasses import replace
from typing import Any

from autogen_agentchat.agents import AssistantAgent, UserProxyAgent
from autogen_agentchat.messages import BaseChatMessage, TextMessage
from autogen_core import CancellationToken, FunctionCall, models
from autogen_core import tools as native
from autogen_core.models import CreateResult, LLMMessage, RequestUsage
from pydantic import BaseModel, ConfigDict

from agentgym.core.task import Message
from agentgym.core.tools import Tool, ToolError, openai_call
from agentgym.episodes import chat as chats
from agentgym.episodes.chat import ChatModel, Turn
from agentgym.integrations.base import AgentHarness, FrameworkAdapter, run_tool
from agentgym.integrations.harness import RoutedTool
from agentgym.serving.deciding import Answer
from agentgym.utils.threads import ThreadForEachCall


class AutoGenAdapter(FrameworkAdapter):
    """AutoGen's agentchat: assistants and teams."""

    def make_agent(
        self,
        chat: ChatModel,
        llm: models.ChatCompletionClient | None,
        tools: list[Any],
        about: dict[str, Any],
        *,
        name: str = "agentgym",
        system_message: str | None = None,
        **options: Any,
    ) -> AssistantAgent:
        """Returns an `AssistantAgent`, for use alone or in a team.

        Args:
            chat: See `FrameworkAdapter`.
            llm: See `FrameworkAdapter`.
            tools: See `FrameworkAdapter`.
            about: See `FrameworkAdapter`.
            name: The agent's name.
            system_message: Default: the scenario's system prompt.
            **options: More arguments for `AssistantAgent`.
        """
        prompt = system_message or about.get("system_prompt") or None
        return AssistantAgent(
            name,
            AgentGymClient(chat, llm),
            tools=[_native_tool(tool) for tool in tools],
            system_message=prompt,
            **{"max_tool_iterations": 20, **options},
        )

    def owned_tools(self, agent: Any) -> list[tuple[str, list[Tool]]]:
        """See `FrameworkAdapter`."""
        return [
            (member.name, [routed.tool for routed in _routed_tools(member)])
            for member in _assistants(agent)
        ]

    def harness(self, agent: Any) -> AgentHarness:
        """See `FrameworkAdapter`."""
        return _AutoGenHarness(agent)

    def persistent_state(self, agent: Any) -> str:
        """See `FrameworkAdapter`."""
        memories = [getattr(member, "_memory", None) for member in _assistants(agent)]
        return "its memory" if any(memories) else ""


class _Arguments(BaseModel):
    model_config = ConfigDict(extra="allow")


class _OurTool(native.BaseTool[_Arguments, str]):
    """An AgentGym tool, with its original schema and JSON results."""

    def __init__(self, tool: Tool) -> None:
        super().__init__(_Arguments, str, tool.name, tool.description)
        self._tool = tool

    @property
    def schema(self) -> native.ToolSchema:
        function: Any = self._tool.to_openai()["function"]
        return native.ToolSchema(**function)

    async def run(self, args: _Arguments, cancellation_token: CancellationToken) -> str:
        return await asyncio.to_thread(run_tool, self._tool, args.model_dump())


def _native_tool(tool: Any) -> Any:
    if isinstance(tool, Tool):
        return _OurTool(tool)
    if isinstance(tool, native.BaseTool):
        return tool
    return native.FunctionTool(tool, description=(tool.__doc__ or "").strip())


# The model client --------------------------------------------------------------------


class AgentGymClient(models.ChatCompletionClient):
    """A trained agent as a model client.

    As the client of a `SelectorGroupChat`, it selects one of the members by name.

    Attributes:
        savings: The calls and tokens saved by not asking the language model.
    """

    def __init__(
        self, chat: ChatModel, llm: models.ChatCompletionClient | None = None
    ) -> None:
        self._chat = chat
        self._llm = llm
        self._usage = RequestUsage(0, 0)
        self.savings = chat.savings

    async def create(
        self,
        messages: Sequence[LLMMessage],
        *,
        tools: Sequence[Any] = (),
        tool_choice: Any = "auto",
        json_output: bool | type[BaseModel] | None = None,
        **options: Any,
    ) -> CreateResult:
        """Decides."""
        said = [part for message in messages for part in _openai_messages(message)]
        form = speaker = chats.speaker_form(said)
        if isinstance(json_output, type):
            form, speaker = chats.json_form(json_output.model_json_schema()), None
        choice = tool_choice
        if not isinstance(choice, str):
            choice = {"type": "function", "function": {"name": choice.name}}
        turn, answer = await asyncio.to_thread(
            self._chat.decide,
            said,
            [_definition(tool) for tool in tools],
            tool_choice=choice,
            response_format=form,
        )
        if turn is Turn.ACT or self._llm is None:
            result = _result(answer, chosen=speaker is not None and json_output is None)
        else:
            if turn is Turn.DEFER:
                options |= {"tools": tools, "tool_choice": tool_choice}
                options["json_output"] = json_output
            else:
                messages = [_native_message(m) for m in chats.retold(said, answer)]
                options = {"cancellation_token": options.get("cancellation_token")}
            result = await self._llm.create(messages, **options)
            used = result.usage
            self.savings.note_llm(used.prompt_tokens + used.completion_tokens)
        self._usage = RequestUsage(
            self._usage.prompt_tokens + result.usage.prompt_tokens,
            self._usage.completion_tokens + result.usage.completion_tokens,
        )
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

    total_usage = actual_usage

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
    def model_info(self) -> models.ModelInfo:
        """The model's capabilities."""
        return models.ModelInfo(
            vision=False,
            function_calling=True,
            json_output=True,
            family="unknown",
            structured_output=True,
        )


def _result(answer: Answer, *, chosen: bool) -> CreateResult:
    done = answer.completion
    calls = [FunctionCall(c.id, json.dumps(c.arguments), c.name) for c in done.calls]
    content: Any = calls or done.content or ""
    if chosen and isinstance(content, str):
        content = chats.speaker_of(content)
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
        calls = [openai_call(c.id, c.name, c.arguments) for c in message.content]
        return [{"role": "assistant", "content": message.thought, "tool_calls": calls}]
    roles = {"SystemMessage": "system", "UserMessage": "user"}
    content = message.content
    if not isinstance(content, str):
        content = "\n".join(part for part in content if isinstance(part, str))
    return [{"role": roles.get(message.type, "assistant"), "content": content}]


def _native_message(message: Message) -> LLMMessage:
    text, role = str(message.get("content") or ""), message["role"]
    if role == "system":
        return models.SystemMessage(content=text)
    if role == "assistant":
        return models.AssistantMessage(content=text, source=role)
    return models.UserMessage(content=text, source="user")


def _definition(tool: Any) -> dict[str, Any]:
    """Returns a tool in OpenAI's format."""
    schema: native.ToolSchema = tool if isinstance(tool, dict) else tool.schema
    function = {name: v for name, v in schema.items() if name != "strict"}
    return {"type": "function", "function": function}


# Agents in training ------------------------------------------------------------------


class _ConversationClosed(Exception):
    """The conversation was closed while the team was still working."""


class _AutoGenHarness(AgentHarness):
    """An assistant, or a team."""

    def __init__(self, agent: Any) -> None:
        super().__init__(agent)
        self.words = ""
        """The last text, for a user proxy in the team."""
        for member in _assistants(agent):
            routed = {routed.tool.name: routed for routed in _routed_tools(member)}
            member._workbench = [_RoutedWorkbench(member._workbench, routed, self)]
            member._model_client = _PolicyClient(self)
        for member in _members(agent):
            if isinstance(member, UserProxyAgent):
                # AutoGen remembers whether the original function was async.
                awaited = inspect.iscoroutinefunction(member.input_func)
                member.input_func = self._auser if awaited else self._user
        if hasattr(agent, "_model_client") and hasattr(agent, "_participants"):
            agent._model_client = AgentGymClient(self.aside)

    def begin(self, messages: Sequence[Message]) -> str | None:
        if hasattr(self._agent, "on_reset"):
            _run(self._agent.on_reset(CancellationToken()))
        else:
            _run(self._agent.reset())
        return self._tell(
            TextMessage(content=str(m.get("content") or ""), source=m["role"])
            for m in messages
        )

    def reply(self, content: str) -> str | None:
        return self._tell([TextMessage(content=content, source="user")])

    def _tell(self, messages: Iterable[TextMessage]) -> str | None:
        try:
            result = _run(self._agent.run(task=list(messages)))
        except (_ConversationClosed, RuntimeError) as error:
            # A team re-raises a member's error as a RuntimeError with its name.
            if _ConversationClosed.__name__ in f"{type(error).__name__} {error}":
                return None
            raise
        said = [m for m in result.messages if isinstance(m, BaseChatMessage)]
        return said[-1].to_text()

    def _user(self, prompt: str) -> str:
        reply = self.task.reply(self.words)
        if reply is None:
            raise _ConversationClosed(_ConversationClosed.__name__)
        return reply

    async def _auser(self, prompt: str, token: CancellationToken | None = None) -> str:
        return await asyncio.to_thread(self._user, prompt)


class _PolicyClient(AgentGymClient):
    def __init__(self, harness: _AutoGenHarness) -> None:
        super().__init__(harness.chat)
        self._harness = harness

    async def create(
        self, messages: Sequence[LLMMessage], **options: Any
    ) -> CreateResult:
        result = await super().create(messages, **options)
        if isinstance(result.content, str):
            self._harness.words = result.content
        return result


class _RoutedWorkbench(native.Workbench):
    """An agent's workbenches, whose calls go through the episode."""

    def __init__(
        self,
        inner: Sequence[native.Workbench],
        routed: Mapping[str, RoutedTool],
        harness: _AutoGenHarness,
    ) -> None:
        self._inner = list(inner)
        self._routed = routed
        self._harness = harness

    async def list_tools(self) -> list[native.ToolSchema]:
        return [tool for bench in self._inner for tool in await bench.list_tools()]

    async def call_tool(
        self, name: str, arguments: Mapping[str, Any] | None = None, *_: Any, **__: Any
    ) -> native.ToolResult:
        given = dict(arguments or {})
        value = await asyncio.to_thread(
            self._routed[name].call,
            self._harness.task,
            given,
            lambda: _run(_call_native(self._inner, name, given)),
        )
        if isinstance(value, native.ToolResult):
            return value
        said = [native.TextResultContent(content=value)]
        return native.ToolResult(name=name, result=said, is_error=False)

    async def start(self) -> None: ...

    async def stop(self) -> None: ...

    async def reset(self) -> None:
        for bench in self._inner:
            await bench.reset()

    async def save_state(self) -> Mapping[str, Any]:
        return {}

    async def load_state(self, state: Mapping[str, Any]) -> None: ...


def _members(agent: Any) -> list[Any]:
    """The agents of a team, of teams within it, or the agent itself."""
    inner = getattr(agent, "_participants", None)
    if inner is None:
        return [agent]
    return [member for part in inner for member in _members(part)]


def _assistants(agent: Any) -> list[Any]:
    """The members that call tools."""
    return [a for a in _members(agent) if getattr(a, "_workbench", None) is not None]


def _routed_tools(agent: Any) -> list[RoutedTool]:
    """The tools of an assistant."""
    benches = list(agent._workbench)
    found = []
    for bench in benches:
        for schema in _run(bench.list_tools()):
            tool = Tool.from_openai(_definition(schema))

            def run(_name: str = tool.name, **arguments: Any) -> Any:
                return _run(_call_native(benches, _name, arguments))

            found.append(RoutedTool(replace(tool, function=run), _told))
    return found


async def _call_native(
    benches: Sequence[native.Workbench], name: str, arguments: Mapping[str, Any]
) -> native.ToolResult:
    for bench in benches:
        if any(schema["name"] == name for schema in await bench.list_tools()):
            return await bench.call_tool(name, arguments)
    raise LookupError(f"Tool '{name}' not found.")


def _told(result: native.ToolResult) -> str:
    if result.is_error:
        raise ToolError(result.to_text())
    return result.to_text()


@functools.cache
def _loop() -> asyncio.AbstractEventLoop:
    """One event loop for all agents in training: teams can't change theirs."""
    loop = asyncio.new_event_loop()
    loop.set_default_executor(ThreadForEachCall())
    threading.Thread(
        target=loop.run_forever, name="agentgym-autogen", daemon=True
    ).start()
    return loop


def _run(coroutine: Coroutine[Any, Any, Any]) -> Any:
    return asyncio.run_coroutine_threadsafe(coroutine, _loop()).result()

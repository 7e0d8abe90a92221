"""Trains AutoGen's agents and teams.

AutoGen has no public API to list a team's members or an agent's tools, or to replace
the model of an existing agent. Only this module uses its private names for that.
"""

from __future__ import annotations

import asyncio
import functools
import inspect
import threading
from collections.abc import Coroutine, Mapping, Sequence
from dataclasses import replace
from typing import Any

from autogen_agentchat.agents import UserProxyAgent
from autogen_agentchat.messages import BaseChatMessage, TextMessage
from autogen_core import CancellationToken
from autogen_core.models import CreateResult, LLMMessage
from autogen_core.tools import TextResultContent, ToolResult, ToolSchema, Workbench

from agentgym.core.task import Message
from agentgym.core.tools import Tool, ToolError
from agentgym.integrations.autogen.client import AgentGymClient, definition_of
from agentgym.integrations.harness import AgentHarness, RoutedTool
from agentgym.utils.threads import ThreadForEachCall


class _ConversationClosed(Exception):
    """The conversation was closed while the team was still working."""


class AutoGenHarness(AgentHarness):
    """An assistant, or a team."""

    def __init__(self, agent: Any) -> None:
        super().__init__()
        self._agent = agent
        self._words = ""
        for member in assistants(agent):
            routed = {routed.tool.name: routed for routed in routed_tools(member)}
            member._workbench = [_RoutedWorkbench(member._workbench, routed, self)]
            member._model_client = _PolicyClient(self)
        for member in _members(agent):
            if isinstance(member, UserProxyAgent):
                # AutoGen remembers whether the original function was async.
                awaited = inspect.iscoroutinefunction(member.input_func)
                member.input_func = self._auser if awaited else self._user
        if hasattr(agent, "_model_client") and hasattr(agent, "_participants"):
            agent._model_client = _PolicyClient(self, side=True)

    def begin(self, messages: Sequence[Message]) -> str | None:
        """See `AgentHarness`."""
        *before, last = messages
        opening = [
            TextMessage(content=str(m.get("content") or ""), source=m["role"])
            for m in [*before, last]
        ]
        return _run(self._begin(opening))

    def reply(self, content: str) -> str | None:
        """See `AgentHarness`."""
        return _run(self._tell([TextMessage(content=content, source="user")]))

    async def _begin(self, opening: list[TextMessage]) -> str | None:
        if hasattr(self._agent, "on_reset"):
            await self._agent.on_reset(CancellationToken())
        else:
            await self._agent.reset()
        return await self._tell(opening)

    async def _tell(self, messages: list[TextMessage]) -> str | None:
        try:
            result = await self._agent.run(task=messages)
        except (_ConversationClosed, RuntimeError) as error:
            # A team re-raises a member's error as a RuntimeError with its name.
            if _ConversationClosed.__name__ in f"{type(error).__name__} {error}":
                return None
            raise
        said = [m for m in result.messages if isinstance(m, BaseChatMessage)]
        return said[-1].to_text()

    def note(self, result: CreateResult) -> None:
        """Remembers the last text, for a user proxy in the team."""
        if isinstance(result.content, str):
            self._words = result.content

    def _user(self, prompt: str) -> str:
        reply = self.task.reply(self._words)
        if reply is None:
            raise _ConversationClosed(_ConversationClosed.__name__)
        return reply

    async def _auser(self, prompt: str, token: CancellationToken | None = None) -> str:
        return await asyncio.to_thread(self._user, prompt)


class _PolicyClient(AgentGymClient):
    def __init__(self, harness: AutoGenHarness, side: bool = False) -> None:
        super().__init__(harness.aside if side else harness.chat)
        self._harness = None if side else harness

    async def create(
        self, messages: Sequence[LLMMessage], **options: Any
    ) -> CreateResult:
        result = await super().create(messages, **options)
        if self._harness is not None:
            self._harness.note(result)
        return result


class _RoutedWorkbench(Workbench):
    """An agent's workbenches, whose calls go through the episode."""

    def __init__(
        self,
        inner: Sequence[Workbench],
        routed: Mapping[str, RoutedTool],
        harness: AutoGenHarness,
    ) -> None:
        self._inner = list(inner)
        self._routed = routed
        self._harness = harness

    async def list_tools(self) -> list[ToolSchema]:
        return [tool for bench in self._inner for tool in await bench.list_tools()]

    async def call_tool(
        self,
        name: str,
        arguments: Mapping[str, Any] | None = None,
        cancellation_token: CancellationToken | None = None,
        call_id: str | None = None,
    ) -> ToolResult:
        routed = self._routed[name]
        given = dict(arguments or {})
        native = functools.partial(_call_native, self._inner, name, given)
        value = await asyncio.to_thread(
            routed.call, self._harness.task, given, lambda: _run(native())
        )
        if isinstance(value, ToolResult):
            return value
        return ToolResult(
            name=name, result=[TextResultContent(content=value)], is_error=False
        )

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


def assistants(agent: Any) -> list[Any]:
    """The members that call tools."""
    return [a for a in _members(agent) if getattr(a, "_workbench", None) is not None]


def has_memory(agent: Any) -> bool:
    """Whether a member has a memory."""
    return any(getattr(member, "_memory", None) for member in assistants(agent))


def routed_tools(agent: Any) -> list[RoutedTool]:
    """The tools of an assistant."""
    benches = list(agent._workbench)
    found = []
    for bench in benches:
        for schema in _run(bench.list_tools()):
            tool = Tool.from_openai(definition_of(schema))

            def run(_name: str = tool.name, **arguments: Any) -> Any:
                return _run(_call_native(benches, _name, arguments))

            found.append(RoutedTool(replace(tool, function=run), _told))
    return found


async def _call_native(
    benches: Sequence[Workbench], name: str, arguments: Mapping[str, Any]
) -> ToolResult:
    for bench in benches:
        if any(schema["name"] == name for schema in await bench.list_tools()):
            return await bench.call_tool(name, arguments)
    raise LookupError(f"Tool '{name}' not found.")


def _told(result: ToolResult) -> str:
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

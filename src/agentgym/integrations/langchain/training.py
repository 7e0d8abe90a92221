"""Trains LangChain's agents: redirects their models and tools to the episode."""

from __future__ import annotations

import asyncio
import functools
import uuid
from collections import Counter
from collections.abc import AsyncIterator, Callable, Iterator, Sequence
from contextvars import ContextVar
from dataclasses import replace
from typing import Any

from langchain_core.language_models.chat_models import BaseChatModel
from langchain_core.messages import convert_to_messages
from langchain_core.outputs import LLMResult
from langchain_core.tools import BaseTool
from langchain_core.utils.function_calling import convert_to_openai_tool
from langgraph.prebuilt import ToolNode

from agentgym.core.task import Message
from agentgym.core.tools import Tool
from agentgym.episodes.chat import jsonable
from agentgym.integrations.base import AgentHarness
from agentgym.integrations.harness import RoutedTool
from agentgym.integrations.langchain.model import Asked, result_of

_HARNESS: ContextVar[_LangChainHarness | None] = ContextVar(
    "agentgym_harness", default=None
)
"""The running agent's harness; LangChain passes it on to threads that it starts."""


class _LangChainHarness(AgentHarness):
    def __init__(self, agent: Any) -> None:
        super().__init__(agent)
        route_models()
        tools = tools_of(agent)
        for tool in tools:
            route_tool(tool)
        self.definitions = [convert_to_openai_tool(tool) for tool in tools]

    def _invoke(self, given: dict[str, Any], config: dict[str, Any]) -> Any:
        token = _HARNESS.set(self)
        try:
            return self._agent.invoke(given, config)
        finally:
            _HARNESS.reset(token)


class GraphHarness(_LangChainHarness):
    """A graph, such as `create_agent` makes."""

    def begin(self, messages: Sequence[Message]) -> str:
        """See `AgentHarness`."""
        self._config = {"configurable": {"thread_id": uuid.uuid4().hex}}
        self._said: list[Any] = []
        return self._tell(convert_to_messages(list(messages)))

    def reply(self, content: str) -> str:
        """See `AgentHarness`."""
        return self._tell(convert_to_messages([{"role": "user", "content": content}]))

    def _tell(self, new: list[Any]) -> str:
        kept = getattr(self._agent, "checkpointer", None)
        given = new if kept else [*self._said, *new]
        state = self._invoke({"messages": given}, self._config)
        self._said = list(state["messages"])
        return str(self._said[-1].text)


class ExecutorHarness(_LangChainHarness):
    """An `AgentExecutor`."""

    def begin(self, messages: Sequence[Message]) -> str:
        """See `AgentHarness`."""
        if self._agent.memory is not None:
            self._agent.memory.clear()
        *before, last = messages
        self._said: list[Message] = list(before)
        return self.reply(str(last.get("content") or ""))

    def reply(self, content: str) -> str:
        """See `AgentHarness`."""
        variables = _variables(self._agent)
        given: dict[str, Any] = {"input": content}
        if self._agent.memory is None:
            if variables.get("chat_history") is str:
                given["chat_history"] = "\n".join(
                    f"{'Human' if m['role'] == 'user' else 'AI'}: {m['content']}"
                    for m in self._said
                )
            elif "chat_history" in variables:
                given["chat_history"] = convert_to_messages(self._said)
            else:
                # The prompt has no history: the question holds all user messages.
                told = [str(m["content"]) for m in self._said if m["role"] == "user"]
                given["input"] = "\n".join([*told, content])
        answer = str(self._invoke(given, {})["output"])
        self._said += [
            {"role": "user", "content": content},
            {"role": "assistant", "content": answer},
        ]
        return answer


def _variables(executor: Any) -> dict[str, type]:
    """The variables of an executor's prompt, and whether they are text or messages."""
    found: dict[str, type] = {}
    for step in getattr(getattr(executor.agent, "runnable", None), "steps", ()):
        names = getattr(step, "input_variables", None)
        if names is not None:
            lists = getattr(step, "input_types", {})
            optional = getattr(step, "optional_variables", [])
            found |= {name: list if name in lists else str for name in names}
            found |= dict.fromkeys(optional, list)
    return found


def tools_of(agent: Any) -> list[BaseTool]:
    """The tools of a graph or an executor."""
    if hasattr(agent, "input_keys") and hasattr(agent, "tools"):
        return list(agent.tools)
    found: list[BaseTool] = []
    for node in getattr(agent, "nodes", {}).values():
        bound = getattr(node, "bound", None)
        by_name = getattr(bound, "tools_by_name", None) or {}
        found += by_name.values()
        found += [by_name[name] for name in getattr(bound, _DUPLICATES, ())]
    return found


_DUPLICATES = "agentgym_duplicates"
"""Tool names that a node got more than once."""


@functools.cache
def note_duplicate_tools() -> None:
    """Makes all new graph nodes note duplicate tool names.

    LangChain keeps only the last of several tools with the same name, so a finished
    graph doesn't show duplicates.
    """
    make = ToolNode.__init__

    @functools.wraps(make)
    def noting(self: Any, tools: Sequence[Any], *given: Any, **named: Any) -> None:
        make(self, tools, *given, **named)
        different = {id(tool): tool for tool in tools}.values()
        names = Counter(
            getattr(t, "name", getattr(t, "__name__", "")) for t in different
        )
        duplicates = [name for name, times in names.items() if name and times > 1]
        setattr(self, _DUPLICATES, duplicates)

    ToolNode.__init__ = noting


def routed_tool(tool: BaseTool) -> RoutedTool:
    """A LangChain tool, for the episode to run."""

    def run(**arguments: Any) -> Any:
        if _only_async(tool):
            return asyncio.run(tool.ainvoke(arguments))
        return tool.invoke(arguments)

    return RoutedTool(
        replace(Tool.from_openai(convert_to_openai_tool(tool)), function=run)
    )


def _only_async(tool: BaseTool) -> bool:
    return getattr(tool, "func", tool.run) is None


def route_tool(tool: BaseTool) -> None:
    """Redirects a tool's calls to the episode while a harness is playing."""
    if "_run" in vars(tool):
        return
    routed = routed_tool(tool)
    names = list(routed.tool.properties)
    run, arun = tool._run, tool._arun

    def call(
        harness: AgentHarness, given: Any, named: Any, native: Callable[[], Any]
    ) -> Any:
        arguments = dict(zip(names, given, strict=False))
        arguments |= {name: named[name] for name in names if name in named}
        arguments = {name: jsonable(value) for name, value in arguments.items()}
        value = routed.call(harness.task, arguments, native)
        if tool.response_format == "content_and_artifact" and isinstance(value, str):
            return value, None
        return value

    @functools.wraps(run)
    def routed_run(*given: Any, **named: Any) -> Any:
        harness = _HARNESS.get()
        if harness is None:
            return run(*given, **named)
        if _only_async(tool):
            native = functools.partial(_run_async, arun, given, named)
        else:
            native = functools.partial(run, *given, **named)
        return call(harness, given, named, native)

    @functools.wraps(arun)
    async def routed_arun(*given: Any, **named: Any) -> Any:
        harness = _HARNESS.get()
        if harness is None:
            return await arun(*given, **named)
        native = functools.partial(_run_async, arun, given, named)
        return await asyncio.to_thread(call, harness, given, named, native)

    # Bypasses pydantic, which would treat them as fields.
    object.__setattr__(tool, "_run", routed_run)
    object.__setattr__(tool, "_arun", routed_arun)


def _run_async(arun: Callable[..., Any], given: Any, named: Any) -> Any:
    return asyncio.run(arun(*given, **named))


@functools.cache
def route_models() -> None:
    """Redirects all requests to chat models to the policy while a harness is playing.

    LangChain has no API to replace the model of an existing agent, and models may sit
    anywhere inside it. So this patches the public methods of the base class. Requests
    that a tool makes to a model are not redirected: tools run outside the agent's
    context.
    """

    def generate(
        harness: _LangChainHarness,
        model: BaseChatModel,
        conversations: Any,
        stop: Any = None,
        callbacks: Any = None,
        **options: Any,
    ) -> LLMResult:
        made = []
        for messages in conversations:
            asked = Asked(messages, stop, options, harness.definitions)
            _, decided = asked.decide(harness.chat)
            made.append(result_of(asked.message(decided)).generations)
        return LLMResult(generations=made)

    async def agenerate(harness: _LangChainHarness, *given: Any, **kw: Any) -> Any:
        return await asyncio.to_thread(generate, harness, *given, **kw)

    def stream(_: Any, model: BaseChatModel, *given: Any, **kw: Any) -> Iterator[Any]:
        yield model.invoke(*given, **kw)

    async def astream(
        _: Any, model: BaseChatModel, *given: Any, **kw: Any
    ) -> AsyncIterator[Any]:
        yield await model.ainvoke(*given, **kw)

    for routed in (generate, agenerate, stream, astream):
        _route_method(routed)


def _route_method(routed: Callable[..., Any]) -> None:
    original = getattr(BaseChatModel, routed.__name__)

    @functools.wraps(original)
    def method(self: Any, *given: Any, **kw: Any) -> Any:
        harness = _HARNESS.get()
        if harness is None:
            return original(self, *given, **kw)
        return routed(harness, self, *given, **kw)

    setattr(BaseChatModel, routed.__name__, method)

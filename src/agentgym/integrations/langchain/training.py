"""Agents of LangChain in training: their models and tools are led to the episode."""

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
from langgraph.prebuilt import ToolNode

from agentgym.core.task import Message
from agentgym.core.tools import Tool
from agentgym.episodes.chat import jsonable
from agentgym.integrations.harness import AgentHarness, RoutedTool
from agentgym.integrations.langchain.model import Asked, definition_of, result_of

_SEAT: ContextVar[_LangChainSeat | None] = ContextVar("agentgym_seat", default=None)
"""Whose agent is running; LangChain hands it on to the threads that it starts."""


class _LangChainSeat(AgentHarness):
    def __init__(self, agent: Any, definitions: list[dict[str, Any]]) -> None:
        super().__init__()
        self._agent = agent
        self.definitions = definitions

    def _invoke(self, given: dict[str, Any], config: dict[str, Any]) -> Any:
        token = _SEAT.set(self)
        try:
            return self._agent.invoke(given, config)
        finally:
            _SEAT.reset(token)


class GraphSeat(_LangChainSeat):
    """A graph, such as `create_agent` makes."""

    def begin(self, messages: Sequence[Message]) -> str:
        """See `AgentHarness`."""
        self._config = {"configurable": {"thread_id": uuid.uuid4().hex}}
        self._said: list[Any] = []
        return self._tell(convert_to_messages(list(messages)))

    def go_on(self, content: str) -> str:
        """See `AgentHarness`."""
        return self._tell(convert_to_messages([{"role": "user", "content": content}]))

    def _tell(self, new: list[Any]) -> str:
        kept = getattr(self._agent, "checkpointer", None)
        given = new if kept else [*self._said, *new]
        state = self._invoke({"messages": given}, self._config)
        self._said = list(state["messages"])
        return str(self._said[-1].text)


class ExecutorSeat(_LangChainSeat):
    """An `AgentExecutor`."""

    def begin(self, messages: Sequence[Message]) -> str:
        """See `AgentHarness`."""
        if self._agent.memory is not None:
            self._agent.memory.clear()
        *before, last = messages
        self._said: list[Message] = list(before)
        return self.go_on(str(last.get("content") or ""))

    def go_on(self, content: str) -> str:
        """See `AgentHarness`."""
        variables = _variables(self._agent)
        given: dict[str, Any] = {"input": content}
        if self._agent.memory is None and self._said:
            if variables.get("chat_history") is str:
                given["chat_history"] = "\n".join(
                    f"{'Human' if m['role'] == 'user' else 'AI'}: {m['content']}"
                    for m in self._said
                )
            elif "chat_history" in variables:
                given["chat_history"] = convert_to_messages(self._said)
            else:
                # No room for a history: all that the user said is the question.
                told = [str(m["content"]) for m in self._said if m["role"] == "user"]
                given["input"] = "\n".join([*told, content])
        elif variables.get("chat_history") is str and self._agent.memory is None:
            given["chat_history"] = ""
        answer = str(self._invoke(given, {})["output"])
        self._said += [
            {"role": "user", "content": content},
            {"role": "assistant", "content": answer},
        ]
        return answer


def _variables(executor: Any) -> dict[str, type]:
    """What an executor's prompt has room for, and whether it is text or messages."""
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
        found += [by_name[name] for name in getattr(bound, _DOUBLED, ())]
    return found


_DOUBLED = "agentgym_doubled"
"""Names that a node was given more than one tool for."""


@functools.cache
def note_doubled_tools() -> None:
    """Has the nodes of graphs that are made from now on note names of several tools.

    LangChain drops all of them but the last, and nothing of a graph holds the others.
    """
    make = ToolNode.__init__

    @functools.wraps(make)
    def noting(self: Any, tools: Sequence[Any], *given: Any, **named: Any) -> None:
        make(self, tools, *given, **named)
        different = {id(tool): tool for tool in tools}.values()
        names = Counter(
            getattr(t, "name", getattr(t, "__name__", "")) for t in different
        )
        doubled = [name for name, times in names.items() if name and times > 1]
        setattr(self, _DOUBLED, doubled)

    ToolNode.__init__ = noting


def routed_tool(tool: BaseTool) -> RoutedTool:
    """A tool of LangChain, as an episode runs it."""

    def run(**arguments: Any) -> Any:
        if _only_async(tool):
            return asyncio.run(tool.ainvoke(arguments))
        return tool.invoke(arguments)

    return RoutedTool(replace(Tool.from_openai(definition_of(tool)), function=run))


def _only_async(tool: BaseTool) -> bool:
    return getattr(tool, "func", tool.run) is None


def route_tool(tool: BaseTool) -> None:
    """Leads the calls of a tool through the episode, while a harness is playing."""
    if "_run" in vars(tool):
        return
    routed = routed_tool(tool)
    names = list(routed.tool.properties)
    run, arun = tool._run, tool._arun

    def arguments_of(given: tuple[Any, ...], named: dict[str, Any]) -> dict[str, Any]:
        arguments = dict(zip(names, given, strict=False))
        arguments |= {name: named[name] for name in names if name in named}
        return {name: jsonable(value) for name, value in arguments.items()}

    def call(
        harness: AgentHarness, given: Any, named: Any, native: Callable[[], Any]
    ) -> Any:
        value = routed.call(harness.task, arguments_of(given, named), native)
        if tool.response_format == "content_and_artifact" and isinstance(value, str):
            return value, None
        return value

    @functools.wraps(run)
    def routed_run(*given: Any, **named: Any) -> Any:
        harness = _SEAT.get()
        if harness is None:
            return run(*given, **named)
        if _only_async(tool):
            native = functools.partial(_run_async, arun, given, named)
        else:
            native = functools.partial(run, *given, **named)
        return call(harness, given, named, native)

    @functools.wraps(arun)
    async def routed_arun(*given: Any, **named: Any) -> Any:
        harness = _SEAT.get()
        if harness is None:
            return await arun(*given, **named)
        native = functools.partial(_run_async, arun, given, named)
        return await asyncio.to_thread(call, harness, given, named, native)

    # Past pydantic, which would take them for fields.
    object.__setattr__(tool, "_run", routed_run)
    object.__setattr__(tool, "_arun", routed_arun)


def _run_async(arun: Callable[..., Any], given: Any, named: Any) -> Any:
    return asyncio.run(arun(*given, **named))


@functools.cache
def route_models() -> None:
    """Leads what chat models are asked to the policy, while a harness is playing.

    All of them, wherever in an agent they are hidden: LangChain offers no way to give
    an agent that is made already another model. What is led away are the public
    methods through which all models are asked. A tool's own calls to a model are not:
    tools run outside of the agent's context.
    """
    generate, agenerate = BaseChatModel.generate, BaseChatModel.agenerate
    stream, astream = BaseChatModel.stream, BaseChatModel.astream

    def answers(
        harness: _LangChainSeat, conversations: Any, stop: Any, options: Any
    ) -> LLMResult:
        made = []
        for messages in conversations:
            asked = Asked(messages, stop, options, harness.definitions)
            _, decided = asked.decide(harness.chat)
            made.append(result_of(asked.message(decided)).generations)
        return LLMResult(generations=made)

    @functools.wraps(generate)
    def routed_generate(
        self: Any, messages: Any, stop: Any = None, callbacks: Any = None, **kw: Any
    ) -> LLMResult:
        harness = _SEAT.get()
        if harness is None:
            return generate(self, messages, stop, callbacks, **kw)
        return answers(harness, messages, stop, kw)

    @functools.wraps(agenerate)
    async def routed_agenerate(
        self: Any, messages: Any, stop: Any = None, callbacks: Any = None, **kw: Any
    ) -> LLMResult:
        harness = _SEAT.get()
        if harness is None:
            return await agenerate(self, messages, stop, callbacks, **kw)
        return await asyncio.to_thread(answers, harness, messages, stop, kw)

    @functools.wraps(stream)
    def routed_stream(self: Any, *given: Any, **kw: Any) -> Iterator[Any]:
        if _SEAT.get() is None:
            yield from stream(self, *given, **kw)
        else:
            yield self.invoke(*given, **kw)

    @functools.wraps(astream)
    async def routed_astream(self: Any, *given: Any, **kw: Any) -> AsyncIterator[Any]:
        if _SEAT.get() is None:
            async for chunk in astream(self, *given, **kw):
                yield chunk
        else:
            yield await self.ainvoke(*given, **kw)

    BaseChatModel.generate = routed_generate
    BaseChatModel.agenerate = routed_agenerate
    BaseChatModel.stream = routed_stream
    BaseChatModel.astream = routed_astream

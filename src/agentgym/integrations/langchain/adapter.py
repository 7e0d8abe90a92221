"""Adapter for LangChain: graphs of `create_agent`, and executors."""

from __future__ import annotations

from typing import Any, Literal

from langchain.agents import create_agent
from langchain_core.language_models.chat_models import BaseChatModel

from agentgym.core.tools import Tool
from agentgym.episodes.chat import ChatModel
from agentgym.errors import UsageError
from agentgym.integrations.base import (
    FrameworkAdapter,
    Tools,
    checked_tools,
    live_tools,
)
from agentgym.integrations.harness import AgentHarness
from agentgym.integrations.langchain.executors import (
    AgentType,
    make_executor,
    native_tool,
)
from agentgym.integrations.langchain.model import (
    AgentGymChat,
    definition_of,
)
from agentgym.integrations.langchain.training import (
    ExecutorHarness,
    GraphHarness,
    note_duplicate_tools,
    route_models,
    route_tool,
    routed_tool,
    tools_of,
)
from agentgym.policies.saved import SavedAgent


class LangChainAdapter(FrameworkAdapter):
    """LangChain: graphs of `create_agent`, and executors."""

    def __init__(self) -> None:
        note_duplicate_tools()

    def wrap_agent(
        self,
        trained: SavedAgent,
        *,
        tools: Tools | None = None,
        llm: BaseChatModel | None = None,
        defer_below: float = 0.0,
        style: Literal["graph", "executor"] = "graph",
        agent_type: AgentType = "tool_calling",
        system_prompt: str | None = None,
        **options: Any,
    ) -> Any:
        """Returns a graph, as `create_agent` makes it, or an `AgentExecutor`.

        Args:
            trained: The trained agent.
            tools: Its tools: AgentGym's, LangChain's, plain functions, or a mapping
                from the names of the trained tools to functions.
            llm: A chat model that writes texts and takes uncertain decisions. Without
                one, the trained agent answers in short standard sentences.
            defer_below: The `llm` decides when the confidence is below this.
            style: "graph", or "executor" for `langchain_classic`.
            agent_type: How an executor calls tools.
            system_prompt: Default: the scenario's system prompt.
            **options: More arguments for `create_agent` or `AgentExecutor`.
        """
        native = [native_tool(tool) for tool in live_tools(trained, tools)]
        prompt = system_prompt or str(trained.metadata.get("system_prompt") or "")
        model = AgentGymChat(chat=ChatModel.of(trained, llm, defer_below), llm=llm)
        if style == "graph":
            if agent_type != "tool_calling":
                raise UsageError(
                    'agent_type works with executors only. Add style="executor".'
                )
            return create_agent(model, native, system_prompt=prompt or None, **options)
        return make_executor(model, native, prompt, agent_type, options)

    def extract_tools(self, agent: Any) -> list[Tool]:
        """See `FrameworkAdapter`."""
        routed = [routed_tool(tool).tool for tool in tools_of(agent)]
        return checked_tools(routed, "The LangChain agent")

    def harness(self, agent: Any) -> AgentHarness:
        """See `FrameworkAdapter`."""
        route_models()
        tools = tools_of(agent)
        for tool in tools:
            route_tool(tool)
        made = ExecutorHarness if hasattr(agent, "input_keys") else GraphHarness
        return made(agent, [definition_of(tool) for tool in tools])

    def stateless(self, agent: Any) -> bool:
        """Graphs keep their state per thread; executors only in a memory."""
        return getattr(agent, "memory", None) is None

    def persistent_state(self, agent: Any) -> str:
        """See `FrameworkAdapter`."""
        return "its store" if getattr(agent, "store", None) is not None else ""

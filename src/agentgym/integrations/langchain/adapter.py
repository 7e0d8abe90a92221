"""LangChain: trained agents as its agents, and its agents in training."""

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
    ExecutorSeat,
    GraphSeat,
    note_doubled_tools,
    route_models,
    route_tool,
    routed_tool,
    tools_of,
)
from agentgym.policies.saved import SavedAgent


class LangChainAdapter(FrameworkAdapter):
    """Agents of LangChain: graphs of `create_agent`, and executors."""

    def __init__(self) -> None:
        note_doubled_tools()

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
        """A graph as `create_agent` makes it, or an `AgentExecutor`.

        Args:
            trained: Decides.
            tools: What it may call: our tools, LangChain's, plain functions, or
                functions by the names of the tools it was trained on.
            llm: A chat model that writes the words, and decides in doubt. Without one
                the trained agent speaks in its own few words.
            defer_below: The `llm` decides where the confidence is lower than this.
            style: "graph", or "executor" for `langchain_classic`.
            agent_type: Of an executor: how it calls tools.
            system_prompt: By default the scenario's.
            **options: For `create_agent`, or for `AgentExecutor`.
        """
        native = [native_tool(tool) for tool in live_tools(trained, tools)]
        prompt = system_prompt or str(trained.metadata.get("system_prompt") or "")
        model = AgentGymChat(chat=ChatModel.of(trained, llm, defer_below), llm=llm)
        if style == "graph":
            if agent_type != "tool_calling":
                raise UsageError(
                    'Nothing reads agent_type in a graph. Add style="executor".'
                )
            return create_agent(model, native, system_prompt=prompt or None, **options)
        return make_executor(model, native, prompt, agent_type, options)

    def extract_tools(self, agent: Any) -> list[Tool]:
        """See `FrameworkAdapter`."""
        routed = [routed_tool(tool).tool for tool in tools_of(agent)]
        return checked_tools(routed, "The agent of LangChain")

    def harness(self, agent: Any) -> AgentHarness:
        """See `FrameworkAdapter`."""
        route_models()
        tools = tools_of(agent)
        for tool in tools:
            route_tool(tool)
        made = ExecutorSeat if hasattr(agent, "input_keys") else GraphSeat
        return made(agent, [definition_of(tool) for tool in tools])

    def stateless(self, agent: Any) -> bool:
        """Graphs keep their state by thread; executors only in a memory."""
        return getattr(agent, "memory", None) is None

    def persistent_state(self, agent: Any) -> str:
        """See `FrameworkAdapter`."""
        return "its store" if getattr(agent, "store", None) is not None else ""

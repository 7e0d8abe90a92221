"""Adapter for AutoGen's agentchat: assistants and teams."""

from __future__ import annotations

import asyncio
from typing import Any

from autogen_agentchat.agents import AssistantAgent
from autogen_core import CancellationToken
from autogen_core.models import ChatCompletionClient
from autogen_core.tools import BaseTool, FunctionTool, ToolSchema
from pydantic import BaseModel, ConfigDict

from agentgym.core.tools import Tool
from agentgym.episodes.chat import ChatModel
from agentgym.integrations.autogen.client import AgentGymClient
from agentgym.integrations.autogen.training import (
    AutoGenHarness,
    assistants,
    has_memory,
    routed_tools,
)
from agentgym.integrations.base import (
    FrameworkAdapter,
    Tools,
    live_tools,
    run_tool,
    shared_tools,
)
from agentgym.integrations.harness import AgentHarness
from agentgym.policies.saved import SavedAgent


class AutoGenAdapter(FrameworkAdapter):
    """AutoGen's agentchat: assistants and teams."""

    def wrap_agent(
        self,
        trained: SavedAgent,
        *,
        tools: Tools | None = None,
        llm: ChatCompletionClient | None = None,
        defer_below: float = 0.0,
        name: str = "agentgym",
        system_message: str | None = None,
        **options: Any,
    ) -> AssistantAgent:
        """Returns an `AssistantAgent`, for use alone or in a team.

        Args:
            trained: The trained agent.
            tools: Its tools: AgentGym's, AutoGen's, plain functions, or a mapping from
                the names of the trained tools to functions.
            llm: A model client that writes texts and takes uncertain decisions.
            defer_below: The `llm` decides when the confidence is below this.
            name: The agent's name.
            system_message: Default: the scenario's system prompt.
            **options: More arguments for `AssistantAgent`.
        """
        prompt = system_message or trained.metadata.get("system_prompt") or None
        return AssistantAgent(
            name,
            AgentGymClient(ChatModel.of(trained, llm, defer_below), llm),
            tools=[_native_tool(tool) for tool in live_tools(trained, tools)],
            system_message=prompt,
            **{"max_tool_iterations": 20, **options},
        )

    def extract_tools(self, agent: Any) -> list[Tool]:
        """See `FrameworkAdapter`."""
        owned = [
            (member.name, [routed.tool for routed in routed_tools(member)])
            for member in assistants(agent)
        ]
        return shared_tools(owned, "The AutoGen agent")

    def harness(self, agent: Any) -> AgentHarness:
        """See `FrameworkAdapter`."""
        return AutoGenHarness(agent)

    def persistent_state(self, agent: Any) -> str:
        """See `FrameworkAdapter`."""
        return "its memory" if has_memory(agent) else ""


class _Arguments(BaseModel):
    model_config = ConfigDict(extra="allow")


class _OurTool(BaseTool[_Arguments, str]):
    """An AgentGym tool, with its original schema and JSON results."""

    def __init__(self, tool: Tool) -> None:
        super().__init__(_Arguments, str, tool.name, tool.description)
        self._tool = tool

    @property
    def schema(self) -> ToolSchema:
        function: Any = self._tool.to_openai()["function"]
        return ToolSchema(**function)

    async def run(self, args: _Arguments, cancellation_token: CancellationToken) -> str:
        return await asyncio.to_thread(run_tool, self._tool, args.model_dump())


def _native_tool(tool: Any) -> Any:
    if isinstance(tool, Tool):
        return _OurTool(tool)
    if isinstance(tool, BaseTool):
        return tool
    return FunctionTool(tool, description=(tool.__doc__ or "").strip())

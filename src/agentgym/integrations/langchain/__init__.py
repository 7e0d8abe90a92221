"""Adapter for LangChain: graphs of `create_agent`, and executors."""

from agentgym.integrations.langchain.adapter import LangChainAdapter
from agentgym.integrations.langchain.model import AgentGymChat, AgentGymMiddleware

__all__ = ["AgentGymChat", "AgentGymMiddleware", "LangChainAdapter"]

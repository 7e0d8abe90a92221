"""LangChain: trained agents as its agents, and its agents in training."""

from agentgym.integrations.langchain.adapter import LangChainAdapter
from agentgym.integrations.langchain.model import AgentGymChat, AgentGymMiddleware

__all__ = ["AgentGymChat", "AgentGymMiddleware", "LangChainAdapter"]

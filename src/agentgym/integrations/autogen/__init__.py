"""Adapter for AutoGen's agentchat: assistants and teams."""

from agentgym.integrations.autogen.adapter import AutoGenAdapter
from agentgym.integrations.autogen.client import AgentGymClient

__all__ = ["AgentGymClient", "AutoGenAdapter"]

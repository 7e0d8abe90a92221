"""AutoGen: trained agents as its agents, and its agents and teams in training."""

from agentgym.integrations.autogen.adapter import AutoGenAdapter
from agentgym.integrations.autogen.client import AgentGymClient

__all__ = ["AgentGymClient", "AutoGenAdapter"]

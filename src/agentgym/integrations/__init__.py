"""Adapters for agent frameworks: export trained agents, train existing ones."""

"""What AgentGym remembers: runs, their metrics and trajectories, and models."""

from agentgym.store.rows import ModelDraft, ModelRow, RunFields, RunRow, TrajectoryRow
from agentgym.store.store import Store

__all__ = [
    "ModelDraft",
    "ModelRow",
    "RunFields",
    "RunRow",
    "Store",
    "TrajectoryRow",
]

"""What AgentGym remembers: runs, their metrics and trajectories, and models."""

from agentgym.store.rows import (
    EvaluationRow,
    ModelDraft,
    ModelRow,
    PointRow,
    RunFields,
    RunRow,
    TrajectoryRow,
)
from agentgym.store.store import Store

__all__ = [
    "EvaluationRow",
    "ModelDraft",
    "ModelRow",
    "PointRow",
    "RunFields",
    "RunRow",
    "Store",
    "TrajectoryRow",
]

"""AgentGym: train the tool use of an agent by reinforcement learning on live tools.

    from agentgym import Trainer

    result = Trainer().train("customer_support")

Names are imported when they are first used, so that `import agentgym` costs nothing.
"""

from __future__ import annotations

from agentgym._version import __version__

# Not from typing: importing it costs as much as starting Python does.
TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

    from agentgym.core.config import TrainingConfig
    from agentgym.core.metrics import TrainingMetrics
    from agentgym.core.result import TrainingResult
    from agentgym.core.task import Task
    from agentgym.core.tools import Tool
    from agentgym.core.trained_agent import TrainedAgent
    from agentgym.core.trainer import Trainer, train
    from agentgym.scenarios.base import Scenario
    from agentgym.scenarios.environment import Environment
    from agentgym.scenarios.registry import ScenarioRegistry

_HOMES = {
    "Environment": "agentgym.scenarios.environment",
    "Scenario": "agentgym.scenarios.base",
    "ScenarioRegistry": "agentgym.scenarios.registry",
    "Task": "agentgym.core.task",
    "Tool": "agentgym.core.tools",
    "TrainedAgent": "agentgym.core.trained_agent",
    "Trainer": "agentgym.core.trainer",
    "TrainingConfig": "agentgym.core.config",
    "TrainingMetrics": "agentgym.core.result",
    "TrainingResult": "agentgym.core.result",
    "train": "agentgym.core.trainer",
}

__all__ = [
    "Environment",
    "Scenario",
    "ScenarioRegistry",
    "Task",
    "Tool",
    "TrainedAgent",
    "Trainer",
    "TrainingConfig",
    "TrainingMetrics",
    "TrainingResult",
    "__version__",
    "train",
]


def __getattr__(name: str) -> Any:
    if name not in _HOMES:
        raise AttributeError(f"module 'agentgym' has no attribute '{name}'")
    from importlib import import_module

    value = globals()[name] = getattr(import_module(_HOMES[name]), name)
    return value


def __dir__() -> list[str]:
    return __all__

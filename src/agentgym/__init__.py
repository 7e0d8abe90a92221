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
    from agentgym.core.control import Control
    from agentgym.core.events import (
        Adjusted,
        BaselineMeasured,
        CheckpointSaved,
        EvaluationDone,
        Event,
        IterationDone,
        Paused,
        Resumed,
        RunFailed,
        RunFinished,
        RunStarted,
        RunStopped,
        UnknownEvent,
        Warned,
    )
    from agentgym.core.metrics import TrainingMetrics
    from agentgym.core.task import Task
    from agentgym.core.tools import Tool
    from agentgym.core.trained_agent import TrainedAgent, TrainingResult
    from agentgym.core.trainer import Trainer, train
    from agentgym.errors import (
        AgentGymError,
        AssetError,
        ConfigError,
        ContextExceeded,
        EngineNotFoundError,
        FailureBudgetExceeded,
        FormatError,
        MissingExtraError,
        ModelNotFoundError,
        OutOfMemory,
        PolicyNotFoundError,
        RunNotFoundError,
        ScenarioError,
        ScenarioNotFoundError,
        ServingError,
        StoreError,
        TrainingDiverged,
        UsageError,
    )
    from agentgym.policies.base import Policy
    from agentgym.scenarios.base import Scenario
    from agentgym.scenarios.checker import check_scenario
    from agentgym.scenarios.environment import Environment
    from agentgym.scenarios.registry import ScenarioRegistry

_MODULES = {
    "agentgym.core.config": "TrainingConfig",
    "agentgym.core.control": "Control",
    "agentgym.core.events": (
        "Adjusted BaselineMeasured CheckpointSaved EvaluationDone Event "
        "IterationDone Paused Resumed RunFailed RunFinished RunStarted RunStopped "
        "UnknownEvent Warned"
    ),
    "agentgym.core.metrics": "TrainingMetrics",
    "agentgym.core.task": "Task",
    "agentgym.core.tools": "Tool",
    "agentgym.core.trained_agent": "TrainedAgent TrainingResult",
    "agentgym.core.trainer": ("Trainer train"),
    "agentgym.errors": (
        "AgentGymError AssetError ConfigError ContextExceeded EngineNotFoundError "
        "FailureBudgetExceeded FormatError MissingExtraError ModelNotFoundError "
        "OutOfMemory PolicyNotFoundError RunNotFoundError ScenarioError "
        "ScenarioNotFoundError ServingError StoreError TrainingDiverged UsageError"
    ),
    "agentgym.policies.base": "Policy",
    "agentgym.scenarios.base": "Scenario",
    "agentgym.scenarios.checker": "check_scenario",
    "agentgym.scenarios.environment": "Environment",
    "agentgym.scenarios.registry": "ScenarioRegistry",
}
_HOMES = {name: home for home, names in _MODULES.items() for name in names.split()}

__all__ = [
    "Adjusted",
    "AgentGymError",
    "AssetError",
    "BaselineMeasured",
    "CheckpointSaved",
    "ConfigError",
    "ContextExceeded",
    "Control",
    "EngineNotFoundError",
    "Environment",
    "EvaluationDone",
    "Event",
    "FailureBudgetExceeded",
    "FormatError",
    "IterationDone",
    "MissingExtraError",
    "ModelNotFoundError",
    "OutOfMemory",
    "Paused",
    "Policy",
    "PolicyNotFoundError",
    "Resumed",
    "RunFailed",
    "RunFinished",
    "RunNotFoundError",
    "RunStarted",
    "RunStopped",
    "Scenario",
    "ScenarioError",
    "ScenarioNotFoundError",
    "ScenarioRegistry",
    "ServingError",
    "StoreError",
    "Task",
    "Tool",
    "TrainedAgent",
    "Trainer",
    "TrainingConfig",
    "TrainingDiverged",
    "TrainingMetrics",
    "TrainingResult",
    "UnknownEvent",
    "UsageError",
    "Warned",
    "__version__",
    "check_scenario",
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

"""Every error that AgentGym raises on purpose.

    AgentGymError                    one clear line for a person; has an `exit_code`
    ├── UsageError                   what was asked for makes no sense (exit 2)
    │   ├── ConfigError              a setting is wrong, unknown or read by nobody
    │   ├── ScenarioNotFoundError    no scenario of that name
    │   ├── PolicyNotFoundError      no policy of that name
    │   ├── EngineNotFoundError      no engine of that name
    │   ├── ModelNotFoundError       no trained model of that name or path
    │   └── RunNotFoundError         no run of that id
    ├── ScenarioError                a scenario breaks its contract
    ├── FormatError                  a file is truncated, foreign or of another version
    ├── AssetError                   weights could not be fetched or verified
    ├── StoreError                   the home folder or its database cannot be used
    ├── ServingError                 a server cannot be started
    ├── FailureBudgetExceeded        too many episodes failed outside the policy
    ├── ContextExceeded              a conversation is longer than a model can read
    ├── TrainingDiverged             an update produced numbers that are not finite
    └── MissingExtraError            an optional dependency is not installed

What a *tool* or an *agent* does wrong is not an error but data: see `FailureKind`
in `core/trajectory.py`.

Messages say what happened and what to do next, in one line.
"""

from __future__ import annotations

import difflib
from collections.abc import Iterable


class AgentGymError(Exception):
    """Base of all errors meant for people."""

    exit_code = 1


class UsageError(AgentGymError):
    """What was asked for makes no sense; nothing has been started."""

    exit_code = 2


class ConfigError(UsageError):
    """A setting is wrong, unknown or read by nobody."""


class _NotFoundError(UsageError):
    """Something was asked for by a name that nothing has."""

    noun = "Thing"

    def __init__(self, name: str, available: Iterable[str], hint: str = "") -> None:
        self.name = name
        self.available = sorted(available)
        near = did_you_mean(name, self.available)
        known = ", ".join(self.available) or "none"
        text = f"{self.noun} '{name}' not found.{near} Available: {known}."
        super().__init__(f"{text} {hint}".strip())


class ScenarioNotFoundError(_NotFoundError):
    """No scenario of that name."""

    noun = "Scenario"


class PolicyNotFoundError(_NotFoundError):
    """No policy of that name."""

    noun = "Policy"


class EngineNotFoundError(_NotFoundError):
    """No engine of that name."""

    noun = "Engine"


class ModelNotFoundError(_NotFoundError):
    """No trained model of that name or path."""

    noun = "Model"


class RunNotFoundError(_NotFoundError):
    """No run of that id."""

    noun = "Run"


class ScenarioError(AgentGymError):
    """A scenario breaks its contract."""


class FormatError(AgentGymError):
    """A file is truncated, foreign or of another version."""


class AssetError(AgentGymError):
    """Weights could not be fetched or verified."""


class StoreError(AgentGymError):
    """The home folder or its database cannot be used."""


class ServingError(AgentGymError):
    """A server cannot be started."""


class FailureBudgetExceeded(AgentGymError):
    """Too many episodes failed for reasons outside the policy."""


class ContextExceeded(AgentGymError):
    """A conversation is longer than a model can read; nothing is cut off silently."""


class OutOfMemory(AgentGymError):
    """A model and what it reads do not fit into memory."""


class TrainingDiverged(AgentGymError):
    """An update produced numbers that are not finite."""


class MissingExtraError(AgentGymError):
    """An optional dependency is not installed."""

    def __init__(self, what: str, extra: str, problem: str = "") -> None:
        why = f": {problem}. Run" if problem else ":"
        super().__init__(f"{what} needs an extra{why} pip install 'agentgym[{extra}]'.")
        self.extra = extra


def did_you_mean(name: str, known: Iterable[str]) -> str:
    """Returns " Did you mean 'x'?" for the nearest known name, or ""."""
    near = difflib.get_close_matches(name, list(known), n=1, cutoff=0.6)
    return f" Did you mean '{near[0]}'?" if near else ""


def one_line(error: BaseException) -> str:
    """An error of whatever kind in one line, with its type."""
    return f"{type(error).__name__}: {' '.join(str(error).split())}".rstrip(".: ")

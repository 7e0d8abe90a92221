"""Every error that AgentGym raises on purpose.

    AgentGymError                    one line for the user; has an `exit_code`
    ├── UsageError                   invalid request; nothing was started (exit 2)
    │   ├── ConfigError              a setting is invalid, unknown or unused
    │   ├── ScenarioNotFoundError    no scenario with this name
    │   ├── PolicyNotFoundError      no policy with this name
    │   ├── EngineNotFoundError      no engine with this name
    │   ├── ModelNotFoundError       no trained model with this name or path
    │   └── RunNotFoundError         no run with this id
    ├── ScenarioError                a scenario breaks its contract
    ├── FormatError                  a file is truncated, unknown or another version's
    ├── AssetError                   weights couldn't be downloaded or verified
    ├── StoreError                   the home folder or its database can't be used
    ├── ServingError                 a server can't start
    ├── FailureBudgetExceeded        too many episodes failed outside the policy
    ├── ContextExceeded              a conversation exceeds the model's context
    ├── OutOfMemory                  a model and its input don't fit into memory
    ├── TrainingDiverged             an update produced infinite or NaN values
    └── MissingExtraError            an optional dependency isn't installed

What a *tool* or an *agent* does wrong is data, not an error: see `FailureKind` in
`core/tools.py`.

Messages say what happened and what to do next, in one line.
"""

from __future__ import annotations

import difflib
from collections.abc import Iterable


class AgentGymError(Exception):
    """Base class of all errors that AgentGym raises on purpose."""

    exit_code = 1


class UsageError(AgentGymError):
    """The request is invalid; nothing was started."""

    exit_code = 2


class ConfigError(UsageError):
    """A setting is invalid, unknown or unused."""


class _NotFoundError(UsageError):
    """Nothing has the requested name."""

    noun = "Thing"

    def __init__(self, name: str, available: Iterable[str], hint: str = "") -> None:
        self.name = name
        self.available = sorted(available)
        near = did_you_mean(name, self.available)
        known = ", ".join(self.available) or "none"
        text = f"{self.noun} '{name}' not found.{near} Available: {known}."
        super().__init__(f"{text} {hint}".strip())


class ScenarioNotFoundError(_NotFoundError):
    """No scenario has this name."""

    noun = "Scenario"


class PolicyNotFoundError(_NotFoundError):
    """No policy has this name."""

    noun = "Policy"


class EngineNotFoundError(_NotFoundError):
    """No engine has this name."""

    noun = "Engine"


class ModelNotFoundError(_NotFoundError):
    """No trained model has this name or path."""

    noun = "Model"


class RunNotFoundError(_NotFoundError):
    """No run has this id."""

    noun = "Run"


class ScenarioError(AgentGymError):
    """A scenario breaks its contract."""


class FormatError(AgentGymError):
    """A file is truncated, in an unknown format, or from another version."""


class AssetError(AgentGymError):
    """Weights couldn't be downloaded or verified."""


class StoreError(AgentGymError):
    """The home folder or its database can't be used."""


class ServingError(AgentGymError):
    """A server can't start."""


class FailureBudgetExceeded(AgentGymError):
    """Too many episodes failed for reasons outside the policy."""


class ContextExceeded(AgentGymError):
    """A conversation exceeds the model's context; AgentGym never truncates one."""


class OutOfMemory(AgentGymError):
    """A model and its input don't fit into memory."""


class TrainingDiverged(AgentGymError):
    """An update produced infinite or NaN values."""


class MissingExtraError(AgentGymError):
    """An optional dependency isn't installed."""

    def __init__(self, what: str, extra: str, problem: str = "") -> None:
        why = f": {problem}. Run" if problem else ":"
        super().__init__(
            f"{what} needs an extra{why} pip install 'openagentgym[{extra}]'."
        )
        self.extra = extra


def did_you_mean(name: str, known: Iterable[str]) -> str:
    """Returns " Did you mean 'x'?" for the nearest known name, or ""."""
    near = difflib.get_close_matches(name, list(known), n=1, cutoff=0.6)
    return f" Did you mean '{near[0]}'?" if near else ""


def one_line(error: BaseException) -> str:
    """An error of whatever kind in one line, with its type."""
    return f"{type(error).__name__}: {' '.join(str(error).split())}".rstrip(".: ")

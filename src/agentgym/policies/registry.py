"""Policies by name, imported on demand.

Other packages add policies through the entry point group "agentgym.policies":

    [project.entry-points."agentgym.policies"]
    my_policy = "my_package.my_module:MyPolicy"
"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from agentgym.errors import MissingExtraError, PolicyNotFoundError, UsageError
from agentgym.utils.objects import Plugins

if TYPE_CHECKING:
    from agentgym.core.config import TrainingConfig
    from agentgym.core.options import PolicyOptions
    from agentgym.policies.base import Policy

_EXTRAS = {"torch": "llm", "transformers": "llm"}
"""Packages that a policy needs, and the extra that installs them."""

_CLASSES = {
    "planner": "agentgym.policies.planner.policy:PlannerPolicy",
    "llm": "agentgym.policies.llm.policy:LlmPolicy",
}

LANGUAGE_MODEL = "llm"
"""The built-in policy that is a language model."""

POLICIES = Plugins("agentgym.policies", _CLASSES, "Policy", PolicyNotFoundError)
"""All policies that can be named."""


def policy_class(name: str) -> type[Policy]:
    """Returns the class of a policy.

    Raises:
        PolicyNotFoundError: No policy has that name.
        MissingExtraError: It needs packages that aren't installed.
        UsageError: The entry point doesn't name a policy.
    """
    from agentgym.policies.base import Policy

    try:
        found = POLICIES.load(name)
    except ModuleNotFoundError as error:
        missing = (error.name or "").partition(".")[0]
        if missing not in _EXTRAS:
            raise
        raise MissingExtraError(f"Policy '{name}'", _EXTRAS[missing]) from None
    if not isinstance(found, type) or not issubclass(found, Policy):
        raise UsageError(f"Policy '{name}' isn't a subclass of Policy.")
    if found.name != name:
        raise UsageError(
            f"Policy '{name}' calls itself '{found.name}'. Give both the same name."
        )
    return found


def policy_options(config: TrainingConfig) -> PolicyOptions:
    """The options of a training's policy, from its settings."""
    options = policy_class(config.policy).policy_options
    return options.model_validate(config.options_of(options.model_fields))


def create_policy(
    name: str, seed: int = 0, options: PolicyOptions | None = None
) -> Policy:
    """Makes an untrained policy; the same for the same seed.

    Args:
        name: Which policy.
        seed: For a policy that starts from random weights; others start the same.
        options: Made by `policy_options`; by default its own defaults.

    Raises:
        PolicyNotFoundError: No policy has that name.
        AssetError: The policy needs weights that can't be downloaded.
    """
    chosen = policy_class(name)
    return chosen.create(seed, options or chosen.policy_options())


def load_policy(name: str, folder: Path) -> Policy:
    """Reads a policy that was saved in a folder.

    Raises:
        PolicyNotFoundError: No policy has that name.
        FormatError: The folder doesn't contain such a policy.
    """
    return policy_class(name).load(folder)

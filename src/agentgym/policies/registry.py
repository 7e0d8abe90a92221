"""Policies by name, imported when they are asked for."""

from __future__ import annotations

import inspect
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING, Any

from agentgym.errors import MissingExtraError, PolicyNotFoundError

if TYPE_CHECKING:
    from agentgym.policies.base import Policy

_EXTRAS = {"torch": "llm", "transformers": "llm"}
"""Packages that a policy needs, and the extra that brings them."""

_CLASSES = {
    "planner": "agentgym.policies.planner.policy:PlannerPolicy",
    "llm": "agentgym.policies.llm.policy:LlmPolicy",
}

POLICIES = tuple(_CLASSES)
"""The policies that exist, by name."""


def policy_class(name: str) -> type[Policy]:
    """Returns the class of a policy.

    Raises:
        PolicyNotFoundError: There is none of that name.
        MissingExtraError: It needs packages that are not installed.
    """
    if name not in _CLASSES:
        raise PolicyNotFoundError(name, POLICIES)
    module, _, attribute = _CLASSES[name].partition(":")
    try:
        found: type[Policy] = getattr(import_module(module), attribute)
    except ModuleNotFoundError as error:
        missing = (error.name or "").partition(".")[0]
        if missing not in _EXTRAS:
            raise
        raise MissingExtraError(f"The policy '{name}'", _EXTRAS[missing]) from None
    return found


def takes_model(name: str) -> bool:
    """Whether a policy is made from a language model that can be named."""
    return "model" in inspect.signature(policy_class(name)).parameters


def create_policy(name: str, seed: int, model: str | None = None) -> Policy:
    """Makes an untrained policy; the same for the same seed.

    Args:
        name: Which policy.
        seed: For a policy that starts from random weights; others start equal.
        model: Language model of a policy that takes one; None for its default.

    Raises:
        PolicyNotFoundError: There is none of that name.
        AssetError: The policy needs weights that cannot be had.
    """
    chosen = policy_class(name)
    known = inspect.signature(chosen).parameters
    given: dict[str, Any] = {"seed": seed, "model": model}
    return chosen(**{k: v for k, v in given.items() if k in known and v is not None})


def load_policy(name: str, folder: Path) -> Policy:
    """Reads a policy that was saved in a folder.

    Raises:
        PolicyNotFoundError: There is none of that name.
        FormatError: The folder does not hold such a policy.
    """
    return policy_class(name).load(folder)

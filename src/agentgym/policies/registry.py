"""Policies by name, imported when they are asked for."""

from __future__ import annotations

import inspect
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING

from agentgym.core.errors import PolicyNotFoundError

if TYPE_CHECKING:
    from agentgym.policies.base import Policy

_CLASSES = {"planner": "agentgym.policies.planner.policy:PlannerPolicy"}

POLICIES = tuple(_CLASSES)
"""The policies that exist, by name."""


def policy_class(name: str) -> type[Policy]:
    """Returns the class of a policy.

    Raises:
        PolicyNotFoundError: There is none of that name.
    """
    if name not in _CLASSES:
        raise PolicyNotFoundError(name, POLICIES)
    module, _, attribute = _CLASSES[name].partition(":")
    found: type[Policy] = getattr(import_module(module), attribute)
    return found


def create_policy(name: str, seed: int) -> Policy:
    """Makes an untrained policy; the same for the same seed.

    Args:
        name: Which policy.
        seed: For a policy that starts from random weights; others start equal.

    Raises:
        PolicyNotFoundError: There is none of that name.
        AssetError: The policy needs weights that cannot be had.
    """
    chosen = policy_class(name)
    if "seed" in inspect.signature(chosen).parameters:
        return chosen(seed=seed)  # type: ignore[call-arg]
    return chosen()


def load_policy(name: str, folder: Path) -> Policy:
    """Reads a policy that was saved in a folder.

    Raises:
        PolicyNotFoundError: There is none of that name.
        FormatError: The folder does not hold such a policy.
    """
    return policy_class(name).load(folder)

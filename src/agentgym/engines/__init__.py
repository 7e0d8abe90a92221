"""Engines: where the training loop runs."""

from __future__ import annotations

from typing import TYPE_CHECKING

from agentgym.core.errors import EngineNotFoundError

if TYPE_CHECKING:
    from agentgym.engines.base import Engine

ENGINES = ("local",)
"""The engines that exist, by name."""


def get_engine(name: str) -> Engine:
    """Returns the engine of that name.

    Raises:
        EngineNotFoundError: There is none.
    """
    if name not in ENGINES:
        raise EngineNotFoundError(name, ENGINES)
    from agentgym.engines.local import LocalEngine

    return LocalEngine()

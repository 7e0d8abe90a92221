"""Engines: where the training loop runs."""

from __future__ import annotations

from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING

from agentgym.errors import EngineNotFoundError

if TYPE_CHECKING:
    from agentgym.engines.base import Engine

_CLASSES = {
    "local": "agentgym.engines.local:LocalEngine",
    "trl": "agentgym.engines.trl:TrlEngine",
}

ENGINES = tuple(_CLASSES)
"""The engines that exist, by name."""


def get_engine(name: str) -> Engine:
    """Returns the engine of that name.

    Raises:
        EngineNotFoundError: There is none.
    """
    if name not in _CLASSES:
        raise EngineNotFoundError(name, ENGINES)
    module, _, attribute = _CLASSES[name].partition(":")
    made: Engine = getattr(import_module(module), attribute)()
    return made


def engine_of_run(run_id: str, home: Path | None) -> Engine:
    """Returns the engine that a run was begun with.

    Raises:
        RunNotFoundError: There is no such run.
    """
    from agentgym.store import Store

    with Store(home) as store:
        return get_engine(store.get_run(run_id).engine)

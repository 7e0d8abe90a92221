"""Engines by name, imported on demand: what learns.

Other packages add engines through the entry point group "agentgym.engines".
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from agentgym.errors import EngineNotFoundError, UsageError
from agentgym.utils.objects import Plugins

if TYPE_CHECKING:
    from agentgym.engines.base import Engine

ENGINES = Plugins(
    "agentgym.engines",
    {
        "local": "agentgym.engines.local:LocalEngine",
        "trl": "agentgym.engines.trl:TrlEngine",
    },
    "Engine",
    EngineNotFoundError,
)
"""All engines that can be named."""


def get_engine(name: str) -> Engine:
    """Returns the engine of that name.

    Raises:
        EngineNotFoundError: No engine has that name.
        UsageError: The entry point doesn't name an engine.
    """
    from agentgym.engines.base import Engine

    found = ENGINES.load(name)
    if not isinstance(found, type) or not issubclass(found, Engine):
        raise UsageError(f"Engine '{name}' isn't a subclass of Engine.")
    return found()

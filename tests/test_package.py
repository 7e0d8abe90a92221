from __future__ import annotations

import subprocess
import sys

import pytest

import agentgym
from agentgym.core.events import Event
from agentgym.errors import AgentGymError


def test_public_names_can_be_had() -> None:
    for name in agentgym.__all__:
        assert getattr(agentgym, name) is not None
    assert set(dir(agentgym)) == set(agentgym.__all__)
    with pytest.raises(AttributeError, match="no attribute 'Nope'"):
        _ = agentgym.Nope


def test_all_errors_and_events_are_public() -> None:
    def tree(kind: type) -> set[str]:
        here = kind.__module__ in ("agentgym.errors", "agentgym.core.events")
        own = {kind.__name__} if here and not kind.__name__.startswith("_") else set()
        return own.union(*map(tree, kind.__subclasses__()))

    assert tree(AgentGymError) | tree(Event) <= set(agentgym.__all__)


def test_importing_the_package_imports_nothing_heavy() -> None:
    code = (
        "import sys, agentgym; agentgym.__version__;"
        "print([m for m in ('numpy', 'pydantic', 'gymnasium', 'sqlalchemy', 'typer')"
        " if m in sys.modules])"
    )
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=True
    )
    assert done.stdout.strip() == "[]"


def test_the_trainer_does_not_import_the_store() -> None:
    code = (
        "import sys, agentgym.core.trainer;"
        "print([m for m in sys.modules if m.startswith(('agentgym.store', 'torch',"
        " 'sqlalchemy', 'typer', 'rich', 'agentgym.engines'))])"
    )
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=True
    )
    assert done.stdout.strip() == "[]"

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

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


_INSTALLS_STRANGER = re.compile(
    r"(?<![\w-])agentgym\[\w"
    r"|\b(?:pipx?|uv|poetry|pdm)\b[^&;|#]*\b(?:install|add)\b[^&;|#]*"
    r"[\s'\"]agentgym(?![\w./-])"
)


def test_nothing_tells_users_to_install_the_strangers_package() -> None:
    """On PyPI, `agentgym` belongs to someone else: ours is `openagentgym`."""
    root = Path(__file__).parents[1]
    listed = subprocess.run(
        ["git", "ls-files", "-z"], cwd=root, capture_output=True, text=True
    )
    if listed.returncode:
        pytest.skip("not a checkout")
    found = []
    for name in listed.stdout.rstrip("\0").split("\0"):
        path = root / name
        if not path.is_file() or path == Path(__file__):
            continue
        found += [
            f"{name}: {line.strip()}"
            for line in path.read_text(errors="replace").splitlines()
            if _INSTALLS_STRANGER.search(line)
        ]
    assert found == []


@pytest.mark.parametrize(
    ("line", "is_wrong"),
    [
        ("pip install agentgym", True),
        ("pip install -U 'agentgym[llm]'", True),
        ("uv add agentgym[llm]", True),
        ("pip install agentgym==1", True),
        ("pip install 'openagentgym[llm]'", False),
        ("pip install openagentgym", False),
        ("pip install -e . && agentgym train", False),
        ("pip uninstall -y agentgym", False),
    ],
)
def test_installs_the_stranger(line: str, is_wrong: bool) -> None:
    assert bool(_INSTALLS_STRANGER.search(line)) == is_wrong


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


@pytest.mark.parametrize(
    ("module", "heavy"),
    [
        (
            "agentgym.training.loop",
            "'agentgym.store', 'agentgym.engines', 'agentgym.runs', 'torch',"
            " 'sqlalchemy', 'typer', 'rich'",
        ),
        ("agentgym.core.trainer", "'torch', 'sqlalchemy', 'typer', 'rich'"),
    ],
)
def test_the_loop_imports_no_store_and_the_trainer_nothing_heavy(
    module: str, heavy: str
) -> None:
    code = (
        f"import sys, {module};"
        f"print([m for m in sys.modules if m.startswith(({heavy}))])"
    )
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=True
    )
    assert done.stdout.strip() == "[]"

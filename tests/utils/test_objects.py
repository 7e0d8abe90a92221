"""Objects by name: `module:name`, entry points, and objects that a program hands in."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from importlib.metadata import EntryPoint
from pathlib import Path

import pytest

from agentgym.errors import EngineNotFoundError, ScenarioError, UsageError
from agentgym.utils.objects import Plugins, load_object, name_of

SOURCE = """
class Shop:
    class Inner:
        pass

def make():
    return 1
"""


@pytest.fixture
def own(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[str]:
    """Name of a module in the current folder."""
    name = f"own_{tmp_path.name.replace('-', '_')}"
    (tmp_path / f"{name}.py").write_text(SOURCE)
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", list(sys.path))
    yield name
    sys.modules.pop(name, None)


def test_modules_in_the_current_folder_are_found(own: str) -> None:
    assert load_object(f"{own}:make", "Agent")() == 1
    assert load_object(f"{own}:Shop.Inner", "Scenario").__name__ == "Inner"


@pytest.mark.parametrize(
    ("path", "message"),
    [
        ("{own}", "Agent '{own}' isn't valid. Write it as module:function."),
        ("{own}:", "isn't valid"),
        (":make", "isn't valid"),
        ("{own}:make()", "isn't valid"),
        ("./{own}.py:make", "isn't valid"),
        ("{own}:mkae", "module '{own}' has no 'mkae'. Did you mean 'make'?"),
        ("{own}:Shop.Iner", "has no 'Shop.Iner'. Did you mean 'Inner'?"),
        ("no_such_module:x", "Run in the folder that contains it, or install it."),
        ("{own}.deeper:x", "cannot be imported: ModuleNotFoundError"),
    ],
)
def test_what_is_wrong_is_told_in_one_line(own: str, path: str, message: str) -> None:
    with pytest.raises(UsageError) as caught:
        load_object(path.format(own=own), "Agent")
    assert message.format(own=own) in str(caught.value)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize(
    ("source", "message"),
    [
        ("import no_such_dependency", "No module named 'no_such_dependency'"),
        ("x = (", "SyntaxError"),
        ("raise SystemExit(4)", "SystemExit: 4"),
    ],
)
def test_modules_that_raise(own: str, source: str, message: str) -> None:
    Path(f"{own}_broken.py").write_text(source)
    with pytest.raises(ScenarioError, match=message) as caught:
        load_object(f"{own}_broken:x", "Scenario", error=ScenarioError)
    # The module itself was found, so its folder is right.
    assert "Run in the folder" not in str(caught.value)


def test_objects_get_names() -> None:
    thing = object()
    assert load_object(name_of(thing), "Agent") is thing
    assert name_of("my_agent:make") == "my_agent:make"


@pytest.fixture
def engines(own: str, monkeypatch: pytest.MonkeyPatch) -> Plugins:
    entries = [
        EntryPoint("theirs", f"{own}:Shop [extra]", "engines"),
        EntryPoint("broken", "no_such_package:Thing", "engines"),
        EntryPoint("ours", f"{own}:Shop", "engines"),
    ]
    monkeypatch.setattr(
        "importlib.metadata.entry_points",
        lambda group: entries if group == "engines" else [],
    )
    ours = {"ours": "pathlib:Path"}
    return Plugins("engines", ours, "Engine", EngineNotFoundError)


def test_plugins(engines: Plugins) -> None:
    assert engines.names() == ["broken", "ours", "theirs"]
    assert engines.load("theirs").__name__ == "Shop"
    # A package cannot take a built-in name.
    assert engines.load("ours") is Path
    with pytest.raises(EngineNotFoundError, match="Available: broken, ours, theirs"):
        engines.load("nobody")
    with pytest.raises(UsageError, match="Engine 'no_such_package:Thing'"):
        engines.load("broken")


def test_builtin_names_need_no_look_at_packages(
    engines: Plugins, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("importlib.metadata.entry_points", None)
    assert engines.load("ours") is Path

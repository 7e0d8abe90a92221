"""Finding scenarios by name, entry point and module:Class."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator
from importlib.metadata import EntryPoint
from pathlib import Path

import pytest

from agentgym.errors import ConfigError, ScenarioError, ScenarioNotFoundError
from agentgym.scenarios.base import Scenario
from agentgym.scenarios.customer_support.scenario import CustomerSupport
from agentgym.scenarios.registry import (
    BUILTIN,
    ENTRY_POINTS,
    ScenarioInfo,
    ScenarioRegistry,
)

SOURCE = '''
from agentgym.scenarios.customer_support.scenario import CustomerSupport
from agentgym.scenarios.base import Scenario

class Mine(CustomerSupport):
    """My own shop."""
    name = "mine"
    class Inner(CustomerSupport):
        name = "inner"

class Nameless(Scenario):
    def tasks(self, split, seed, count): ...
    def create_environment(self, tasks=(), *, max_steps=10, runner=None): ...
    def success_criteria(self): ...

class Unfinished(Scenario):
    name = "unfinished"

class Raising(CustomerSupport):
    def __init__(self, **options):
        raise RuntimeError("no\\n  room")

class Refusing(CustomerSupport):
    def __init__(self, **options):
        from agentgym.errors import ConfigError
        raise ConfigError("not today")

value = 3
'''


@pytest.fixture
def own(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[str]:
    """Name of a module in the current folder."""
    name = f"own_{tmp_path.name.replace('-', '_')}"
    (tmp_path / f"{name}.py").write_text(SOURCE)
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", list(sys.path))
    yield name
    sys.modules.pop(name, None)


@pytest.fixture
def fresh(monkeypatch: pytest.MonkeyPatch) -> None:
    """A registry in which nothing was registered."""
    monkeypatch.setattr(ScenarioRegistry, "_registered", {})


@pytest.fixture
def offered(monkeypatch: pytest.MonkeyPatch, own: str) -> None:
    """Entry points of installed packages."""
    entries = [
        EntryPoint("theirs", f"{own}:Mine", ENTRY_POINTS),
        EntryPoint("broken", "no_such_package:Thing", ENTRY_POINTS),
        EntryPoint("customer_support", f"{own}:Mine", ENTRY_POINTS),
    ]
    monkeypatch.syspath_prepend(str(Path.cwd()))
    monkeypatch.setattr(
        "importlib.metadata.entry_points",
        lambda group: entries if group == ENTRY_POINTS else [],
    )


@pytest.mark.parametrize("name", BUILTIN)
def test_the_table_equals_the_classes(name: str) -> None:
    scenario = ScenarioRegistry.find(name)
    assert ScenarioInfo.of(scenario) == BUILTIN[name]
    assert scenario.name == name


def test_builtin_scenarios_load_with_options() -> None:
    scenario = ScenarioRegistry.load("customer_support", patience="3")
    assert isinstance(scenario, CustomerSupport)
    assert scenario.settings["patience"] == 3


def test_listing_imports_nothing_heavy() -> None:
    code = (
        "import sys; from agentgym.scenarios.registry import ScenarioRegistry;"
        "names = [info.name for info in ScenarioRegistry.list()];"
        "heavy = {'numpy', 'gymnasium', 'pydantic', 'typer', 'jsonschema'};"
        "print(names, sorted(heavy & set(sys.modules)))"
    )
    done = subprocess.run(
        [sys.executable, "-c", code],
        capture_output=True,
        text=True,
        env={"PYTHONPATH": ":".join(sys.path)},
        check=True,
    )
    assert done.stdout.strip() == f"{sorted(BUILTIN)} []"


def test_unknown_names_are_told_what_there_is() -> None:
    with pytest.raises(ScenarioNotFoundError) as caught:
        ScenarioRegistry.load("custmer_support")
    text = str(caught.value)
    assert "Did you mean 'customer_support'?" in text
    assert "Available: code_review, customer_support" in text
    assert "module:Class" in text


def test_options_that_nothing_reads_are_refused() -> None:
    with pytest.raises(ConfigError, match="'patienc'. Did you mean 'patience'"):
        ScenarioRegistry.load("customer_support", patienc=3)
    with pytest.raises(ConfigError, match="patience: should be a whole number"):
        ScenarioRegistry.load("customer_support", patience="long")


def test_own_classes_load_from_the_current_folder(own: str) -> None:
    assert ScenarioRegistry.load(f"{own}:Mine", patience=4).settings["patience"] == 4
    assert ScenarioRegistry.load(f"{own}:Mine.Inner").name == "inner"


@pytest.mark.parametrize(
    ("ref", "message"),
    [
        ("{own}:Mien", "has no 'Mien'. Did you mean 'Mine'"),
        ("{own}:value", "isn't a subclass of agentgym.Scenario"),
        ("{own}:Nameless", "has no name"),
        ("{own}:Unfinished", "does not define create_environment, success_criteria"),
        ("{own}:Raising", "can't be created: RuntimeError: no room"),
        ("no_such_module:Thing", "Run in the folder that contains it, or install it"),
        ("{own}.deeper:Thing", "cannot be imported"),
        ("{own}:", "Write it as module:Class"),
        (":Mine", "Write it as module:Class"),
        ("./{own}.py:Mine", "Write it as module:Class"),
        ("json:loads", "isn't a subclass of agentgym.Scenario"),
    ],
)
def test_wrong_references_are_told_in_one_line(
    own: str, ref: str, message: str
) -> None:
    with pytest.raises(ScenarioError) as caught:
        ScenarioRegistry.load(ref.format(own=own))
    assert message in str(caught.value)
    assert "\n" not in str(caught.value)


def test_errors_for_people_pass_through(own: str) -> None:
    with pytest.raises(ConfigError, match="not today"):
        ScenarioRegistry.load(f"{own}:Refusing")


@pytest.mark.parametrize(
    ("source", "message"),
    [
        ("import no_such_dependency", "No module named 'no_such_dependency'"),
        ("x = (", "SyntaxError"),
        ("1 / 0", "ZeroDivisionError"),
        ("raise SystemExit(4)", "SystemExit: 4"),
    ],
)
def test_modules_that_cannot_be_imported(own: str, source: str, message: str) -> None:
    name = f"{own}_broken"
    Path(f"{name}.py").write_text(source)
    with pytest.raises(ScenarioError) as caught:
        ScenarioRegistry.load(f"{name}:Thing")
    assert message in str(caught.value)
    # The module itself was found: being elsewhere is not the trouble.
    assert "Run in the folder" not in str(caught.value)
    assert "\n" not in str(caught.value)


@pytest.mark.usefixtures("fresh")
def test_register() -> None:
    @ScenarioRegistry.register
    class Registered(CustomerSupport):
        name = "registered"

    assert ScenarioRegistry.register(Registered) is Registered
    assert isinstance(ScenarioRegistry.load("registered"), Registered)
    assert ScenarioRegistry.names() == sorted([*BUILTIN, "registered"])
    assert [info.name for info in ScenarioRegistry.list()] == ScenarioRegistry.names()

    class Other(CustomerSupport):
        name = "registered"

    with pytest.raises(ScenarioError, match="Scenario 'registered' already exists"):
        ScenarioRegistry.register(Other)
    with pytest.raises(
        ScenarioError, match="Scenario 'customer_support' already exists"
    ):
        ScenarioRegistry.register(CustomerSupport)
    with pytest.raises(ScenarioError, match="does not define"):
        ScenarioRegistry.register(Scenario)  # type: ignore[type-abstract]
    with pytest.raises(ScenarioError, match="isn't a subclass"):
        ScenarioRegistry.register(3)  # type: ignore[arg-type]


@pytest.mark.usefixtures("fresh", "offered")
def test_entry_points() -> None:
    assert ScenarioRegistry.load("theirs").name == "mine"
    # A package cannot take a built-in name.
    assert type(ScenarioRegistry.load("customer_support")) is CustomerSupport
    infos = {info.name: info for info in ScenarioRegistry.list()}
    assert list(infos) == sorted(["broken", *BUILTIN, "theirs"])
    assert infos["theirs"].difficulty == "easy"
    assert infos["theirs"].problem == ""
    assert "no_such_package" in infos["broken"].problem
    with pytest.raises(ScenarioError, match="no_such_package"):
        ScenarioRegistry.load("broken")
    with pytest.raises(ScenarioNotFoundError, match="broken, .*theirs"):
        ScenarioRegistry.load("nothing")

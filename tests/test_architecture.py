"""The map in docs/architecture.md is the one that the code keeps to.

Every import counts: at the top of a module, inside a function, for type checking only,
and by a name in a string such as "agentgym.engines.local:LocalEngine".
"""

from __future__ import annotations

import ast
import re
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from graphlib import CycleError, TopologicalSorter
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
SOURCE = ROOT / "src" / "agentgym"
PAGE = ROOT / "docs" / "architecture.md"


@dataclass(frozen=True)
class Room:
    """A row of the table.

    Attributes:
        place: From the top; a room may import those with a smaller one.
        prefixes: Modules, or folders of them, within the package.
        packages: From elsewhere; the rooms that do not name one may not import it.
    """

    place: int
    prefixes: tuple[str, ...]
    packages: frozenset[str]

    def __str__(self) -> str:
        return self.prefixes[0]


def read_map(page: Path) -> list[Room]:
    section = page.read_text().partition("\n## The rooms\n")[2].partition("\n## ")[0]
    rows = [line.split("|")[1:4] for line in section.splitlines()]
    table = [
        (re.findall(r"`([\w/]+)`", row[0]), re.findall(r"`(\w+)`", row[2]))
        for row in rows
        if len(row) == 3 and row[0].startswith(" `")
    ]
    return [
        Room(
            place,
            tuple(n.strip("/").replace("/", ".") for n in names),
            frozenset(packages),
        )
        for place, (names, packages) in enumerate(table)
    ]


def room_of(module: str, rooms: list[Room]) -> Room:
    """The room that names the longest part of the module's path."""
    inside = module.partition(".")[2] or "agentgym"
    fitting = [
        (len(prefix), room.place)
        for room in rooms
        for prefix in room.prefixes
        if f"{inside}.".startswith(f"{prefix}.")
    ]
    assert fitting, f"no room of docs/architecture.md holds {module}"
    return rooms[max(fitting)[1]]


def imports(source: Path, *, by_name: bool = True) -> Iterator[tuple[str, str]]:
    """(module, what it imports) for all modules of a package.

    Args:
        source: The package's folder.
        by_name: Whether names in strings count.
    """
    modules = {
        ".".join((source.name, *path.relative_to(source).with_suffix("").parts))
        .removesuffix(".__init__"): path
        for path in source.rglob("*.py")
    }  # fmt: skip
    for module, path in modules.items():
        for node in ast.walk(ast.parse(path.read_text())):
            names = []
            if isinstance(node, ast.Import):
                names = [alias.name for alias in node.names]
            elif isinstance(node, ast.ImportFrom):
                assert node.level == 0, f"{module}: write imports in full"
                within = [f"{node.module}.{alias.name}" for alias in node.names]
                names = [n if n in modules else str(node.module) for n in within]
            elif by_name and isinstance(node, ast.Constant) and type(node.value) is str:
                names = [n for n in [node.value.partition(":")[0]] if n in modules]
                names = [n for n in names if "." in n]
            yield from ((module, name) for name in dict.fromkeys(names))


def violations(source: Path, rooms: list[Room]) -> list[str]:
    found = []
    for module, name in imports(source):
        room, package = room_of(module, rooms), name.partition(".")[0]
        if package == source.name:
            if room_of(name, rooms).place > room.place:
                found.append(f"{module} imports {name}, which is below it")
        elif package not in sys.stdlib_module_names and package not in room.packages:
            found.append(f"{module} imports {package}, which is not for {room}")
    return sorted(found)


def find_cycle(source: Path) -> list[str]:
    """Modules that import each other in a circle.

    A registry may name, in strings, the classes that keep to its contract.
    """
    graph: dict[str, set[str]] = {}
    for module, name in imports(source, by_name=False):
        if name.startswith(f"{source.name}.") and name != module:
            graph.setdefault(module, set()).add(name)
    try:
        TopologicalSorter(graph).prepare()
    except CycleError as error:
        return list(error.args[1])
    return []


ROOMS = read_map(PAGE)


def test_the_page_has_a_map() -> None:
    assert [str(room) for room in ROOMS[:3]] == ["errors", "utils", "core"]


def test_every_room_exists() -> None:
    for prefix in (p for room in ROOMS for p in room.prefixes if p != "agentgym"):
        place = SOURCE.joinpath(*prefix.split("."))
        assert place.is_dir() or place.with_suffix(".py").is_file(), prefix


def test_rooms_import_only_rooms_above_them() -> None:
    assert violations(SOURCE, ROOMS) == []


def test_no_modules_import_each_other_in_a_circle() -> None:
    assert find_cycle(SOURCE) == []


def test_every_package_named_is_imported() -> None:
    used = {(room_of(m, ROOMS).place, n.partition(".")[0]) for m, n in imports(SOURCE)}
    named = {(room.place, package) for room in ROOMS for package in room.packages}
    assert named <= used


@pytest.mark.parametrize(
    "line",
    [
        "import agentgym.cli.main",
        "from agentgym.cli import main",
        "def f():\n    from agentgym.cli.main import run",
        "if TYPE_CHECKING:\n    from agentgym.cli.main import run",
        'where = "agentgym.cli.main:run"',
        "import torch",
    ],
)
def test_a_forbidden_import_is_found(tmp_path: Path, line: str) -> None:
    package = tmp_path / "agentgym"
    for name, text in (
        ("core/tools", line),
        ("cli/main", "import agentgym.core.tools"),
    ):
        path = package / f"{name}.py"
        path.parent.mkdir(parents=True)
        path.write_text(text)
    assert len(violations(package, ROOMS)) == 1


def test_a_cycle_is_found(tmp_path: Path) -> None:
    package = tmp_path / "agentgym"
    package.mkdir()
    package.joinpath("a.py").write_text("import agentgym.b")
    package.joinpath("b.py").write_text("def f():\n    import agentgym.a")
    assert set(find_cycle(package)) == {"agentgym.a", "agentgym.b"}

"""The template of `agentgym scenarios new NAME`."""

from __future__ import annotations

import keyword
import re
from pathlib import Path

from agentgym.errors import UsageError

_TEMPLATE = Path(__file__).with_name("skeleton.txt")
"""The text of examples/custom_scenario.py; docs/writing-a-scenario.md explains it."""


def skeleton(name: str) -> tuple[str, str]:
    """A complete scenario that trains, to start your own from.

    Args:
        name: Name of the scenario and its module.

    Returns:
        The module's source, and the name of its class.

    Raises:
        UsageError: The name isn't valid.
    """
    if not re.fullmatch(r"[a-z][a-z0-9_]{0,63}", name) or keyword.iskeyword(name):
        raise UsageError(
            f"Invalid scenario name '{name}'. Use lower-case letters, digits and _, "
            "for example my_shop."
        )
    class_name = "".join(part.capitalize() for part in name.split("_"))
    if class_name == "Home":
        class_name = "HomeScenario"
    template = _TEMPLATE.read_text(encoding="utf-8")
    return template.replace("CLASS", class_name).replace("NAME", name), class_name


def write_skeleton(name: str, folder: Path) -> tuple[Path, str]:
    """Writes the skeleton to NAME.py.

    Returns:
        The file, and the name of the class in it.

    Raises:
        UsageError: The file already exists, or cannot be written.
    """
    source, class_name = skeleton(name)
    path = folder / f"{name}.py"
    try:
        with path.open("x", encoding="utf-8") as file:
            file.write(source)
    except FileExistsError:
        raise UsageError(f"{path} already exists. Choose another name.") from None
    except OSError as error:
        raise UsageError(
            f"{path} cannot be written: {error.strerror or error}."
        ) from None
    return path, class_name

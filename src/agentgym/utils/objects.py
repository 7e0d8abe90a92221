"""Objects by name: `module:name`, entry points, and objects of a Python program.

Settings are text. An agent, a reward or a sandbox that a program passes as an object
is kept here, and the settings name it as `agentgym.utils.objects:object_1`. Another
process can't find it, so such a run can't be resumed there; pass a `module:function`
instead if you need that.
"""

from __future__ import annotations

import importlib
import os
import sys
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from agentgym.errors import AgentGymError, UsageError, did_you_mean, one_line

if TYPE_CHECKING:
    from importlib.metadata import EntryPoint

_count = 0


def name_of(thing: Any) -> str:
    """A name for the object, as `module:function`; a text is already a name."""
    global _count
    if isinstance(thing, str):
        return thing
    _count += 1
    name = f"object_{_count}"
    setattr(sys.modules[__name__], name, thing)
    return f"{__name__}:{name}"


def load_object(
    path: str,
    what: str,
    *,
    error: type[AgentGymError] = UsageError,
    form: str = "module:function",
) -> Any:
    """Imports what `module:name` names. The module may be in the current folder.

    Args:
        path: The name; dots behind the colon reach into classes.
        what: What it should be, as messages call it: "Agent".
        error: Raised if it can't be loaded.
        form: How it is written, for messages.
    """
    module_name, _, name = path.partition(":")
    if not all(part.isidentifier() for part in f"{module_name}.{name}".split(".")):
        raise error(f"{what} '{path}' isn't valid. Write it as {form}.")
    here = os.getcwd()
    if here not in sys.path:
        sys.path.insert(0, here)
        importlib.invalidate_caches()
    try:
        found: Any = importlib.import_module(module_name)
    except (Exception, SystemExit) as problem:
        missing = isinstance(problem, ModuleNotFoundError) and (
            f"{module_name}.".startswith(f"{problem.name}.")
        )
        advice = " Run in the folder that contains it, or install it."
        raise error(
            f"{what} '{path}': module '{module_name}' cannot be imported: "
            f"{one_line(problem)}.{advice if missing else ''}"
        ) from problem
    for part in name.split("."):
        known = [n for n in dir(found) if not n.startswith("_")]
        try:
            found = getattr(found, part)
        except AttributeError:
            raise error(
                f"{what} '{path}': module '{module_name}' has no '{name}'."
                f"{did_you_mean(part, known)}"
            ) from None
    return found


@dataclass(frozen=True)
class Plugins:
    """Classes by name: built-in ones, and those of installed packages.

    Attributes:
        group: Entry point group by which packages offer theirs.
        builtin: `module:Class` of those that come with AgentGym. They are found
            without looking at packages, and a package can't take their names.
        what: What they are, as messages call them: "Scenario".
        not_found: Makes the error for an unknown name.
    """

    group: str
    builtin: Mapping[str, str]
    what: str
    not_found: Callable[[str, list[str]], AgentGymError]

    def names(self) -> list[str]:
        """All names, sorted."""
        return sorted({*self.builtin, *(entry.name for entry in self.entries())})

    def entries(self) -> Iterator[EntryPoint]:
        """What installed packages offer."""
        # Imported late: it takes longer than everything else here.
        from importlib.metadata import entry_points

        for entry in entry_points(group=self.group):
            if entry.name not in self.builtin:
                yield entry

    def load(self, name: str, error: type[AgentGymError] = UsageError) -> Any:
        """Imports the class of that name.

        Raises:
            ModuleNotFoundError: A built-in one needs a package that is missing.
        """
        if name in self.builtin:
            module, _, attribute = self.builtin[name].partition(":")
            return getattr(importlib.import_module(module), attribute)
        for entry in self.entries():
            if entry.name == name:
                return load_object(path_of(entry), self.what, error=error)
        raise self.not_found(name, self.names())


def path_of(entry: EntryPoint) -> str:
    """An entry point's `module:name`: its value may name extras of its package, too."""
    return f"{entry.module}:{entry.attr}"

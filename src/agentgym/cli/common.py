"""What the commands share: options, ways to print, the home and the crash log."""

from __future__ import annotations

import json
import os
import sys
import time
import traceback
from collections.abc import Callable
from contextlib import AbstractContextManager, redirect_stdout
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, NoReturn

import typer
from typer.core import TyperCommand, TyperGroup

if TYPE_CHECKING:
    from rich.console import Console

    from agentgym.store import Store
    from agentgym.ui.charts import Glyphs
    from agentgym.ui.tables import Table
    from agentgym.utils.assets import DownloadProgress

Options = dict[str, Any]

_HELP_NAMES = {"help_option_names": ["-h", "--help"]}


def _use_home(value: str | None) -> str | None:
    # Through the environment: whatever asks for the home then gets this one.
    if value:
        os.environ["AGENTGYM_HOME"] = value
    return value


HomeOption = Annotated[
    str | None,
    typer.Option(
        "--home",
        metavar="FOLDER",
        callback=_use_home,
        help="Where runs and models are kept."
        " By default $AGENTGYM_HOME or ./.agentgym.",
    ),
]
JsonOption = Annotated[
    bool,
    typer.Option("--json", help="Print one JSON object on standard output."),
]
TasksOption = Annotated[
    str | None,
    typer.Option(
        "--tasks",
        metavar="FILE",
        help="Your own tasks, one JSON object a line; the scenario is then task_file.",
    ),
]


def with_tasks(scenario: str | None, file: str | None) -> tuple[str | None, Options]:
    """The scenario that a file of tasks asks for, and its options.

    Args:
        scenario: As named, if it was.
        file: From `--tasks`.
    """
    if file is None:
        return scenario, {}
    # Runs are resumed, and models measured again, from other folders as well.
    return scenario or "task_file", {"tasks": str(Path(file).absolute())}


class _FlagsAreFalse:
    """Gives a flag that was not set the value False, where typer leaves None.

    To make a bool of None, typer imports pydantic; `scenarios list` would then spend
    half its time on the flag `--help`.
    """

    def get_params(self, ctx: Any) -> list[Any]:
        """The parameters of the command."""
        params: list[Any] = super().get_params(ctx)  # type: ignore[misc]
        for param in params:
            if getattr(param, "is_flag", False) and param.default is None:
                param.default = False
        return params


class Command(_FlagsAreFalse, TyperCommand):
    """A command that starts quickly."""


class Group(_FlagsAreFalse, TyperGroup):
    """A group of commands that starts quickly."""


def command_group(help: str, *, add_completion: bool = False) -> typer.Typer:
    """An app whose commands are named on the command line."""
    return typer.Typer(
        cls=Group,
        help=help,
        rich_markup_mode=None,
        add_completion=add_completion,
        invoke_without_command=True,
        callback=_show_help,
        context_settings=_HELP_NAMES,
    )


def single_command() -> typer.Typer:
    """An app that is one command."""
    return typer.Typer(
        rich_markup_mode=None, add_completion=False, context_settings=_HELP_NAMES
    )


def _show_help(context: typer.Context) -> None:
    if context.invoked_subcommand is None:
        print(context.get_help())


def home() -> Path:
    """The home folder in force. It need not exist."""
    return Path(os.environ.get("AGENTGYM_HOME") or ".agentgym").expanduser().absolute()


def open_store() -> Store:
    """The home's store."""
    from agentgym.store import Store

    return Store(home())


def print_json(value: dict[str, Any]) -> None:
    """Prints one strict JSON object, and nothing else, on standard output."""
    print(json.dumps(value, indent=2, allow_nan=False))


def results_only() -> AbstractContextManager[Any]:
    """Standard output is for results: what agents and tools print goes elsewhere."""
    return redirect_stdout(sys.stderr)


def print_table(table: Table) -> None:
    """Prints a table: in colours on a terminal, aligned text elsewhere."""
    if sys.stdout.isatty():
        console().print(table.rich())
    else:
        print(table.plain())


def downloading(
    fetch: Callable[[DownloadProgress | None], None], *, quiet: bool = False
) -> None:
    """Downloads before anything else is shown: two live displays exclude each other."""
    from agentgym.utils.assets import rich_progress

    if quiet:
        fetch(None)
        return
    with rich_progress() as progress:
        fetch(progress)


def console(*, stderr: bool = False) -> Console:
    """A rich console on one of the process's streams, as they are now."""
    from rich.console import Console

    return Console(file=sys.stderr if stderr else sys.stdout, highlight=False)


def glyphs(*, stderr: bool = False) -> Glyphs:
    """What the stream's encoding can draw with."""
    from agentgym.ui.charts import ASCII, UNICODE

    stream = sys.stderr if stderr else sys.stdout
    encoding = (getattr(stream, "encoding", None) or "ascii").lower()
    return UNICODE if encoding.startswith("utf") else ASCII


def note(text: str) -> None:
    """Prints a line for people, on standard error."""
    print(text, file=sys.stderr, flush=True)


def error_line(text: str) -> None:
    """Prints an error, in one line whatever it holds."""
    note(f"error: {' '.join(text.split())}")


def stop(text: str, code: int = 1) -> NoReturn:
    """Ends the command with an error line."""
    error_line(text)
    raise typer.Exit(code)


def write_crash_log(error: Exception) -> Path | str:
    """Appends a traceback to the home's `crash.log`, or to one among temporary files.

    Returns:
        The file; words in its place if nothing can be written anywhere.
    """
    import tempfile

    stamp = time.strftime("%Y-%m-%d %H:%M:%S")
    text = "".join(traceback.format_exception(error))
    for folder in (home(), Path(tempfile.gettempdir())):
        path = folder / ("crash.log" if folder == home() else "agentgym-crash.log")
        try:
            folder.mkdir(parents=True, exist_ok=True)
            with path.open("a", encoding="utf-8") as file:
                file.write(f"{stamp} agentgym {' '.join(sys.argv[1:])}\n{text}\n")
        except OSError:
            continue
        return path
    return "no file, as none can be written"

"""The commands and their exit codes.

Every command lives in its own module, imported when it is called, so that
`--help` and `scenarios list` answer before pydantic, numpy or a database are imported.

Exit codes: 0 done, 1 failed, 2 wrong usage, 130 interrupted.
"""

from __future__ import annotations

import importlib
import sys
from collections.abc import Sequence
from typing import Annotated, Any

import typer

from agentgym.cli.common import (
    Command,
    Group,
    command_group,
    error_line,
    write_crash_log,
)
from agentgym.errors import AgentGymError

COMMANDS = {
    "train": "Train an agent on a scenario.",
    "evaluate": "Evaluate a trained model on tasks it has never seen.",
    "serve": "Serve a trained model as an OpenAI-compatible endpoint.",
    "scenarios": "List, show, check and create scenarios.",
    "tasks": "Check and import files of your own tasks.",
    "runs": "List, show, watch, control and delete training runs.",
    "models": "List, show, compare and delete trained models.",
    "doctor": "Check this machine and explain how to fix each problem.",
}
"""Each is a module of this package with a Typer `app`."""


def run(arguments: Sequence[str]) -> int:
    """Runs one command line and returns its exit code. Raises no `Exception`."""
    try:
        code = build().main(
            args=list(arguments), prog_name="agentgym", standalone_mode=False
        )
        sys.stdout.flush()
    except AgentGymError as error:
        error_line(str(error))
        return error.exit_code
    except typer.TyperException as error:
        text = error.format_message().strip()
        end = "" if text.endswith((".", "?", "!")) else "."
        error_line(f"{text}{end}{_where_to_look(error)}")
        return error.exit_code
    except typer.Abort:
        error_line("Aborted. Nothing was changed.")
        return 1
    except Exception as error:
        where = write_crash_log(error)
        what = f"{type(error).__name__}: {error}".rstrip(": .")
        error_line(
            f"{what}. This is a bug in AgentGym or in a scenario. The traceback is in"
            f" {where}."
        )
        return 1
    return code if isinstance(code, int) else 0


def build() -> Group:
    """The tree of commands, imported on demand."""
    app = command_group(
        "Train AI agents to call the right tool with the right arguments.",
        add_completion=True,
    )
    app.callback(
        invoke_without_command=True,
        epilog="Start with: agentgym train customer_support",
    )(_root)
    group = typer.main.get_command(app)
    assert isinstance(group, Group)
    for name, text in COMMANDS.items():
        group.add_command(_Lazy(name, help=text, rich_markup_mode=None))
    return group


class _Lazy(Command):
    """A command that is listed by name and imported when it is called."""

    def make_context(
        self, info_name: str | None, args: list[str], *rest: Any, **extra: Any
    ) -> Any:
        module = importlib.import_module(f"agentgym.cli.{self.name}")
        command = typer.main.get_command(module.app)
        return command.make_context(info_name, args, *rest, **extra)


def _root(
    context: typer.Context,
    version: Annotated[
        bool, typer.Option("--version", help="Print the version.")
    ] = False,
) -> None:
    if version:
        from agentgym._version import __version__

        print(f"agentgym {__version__}")
    elif context.invoked_subcommand is None:
        print(context.get_help())


def _where_to_look(error: typer.TyperException) -> str:
    context = getattr(error, "ctx", None)
    return f" Try '{context.command_path} --help'." if context is not None else ""

"""What the commands share: options, printing, training under a view, the crash log."""

from __future__ import annotations

import json
import os
import sys
import time
import traceback
from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext, redirect_stdout
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, NoReturn

import typer
from typer.core import TyperCommand, TyperGroup

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from rich.console import Console

    from agentgym.core.events import Listener
    from agentgym.core.result import TrainingResult
    from agentgym.core.tables import Table
    from agentgym.core.trained_agent import TrainedAgent
    from agentgym.runs.view import RunView
    from agentgym.store import Store
    from agentgym.ui.charts import Chart, Glyphs
    from agentgym.utils.assets import DownloadProgress

Options = dict[str, Any]

_HELP_NAMES = {"help_option_names": ["-h", "--help"]}


def _use_home(value: str | None) -> str | None:
    # Through the environment, so that all code finds this home.
    if value:
        os.environ["AGENTGYM_HOME"] = value
    return value


HomeOption = Annotated[
    str | None,
    typer.Option(
        "--home",
        metavar="FOLDER",
        callback=_use_home,
        help="Where runs and models are kept. Default: $AGENTGYM_HOME or ./.agentgym.",
    ),
]
JsonOption = Annotated[
    bool,
    typer.Option("--json", help="Print one JSON object on standard output."),
]
QuietOption = Annotated[
    bool, typer.Option("--quiet", "-q", help="Print only the name of the model.")
]
AgentArgument = Annotated[
    str,
    typer.Argument(
        metavar="MODEL", help="Name of a model, a name with a version, or a folder."
    ),
]
YesOption = Annotated[
    bool, typer.Option("--yes", "-y", help="Don't ask for confirmation.")
]
TasksOption = Annotated[
    str | None,
    typer.Option(
        "--tasks",
        metavar="FILE",
        help="File of your own tasks, one JSON object per line."
        " The scenario is then task_file.",
    ),
]


def with_tasks(scenario: str | None, file: str | None) -> tuple[str | None, Options]:
    """The scenario to use with `--tasks FILE`, and its options.

    Args:
        scenario: The one that was named, if any.
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


def load_agent(ref: str) -> tuple[str, TrainedAgent]:
    """A model by name, version or folder, and its display name.

    Raises:
        ModelNotFoundError: The model or folder doesn't exist.
        FormatError: The folder doesn't contain a readable model.
    """
    from agentgym.core.trained_agent import TrainedAgent
    from agentgym.errors import ModelNotFoundError

    path = Path(ref)
    if path.name == ref:
        try:
            with open_store() as store:
                row = store.get_model(ref)
            ref, path = row.full_name, row.path
        except ModelNotFoundError:
            # A folder right here has a name without a separator, too.
            if not path.is_dir():
                raise
    if path.is_dir():
        downloading(partial(TrainedAgent.fetch, path))
    return ref, TrainedAgent.load(path)


def carry_out(
    start: Callable[[Sequence[Listener]], TrainingResult],
    view: RunView,
    targets: Mapping[str, float],
    home_option: str | None,
    *,
    json: bool,
    quiet: bool,
) -> None:
    """Runs a training under a live view and prints its result.

    Args:
        start: Trains, or resumes, with these listeners.
        view: What is known about the run so far.
        targets: What the run should reach, by metric name.
        home_option: `--home` as given, for the commands that are suggested.
        json: Whether to print the result as JSON.
        quiet: Whether to print only the name of the model.
    """
    from agentgym.ui import live

    view.targets = targets
    try:
        if quiet:
            with results_only():
                result = start([view.apply])
        else:
            display = live.view(console(stderr=True), view, glyphs=glyphs(stderr=True))
            with results_only(), display:
                result = start([display])
    except KeyboardInterrupt:
        _explain_interrupt(view, home_option)
    print_result(result, targets, home_option, json=json, quiet=quiet)


def print_result(
    result: TrainingResult,
    targets: Mapping[str, float],
    home_option: str | None,
    *,
    json: bool,
    quiet: bool,
) -> None:
    """Prints the result of a run; see `carry_out`."""
    if quiet:
        report(result.to_dict(), result.model, json=json)
        return
    from agentgym.core.tables import before_after, duration, time_savings
    from agentgym.training.evaluation import PRICES

    metrics, baseline = result.metrics.to_dict(), result.baseline.to_dict()
    at = _at(home_option)
    with results_only() if json else nullcontext():
        print(
            f"\nTrained {result.model}: {metrics['episodes_completed']:,} episodes in"
            f" {duration(metrics['total_training_time'])}, evaluated on"
            f" {metrics['tasks']:,} held-out tasks (95% intervals)\n"
        )
        draw(before_after(baseline, metrics, targets))
        print(
            f"\nCost: ${PRICES.input_per_million:.2f} per million input tokens,"
            f" ${PRICES.output_per_million:.2f} per million output tokens."
        )
        print(time_savings(metrics, targets))
        print("\nNext:")
        print(f"  agentgym evaluate {result.model} --seed 1{at}")
        print(f"  agentgym runs show {result.run_id} --trajectories{at}")
        print(
            f'  python: agentgym.TrainedAgent.load("{result.model}").run("Hello, ...")'
        )
    if json:
        print_json(result.to_dict())


def _explain_interrupt(view: RunView, home_option: str | None) -> NoReturn:
    from agentgym.engines import get_engine

    engine, run = str(view.config.get("engine")), view.run_id
    if not run:
        note("Interrupted before training began. Nothing was changed.")
    elif get_engine(engine).resumable:
        note(
            f"Interrupted after {view.episodes:,} episodes. Your progress is saved."
            f" Resume with: agentgym runs resume {run}{_at(home_option)}"
        )
    else:
        note(
            f"Interrupted after {view.episodes:,} episodes. Nothing was saved:"
            f" engine '{engine}' can't resume runs."
        )
    raise typer.Exit(130)


def _at(home_option: str | None) -> str:
    import shlex

    return f" --home {shlex.quote(home_option)}" if home_option else ""


def print_json(value: dict[str, Any]) -> None:
    """Prints one strict JSON object, and nothing else, on standard output."""
    print(json.dumps(value, indent=2, allow_nan=False))


def report(facts: dict[str, Any], text: str, *, json: bool) -> None:
    """Prints what a command did: as JSON, or as text for people."""
    if json:
        print_json(facts)
    else:
        print(text)


def results_only() -> AbstractContextManager[Any]:
    """Standard output is for results: what agents and tools print goes elsewhere."""
    return redirect_stdout(sys.stderr)


def print_aligned(lines: Mapping[str, str]) -> None:
    """Prints names with a column of descriptions."""
    width = max(map(len, lines))
    for name, text in lines.items():
        print(f"  {name:<{width}}  {text}")


def draw(drawing: Table | Chart) -> None:
    """Prints a drawing: in colours on a terminal, plain text elsewhere."""
    if sys.stdout.isatty():
        console().print(drawing.rich())
    else:
        print(drawing.plain())


def downloading(
    fetch: Callable[[DownloadProgress | None], None], *, quiet: bool = False
) -> None:
    """Downloads before anything else is shown: two live displays can't coexist."""
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
    """The characters that the stream's encoding supports."""
    from agentgym.ui.charts import ASCII, UNICODE

    stream = sys.stderr if stderr else sys.stdout
    encoding = (getattr(stream, "encoding", None) or "ascii").lower()
    return UNICODE if encoding.startswith("utf") else ASCII


def note(text: str) -> None:
    """Prints a line for people, on standard error."""
    print(text, file=sys.stderr, flush=True)


def error_line(text: str) -> None:
    """Prints an error on one line, even if its text has several."""
    note(f"error: {' '.join(text.split())}")


def confirm(what: str, *, yes: bool) -> None:
    """Asks before something is deleted, unless `--yes` was given.

    Raises:
        UsageError: Standard input isn't a terminal.
    """
    if yes:
        return
    if not sys.stdin.isatty():
        from agentgym.errors import UsageError

        raise UsageError(f"Add --yes to delete {what} without confirmation.")
    typer.confirm(f"Delete {what} and its files?", abort=True)


def write_crash_log(error: Exception) -> Path | str:
    """Appends a traceback to the home's `crash.log`, or to one in the temporary folder.

    Returns:
        The file, or a text that says that no file can be written.
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
    return "no file, because none can be written"

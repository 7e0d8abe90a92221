"""`agentgym train`: trains an agent with one command."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Annotated, Any

import typer

from agentgym.cli.common import (
    HomeOption,
    JsonOption,
    QuietOption,
    TasksOption,
    carry_out,
    downloading,
    open_store,
    results_only,
    single_command,
    with_tasks,
)
from agentgym.core.config import TrainingConfig
from agentgym.errors import UsageError

if TYPE_CHECKING:
    from agentgym.core.events import Listener
    from agentgym.core.result import TrainingResult

app = single_command()


class _FileConfig(TrainingConfig):
    """A file of settings may leave the scenario to the command line."""

    scenario: str = ""


def _with_settings(command: Callable[..., None]) -> Callable[..., None]:
    """Gives a command an option for each field of `TrainingConfig`.

    All of them take text: the config itself checks values, so that files, Python and
    the command line give the same errors.
    """
    signature = inspect.signature(command, eval_str=True)
    own = [p for p in signature.parameters.values() if p.kind is not p.VAR_KEYWORD]
    settings = [
        inspect.Parameter(
            name,
            inspect.Parameter.KEYWORD_ONLY,
            default=None,
            annotation=Annotated[str | None, _option(name)],
        )
        for name in TrainingConfig.model_fields
        if name != "scenario"
    ]
    vars(command)["__signature__"] = signature.replace(parameters=[*own, *settings])
    return command


def _option(name: str) -> Any:
    field = TrainingConfig.model_fields[name]
    about = field.json_schema_extra
    assert isinstance(about, dict)
    text = field.description or ""
    # Policies and scenarios tune some of them: `runs show` lists the values in
    # force and who set them.
    if field.default is not None and not about.get("tuned"):
        text += f" Default: {field.default}."
    return typer.Option(
        str(about.get("flag") or f"--{name.replace('_', '-')}"),
        metavar=str(about["metavar"]),
        help=text,
    )


@app.command()
@_with_settings
def train(
    scenario: Annotated[
        str | None,
        typer.Argument(
            metavar="SCENARIO",
            help=TrainingConfig.model_fields["scenario"].description,
        ),
    ] = None,
    scenario_option: Annotated[
        str | None,
        typer.Option("--scenario", metavar="NAME", help="The same as an option."),
    ] = None,
    tasks: TasksOption = None,
    config: Annotated[
        str | None,
        typer.Option(
            "--config",
            metavar="FILE",
            help="YAML file of settings. Options on the command line win.",
        ),
    ] = None,
    set_: Annotated[
        list[str] | None,
        typer.Option(
            "--set",
            metavar="NAME=VALUE",
            help="Option of the scenario or the policy, or any setting. Repeatable.",
        ),
    ] = None,
    home_folder: HomeOption = None,
    json: JsonOption = False,
    quiet: QuietOption = False,
    **given: str | None,
) -> None:
    """Train an agent on a scenario, on this machine, with live tools.

    At the end, a table compares the untrained and the trained agent on held-out tasks.
    Press Ctrl-C to stop: your progress is saved, and you can resume later.

    If no default is shown, the policy or the scenario chooses one.
    """
    values: dict[str, Any] = {k: v for k, v in given.items() if v is not None}
    if "components" in values:
        values["components"] = values["components"].split(",")
    scenario, own_tasks = with_tasks(scenario or scenario_option, tasks)
    chosen = read_config(
        scenario, scenario_option, config, set_ or (), values | own_tasks
    )
    from agentgym.runs import lifecycle
    from agentgym.runs.launchers.here import Here
    from agentgym.runs.resolve import resolve
    from agentgym.runs.view import RunView

    with results_only():
        job = resolve(chosen)
    downloading(job.fetch, quiet=quiet)

    def start(listeners: Sequence[Listener]) -> TrainingResult:
        with open_store() as store:
            return lifecycle.submit(store, job, Here(listeners))

    carry_out(start, RunView(), job.targets, home_folder, json=json, quiet=quiet)


def read_config(
    scenario: str | None,
    scenario_option: str | None,
    file: str | None,
    settings: Sequence[str],
    given: Mapping[str, Any],
) -> TrainingConfig:
    """Merges the user's settings: the file first, then the command line.

    Raises:
        ConfigError: A setting is invalid.
        UsageError: No scenario is named, or more than one.
    """
    if scenario and scenario_option and scenario != scenario_option:
        raise UsageError(
            f"Two scenarios: '{scenario}' and '{scenario_option}'. Name only one."
        )
    values: dict[str, Any] = {}
    if file is not None:
        read = _FileConfig.from_yaml(file)
        values = {field: getattr(read, field) for field in read.model_fields_set}
    values |= dict(_parse_setting(text) for text in settings)
    values |= given
    if scenario or scenario_option:
        values["scenario"] = scenario or scenario_option
    if not values.get("scenario"):
        from agentgym.scenarios.registry import ScenarioRegistry

        known = ", ".join(ScenarioRegistry.names())
        raise UsageError(f"Name a scenario: agentgym train NAME. Available: {known}.")
    return TrainingConfig.from_dict(values)


def _parse_setting(text: str) -> tuple[str, Any]:
    import yaml

    name, equals, value = text.partition("=")
    if not name or not equals:
        raise UsageError(f"Invalid --set '{text}'. Use --set NAME=VALUE.")
    try:
        return name.strip().replace("-", "_"), yaml.safe_load(value)
    except yaml.YAMLError:
        return name.strip().replace("-", "_"), value

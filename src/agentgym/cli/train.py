"""`agentgym train`: one command from nothing to a trained agent."""

from __future__ import annotations

import sys
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import TYPE_CHECKING, Annotated, Any, NoReturn

import typer

from agentgym.cli.common import (
    HomeOption,
    JsonOption,
    TasksOption,
    console,
    downloading,
    glyphs,
    home,
    note,
    print_json,
    results_only,
    single_command,
    with_tasks,
)
from agentgym.core.config import TrainingConfig
from agentgym.errors import UsageError

if TYPE_CHECKING:
    from agentgym.core.events import Listener
    from agentgym.core.result import TrainingResult
    from agentgym.runs.view import RunView

app = single_command()


class _FileConfig(TrainingConfig):
    """A file of settings may leave the scenario to the command line."""

    scenario: str = ""


def _option(field: str, metavar: str, flag: str = "") -> Any:
    """An option for a field of `TrainingConfig`, which also documents it.

    All of them take text: the config itself knows what is allowed, and explains it in
    the same words for a file, for Python and for the command line.
    """
    information = TrainingConfig.model_fields[field]
    text = information.description or ""
    if information.default is not None:
        # Policy and scenario may bring tuned values; `runs show` says who set what.
        text += f" [{information.default}]"
    return typer.Option(
        flag or f"--{field.replace('_', '-')}", metavar=metavar, help=text
    )


@app.command()
def train(
    scenario: Annotated[
        str | None,
        typer.Argument(
            metavar="[SCENARIO]",
            help=TrainingConfig.model_fields["scenario"].description,
        ),
    ] = None,
    scenario_option: Annotated[
        str | None,
        typer.Option("--scenario", metavar="NAME", help="The same, as an option."),
    ] = None,
    tasks: TasksOption = None,
    config: Annotated[
        str | None,
        typer.Option(
            "--config",
            metavar="FILE",
            help="YAML file of settings; options given here win.",
        ),
    ] = None,
    settings: Annotated[
        list[str] | None,
        typer.Option(
            "--set",
            metavar="NAME=VALUE",
            help="Any other setting, or an option of the scenario. May be repeated.",
        ),
    ] = None,
    episodes: Annotated[str | None, _option("episodes", "N")] = None,
    seed: Annotated[str | None, _option("seed", "N")] = None,
    policy: Annotated[str | None, _option("policy", "NAME")] = None,
    model: Annotated[str | None, _option("model", "NAME")] = None,
    engine: Annotated[str | None, _option("engine", "NAME")] = None,
    framework: Annotated[str | None, _option("framework", "NAME")] = None,
    gpu_provider: Annotated[
        str | None, _option("gpu_provider", "NAME", "--gpu")
    ] = None,
    learning_rate: Annotated[str | None, _option("learning_rate", "X")] = None,
    learning_rate_decay: Annotated[
        str | None, _option("learning_rate_decay", "SHARE")
    ] = None,
    group_size: Annotated[str | None, _option("group_size", "N")] = None,
    batch_size: Annotated[str | None, _option("batch_size", "N")] = None,
    revisit: Annotated[str | None, _option("revisit", "SHARE")] = None,
    credit: Annotated[str | None, _option("credit", "state|broadcast")] = None,
    exploration: Annotated[str | None, _option("exploration", "X")] = None,
    exploration_decay: Annotated[
        str | None, _option("exploration_decay", "SHARE")
    ] = None,
    entropy: Annotated[str | None, _option("entropy", "X")] = None,
    entropy_decay: Annotated[str | None, _option("entropy_decay", "SHARE")] = None,
    eval_every: Annotated[str | None, _option("eval_every", "N")] = None,
    eval_tasks: Annotated[str | None, _option("eval_tasks", "N")] = None,
    heldout_tasks: Annotated[str | None, _option("heldout_tasks", "N")] = None,
    free_form_tasks: Annotated[str | None, _option("free_form_tasks", "N")] = None,
    target_reliability: Annotated[
        str | None, _option("target_reliability", "X")
    ] = None,
    failure_budget: Annotated[str | None, _option("failure_budget", "X")] = None,
    max_steps: Annotated[str | None, _option("max_steps", "N")] = None,
    max_mistakes: Annotated[str | None, _option("max_mistakes", "N")] = None,
    agent: Annotated[str | None, _option("agent", "MODULE:FUNCTION")] = None,
    agent_command: Annotated[str | None, _option("agent_command", "COMMAND")] = None,
    agent_concurrency: Annotated[str | None, _option("agent_concurrency", "N")] = None,
    agent_timeout: Annotated[str | None, _option("agent_timeout", "SECONDS")] = None,
    components: Annotated[str | None, _option("components", "A,B")] = None,
    name: Annotated[str | None, _option("name", "NAME")] = None,
    home_folder: HomeOption = None,
    json: JsonOption = False,
    quiet: Annotated[
        bool,
        typer.Option("--quiet", "-q", help="Print nothing but the model's name."),
    ] = False,
) -> None:
    """Train an agent on a scenario, on this machine, with live tools.

    Ends with a table of the untrained and the trained agent on held-out tasks.
    Ctrl-C saves and says how to resume.
    """
    given = {
        field: value
        for field, value in {
            "episodes": episodes,
            "seed": seed,
            "policy": policy,
            "model": model,
            "engine": engine,
            "framework": framework,
            "gpu_provider": gpu_provider,
            "learning_rate": learning_rate,
            "learning_rate_decay": learning_rate_decay,
            "group_size": group_size,
            "batch_size": batch_size,
            "revisit": revisit,
            "credit": credit,
            "exploration": exploration,
            "exploration_decay": exploration_decay,
            "entropy": entropy,
            "entropy_decay": entropy_decay,
            "eval_every": eval_every,
            "eval_tasks": eval_tasks,
            "heldout_tasks": heldout_tasks,
            "free_form_tasks": free_form_tasks,
            "target_reliability": target_reliability,
            "failure_budget": failure_budget,
            "max_steps": max_steps,
            "max_mistakes": max_mistakes,
            "agent": agent,
            "agent_command": agent_command,
            "agent_concurrency": agent_concurrency,
            "agent_timeout": agent_timeout,
            "components": components.split(",") if components else None,
            "name": name,
        }.items()
        if value is not None
    }
    scenario, own_tasks = with_tasks(scenario or scenario_option, tasks)
    given |= own_tasks
    chosen = read_config(scenario, scenario_option, config, settings or (), given)
    targets = prepare(chosen, quiet=quiet)

    def start(listeners: Sequence[Listener]) -> TrainingResult:
        from agentgym.core.trainer import Trainer

        return Trainer(chosen, home=home(), listeners=listeners).train()

    from agentgym.runs.view import RunView

    carry_out(start, RunView(), targets, home_folder, json=json, quiet=quiet)


def read_config(
    scenario: str | None,
    scenario_option: str | None,
    file: str | None,
    settings: Sequence[str],
    given: Mapping[str, Any],
) -> TrainingConfig:
    """Puts together what the user set: the file first, the command line over it.

    Raises:
        ConfigError: A setting is wrong.
        UsageError: There is no scenario, or there are two.
    """
    if scenario and scenario_option and scenario != scenario_option:
        raise UsageError(
            f"Two scenarios are named, '{scenario}' and '{scenario_option}'; name one."
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


def prepare(config: TrainingConfig, *, quiet: bool) -> dict[str, float]:
    """Finds out what is wrong before anything starts; fetches what is needed.

    Returns:
        The scenario's targets by metric name.
    """
    from agentgym.engines import get_engine
    from agentgym.engines.local import resolve
    from agentgym.policies.registry import policy_class, policy_options

    get_engine(config.engine)
    with results_only():
        scenario, config = resolve(config)
    fetch = policy_class(config.policy).fetch
    downloading(partial(fetch, policy_options(config)), quiet=quiet)
    targets = scenario.success_criteria()
    if config.target_reliability is not None:
        targets = {**targets, "tool_reliability": config.target_reliability}
    return targets


def carry_out(
    start: Callable[[Sequence[Listener]], TrainingResult],
    view: RunView,
    targets: Mapping[str, float],
    home_option: str | None,
    *,
    json: bool,
    quiet: bool,
) -> None:
    """Runs a training under a view, and tells what came out of it.

    Args:
        start: Trains, or resumes, with these listeners.
        view: What is known of the run so far.
        targets: The scenario's success criteria.
        home_option: `--home` as given, for the commands that are suggested.
        json: Whether to print the result as JSON.
        quiet: Whether to print nothing but the model's name.
    """
    from agentgym.ui.live import view as live

    view.targets = targets
    try:
        if quiet:
            with results_only():
                result = start([view.apply])
        else:
            with (
                results_only(),
                live(console(stderr=True), view, glyphs=glyphs(stderr=True)) as display,
            ):
                result = start([display])
    except KeyboardInterrupt:
        _explain_interrupt(view, home_option)
    if not quiet:
        _print_result(result, targets, home_option, to_stderr=json)
    if json:
        print_json(result.to_dict())
    elif quiet:
        print(result.model)


def _parse_setting(text: str) -> tuple[str, Any]:
    import yaml

    name, equals, value = text.partition("=")
    if not name or not equals:
        raise UsageError(f"'{text}' is no setting; write --set name=value.")
    try:
        return name.strip().replace("-", "_"), yaml.safe_load(value)
    except yaml.YAMLError:
        return name.strip().replace("-", "_"), value


def _explain_interrupt(view: RunView, home_option: str | None) -> NoReturn:
    from agentgym.engines import get_engine

    engine = view.config.get("engine")
    if view.run_id and not get_engine(str(engine)).resumable:
        note(
            f"Interrupted after {view.episodes:,} episodes. Nothing is kept of"
            f" them: the engine '{engine}' cannot go on with a run."
        )
    elif view.run_id:
        note(
            f"Interrupted after {view.episodes:,} episodes; the state is saved."
            f" Go on with: agentgym runs resume {view.run_id}{_at(home_option)}"
        )
    else:
        note("Interrupted before training began; nothing was changed.")
    raise typer.Exit(130)


def _print_result(
    result: TrainingResult,
    targets: Mapping[str, float],
    home_option: str | None,
    *,
    to_stderr: bool,
) -> None:
    from agentgym.training.evaluation import PRICES
    from agentgym.ui.tables import before_after, duration, time_savings

    metrics, baseline = result.metrics.to_dict(), result.baseline.to_dict()
    stream = sys.stderr if to_stderr else sys.stdout
    table = before_after(baseline, metrics, targets)

    def say(text: str = "") -> None:
        print(text, file=stream)

    say(
        f"\nTrained {result.model}: {metrics['episodes_completed']:,} episodes in"
        f" {duration(metrics['total_training_time'])}, measured on"
        f" {metrics['tasks']:,} held-out tasks (95% intervals)\n"
    )
    if stream.isatty():
        console(stderr=to_stderr).print(table.rich())
    else:
        say(table.plain())
    say(
        f"\nCost: ${PRICES.input_per_million:.2f} for a million tokens read,"
        f" ${PRICES.output_per_million:.2f} for a million written."
    )
    say(time_savings(metrics, targets))
    at = _at(home_option)
    say("\nNext:")
    say(f"  agentgym evaluate {result.model} --seed 1{at}")
    say(f"  agentgym runs show {result.run_id} --trajectories{at}")
    say(f'  python: agentgym.TrainedAgent.load("{result.model}").run("Hello, ...")')


def _at(home_option: str | None) -> str:
    import shlex

    return f" --home {shlex.quote(home_option)}" if home_option else ""

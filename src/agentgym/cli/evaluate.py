"""`agentgym evaluate`: evaluates a trained model on tasks of your choice."""

from __future__ import annotations

import warnings
from typing import TYPE_CHECKING, Annotated, Any

import typer

from agentgym.cli.common import (
    AgentArgument,
    HomeOption,
    JsonOption,
    TasksOption,
    draw,
    load_agent,
    note,
    print_json,
    results_only,
    single_command,
    with_tasks,
)

if TYPE_CHECKING:
    from agentgym.core.tables import Table

app = single_command()


@app.command()
def evaluate(
    model: AgentArgument,
    scenario: Annotated[
        str | None,
        typer.Option(
            "--scenario",
            metavar="NAME",
            help="Scenario to evaluate on. Default: the one the model was trained on.",
        ),
    ] = None,
    tasks: TasksOption = None,
    seed: Annotated[
        int | None,
        typer.Option(
            "--seed",
            min=0,
            help="Seed that draws the tasks. Default: those of the final evaluation.",
        ),
    ] = None,
    count: Annotated[
        int | None,
        typer.Option(
            "--count",
            min=1,
            help="Number of tasks. Default: as many as in the final evaluation.",
        ),
    ] = None,
    agent: Annotated[
        str | None,
        typer.Option(
            "--agent",
            metavar="MODULE:FUNCTION",
            help="Evaluate with your own agent instead of the built-in loop.",
        ),
    ] = None,
    agent_command: Annotated[
        str | None,
        typer.Option(
            "--agent-command",
            metavar="COMMAND",
            help="Your own agent as a command line.",
        ),
    ] = None,
    framework: Annotated[
        str | None,
        typer.Option(
            "--framework",
            metavar="NAME",
            help="Evaluate with an agent of langchain, autogen or crewai.",
        ),
    ] = None,
    home_folder: HomeOption = None,
    json: JsonOption = False,
) -> None:
    """Evaluate a trained model on held-out tasks, with its most likely decisions."""
    name, trained = load_agent(model)
    scenario, options = with_tasks(scenario, tasks)
    with warnings.catch_warnings(), results_only():
        warnings.showwarning = lambda message, *_: note(f"warning: {message}")
        metrics = trained.evaluate(
            scenario,
            tasks=count,
            seed=seed,
            options=options or None,
            agent=agent,
            agent_command=agent_command,
            framework=framework,
        ).to_dict()
    if json:
        print_json({"model": name, "metrics": metrics, "tasks": metrics["tasks"]})
        return
    where = scenario or trained.metadata["scenario"]
    print(f"{name} on {metrics['tasks']:,} held-out tasks of {where}\n")
    draw(_figures(metrics))
    if metrics["per_tool"]:
        print()
        draw(_tools(metrics["per_tool"]))
    if metrics["failures"]:
        kinds = ", ".join(f"{kind} {n:,}" for kind, n in metrics["failures"].items())
        print(f"\nFailures: {kinds}")


def _figures(metrics: dict[str, Any]) -> Table:
    from agentgym.core import tables

    rows = [
        (label, tables.figure(metrics, name))
        for name, label in tables.metric_names(metrics).items()
    ]
    rows.append(("calibration error", tables.share(metrics["calibration_error"])))
    return tables.Table(("figure", "value [95% interval]"), rows)


def _tools(per_tool: dict[str, dict[str, int]]) -> Table:
    from agentgym.core.tables import Table, share

    rows = [
        (
            tool,
            f"{counts['calls']:,}",
            f"{counts['correct']:,}",
            share(counts["correct"] / counts["calls"] if counts["calls"] else None),
        )
        for tool, counts in per_tool.items()
    ]
    headers = ("tool", "calls", "right", "share")
    return Table(headers, rows, right=frozenset(headers[1:]))

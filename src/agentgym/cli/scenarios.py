"""`agentgym scenarios`: list, show, check and create scenarios."""

from __future__ import annotations

import dataclasses
from typing import TYPE_CHECKING, Annotated, Any

import typer

from agentgym.cli.common import (
    Command,
    JsonOption,
    TasksOption,
    command_group,
    print_aligned,
    print_json,
    report,
    with_tasks,
)
from agentgym.errors import UsageError

if TYPE_CHECKING:
    from agentgym.scenarios.base import Scenario

app = command_group("List, show, check and create scenarios.")

ScenarioArgument = Annotated[
    str, typer.Argument(metavar="NAME", help="A name from the list, or module:Class.")
]


@app.command("list", cls=Command)
def list_(json: JsonOption = False) -> None:
    """List the available scenarios."""
    from agentgym.core.tables import Table
    from agentgym.scenarios.registry import ScenarioRegistry

    found = ScenarioRegistry.list()
    if json:
        print_json({"scenarios": [dataclasses.asdict(info) for info in found]})
        return
    rows = [
        (
            info.name,
            info.difficulty,
            info.estimated_time,
            info.problem or info.description,
        )
        for info in found
    ]
    # Plain text on terminals, too: importing rich would take most of the time.
    print(Table(("name", "difficulty", "training", "description"), rows).plain())


@app.command(cls=Command)
def show(
    name: ScenarioArgument, tasks: TasksOption = None, json: JsonOption = False
) -> None:
    """Show a scenario's tools, targets, options and an example task."""
    from agentgym.scenarios.registry import ScenarioRegistry

    scenario = ScenarioRegistry.load(name, **with_tasks(name, tasks)[1])
    facts = _facts(scenario)
    if json:
        print_json(facts)
        return
    print(f"{facts['name']}: {facts['description']}")
    print(
        f"Difficulty: {facts['difficulty']}. Training time: {facts['estimated_time']}."
    )
    sections = {
        "Targets": {name: f"{value:g}" for name, value in facts["targets"].items()},
        "Components": {
            name: "learns" if learns else "frozen"
            for name, learns in facts["components"].items()
        },
        "Options (train --set name=value)": {
            name: f"default {value!r}" for name, value in facts["options"].items()
        },
        "Training defaults": {
            name: repr(value) for name, value in facts["training_defaults"].items()
        },
        f"Tools ({len(facts['tools'])})": {
            tool["function"]["name"]: tool["function"]["description"]
            for tool in facts["tools"]
        },
    }
    for title, lines in sections.items():
        if lines:
            print(f"\n{title}")
            print_aligned(lines)
    print("\nExample task")
    for message in facts["example"]:
        if message["role"] != "system":
            print(f"  {message['role']}: {message['content']}")


@app.command(cls=Command)
def check(
    name: ScenarioArgument, tasks: TasksOption = None, json: JsonOption = False
) -> None:
    """Check your scenario rule by rule, and explain how to fix each failure."""
    from agentgym.scenarios.checker import check_scenario
    from agentgym.scenarios.registry import ScenarioRegistry

    scenario = ScenarioRegistry.load(name, **with_tasks(name, tasks)[1])
    results = check_scenario(scenario)
    wrong = [result for result in results if not result.ok]
    if json:
        checks = [dataclasses.asdict(result) for result in results]
        print_json({"scenario": name, "ok": not wrong, "checks": checks})
    else:
        for result in results:
            mark = "ok   " if result.ok else "WRONG"
            print(f"{mark}  {result.rule}")
            if not result.ok:
                print(f"       {result.explanation}")
        print(f"\n{len(results) - len(wrong)} of {len(results)} rules passed.")
    if wrong:
        raise typer.Exit(1)


@app.command(cls=Command)
def new(
    name: Annotated[
        str,
        typer.Argument(metavar="NAME", help="Lower-case letters, digits and _."),
    ],
    json: JsonOption = False,
) -> None:
    """Write NAME.py, a complete scenario to start your own from."""
    from pathlib import Path

    from agentgym.scenarios.registry import ScenarioRegistry
    from agentgym.scenarios.skeleton import write_skeleton

    if name in ScenarioRegistry.names():
        raise UsageError(f"Scenario '{name}' already exists. Choose another name.")
    path, class_name = write_skeleton(name, Path())
    scenario = f"{name}:{class_name}"
    text = (
        f"Wrote {path}. Next:\n  agentgym scenarios check {scenario}\n"
        f"  agentgym train {scenario} --episodes 6000"
    )
    report({"file": str(path), "scenario": scenario}, text, json=json)


def _facts(scenario: Scenario) -> dict[str, Any]:
    tasks = scenario.tasks("train", 0, 1)
    environment = scenario.create_environment(tasks)
    try:
        tools = [tool.to_openai() for tool in environment.tools()]
    finally:
        environment.close()
    return {
        "name": scenario.name,
        "description": scenario.description,
        "difficulty": scenario.difficulty,
        "estimated_time": scenario.estimated_time,
        "targets": scenario.success_criteria(),
        "components": scenario.define_trainable_components(),
        "options": dict(scenario.options),
        "training_defaults": scenario.training_defaults(),
        "tools": tools,
        "example": list(tasks[0].messages),
    }

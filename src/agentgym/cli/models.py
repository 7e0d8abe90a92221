"""`agentgym models`: trained models, and the language models they start from."""

from __future__ import annotations

import time
from collections.abc import Sequence
from typing import TYPE_CHECKING, Annotated, Any

import typer

from agentgym.cli.common import (
    Command,
    HomeOption,
    JsonOption,
    YesOption,
    command_group,
    confirm,
    draw,
    note,
    open_store,
    print_json,
    report,
)
from agentgym.errors import UsageError

if TYPE_CHECKING:
    from agentgym.store import ModelRow

app = command_group("List, show, compare and delete models; pull language models.")

ModelArgument = Annotated[
    str,
    typer.Argument(
        metavar="MODEL",
        help="Name of a model, for its newest version, or a name with a version"
        " (customer_support_v1.2).",
    ),
]


@app.command(cls=Command)
def pull(
    model: Annotated[
        str,
        typer.Argument(
            metavar="NAME", help="smollm2-135m, or a model on the Hugging Face hub."
        ),
    ],
    json: JsonOption = False,
) -> None:
    """Download a language model before training needs it."""
    from agentgym.policies.llm.models import find_model
    from agentgym.utils.assets import rich_progress

    with rich_progress() as progress:
        folder = find_model(model, progress)
    facts = {"model": model, "path": str(folder)}
    report(facts, f"{model} is in {folder}.", json=json)


@app.command("list", cls=Command)
def list_(home_folder: HomeOption = None, json: JsonOption = False) -> None:
    """List all models and versions."""
    from agentgym.core.tables import Table, ago, rate

    with open_store() as store:
        models = store.list_models()
    if json:
        print_json({"models": [_facts(model) for model in models]})
        return
    if not models:
        note("No models yet. Train one: agentgym train customer_support")
        return
    now = time.time()
    rows = [
        (
            model.full_name,
            str(model.metadata.get("scenario") or "-"),
            str(model.metadata.get("policy") or "-"),
            rate(_metrics(model), "tool_reliability"),
            rate(_metrics(model), "task_success"),
            ago(model.created_at, now),
        )
        for model in models
    ]
    headers = ("model", "scenario", "policy", "reliability", "success", "made")
    draw(Table(headers, rows))


@app.command(cls=Command)
def show(
    model: ModelArgument, home_folder: HomeOption = None, json: JsonOption = False
) -> None:
    """Show a model: its folder, its training and its metrics."""
    from agentgym.core.tables import before_after, time_savings

    with open_store() as store:
        row = store.get_model(model)
    if json:
        print_json(_facts(row) | {"metadata": row.metadata})
        return
    about = row.metadata
    made = time.strftime("%Y-%m-%d %H:%M:%S", time.localtime(row.created_at))
    print(f"{row.full_name}: {about.get('scenario')}, policy {about.get('policy')}")
    print(
        f"made {made} by run {row.run_id or 'unknown'}, seed {_config(row).get('seed')}"
    )
    print(f"in {row.path}")
    versions = ", ".join(f"{k} {v}" for k, v in (about.get("versions") or {}).items())
    if versions:
        print(f"with {versions}")
    if about.get("metrics") and about.get("baseline"):
        print()
        draw(before_after(about["baseline"], about["metrics"], {}))
        print(time_savings(about["metrics"], {}))


@app.command(cls=Command)
def compare(
    models: Annotated[
        list[str],
        typer.Argument(metavar="MODEL MODEL...", help="Two or more models."),
    ],
    home_folder: HomeOption = None,
    json: JsonOption = False,
) -> None:
    """Compare models by the final evaluation of their training."""
    if len(models) < 2:
        raise UsageError(
            "Name at least two models: agentgym models compare MODEL MODEL"
        )
    with open_store() as store:
        rows = [store.get_model(ref) for ref in models]
    same = _measured_on_the_same_tasks(rows)
    if json:
        print_json({"same_tasks": same, "models": [_facts(row) for row in rows]})
        return
    draw(_comparison(rows))
    if not same:
        note(
            "These models were evaluated on different tasks. To use the same tasks for"
            " each, run: agentgym evaluate MODEL --seed 1"
        )


@app.command(cls=Command)
def delete(
    model: Annotated[
        str,
        typer.Argument(metavar="MODEL", help="A name with its version."),
    ],
    yes: YesOption = False,
    home_folder: HomeOption = None,
    json: JsonOption = False,
) -> None:
    """Delete one version of a model, with its files. This can't be undone."""
    with open_store() as store:
        row = store.get_model(model)
        if model == row.name:
            # You may not mean the newest version.
            raise UsageError(
                f"Name the version of '{model}' to delete. The newest is"
                f" {row.full_name}."
            )
        confirm(row.full_name, yes=yes)
        store.delete_model(row.full_name)
    report({"deleted": row.full_name}, f"Deleted {row.full_name}.", json=json)


def _metrics(model: ModelRow) -> dict[str, Any]:
    return model.metadata.get("metrics") or {}


def _facts(model: ModelRow) -> dict[str, Any]:
    return {
        "model": model.full_name,
        "name": model.name,
        "version": model.version,
        "scenario": model.metadata.get("scenario"),
        "policy": model.metadata.get("policy"),
        "run_id": model.run_id,
        "path": str(model.path),
        "created_at": model.created_at,
        "metrics": _metrics(model),
    }


def _config(model: ModelRow) -> dict[str, Any]:
    return model.metadata.get("config") or {}


def _measured_on_the_same_tasks(models: Sequence[ModelRow]) -> bool:
    asked = {
        (model.metadata.get("scenario"), _config(model).get("seed"), tasks)
        for model in models
        for tasks in [_metrics(model).get("tasks")]
    }
    return len(asked) == 1


def _comparison(models: Sequence[ModelRow]) -> Any:
    from agentgym.core import tables

    shown = tables.metric_names({})
    labels = ("scenario", "seed", "episodes", *shown.values(), "training time")
    columns = [
        (
            str(model.metadata.get("scenario")),
            str(_config(model).get("seed")),
            tables.number(measured.get("episodes_completed")),
            *(tables.figure(measured, name) for name in shown),
            tables.duration(measured.get("total_training_time")),
        )
        for model in models
        for measured in [_metrics(model)]
    ]
    names = tuple(model.full_name for model in models)
    rows = list(zip(labels, *columns, strict=True))
    return tables.Table(("held-out tasks", *names), rows, right=frozenset(names))

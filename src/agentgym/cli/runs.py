"""`agentgym runs`: list, watch and control training runs."""

from __future__ import annotations

import dataclasses
import time
from typing import TYPE_CHECKING, Annotated, Any

import typer

from agentgym.cli.common import (
    Command,
    HomeOption,
    JsonOption,
    QuietOption,
    YesOption,
    carry_out,
    command_group,
    confirm,
    console,
    downloading,
    draw,
    glyphs,
    note,
    open_store,
    print_aligned,
    print_json,
    print_result,
    report,
    results_only,
)
from agentgym.errors import UsageError

if TYPE_CHECKING:
    from collections.abc import Sequence

    from agentgym.core.events import Listener
    from agentgym.runs.view import RunView
    from agentgym.store import RunRow, Store

app = command_group("List, show, watch, control and delete training runs.")

RunArgument = Annotated[
    str,
    typer.Argument(
        metavar="RUN",
        help="Id of a run, its first characters, or 'last' for the newest run.",
    ),
]

_SHOWN = 20
_CONFIRM_SECONDS = 10.0


@app.command("list", cls=Command)
def list_(
    limit: Annotated[
        int, typer.Option("--limit", min=1, help="How many at most.")
    ] = 20,
    home_folder: HomeOption = None,
    json: JsonOption = False,
) -> None:
    """List runs, the newest first."""
    from agentgym.core.tables import Table, ago, share
    from agentgym.runs.view import CURVE, view_of
    from agentgym.ui.charts import sparkline

    with open_store() as store:
        runs = store.list_runs(limit)
        views = {} if json else {r.id: view_of(store, r.id, CURVE) for r in runs}
    if json:
        print_json({"runs": [_facts(run) for run in runs]})
        return
    if not runs:
        note("No runs yet. Start one: agentgym train customer_support")
        return
    now = time.time()
    rows = []
    for run in runs:
        measured = views[run.id].evaluations
        curve = [e.metrics.get("tool_reliability") for e in measured]
        rows.append(
            (
                run.id,
                run.model or run.scenario,
                str(run.seed),
                run.status,
                f"{run.episodes:,}",
                share(curve[-1] if curve else None),
                sparkline(curve, width=8, glyphs=glyphs()),
                ago(run.created_at, now),
            )
        )
    headers = (
        "run",
        "model or scenario",
        "seed",
        "status",
        "episodes",
        "reliability",
        "curve",
        "started",
    )
    right = frozenset({"seed", "episodes", "reliability"})
    draw(Table(headers, rows, right))


@app.command(cls=Command)
def show(
    run: RunArgument = "last",
    trajectories: Annotated[
        bool,
        typer.Option(
            "--trajectories",
            help="Show single episodes: each call, its arguments, result and reward.",
        ),
    ] = False,
    solved: Annotated[
        bool, typer.Option("--solved", help="Show solved episodes, not failed ones.")
    ] = False,
    limit: Annotated[
        int, typer.Option("--limit", min=1, help="How many episodes at most.")
    ] = 5,
    home_folder: HomeOption = None,
    json: JsonOption = False,
) -> None:
    """Show a run: its settings, its curve, its result, and single episodes."""
    from agentgym.runs.view import view_of

    with open_store() as store:
        view = view_of(store, run)
        row = store.get_run(view.run_id)
        episodes = (
            store.trajectories(row.id, failed=not solved, limit=limit)
            if trajectories
            else []
        )
        if json:
            facts = _facts(row) | view.to_dict()
            if trajectories:
                facts["trajectories"] = [dataclasses.asdict(e) for e in episodes]
            print_json(facts)
            return
    if trajectories:
        _print_episodes([episode.data for episode in episodes], solved=solved)
        return
    _print_run(row, view)


@app.command("watch", cls=Command)
def watch_(run: RunArgument = "last", home_folder: HomeOption = None) -> None:
    """Watch a run in another process until it ends."""
    from agentgym.runs.view import RunView, watch
    from agentgym.ui.live import LiveView, view

    with open_store() as store:
        watched = RunView(store.get_run(run).id)
        display = view(console(stderr=True), watched, glyphs=glyphs(stderr=True))
        try:
            with display:
                for news in watch(store, watched):
                    if isinstance(display, LiveView):
                        display.draw()
                    else:
                        for logged in news:
                            display(logged)
        except KeyboardInterrupt:
            note(f"No longer watching. Run {watched.run_id} continues.")
            raise typer.Exit(130) from None
        row = store.get_run(watched.run_id)
    error = f": {row.error}" if row.error else ""
    note(f"Run {row.id} {row.status}{error}. See: agentgym runs show {row.id}")


@app.command(cls=Command)
def pause(
    run: RunArgument = "last", home_folder: HomeOption = None, json: JsonOption = False
) -> None:
    """Pause a run after its current iteration. It saves a checkpoint first."""
    from agentgym.runs import lifecycle

    with open_store() as store:
        row = lifecycle.pause(store, run)
        _report(store, row, "paused", "Pause", json=json)


@app.command(cls=Command)
def resume(
    run: RunArgument = "last",
    home_folder: HomeOption = None,
    json: JsonOption = False,
    quiet: QuietOption = False,
) -> None:
    """Resume a paused run, or restart an interrupted one from its last checkpoint.

    A finished run prints its result again.
    """
    from agentgym.core.config import TrainingConfig
    from agentgym.core.result import TrainingResult
    from agentgym.runs import lifecycle
    from agentgym.runs.launchers.here import Here
    from agentgym.runs.resolve import resolve
    from agentgym.runs.view import view_of

    with open_store() as store:
        row = lifecycle.check(store, run, "resumed")
        if row.status == "paused":
            lifecycle.resume(store, row.id, Here())
            _report(store, row, "running", "Resume", json=json)
            return
        if row.status in lifecycle.DONE:
            note(f"Run {row.id} is already {row.status}.")
            result = lifecycle.outcome(store, row.id)
            print_result(result, row.targets, home_folder, json=json, quiet=quiet)
            return
        with results_only():
            job = resolve(TrainingConfig.from_dict(row.config), resolved=True)
        downloading(job.fetch, quiet=quiet)

        def start(listeners: Sequence[Listener]) -> TrainingResult:
            result = lifecycle.resume(store, row.id, Here(listeners), job)
            return result or lifecycle.outcome(store, row.id, listeners)

        carry_out(
            start,
            view_of(store, row.id),
            job.targets,
            home_folder,
            json=json,
            quiet=quiet,
        )


@app.command(cls=Command)
def stop(
    run: RunArgument = "last", home_folder: HomeOption = None, json: JsonOption = False
) -> None:
    """Stop a run early. What it learned so far is evaluated and saved as a model."""
    from agentgym.runs import lifecycle

    with open_store() as store:
        row = lifecycle.stop(store, run)
        _report(store, row, "stopped", "Stop", json=json)


@app.command(cls=Command)
def adjust(
    run: RunArgument,
    settings: Annotated[
        list[str],
        typer.Argument(
            metavar="NAME=VALUE...",
            help="learning_rate, exploration, entropy or episodes, with a new value.",
        ),
    ],
    home_folder: HomeOption = None,
    json: JsonOption = False,
) -> None:
    """Change settings of a run from its next iteration on."""
    from agentgym.runs import lifecycle

    changes = dict(_parse_change(text) for text in settings)
    with open_store() as store:
        row = lifecycle.adjust(store, run, changes)
    text = ", ".join(f"{name}={value:g}" for name, value in changes.items())
    when = "when it resumes" if row.status == "paused" else "from its next iteration on"
    text = f"Adjustment requested. Run {row.id} will use {text} {when}."
    report(_facts(row) | {"changes": changes}, text, json=json)


@app.command(cls=Command)
def delete(
    run: Annotated[
        str, typer.Argument(metavar="RUN", help="Id of a run, or its first characters.")
    ],
    yes: YesOption = False,
    home_folder: HomeOption = None,
    json: JsonOption = False,
) -> None:
    """Delete a run with its events, episodes and checkpoints. Its model stays."""
    from agentgym.runs import lifecycle

    with open_store() as store:
        row = lifecycle.check(store, run, "deleted")
        confirm(f"run {row.id}", yes=yes)
        lifecycle.delete(store, row.id)
    report({"deleted": row.id}, f"Deleted run {row.id}.", json=json)


def _parse_change(text: str) -> tuple[str, float]:
    name, equals, value = text.partition("=")
    try:
        number = float(value)
    except ValueError:
        equals = ""
    if not (name and equals):
        raise UsageError(f"Invalid setting '{text}'. Use NAME=NUMBER.")
    return name.strip().replace("-", "_"), int(number) if number % 1 == 0 else number


def _report(store: Store, run: RunRow, wanted: str, asked: str, *, json: bool) -> None:
    """Waits a little until the run's process has reacted, and prints the outcome."""
    from agentgym.runs import lifecycle
    from agentgym.store.rows import UNDER_WAY

    run = lifecycle.settled(store, run.id, wanted, _CONFIRM_SECONDS)
    text = (
        f"{asked} requested. Run {run.id} will be {wanted} after its current iteration."
    )
    if run.status == wanted or run.status not in UNDER_WAY:
        model = f"; its model is {run.model}" if run.model else ""
        text = f"Run {run.id} is {run.status}{model}."
    report(_facts(run), text, json=json)


def _facts(run: RunRow) -> dict[str, Any]:
    facts = dataclasses.asdict(run)
    for bulky in ("config", "result", "process"):
        facts.pop(bulky)
    return facts


def _print_run(run: RunRow, view: RunView) -> None:
    from agentgym.core.tables import before_after, duration, time_savings
    from agentgym.ui.charts import legend, line_chart
    from agentgym.ui.live import curve, untrained

    took = (run.finished_at or time.time()) - run.created_at
    print(f"Run {run.id}: {run.scenario}, policy {run.policy}, seed {run.seed}")
    print(
        f"{run.status}, {run.episodes:,} of {view.total:,} episodes,"
        f" started {_when(run.created_at)}, {duration(took)}"
    )
    if run.error:
        print(f"error: {run.error}")
    if run.model:
        print(f"Model {run.model}")
    baseline = untrained(view)
    if points := curve(view):
        marks = glyphs()
        chart = line_chart(
            points,
            width=min(console().width, 100),
            height=12,
            baseline=baseline,
            target=view.target,
            glyphs=marks,
        )
        words = legend(baseline=baseline, target=view.target, glyphs=marks)
        print()
        draw(chart)
        draw(words)
    if run.result:
        metrics, before = run.result["metrics"], run.result["baseline"]
        targets = view.targets
        if view.target:
            targets = {**targets, "tool_reliability": view.target}
        print()
        draw(before_after(before, metrics, targets))
        print(time_savings(metrics, targets))
    elif view.failures:
        print(f"\nFailures: agentgym runs show {run.id} --trajectories")
    _print_history(view)
    set_by = run.config.get("sources") or {}
    chosen = {
        name: value
        for name, value in run.config.items()
        if set_by.get(name, "default") != "default"
    }
    if chosen:
        print("\nSettings that are not the default")
        print_aligned({k: f"{v}  ({set_by[k]})" for k, v in chosen.items()})


def _print_history(view: RunView) -> None:
    """Prints a run's resumes, adjustments and warnings."""
    lines = {
        "Attempts": [
            (one.time, "began" if at is None else f"resumed from iteration {at}")
            for one in view.attempts
            for at in [one.resumed_from]
            if len(view.attempts) > 1
        ],
        "Adjustments": [
            (one.time, ", ".join(f"{k}={v:g}" for k, v in one.changes.items()))
            for one in view.adjustments
        ],
        "Warnings": [(warning.time, warning.text) for warning in view.warnings],
    }
    for title, entries in lines.items():
        if entries:
            print(f"\n{title}")
        for at, text in entries[-_SHOWN:]:
            print(f"  {_when(at)}  {text}")


def _when(at: float) -> str:
    return time.strftime("%Y-%m-%d %H:%M:%S", time.localtime(at))


def _print_episodes(episodes: list[dict[str, Any]], *, solved: bool) -> None:
    from agentgym.core.tables import episode_lines

    if not episodes:
        kind, other = ("solved", "") if solved else ("failed", " Try --solved.")
        note(f"No {kind} episodes were kept.{other}")
        return
    out = console()
    for number, episode in enumerate(episodes):
        if number:
            print()
        for text, style in episode_lines(episode):
            if out.is_terminal:
                out.print(text, style=style, markup=False, soft_wrap=True)
            else:
                print(text)

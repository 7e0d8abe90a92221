"""`agentgym runs`: what was trained, what is training now, and how to steer it."""

from __future__ import annotations

import dataclasses
import time
from typing import TYPE_CHECKING, Annotated, Any

import typer

from agentgym.cli.common import (
    Command,
    HomeOption,
    JsonOption,
    command_group,
    console,
    glyphs,
    home,
    note,
    open_store,
    print_json,
    print_table,
    stop,
)

if TYPE_CHECKING:
    from collections.abc import Sequence

    from agentgym.core.events import Listener
    from agentgym.core.result import TrainingResult
    from agentgym.runs.view import RunView
    from agentgym.store import RunRow, Store

app = command_group("List, show, watch and control training runs.")

RunArgument = Annotated[
    str,
    typer.Argument(
        metavar="RUN",
        help="A run's id, the beginning of one, or 'last' for the newest.",
    ),
]

_UNDER_WAY = ("running", "paused")
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
    from agentgym.runs.view import CURVE, view_of
    from agentgym.ui.charts import sparkline
    from agentgym.ui.tables import Table, ago, share

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
    print_table(Table(headers, rows, right))


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
    """Watch a run that another process carries out, until it ends."""
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
    """Pause a run after its current iteration; it saves first."""
    with open_store() as store:
        row = store.get_run(run)
        if row.status == "paused":
            stop(f"Run {row.id} is paused already; see `agentgym runs resume`.", 2)
        _require_under_way(row, "paused")
        store.send_command(row.id, "pause")
        _report(_wait_for(store, row, ("paused",)), "paused", json=json)


@app.command(cls=Command)
def resume(
    run: RunArgument = "last",
    home_folder: HomeOption = None,
    json: JsonOption = False,
    quiet: Annotated[
        bool, typer.Option("--quiet", "-q", help="Print nothing but the model's name.")
    ] = False,
) -> None:
    """Let a paused run go on, or carry on here with one whose process is gone."""
    from agentgym.runs.view import view_of

    with open_store() as store:
        row = store.get_run(run)
        if row.status == "paused":
            store.send_command(row.id, "resume")
            _report(_wait_for(store, row, ("running",)), "running", json=json)
            return
        if row.status == "running":
            stop(
                f"Run {row.id} is running already, in process {row.pid} on {row.host};"
                f" see it with: agentgym runs watch {row.id}",
                2,
            )
        if row.status in ("finished", "stopped"):
            stop(
                f"Run {row.id} is {row.status}; its model is {row.model}."
                f" Start another: agentgym train {row.scenario}",
                2,
            )
        view = view_of(store, row.id)

    from agentgym.cli.train import carry_out, prepare
    from agentgym.core.config import TrainingConfig

    targets = prepare(TrainingConfig.from_dict(row.config), quiet=quiet)

    def start(listeners: Sequence[Listener]) -> TrainingResult:
        from agentgym.core.trainer import Trainer

        return Trainer.resume(row.id, home=home(), listeners=listeners)

    carry_out(start, view, targets, home_folder, json=json, quiet=quiet)


@app.command("stop", cls=Command)
def stop_(
    run: RunArgument = "last", home_folder: HomeOption = None, json: JsonOption = False
) -> None:
    """Stop a run early; what it learned is measured and saved as a model."""
    with open_store() as store:
        row = store.get_run(run)
        _require_under_way(row, "stopped")
        store.send_command(row.id, "stop")
        final = ("stopped", "finished")
        _report(_wait_for(store, row, final), "stopped", json=json)


def _require_under_way(run: RunRow, wanted: str) -> None:
    if run.status not in _UNDER_WAY:
        from agentgym.engines import get_engine

        broken_off = run.status in ("interrupted", "failed")
        resumable = broken_off and get_engine(run.engine).resumable
        advice = f" Go on with: agentgym runs resume {run.id}" if resumable else ""
        stop(f"Run {run.id} cannot be {wanted}: it is {run.status}.{advice}", 2)


def _wait_for(store: Store, run: RunRow, wanted: tuple[str, ...]) -> RunRow:
    """Waits a little until the run's process has obeyed."""
    deadline = time.monotonic() + _CONFIRM_SECONDS
    while run.status not in wanted and time.monotonic() < deadline:
        if run.status not in _UNDER_WAY:
            break
        time.sleep(0.1)
        run = store.get_run(run.id)
    return run


def _report(run: RunRow, wanted: str, *, json: bool) -> None:
    if json:
        print_json(_facts(run))
    elif run.status in (wanted, "finished"):
        model = f"; its model is {run.model}" if run.model else ""
        print(f"Run {run.id} is {run.status}{model}.")
    else:
        print(f"Run {run.id} was told; it obeys after its current step.")


def _facts(run: RunRow) -> dict[str, Any]:
    facts = dataclasses.asdict(run)
    for bulky in ("config", "result", "process"):
        facts.pop(bulky)
    return facts


def _print_run(run: RunRow, view: RunView) -> None:
    from agentgym.ui.charts import legend, line_chart
    from agentgym.ui.live import curve, untrained
    from agentgym.ui.tables import before_after, duration, time_savings

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
        out = console()
        marks = glyphs()
        chart = line_chart(
            points,
            width=min(out.width, 100),
            height=12,
            baseline=baseline,
            target=view.target,
            glyphs=marks,
        )
        words = legend(baseline=baseline, target=view.target, glyphs=marks)
        print()
        for drawing in (chart, words):
            if out.is_terminal:
                out.print(drawing.rich())
            else:
                print(drawing.plain())
    if run.result:
        metrics, before = run.result["metrics"], run.result["baseline"]
        targets = view.targets
        if view.target:
            targets = {**targets, "tool_reliability": view.target}
        print()
        print_table(before_after(before, metrics, targets))
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
        width = max(len(name) for name in chosen)
        for name, value in chosen.items():
            print(f"  {name:<{width}}  {value}  ({set_by[name]})")


def _print_history(view: RunView) -> None:
    """What is worth knowing of a run besides its figures."""
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
    from agentgym.ui.tables import episode_lines

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

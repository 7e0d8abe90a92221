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
    from agentgym.store import RunRow, Store
    from agentgym.ui.live import Progress

app = command_group("List, show, watch and control training runs.")

RunArgument = Annotated[
    str,
    typer.Argument(
        metavar="RUN",
        help="A run's id, the beginning of one, or 'last' for the newest.",
    ),
]

_UNDER_WAY = ("running", "paused")
_WATCH_SECONDS = 0.5
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
    from agentgym.ui.charts import sparkline
    from agentgym.ui.tables import Table, ago, share

    with open_store() as store:
        runs = store.list_runs(limit)
        measured = {run.id: store.evaluations(run.id, "validation") for run in runs}
    if json:
        print_json({"runs": [_facts(run) for run in runs]})
        return
    if not runs:
        note("No runs yet. Start one: agentgym train customer_support")
        return
    now = time.time()
    rows = []
    for run in runs:
        curve = [e.metrics.get("tool_reliability") for e in measured[run.id]]
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
    with open_store() as store:
        row = store.get_run(run)
        progress = progress_of(store, row)
        episodes = (
            store.trajectories(row.id, failed=not solved, limit=limit)
            if trajectories
            else []
        )
        if json:
            facts = _facts(row) | {
                "config": row.config,
                "result": row.result,
                "points": [dataclasses.asdict(p) for p in store.points(row.id)],
                "evaluations": [
                    dataclasses.asdict(e) for e in store.evaluations(row.id)
                ],
            }
            if trajectories:
                facts["trajectories"] = [dataclasses.asdict(e) for e in episodes]
            print_json(facts)
            return
    if trajectories:
        _print_episodes([episode.data for episode in episodes], solved=solved)
        return
    _print_run(row, progress)


@app.command(cls=Command)
def watch(run: RunArgument = "last", home_folder: HomeOption = None) -> None:
    """Watch a run that another process carries out, until it ends."""
    from agentgym.ui.live import LiveView, view

    with open_store() as store:
        row = store.get_run(run)
        progress = progress_of(store, row)
        display = view(console(stderr=True), progress, glyphs=glyphs(stderr=True))
        seen = 0
        try:
            with display:
                while True:
                    row = store.get_run(row.id)
                    _refresh(store, row, progress)
                    if isinstance(display, LiveView):
                        display.draw()
                    else:
                        for line in progress.lines()[seen:]:
                            note(line)
                        seen = len(progress.evaluations)
                    if row.status not in _UNDER_WAY:
                        break
                    time.sleep(_WATCH_SECONDS)
        except KeyboardInterrupt:
            note(f"No longer watching; run {row.id} goes on.")
            raise typer.Exit(130) from None
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
        progress = progress_of(store, row)

    from agentgym.cli.train import carry_out, prepare
    from agentgym.core.config import TrainingConfig

    targets = prepare(TrainingConfig.from_dict(row.config), quiet=quiet)

    def start(listeners: Sequence[Listener]) -> TrainingResult:
        from agentgym.core.trainer import Trainer

        return Trainer.resume(row.id, home=home(), listeners=listeners)

    carry_out(start, progress, targets, home_folder, json=json, quiet=quiet)


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


def progress_of(store: Store, run: RunRow) -> Progress:
    """What the store knows of a run, as a live view shows it."""
    from agentgym.ui.live import Progress

    progress = Progress()
    progress.start(run.id, run.config)
    _refresh(store, run, progress)
    return progress


def _refresh(store: Store, run: RunRow, progress: Progress) -> None:
    """Brings a view up to date with the store."""
    progress.counts.clear()
    for point in store.points(run.id):
        progress.iterate(point.episodes, point.values)
    progress.episodes = max(progress.episodes, run.episodes)
    for evaluation in store.evaluations(run.id, "validation"):
        if evaluation.episodes == 0:
            progress.measure_baseline(evaluation.metrics)
        else:
            progress.evaluate(evaluation.episodes, evaluation.metrics)
    failed = store.trajectories(run.id, failed=True, limit=4)
    progress.failures = [episode.data for episode in failed]
    if run.status != "running":
        progress.phase = run.status


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


def _print_run(run: RunRow, progress: Progress) -> None:
    from agentgym.ui.charts import legend, line_chart
    from agentgym.ui.tables import before_after, duration, time_savings

    took = (run.finished_at or time.time()) - run.created_at
    started = time.strftime("%Y-%m-%d %H:%M:%S", time.localtime(run.created_at))
    print(f"Run {run.id}: {run.scenario}, policy {run.policy}, seed {run.seed}")
    print(
        f"{run.status}, {run.episodes:,} of {progress.total:,} episodes,"
        f" started {started}, {duration(took)}"
    )
    if run.error:
        print(f"error: {run.error}")
    if run.model:
        print(f"Model {run.model}")
    targets = _targets(run)
    target = progress.target or targets.get("tool_reliability")
    baseline = progress.baseline_reliability
    if progress.points():
        out = console()
        marks = glyphs()
        chart = line_chart(
            progress.points(),
            width=min(out.width, 100),
            height=12,
            baseline=baseline,
            target=target,
            glyphs=marks,
        )
        words = legend(baseline=baseline, target=target, glyphs=marks)
        print()
        for drawing in (chart, words):
            if out.is_terminal:
                out.print(drawing.rich())
            else:
                print(drawing.plain())
    if run.result:
        metrics, before = run.result["metrics"], run.result["baseline"]
        print()
        print_table(before_after(before, metrics, targets))
        print(time_savings(metrics, targets))
    elif progress.failures:
        print(f"\nFailures: agentgym runs show {run.id} --trajectories")
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


def _targets(run: RunRow) -> dict[str, float]:
    """The scenario's targets; none if it can no longer be loaded."""
    from agentgym.errors import AgentGymError
    from agentgym.scenarios.registry import ScenarioRegistry

    try:
        targets = ScenarioRegistry.load(run.scenario).success_criteria()
    except AgentGymError:
        return {}
    wanted = run.config.get("target_reliability")
    return targets | ({"tool_reliability": wanted} if wanted else {})


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

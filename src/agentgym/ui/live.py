"""What people watch while a training runs: a `RunView`, drawn.

`LiveView` draws it with rich on a terminal, `PlainView` prints a line for every
evaluation elsewhere. Both are listeners: pass one to the trainer.

    with view(console, RunView()) as listener:
        Trainer(config, listeners=[listener]).train()
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any, Self

from agentgym.core import events
from agentgym.core.tables import bounds, duration, failure_line, number, rate, share
from agentgym.runs.view import RunView
from agentgym.ui.charts import UNICODE, Glyphs, Point, legend, line_chart

if TYPE_CHECKING:
    from rich.console import Console, RenderableType
    from rich.text import Text

Said = events.Event | events.LoggedEvent

_REDRAW_SECONDS = 0.25
_FAILURES_SHOWN = 4
_LINES_AROUND_THE_CHART = 15
_SAMPLED = {
    "mean_reward": "reward {:+.2f}",
    "success": "success {:.0%}",
    "reliability": "reliability {:.0%}",
    "entropy": "entropy {:.2f}",
    "gradient_norm": "gradient {:.2g}",
}
"""What the last update learned from and did."""
_POLICY = {
    "tokens_read": "tokens read {:,.0f}",
    "tokens_learned": "learned {:,.0f}",
    "cache_hits": "from the cache {:.0%}",
    "memory_mb": "memory {:,.0f} MB",
}
"""What a policy may tell about itself."""


class PlainView:
    """Prints a line for each evaluation, for logs and pipes."""

    def __init__(self, write: Callable[[str], None], run: RunView) -> None:
        self.run = run
        self._write = write

    def __enter__(self) -> Self:
        """Nothing to set up."""
        return self

    def __exit__(self, *problem: object) -> None:
        """Nothing to clear away."""

    def __call__(self, said: Said) -> None:
        """Prints what is worth a line."""
        self.run.apply(said)
        run, event = self.run, _event(said)
        match event:
            case events.RunStarted():
                at = event.resumed_from
                again = "" if at is None else f", resumed from iteration {at}"
                self._write(f"run {event.run_id}: {_title(run)}{again}")
            case events.BaselineMeasured():
                self._write(_evaluation_line(0, event.metrics))
            case events.EvaluationDone(split="validation"):
                left = run.remaining
                extra = "" if left is None else f"  {duration(left)} left"
                self._write(_evaluation_line(event.episodes, event.metrics) + extra)
            case events.Paused():
                self._write("paused. Resume with: agentgym runs resume")
            case events.Resumed():
                self._write("resumed")
            case events.Adjusted():
                changes = ", ".join(f"{k}={v:g}" for k, v in event.changes.items())
                self._write(f"adjusted: {changes}")
            case events.Warned():
                self._write(f"warning: {event.text}")
            case events.RunStopped():
                self._write(f"stopped: {event.reason}")


class LiveView:
    """Draws the run on a terminal, a few times in a second.

    Redrawn when something happens, not by its own thread: each drawing is then paid
    for once, and training keeps the processor.
    """

    def __init__(
        self, console: Console, run: RunView, *, glyphs: Glyphs = UNICODE
    ) -> None:
        from rich.live import Live

        self.run = run
        self._console = console
        self._glyphs = glyphs
        self._live = Live(
            console=console, auto_refresh=False, transient=True, redirect_stdout=False
        )
        self._drawn = float("-inf")

    def __enter__(self) -> Self:
        """Starts to draw."""
        self._live.start()
        self.draw()
        return self

    def __exit__(self, *problem: object) -> None:
        """Leaves the last picture on the screen."""
        self._live.transient = False
        self.draw()
        self._live.stop()

    def __call__(self, said: Said) -> None:
        """Applies an event and redraws, if the last redraw isn't too recent."""
        self.run.apply(said)
        event = _event(said)
        if isinstance(event, events.Warned):
            self._console.print(
                f"warning: {event.text}", style="yellow", markup=False, highlight=False
            )
        frequent = isinstance(event, events.IterationDone | events.CheckpointSaved)
        if not frequent or self.run.clock() - self._drawn >= _REDRAW_SECONDS:
            self.draw()

    def draw(self) -> None:
        """Draws now."""
        drawn = picture(self.run, *self._console.size, glyphs=self._glyphs)
        self._live.update(drawn, refresh=True)
        self._drawn = self.run.clock()


def view(
    console: Console, run: RunView, *, glyphs: Glyphs = UNICODE
) -> LiveView | PlainView:
    """The view that suits the console: live on a terminal, lines elsewhere."""
    if console.is_terminal and not console.is_dumb_terminal:
        return LiveView(console, run, glyphs=glyphs)

    def write(line: str) -> None:
        print(line, file=console.file or sys.stderr, flush=True)

    return PlainView(write, run)


def curve(run: RunView) -> list[Point]:
    """The curve of reliability on the validation tasks, with its intervals."""
    return [
        Point(one.episodes, value, *bounds(one.metrics, "tool_reliability"))
        for one in run.evaluations
        if (value := one.metrics.get("tool_reliability")) is not None
    ]


def untrained(run: RunView) -> float | None:
    """The untrained policy's reliability on the validation tasks."""
    return (run.baseline or {}).get("tool_reliability")


def picture(
    run: RunView, width: int, height: int, *, glyphs: Glyphs = UNICODE
) -> RenderableType:
    """The whole view of a run, for a rich console of that size."""
    from rich.console import Group
    from rich.progress_bar import ProgressBar
    from rich.table import Table
    from rich.text import Text

    width = max(40, min(width, 100))
    bar = Table.grid(padding=(0, 1), expand=False)
    bar.add_row(
        ProgressBar(
            total=max(1, run.total),
            completed=run.episodes,
            width=max(10, min(40, width - 50)),
        ),
        Text(_counter_text(run)),
    )
    points = curve(run)
    baseline = untrained(run)
    parts: list[RenderableType] = [
        _one_line(_title(run), "bold"),
        bar,
        _reliability_text(run),
        line_chart(
            points,
            width=width,
            height=max(4, min(11, height - _LINES_AROUND_THE_CHART)),
            baseline=baseline,
            target=run.target,
            x_max=run.total,
            glyphs=glyphs,
        ).rich(),
        legend(
            baseline=baseline,
            target=run.target,
            band=any(point.low is not None for point in points),
            glyphs=glyphs,
        ).rich(),
    ]
    if run.values:
        parts.append(Text(f"sampled: {_listed(run.values, _SAMPLED)}", "dim"))
        parts.append(_warning_counts(run))
        if figures := _listed(run.values, _POLICY):
            parts.append(_one_line(figures, "dim"))
    if run.failures:
        parts.append(Text("Latest failures (validation)", "bold"))
        parts += [
            _one_line("  " + failure_line(failure, width - 2), "red")
            for failure in run.failures[:_FAILURES_SHOWN]
        ]
    return Group(*parts)


def _one_line(text: str, style: str) -> Text:
    from rich.text import Text

    return Text(text, style, no_wrap=True, overflow="ellipsis")


def _title(run: RunView) -> str:
    config = run.config
    if not config:
        return run.phase
    return (
        f"{config.get('scenario')}, policy {config.get('policy')}, seed"
        f" {config.get('seed')}, {number(run.total)} episodes"
    )


def _counter_text(run: RunView) -> str:
    text = f"{run.episodes:,} / {run.total:,} episodes"
    if run.rate:
        text += f"  {run.rate:,.0f}/s"
    if run.phase != "training":
        return f"{text}  {run.phase}"
    left = run.remaining
    return text if left is None else f"{text}  {duration(left)} left"


def _reliability_text(run: RunView) -> Text:
    from rich.text import Text

    text = Text("reliability ")
    if run.evaluations:
        metrics = run.evaluations[-1].metrics
        value = metrics.get("tool_reliability")
        target = run.target
        met = value is not None and target is not None and value >= target
        text.append(rate(metrics, "tool_reliability"), "bold green" if met else "bold")
        text.append(f"   success {share(metrics.get('task_success'))}")
    else:
        text.append("not measured yet", "dim")
    if (before := untrained(run)) is not None:
        text.append(f"   untrained {share(before)}", "yellow")
    if run.target is not None:
        text.append(f"   target {run.target:.0%}", "green")
    return text


def _listed(values: Mapping[str, Any], shown: Mapping[str, str]) -> str:
    """The available values on one line, each in its format."""
    known = [name for name in shown if values.get(name) is not None]
    return "  ".join(shown[name].format(values[name]) for name in known)


def _warning_counts(run: RunView) -> Text:
    """Counts of what should be rare, since the start; red if it happened."""
    from rich.text import Text

    counts = run.counts
    groups = counts.get("groups", 0)
    flat = counts.get("groups_without_variance", 0)
    part = f" of {groups:,}" if groups else ""
    text = Text(f"groups without variance {flat:,}{part}", "dim")
    for name in ("clipped", "broken", "unrewarded"):
        count = counts.get(name, 0)
        text.append(f"   {name} {count:,}", "red" if count else "dim")
    return text


def _evaluation_line(episodes: int, metrics: Mapping[str, Any]) -> str:
    return (
        f"{episodes:>9,} episodes  reliability {rate(metrics, 'tool_reliability')}"
        f"  success {share(metrics.get('task_success'))}"
    )


def _event(said: Said) -> events.Event:
    return said.event if isinstance(said, events.LoggedEvent) else said

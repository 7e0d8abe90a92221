"""What people watch while a training runs.

`Progress` folds a run's events into what there is to show; it knows no terminal.
`LiveView` draws it with rich on a terminal, `PlainView` prints a line for every
evaluation elsewhere. Both are listeners: pass one to the trainer.

    with view(console, Progress()) as listener:
        Trainer(config, listeners=[listener]).train()
"""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from types import TracebackType
from typing import TYPE_CHECKING, Any, Self

from agentgym.core import events
from agentgym.ui.charts import UNICODE, Glyphs, Point, legend, line_chart
from agentgym.ui.tables import (
    bounds,
    duration,
    failure_line,
    number,
    rate,
    share,
)

if TYPE_CHECKING:
    from rich.console import Console, RenderableType
    from rich.text import Text

Clock = Callable[[], float]

_REDRAW_SECONDS = 0.25
_FAILURES_SHOWN = 4
_LINES_AROUND_THE_CHART = 15
_LAST_PHASE = "measuring on held-out tasks"


@dataclass
class Progress:
    """Where a run stands.

    Attributes:
        phase: What is being done now, in words.
        target: Reliability that training aims at; None if nobody said.
        baseline: The untrained policy's metrics on the validation tasks.
        evaluations: (episodes, metrics) on the validation tasks, oldest first.
        values: Of the last iteration; see `IterationDone`.
        counts: Sums over all iterations that this process saw.
        failures: Single episodes that failed in the last evaluation.
    """

    target: float | None = None
    clock: Clock = time.monotonic
    run_id: str = ""
    config: dict[str, Any] = field(default_factory=dict)
    phase: str = "starting"
    episodes: int = 0
    baseline: dict[str, Any] | None = None
    evaluations: list[tuple[int, dict[str, Any]]] = field(default_factory=list)
    values: dict[str, Any] = field(default_factory=dict)
    counts: dict[str, int] = field(default_factory=dict)
    failures: list[dict[str, Any]] = field(default_factory=list)
    _began: tuple[float, int] | None = None

    @property
    def total(self) -> int:
        """Episodes asked for."""
        return int(self.config.get("episodes") or 0)

    @property
    def rate(self) -> float | None:
        """Episodes in a second, evaluations included; None before there are any."""
        if self._began is None:
            return None
        started, before = self._began
        seconds = self.clock() - started
        done = self.episodes - before
        return done / seconds if seconds > 0 and done > 0 else None

    @property
    def remaining(self) -> float | None:
        """Seconds that training will still take if it goes on like this."""
        rate = self.rate
        return max(0, self.total - self.episodes) / rate if rate else None

    def __call__(self, event: events.Event) -> None:
        """Takes note of an event."""
        match event:
            case events.RunStarted():
                self.start(event.run_id, event.config)
                if event.resumed_from is not None:
                    self.phase = "training"
            case events.BaselineMeasured():
                self.measure_baseline(event.metrics)
                self.failures = _failed(event.sample)
                self.phase = "training"
                self._began = (self.clock(), self.episodes)
            case events.IterationDone():
                if self._began is None:
                    self._began = (self.clock(), event.episodes)
                self.iterate(event.episodes, event.values)
            case events.EvaluationDone(split="validation"):
                self.evaluate(event.episodes, event.metrics)
                self.failures = _failed(event.sample)
                low = bounds(event.metrics, "tool_reliability")[0]
                if low is not None and self.target is not None and low > self.target:
                    self.phase = _LAST_PHASE
            case events.Paused():
                self.phase = "paused"
            case events.Resumed():
                self.phase = "training"
                self._began = (self.clock(), self.episodes)
            case events.Adjusted():
                self.config = {**self.config, **event.changes}
            case events.RunStopped():
                self.phase = event.reason
            case events.RunFinished():
                self.phase = "finished"
            case events.RunFailed():
                self.phase = "failed"

    def start(self, run_id: str, config: Mapping[str, Any]) -> None:
        """A run began or went on."""
        self.run_id, self.config = run_id, dict(config)
        self.phase = "measuring the untrained policy"
        self.target = self.config.get("target_reliability") or self.target

    def measure_baseline(self, metrics: Mapping[str, Any]) -> None:
        """The untrained policy was measured; that is also the curve's first point."""
        self.baseline = dict(metrics)
        self.evaluate(0, metrics)

    def iterate(self, episodes: int, values: Mapping[str, Any]) -> None:
        """One more update was made."""
        self.episodes, self.values = episodes, dict(values)
        self.phase = "training"
        for name in (
            "groups",
            "groups_without_variance",
            "clipped",
            "broken",
            "unrewarded",
        ):
            more = int(values.get(name) or 0)
            self.counts[name] = self.counts.get(name, 0) + more
        if self.total and episodes >= self.total:
            self.phase = _LAST_PHASE

    def evaluate(self, episodes: int, metrics: Mapping[str, Any]) -> None:
        """The policy was measured on the validation tasks."""
        self.evaluations = [e for e in self.evaluations if e[0] < episodes]
        self.evaluations.append((episodes, dict(metrics)))

    def points(self) -> list[Point]:
        """The curve of reliability with its intervals."""
        points = []
        for episodes, metrics in self.evaluations:
            value = metrics.get("tool_reliability")
            if value is not None:
                low, high = bounds(metrics, "tool_reliability")
                points.append(Point(episodes, value, low, high))
        return points

    def lines(self) -> list[str]:
        """A line of text for each evaluation."""
        return [
            _evaluation_line(episodes, metrics)
            for episodes, metrics in self.evaluations
        ]

    @property
    def baseline_reliability(self) -> float | None:
        """The untrained policy's reliability on the validation tasks."""
        return None if self.baseline is None else self.baseline.get("tool_reliability")


class PlainView:
    """Prints a line for each evaluation, for logs and pipes."""

    def __init__(self, write: Callable[[str], None], progress: Progress) -> None:
        self.progress = progress
        self._write = write

    def __enter__(self) -> Self:
        """Nothing to set up."""
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        """Nothing to clear away."""

    def __call__(self, event: events.Event) -> None:
        """Prints what is worth a line."""
        progress = self.progress
        progress(event)
        match event:
            case events.RunStarted():
                again = (
                    ""
                    if event.resumed_from is None
                    else f", resumed from iteration {event.resumed_from}"
                )
                self._write(f"run {event.run_id}: {_title(progress)}{again}")
            case events.BaselineMeasured():
                self._write(_evaluation_line(0, event.metrics))
            case events.EvaluationDone(split="validation"):
                left = progress.remaining
                extra = "" if left is None else f"  {duration(left)} left"
                self._write(_evaluation_line(event.episodes, event.metrics) + extra)
            case events.Paused():
                self._write("paused; `agentgym runs resume` lets it go on")
            case events.Resumed():
                self._write("goes on")
            case events.Adjusted():
                changes = ", ".join(f"{k}={v:g}" for k, v in event.changes.items())
                self._write(f"adjusted: {changes}")
            case events.Warned():
                self._write(f"warning: {event.text}")
            case events.RunStopped():
                self._write(f"stopped: {event.reason}")


class LiveView:
    """Draws the run on a terminal, a few times in a second.

    Redrawn when something happens, not by a thread of its own: what is drawn is then
    paid for once, and training has the processor for itself.
    """

    def __init__(
        self,
        console: Console,
        progress: Progress,
        *,
        glyphs: Glyphs = UNICODE,
    ) -> None:
        from rich.live import Live

        self.progress = progress
        self._console = console
        self._glyphs = glyphs
        self._live = Live(
            console=console, auto_refresh=False, transient=True, redirect_stdout=False
        )
        self._drawn = float("-inf")

    def __enter__(self) -> Self:
        """Begins to draw."""
        self._live.start()
        self.draw()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        """Leaves the last picture on the screen."""
        self._live.transient = False
        self.draw()
        self._live.stop()

    def __call__(self, event: events.Event) -> None:
        """Takes note of an event and redraws, if that was not done just now."""
        self.progress(event)
        if isinstance(event, events.Warned):
            self._console.print(
                f"warning: {event.text}", style="yellow", markup=False, highlight=False
            )
        frequent = isinstance(event, events.IterationDone | events.CheckpointSaved)
        if not frequent or self.progress.clock() - self._drawn >= _REDRAW_SECONDS:
            self.draw()

    def draw(self) -> None:
        """Draws now."""
        self._live.update(
            picture(self.progress, *self._console.size, glyphs=self._glyphs),
            refresh=True,
        )
        self._drawn = self.progress.clock()


def view(
    console: Console, progress: Progress, *, glyphs: Glyphs = UNICODE
) -> LiveView | PlainView:
    """The view that suits the console: live on a terminal, lines elsewhere."""
    if console.is_terminal and not console.is_dumb_terminal:
        return LiveView(console, progress, glyphs=glyphs)

    def write(line: str) -> None:
        print(line, file=console.file or sys.stderr, flush=True)

    return PlainView(write, progress)


def picture(
    progress: Progress, width: int, height: int, *, glyphs: Glyphs = UNICODE
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
            total=max(1, progress.total),
            completed=progress.episodes,
            width=max(10, min(40, width - 50)),
        ),
        Text(_counter_text(progress)),
    )
    points = progress.points()
    baseline = progress.baseline_reliability
    parts: list[RenderableType] = [
        Text(_title(progress), "bold", no_wrap=True, overflow="ellipsis"),
        bar,
        _reliability_text(progress),
        line_chart(
            points,
            width=width,
            height=max(4, min(11, height - _LINES_AROUND_THE_CHART)),
            baseline=baseline,
            target=progress.target,
            x_max=progress.total,
            glyphs=glyphs,
        ).rich(),
        legend(
            baseline=baseline,
            target=progress.target,
            band=any(point.low is not None for point in points),
            glyphs=glyphs,
        ).rich(),
    ]
    if progress.values:
        parts.append(Text(_sampled_text(progress.values), "dim"))
        parts.append(_warning_counts(progress))
        if figures := _figures_text(progress.values):
            parts.append(Text(figures, "dim", no_wrap=True, overflow="ellipsis"))
    if progress.failures:
        parts.append(Text("Latest failures (validation)", "bold"))
        parts += [
            Text(
                "  " + failure_line(failure, width - 2),
                "red",
                no_wrap=True,
                overflow="ellipsis",
            )
            for failure in progress.failures[:_FAILURES_SHOWN]
        ]
    return Group(*parts)


def _title(progress: Progress) -> str:
    config = progress.config
    if not config:
        return progress.phase
    return (
        f"{config.get('scenario')}, policy {config.get('policy')}, seed"
        f" {config.get('seed')}, {number(progress.total)} episodes"
    )


def _counter_text(progress: Progress) -> str:
    text = f"{progress.episodes:,} / {progress.total:,} episodes"
    if progress.rate:
        text += f"  {progress.rate:,.0f}/s"
    if progress.phase != "training":
        return f"{text}  {progress.phase}"
    left = progress.remaining
    return text if left is None else f"{text}  {duration(left)} left"


def _reliability_text(progress: Progress) -> Text:
    from rich.text import Text

    text = Text("reliability ")
    if progress.evaluations:
        metrics = progress.evaluations[-1][1]
        value = metrics.get("tool_reliability")
        target = progress.target
        met = value is not None and target is not None and value >= target
        text.append(rate(metrics, "tool_reliability"), "bold green" if met else "bold")
        text.append(f"   success {share(metrics.get('task_success'))}")
    else:
        text.append("not measured yet", "dim")
    if progress.baseline_reliability is not None:
        text.append(f"   untrained {share(progress.baseline_reliability)}", "yellow")
    if progress.target is not None:
        text.append(f"   target {progress.target:.0%}", "green")
    return text


def _sampled_text(values: Mapping[str, Any]) -> str:
    """What the last update learned from and did, in one line."""
    parts = [
        f"{label} {form.format(values[name])}"
        for name, label, form in (
            ("mean_reward", "reward", "{:+.2f}"),
            ("success", "success", "{:.0%}"),
            ("reliability", "reliability", "{:.0%}"),
            ("entropy", "entropy", "{:.2f}"),
            ("gradient_norm", "gradient", "{:.2g}"),
        )
        if values.get(name) is not None
    ]
    return "sampled: " + "  ".join(parts)


def _figures_text(values: Mapping[str, Any]) -> str:
    """What the policy tells about itself, in one line; nothing if it tells nothing."""
    return "  ".join(
        f"{label} {form.format(values[name])}"
        for name, label, form in (
            ("tokens_read", "tokens read", "{:,.0f}"),
            ("tokens_learned", "learned", "{:,.0f}"),
            ("cache_hits", "from the cache", "{:.0%}"),
            ("memory_mb", "memory", "{:,.0f} MB"),
        )
        if values.get(name) is not None
    )


def _warning_counts(progress: Progress) -> Text:
    """What should be rare, counted since the start; red where it happened."""
    from rich.text import Text

    counts = progress.counts
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


def _failed(sample: tuple[dict[str, Any], ...]) -> list[dict[str, Any]]:
    return [episode for episode in sample if not episode.get("success")]

"""Tables and texts for people: aligned columns, before and after, single episodes.

Plain Python, like the charts: rich is imported only where something is drawn in
colours.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal

from agentgym.core.metrics import AtMost

if TYPE_CHECKING:
    from rich.table import Table as RichTable

UNKNOWN = "-"
"""Stands where a figure is not known."""

Metrics = Mapping[str, Any]
"""`TrainingMetrics.to_dict()`, or what the store kept of it."""


@dataclass(frozen=True, slots=True)
class Table:
    """Rows of texts under headers.

    Attributes:
        right: Names of the columns that are aligned to the right.
        styles: Style of a whole row by its index, for colours only.
    """

    headers: tuple[str, ...]
    rows: Sequence[Sequence[str]]
    right: frozenset[str] = frozenset()
    styles: Mapping[int, str] | None = None

    def plain(self) -> str:
        """The table as aligned text."""
        lines = [self.headers, *self.rows]
        widths = [max(len(line[i]) for line in lines) for i in range(len(self.headers))]
        aligned = []
        for line in lines:
            cells = [
                cell.rjust(width) if header in self.right else cell.ljust(width)
                for cell, width, header in zip(line, widths, self.headers, strict=True)
            ]
            aligned.append("  ".join(cells).rstrip())
        return "\n".join(aligned)

    def rich(self) -> RichTable:
        """The table in colours, for a rich console."""
        from rich import box
        from rich.table import Table as RichTable
        from rich.text import Text

        table = RichTable(
            box=box.SIMPLE_HEAD,
            header_style="bold",
            padding=(0, 1, 0, 0),
            pad_edge=False,
        )
        for header in self.headers:
            table.add_column(
                header,
                justify="right" if header in self.right else "left",
                overflow="fold",
            )
        for number, row in enumerate(self.rows):
            style = (self.styles or {}).get(number)
            # Text, not markup: names and messages may hold square brackets.
            table.add_row(*(Text(cell) for cell in row), style=style)
        return table


def metric_names(metrics: Metrics) -> dict[str, str]:
    """The metrics to show, in this order: labels by name."""
    free = metrics.get("free_form_reliability") is not None
    return {
        "tool_reliability": "tool reliability",
        **(
            {"free_form_reliability": f"free-form, {metrics['free_form_tasks']} tasks"}
            if free
            else {}
        ),
        "task_success": "task success",
        **{name: name.replace("_", " ") for name in metrics.get("measures") or ()},
        "avg_tokens_used": "tokens per task",
        "cost_per_solved_task": "cost per solved task",
        "avg_response_time": "response time",
    }


def figure(metrics: Metrics, name: str) -> str:
    """One of `figures` as text."""
    match name:
        case "avg_tokens_used":
            return number(metrics.get(name))
        case "cost_per_solved_task":
            text = dollars(metrics.get(name))
            # If no task was solved, what all tasks cost is a lower bound.
            return text if metrics.get("task_success") else f"over {text}"
        case "avg_response_time":
            return milliseconds(metrics.get(name))
    return rate(metrics, name)


def before_after(
    baseline: Metrics, trained: Metrics, targets: Mapping[str, float]
) -> Table:
    """Untrained against trained against target, with 95% intervals.

    Args:
        baseline: The untrained policy on the held-out tasks.
        trained: The trained one on the same tasks.
        targets: The scenario's success criteria, by metric name.
    """
    rows = []
    for name, label in metric_names(trained).items():
        after, goal = figure(trained, name), name
        if name == "cost_per_solved_task":
            goal = "cost_reduction"
            reduction = trained.get(goal)
            after += f" ({0 - reduction:+.0%})" if reduction is not None else ""
        target = _target(trained, targets, goal)
        rows.append((label, figure(baseline, name), after, *target))
    return Table(
        ("held-out tasks", "untrained", "trained", "target", "met"),
        rows,
        right=frozenset({"untrained", "trained"}),
        styles={0: "bold"},
    )


def time_savings(metrics: Metrics, targets: Mapping[str, float]) -> str:
    """One line on the time saved, with the reference."""
    saved = metrics.get("time_savings")
    if saved is None:
        return ""
    wanted = targets.get("time_savings")
    target = f" (target {wanted:.0%})" if wanted is not None else ""
    return (
        f"Time saved: {saved:.2%}{target}: trained in"
        f" {duration(metrics.get('total_training_time'))}, against"
        f" {metrics.get('manual_hours', 0):g} h of tuning prompts by hand."
    )


def rate(metrics: Metrics, name: str) -> str:
    """A share with its interval, such as "96.8% [95.2, 97.9]"."""
    value = _value(metrics, name)
    if value is None:
        return UNKNOWN
    low, high = bounds(metrics, name)
    if low is None or high is None:
        return f"{value:.1%}"
    return f"{value:.1%} [{100 * low:.1f}, {100 * high:.1f}]"


def bounds(metrics: Metrics, name: str) -> tuple[float | None, float | None]:
    """The 95% interval of a metric; (None, None) if it has none."""
    own = (metrics.get("measures") or {}).get(name)
    if own is not None:
        return own["low"], own["high"]
    low, high = metrics.get(f"{name}_interval") or (None, None)
    return low, high


def _value(metrics: Metrics, name: str) -> float | None:
    own = (metrics.get("measures") or {}).get(name)
    value: float | None = metrics.get(name) if own is None else own["value"]
    return value


def share(value: float | None) -> str:
    """Such as "96.8%"."""
    return UNKNOWN if value is None else f"{value:.1%}"


def number(value: float | None) -> str:
    """Such as "1,234"."""
    return UNKNOWN if value is None else f"{value:,.0f}"


def dollars(value: float | None) -> str:
    """Two significant digits: single tasks cost fractions of a cent."""
    if value is None:
        return UNKNOWN
    return f"${value:.2f}" if value >= 1 else f"${value:.2g}"


def milliseconds(seconds: float | None) -> str:
    """Such as "12.3 ms"."""
    return UNKNOWN if seconds is None else f"{1000 * seconds:,.1f} ms"


def duration(seconds: float | None) -> str:
    """Such as "42 s", "3:05 min" or "1:02:03 h"."""
    if seconds is None:
        return UNKNOWN
    if seconds < 60:
        return f"{seconds:.1f} s" if seconds < 10 else f"{seconds:.0f} s"
    minutes, rest = divmod(round(seconds), 60)
    hours, minutes = divmod(minutes, 60)
    if hours:
        return f"{hours}:{minutes:02}:{rest:02} h"
    return f"{minutes}:{rest:02} min"


def ago(then: float | None, now: float) -> str:
    """How long ago something was, such as "5 min ago"."""
    if then is None:
        return UNKNOWN
    seconds = max(0.0, now - then)
    for unit, size in (("d", 86_400), ("h", 3_600), ("min", 60)):
        if seconds >= size:
            return f"{seconds / size:.0f} {unit} ago"
    return "just now"


def call_text(call: Mapping[str, Any]) -> str:
    """A call as a person would write it, such as `track(order_id="A1")`."""
    arguments = call.get("arguments") or {}
    inside = ", ".join(
        f"{name}={json.dumps(value, ensure_ascii=False)}"
        for name, value in arguments.items()
    )
    return f"{call.get('name')}({inside})"


def shorten(text: str, width: int) -> str:
    """The text in one line of at most `width` characters."""
    text = " ".join(text.split())
    return text if len(text) <= width else text[: max(0, width - 1)] + "…"


def opening_text(trajectory: Mapping[str, Any]) -> str:
    """What the user said first."""
    for message in trajectory.get("opening") or ():
        if message.get("role") == "user":
            return str(message.get("content") or "")
    return ""


def failure_line(trajectory: Mapping[str, Any], width: int) -> str:
    """The first thing that went wrong in an episode, in one line."""
    kind = str(trajectory.get("failure") or "not solved")
    what = str(trajectory.get("failure_text") or "")
    for step in trajectory.get("steps") or ():
        if step.get("failure"):
            kind = str(step["failure"])
            calls = step.get("calls") or ()
            what = ", ".join(map(call_text, calls)) or str(step.get("content") or "")
            break
    said = opening_text(trajectory)
    first = f"{kind:<13} {shorten(what, max(20, width // 2))}"
    room = width - len(first) - 4
    return f'{first}  "{shorten(said, room)}"' if said and room > 12 else first


def episode_lines(trajectory: Mapping[str, Any]) -> list[tuple[str, str]]:
    """A whole episode: (text, style) for each line.

    Shows each call with its arguments, result and reward.
    """
    success = trajectory.get("success")
    verdict = "not judged" if success is None else "solved" if success else "failed"
    tags = ", ".join(trajectory.get("tags") or ())
    head = f"{trajectory.get('task_id', '')}  {verdict}"
    style = "bold green" if success else "bold red"
    lines = [(f"{head}  ({tags})" if tags else head, style)]
    lines += [
        (f"  {message.get('role')}: {message.get('content')}", "")
        for message in trajectory.get("opening") or ()
        if message.get("role") != "system"
    ]
    for place, step in enumerate(trajectory.get("steps") or (), start=1):
        lines += _step_lines(place, step)
    if trajectory.get("failure"):
        text = trajectory.get("failure_text") or trajectory["failure"]
        lines.append((f"  ended early: {text}", "red"))
    return lines


def _step_lines(place: int, step: Mapping[str, Any]) -> list[tuple[str, str]]:
    failure = step.get("failure")
    reward = step.get("reward")
    earned = "not judged" if reward is None else f"reward {reward:+.2f}"
    sure = step.get("confidence")
    note = f"{earned}, confidence {sure:.0%}" if sure is not None else earned
    if failure:
        note = f"{failure}, {note}"
    style = "red" if failure else "green"
    calls, results = step.get("calls") or (), step.get("results") or ()
    if not calls:
        said = " ".join(str(step.get("content") or "").split())
        reply = step.get("reply")
        heard = [] if reply is None else [(f"     user: {reply}", "")]
        return [(f"  {place}. says: {said}", style), *heard, (f"     [{note}]", "dim")]
    lines = []
    for i, call in enumerate(calls):
        lines.append((f"  {place}. {call_text(call)}", style))
        if i < len(results):
            lines.append((f"     -> {results[i].get('content')}", ""))
    return [*lines, (f"     [{note}]", "dim")]


def _target(
    metrics: Metrics, targets: Mapping[str, float], name: str
) -> tuple[str, Literal["", "yes", "no"]]:
    """The target, and whether it was met; empty without one."""
    wanted, value = targets.get(name), _value(metrics, name)
    if wanted is None:
        return "", ""
    if name == "avg_response_time":
        text = f"{wanted:g} s"
    else:
        text = f"{wanted:.0%} less" if name == "cost_reduction" else f"{wanted:.0%}"
    if name == "avg_response_time" or isinstance(wanted, AtMost):
        met = value is not None and value <= wanted
        return f"<= {text}", "yes" if met else "no"
    met = value is not None and value >= wanted
    return f">= {text}", "yes" if met else "no"

"""Charts: drawn as a PNG by matplotlib, and read back from the drawing."""

from __future__ import annotations

import io
import itertools
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal, get_args

import numpy as np
from matplotlib.artist import Artist
from matplotlib.axes import Axes
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.collections import PathCollection
from matplotlib.container import Container
from matplotlib.figure import Figure
from matplotlib.patches import Rectangle

ChartKind = Literal["line", "bar", "scatter", "histogram"]
CHART_KINDS: tuple[ChartKind, ...] = get_args(ChartKind)

_INCHES, _DPI = (4.0, 3.0), 60
BINS = 12
_LABELLED = 8
"""Maximum number of labelled categories; with more, only the first and last are."""


@dataclass(frozen=True, slots=True)
class Series:
    """The data of a chart.

    Attributes:
        x: Texts (months, groups) or numbers.
        y: As many numbers; empty if the chart shows only `x`.
    """

    x_label: str
    y_label: str
    x: tuple[str, ...] | tuple[float, ...]
    y: tuple[float, ...] = ()


@dataclass(frozen=True, slots=True)
class Shown:
    """The contents of a chart, read from its axes.

    Attributes:
        kind: The kind of chart, by what is drawn: a line, bars (touching or not), dots.
        series: Number of lines, sets of bars or sets of dots.
        points: Number of points in all series; for a histogram, of bins.
    """

    kind: ChartKind
    x_label: str
    y_label: str
    series: int
    points: int


@dataclass(frozen=True, slots=True)
class Chart:
    """A finished chart."""

    png: bytes
    shown: Shown


_free: dict[bool, list[Axes]] = {True: [], False: []}
"""Empty axes for reuse, by whether their ticks are numbers or texts.

Creating axes and their ticks takes as long as drawing. A drawing takes axes from here
and returns them if it succeeds; after a failure they are dropped.
"""


def draw_chart(kind: ChartKind, data: Series) -> Chart:
    """Draws a chart.

    Raises:
        ValueError: The data doesn't fit this kind of chart.
    """
    numeric = not data.x or not isinstance(data.x[0], str)
    if kind == "histogram":
        if not data.y and not numeric:
            raise ValueError("a histogram needs numbers")
        x_label, y_label = data.y_label if data.y else data.x_label, "count"
    elif not data.y:
        raise ValueError(f"a {kind} chart needs two sides; only one was computed")
    else:
        x_label, y_label = data.x_label, data.y_label
    marked = numeric or kind == "histogram"
    try:
        axes = _free[marked].pop()
    except IndexError:
        axes = _new_axes(marked)
    drawn = _draw(axes, kind, data, numeric)
    axes.set_xlabel(x_label)
    axes.set_ylabel(y_label)
    stream = io.BytesIO()
    figure = axes.get_figure(root=True)
    assert figure is not None
    # No program name in the metadata, so that equal charts have equal bytes.
    figure.savefig(
        stream,
        format="png",
        metadata={"Software": None},
        pil_kwargs={"compress_level": 1},
    )
    chart = Chart(stream.getvalue(), read_axes(axes))
    drawn.remove()
    axes.relim()
    axes.autoscale()
    axes.set_prop_cycle(None)
    _free[marked].append(axes)
    return chart


def _new_axes(numeric: bool) -> Axes:
    figure = Figure(figsize=_INCHES, dpi=_DPI)
    FigureCanvasAgg(figure)
    axes = figure.add_axes((0.2, 0.18, 0.75, 0.75))
    # Few ticks: drawing their labels takes most of the time.
    axes.locator_params(axis="y", nbins=3)
    if numeric:
        axes.locator_params(axis="x", nbins=3)
    return axes


def _draw(
    axes: Axes, kind: ChartKind, data: Series, numeric: bool
) -> Artist | Container:
    """Draws on empty axes; returns the artists to remove afterwards."""
    if kind == "histogram":
        _, _, bars = axes.hist(data.y or data.x, bins=BINS)
        assert isinstance(bars, Container)
        return bars
    if not numeric:
        few = len(data.x) <= _LABELLED
        at = list(range(len(data.x))) if few else [0, len(data.x) - 1]
        axes.set_xticks(at, [str(data.x[i]) for i in at], rotation=20, fontsize=7)
    places: Sequence[float] = (
        [float(x) for x in data.x] if numeric else range(len(data.x))
    )
    if kind == "line":
        return axes.plot(places, data.y)[0]
    if kind == "bar":
        return axes.bar(places, data.y)
    return axes.scatter(places, data.y, s=8)


def read_axes(axes: Axes) -> Shown:
    """Returns what axes really show, independent of what was requested."""
    lines = [n for line in axes.get_lines() if (n := np.size(line.get_xdata()))]
    dots = [
        len(np.asarray(cloud.get_offsets()))
        for cloud in axes.collections
        if isinstance(cloud, PathCollection)
    ]
    bars = [p for p in axes.patches if isinstance(p, Rectangle)]
    kind: ChartKind
    if lines:
        kind, series, points = "line", len(lines), sum(lines)
    elif dots:
        kind, series, points = "scatter", len(dots), sum(dots)
    else:
        edges = sorted((bar.get_x(), bar.get_x() + bar.get_width()) for bar in bars)
        touching = len(edges) > 1 and all(
            abs(end - start) <= 1e-6 * max(1.0, abs(end))
            for (_, end), (start, _) in itertools.pairwise(edges)
        )
        kind = "histogram" if touching else "bar"
        series, points = len(axes.containers), len(bars)
    return Shown(kind, axes.get_xlabel(), axes.get_ylabel(), series, points)

"""Charts: drawn by matplotlib into a PNG, and read back from what was drawn."""

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
"""Categories that get a label each; of more, only the first and the last do."""


@dataclass(frozen=True, slots=True)
class Series:
    """What can be drawn.

    Attributes:
        x: Texts (months, groups) or numbers.
        y: As many numbers; empty where `x` alone is to be drawn.
    """

    x_label: str
    y_label: str
    x: tuple[str, ...] | tuple[float, ...]
    y: tuple[float, ...] = ()


@dataclass(frozen=True, slots=True)
class Shown:
    """What a chart shows, read from its axes.

    Attributes:
        kind: By what is drawn: a line, bars that touch or not, dots.
        series: Lines, sets of bars or clouds of dots.
        points: Of all series together; for a histogram its bins.
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
"""Empty axes to draw on, by whether they are marked with numbers or with texts.

Making them, and the marks on them, takes as long as drawing. Whoever draws takes some
away and puts them back when all went well: a drawing that is broken off is lost.
"""


def draw_chart(kind: ChartKind, data: Series) -> Chart:
    """Draws a chart.

    Raises:
        ValueError: The data cannot be drawn that way.
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
    # Without the name of the program: the same chart is the same bytes.
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
    # Few ticks: drawing their labels is most of the work.
    axes.locator_params(axis="y", nbins=3)
    if numeric:
        axes.locator_params(axis="x", nbins=3)
    return axes


def _draw(
    axes: Axes, kind: ChartKind, data: Series, numeric: bool
) -> Artist | Container:
    """Draws on empty axes; returns what has to be removed to empty them again."""
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
    """Tells what axes show by the marks on them, not by what was asked for."""
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

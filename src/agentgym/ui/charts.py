"""Charts for the terminal: a curve with its confidence band and reference lines.

    chart = line_chart(points, width=60, height=10, baseline=0.31, target=0.95)
    print(chart.plain())

Plain Python: drawing one needs neither rich nor numpy. A chart is a grid of
characters, each with the name of what it shows, so that a caller may colour it.
"""

from __future__ import annotations

import functools
import itertools
import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal

if TYPE_CHECKING:
    from rich.text import Text

Layer = Literal["", "axis", "curve", "band", "target", "baseline"]

STYLES: dict[Layer, str] = {
    "": "",
    "axis": "dim",
    "curve": "bold cyan",
    "band": "dim cyan",
    "target": "green",
    "baseline": "yellow",
}

# A braille character is two dots wide and four high; this is the bit of each dot.
_DOTS = ((0x01, 0x08), (0x02, 0x10), (0x04, 0x20), (0x40, 0x80))
_BRAILLE = 0x2800
_BLOCKS = "▁▂▃▄▅▆▇█"


@dataclass(frozen=True, slots=True)
class Glyphs:
    """Characters to draw with. `curve` is None for braille dots."""

    curve: str | None
    band: str
    target: str
    baseline: str
    axis: str
    tick: str
    corner: str
    floor: str


UNICODE = Glyphs(None, "░", "─", "┄", "│", "┤", "└", "─")
ASCII = Glyphs("*", ":", "-", ".", "|", "+", "+", "-")


@dataclass(frozen=True, slots=True)
class Point:
    """A value at `x`, with its interval where one is known."""

    x: float
    y: float
    low: float | None = None
    high: float | None = None


@dataclass(frozen=True, slots=True)
class Chart:
    """A drawn chart: rows of (character, what it belongs to)."""

    rows: tuple[tuple[tuple[str, Layer], ...], ...]

    def plain(self) -> str:
        """The chart without colours."""
        return "\n".join(
            "".join(character for character, _ in row).rstrip() for row in self.rows
        )

    def rich(self) -> Text:
        """The chart in colours, for a rich console."""
        from rich.text import Text

        text = Text(no_wrap=True, overflow="crop")
        for number, row in enumerate(self.rows):
            if number:
                text.append("\n")
            for layer, cells in itertools.groupby(row, key=lambda cell: cell[1]):
                text.append("".join(character for character, _ in cells), STYLES[layer])
        return text


def line_chart(
    points: Sequence[Point],
    *,
    width: int = 64,
    height: int = 10,
    baseline: float | None = None,
    target: float | None = None,
    x_max: float | None = None,
    glyphs: Glyphs = UNICODE,
) -> Chart:
    """Draws a curve of shares, from 0% to 100%.

    Args:
        points: By rising x, the number of episodes; non-finite values are left out.
        width: Columns for everything, axis labels included.
        height: Rows of the plot itself; two more hold the x axis.
        baseline: Level to draw as a broken line, such as the untrained policy's.
        target: Level to draw as a line.
        x_max: Right end of the x axis; the last point's x by default.
        glyphs: `UNICODE`, or `ASCII` for terminals without Unicode.
    """
    points = [p for p in points if math.isfinite(p.x) and math.isfinite(p.y)]
    bottom, top = 0.0, 1.0
    margin = len(f"{top:.0%}")
    columns = max(8, width - margin - 2)
    last = points[-1].x if points else 0.0
    right = max(x_max or 0.0, last, 1e-9)
    left = min(points[0].x, 0.0) if points else 0.0
    plot = _Plot(columns, height, left, right, bottom, top, glyphs)
    plot.band(points)
    plot.level(baseline, glyphs.baseline, "baseline")
    plot.level(target, glyphs.target, "target")
    plot.curve(points)
    ticks: dict[int, tuple[str, Layer]] = {}
    for value, layer in _y_ticks(bottom, top, baseline, target):
        ticks.setdefault(plot.row(value), (f"{value:.0%}", layer))
    rows = []
    for number, cells in enumerate(plot.cells):
        label, layer = ticks.get(number, ("", ""))
        edge = glyphs.tick if label else glyphs.axis
        rows.append(
            (*_text(f"{label:>{margin}}", layer), *_text(f" {edge}", "axis"), *cells)
        )
    rows.append(
        _text(" " * (margin + 1) + glyphs.corner + glyphs.floor * columns, "axis")
    )
    ends = f"{left:,.0f}", f"{right:,.0f} episodes"
    gap = max(1, columns - len(ends[0]) - len(ends[1]))
    rows.append(_text(" " * (margin + 2) + ends[0] + " " * gap + ends[1], "axis"))
    return Chart(tuple(rows))


def legend(
    *,
    baseline: float | None = None,
    target: float | None = None,
    band: bool = True,
    glyphs: Glyphs = UNICODE,
) -> Chart:
    """One line that explains the chart's marks."""
    parts: list[tuple[str, Layer]] = [
        (f"{glyphs.curve or '⠶'} reliability (validation)", "curve")
    ]
    if band:
        parts.append((f"{glyphs.band} 95% interval", "band"))
    if target is not None:
        parts.append((f"{glyphs.target * 2} target {target:.0%}", "target"))
    if baseline is not None:
        parts.append((f"{glyphs.baseline * 2} untrained {baseline:.0%}", "baseline"))
    row: list[tuple[str, Layer]] = []
    for text, layer in parts:
        row += [*_text("   " if row else "", ""), *_text(text, layer)]
    return Chart((tuple(row),))


def sparkline(
    values: Sequence[float | None], width: int = 12, *, glyphs: Glyphs = UNICODE
) -> str:
    """A curve in one line of blocks, scaled from 0 to 1; a gap for what is unknown.

    More values than `width` are thinned out, keeping the first and the last.
    """
    if len(values) > width:
        step = (len(values) - 1) / max(1, width - 1)
        values = [values[round(i * step)] for i in range(width)]
    blocks = _BLOCKS if glyphs is UNICODE else "_.-=+*#@"
    return "".join(
        " "
        if value is None or not math.isfinite(value)
        else blocks[min(7, max(0, int(value * 8)))]
        for value in values
    )


@dataclass
class _Plot:
    """The grid of characters inside the axes."""

    columns: int
    rows: int
    left: float
    right: float
    bottom: float
    top: float
    glyphs: Glyphs

    @functools.cached_property
    def cells(self) -> list[list[tuple[str, Layer]]]:
        """Rows of (character, what it belongs to)."""
        return [[(" ", "")] * self.columns for _ in range(self.rows)]

    def row(self, y: float) -> int:
        """Row of characters in which `y` lies, counted from the top."""
        return self._dot_row(y) // 4

    def level(self, value: float | None, glyph: str, layer: Layer) -> None:
        """A horizontal line; only the curve is drawn over it."""
        if value is None or not math.isfinite(value):
            return
        self.cells[self.row(value)] = [(glyph, layer)] * self.columns

    def band(self, points: Sequence[Point]) -> None:
        """Fills what lies between the bounds of the points' intervals."""
        known = [p for p in points if p.low is not None and p.high is not None]
        for column in range(self.columns):
            x = self._x(2 * column + 0.5)
            low = _interpolate([(p.x, p.low or 0.0) for p in known], x)
            high = _interpolate([(p.x, p.high or 0.0) for p in known], x)
            if low is None or high is None:
                continue
            for row in range(self.row(high), self.row(low) + 1):
                self.cells[row][column] = (self.glyphs.band, "band")

    def curve(self, points: Sequence[Point]) -> None:
        """Draws the line through the points, without gaps."""
        bits = [[0] * self.columns for _ in range(self.rows)]
        line = [(p.x, p.y) for p in points]
        before: int | None = None
        for dot in range(2 * self.columns):
            y = _interpolate(line, self._x(dot))
            if y is None:
                continue
            here = self._dot_row(y)
            start = here if before is None else before
            for row in range(min(start, here), max(start, here) + 1):
                # A steep piece belongs half to this column, half to the one before.
                bits[row // 4][dot // 2] |= _DOTS[row % 4][dot % 2]
            before = here
        if len(line) == 1:
            dot = round(
                (line[0][0] - self.left)
                / (self.right - self.left)
                * (2 * self.columns - 1)
            )
            row = self._dot_row(line[0][1])
            bits[row // 4][dot // 2] |= _DOTS[row % 4][dot % 2]
        for number, row_bits in enumerate(bits):
            for column, value in enumerate(row_bits):
                if value:
                    glyph = self.glyphs.curve or chr(_BRAILLE + value)
                    self.cells[number][column] = (glyph, "curve")

    def _x(self, dot: float) -> float:
        share = dot / (2 * self.columns - 1)
        return self.left + share * (self.right - self.left)

    def _dot_row(self, y: float) -> int:
        """Row of dots, counted from the top, clipped to the plot.

        A label stands for the middle of its row, so the dots around it share it.
        """
        share = (self.top - y) / (self.top - self.bottom)
        dot = round(4 * share * (self.rows - 1) + 1.5)
        return min(4 * self.rows - 1, max(0, dot))


def _interpolate(line: Sequence[tuple[float, float]], x: float) -> float | None:
    """The line's height at `x`; None before its first and after its last point."""
    if len(line) < 2 or not line[0][0] <= x <= line[-1][0]:
        return None
    for (x0, y0), (x1, y1) in itertools.pairwise(line):
        if x0 <= x <= x1:
            return y1 if x1 == x0 else y0 + (y1 - y0) * (x - x0) / (x1 - x0)
    return None


def _y_ticks(
    bottom: float, top: float, baseline: float | None, target: float | None
) -> list[tuple[float, Layer]]:
    """What to label, the more important first: two may fall into one row."""
    levels: dict[Layer, float | None] = {"target": target, "baseline": baseline}
    ticks = [(y, layer) for layer, y in levels.items() if y is not None]
    return [*ticks, *((y, "axis") for y in (top, bottom, (bottom + top) / 2))]


def _text(text: str, layer: Layer) -> tuple[tuple[str, Layer], ...]:
    return tuple((character, layer) for character in text)

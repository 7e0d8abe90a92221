"""Charts with known inputs."""

from __future__ import annotations

import math

import pytest

from agentgym.ui.charts import (
    ASCII,
    UNICODE,
    Chart,
    Layer,
    Point,
    legend,
    line_chart,
    sparkline,
)


def rows_of(chart: Chart, layer: Layer) -> set[int]:
    return {
        number
        for number, row in enumerate(chart.rows)
        if any(found == layer and character != " " for character, found in row)
    }


def test_a_rising_line_rises_from_the_bottom_left_to_the_top_right() -> None:
    chart = line_chart(
        [Point(0, 0.0), Point(100, 1.0)], width=26, height=5, glyphs=ASCII
    )
    assert chart.plain() == "\n".join(
        [
            "100% +                 ***",
            "     |            ******",
            " 50% +       ******",
            "     |  ******",
            "  0% +***",
            "     +--------------------",
            "      0       100 episodes",
        ]
    )


def test_braille_dots_of_a_flat_line_stand_at_their_height() -> None:
    chart = line_chart([Point(0, 0.5), Point(10, 0.5)], width=16, height=3)
    top, middle, bottom = chart.plain().split("\n")[:3]
    # The label's row is four dots high; its middle is the second or third of them.
    assert middle == " 50% ┤" + "⠤" * 10
    assert "⠤" not in top + bottom


def test_target_and_baseline_are_drawn_and_labelled_in_their_own_rows() -> None:
    chart = line_chart([], width=30, height=11, baseline=0.3, target=0.95)
    lines = chart.plain().split("\n")
    assert lines[1] == " 95% ┤" + "─" * 24
    assert lines[7] == " 30% ┤" + "┄" * 24
    assert rows_of(chart, "target") == {1}
    assert rows_of(chart, "baseline") == {7}


def test_the_curve_covers_lines_and_band() -> None:
    points = [Point(0, 0.95, 0.5, 1.0), Point(10, 0.95, 0.5, 1.0)]
    chart = line_chart(points, width=30, height=11, target=0.95)
    assert rows_of(chart, "curve") == {1}
    assert rows_of(chart, "target") <= {1}
    assert rows_of(chart, "band") == {0, 2, 3, 4, 5}


def test_the_band_spans_the_interval_and_ends_with_the_points() -> None:
    points = [Point(0, 0.5, 0.4, 0.6), Point(50, 0.5, 0.4, 0.6)]
    chart = line_chart(points, width=46, height=11, x_max=100)
    assert rows_of(chart, "band") == {4, 6}
    for number in (4, 6):
        band = [layer == "band" for _, layer in chart.rows[number][6:]]
        assert all(band[:19])
        assert not any(band[21:])


def test_a_point_without_an_interval_has_no_band() -> None:
    chart = line_chart([Point(0, 0.1), Point(5, 0.9)], width=30, height=8)
    assert not rows_of(chart, "band")


def test_one_point_is_one_dot() -> None:
    chart = line_chart([Point(0, 0.0)], width=20, height=5, x_max=100)
    marks = [c for row in chart.rows for c, layer in row if layer == "curve"]
    assert len(marks) == 1
    assert rows_of(chart, "curve") == {4}


def test_values_beyond_the_range_are_drawn_at_the_edge() -> None:
    chart = line_chart([Point(0, 7.0), Point(1, -7.0)], width=20, height=4)
    assert {0, 3} <= rows_of(chart, "curve")


def test_values_that_are_no_numbers_are_left_out() -> None:
    points = [Point(0, 0.2), Point(1, math.nan), Point(2, 0.2)]
    assert line_chart(points) == line_chart([points[0], points[2]])


def test_an_empty_chart_has_its_axes() -> None:
    lines = line_chart([], width=40, height=6).plain().split("\n")
    assert lines[0].startswith("100% ┤")
    assert lines[6].startswith("     └")
    assert len(lines) == 8


def test_every_row_fits_the_width() -> None:
    points = [Point(i * 1280, i / 10, i / 10 - 0.1, i / 10 + 0.1) for i in range(10)]
    for width in (20, 41, 80):
        chart = line_chart(points, width=width, x_max=123_456)
        assert all(len(row) <= max(width, 24) for row in chart.rows)


def test_the_axis_of_shares() -> None:
    chart = line_chart([Point(0, 0.2), Point(1, 0.9)], height=5)
    labels = [line[:4].strip() for line in chart.plain().split("\n")[:5]]
    assert labels == ["100%", "", "50%", "", "0%"]


def test_ascii_draws_ascii_only() -> None:
    points = [Point(0, 0.2, 0.1, 0.3), Point(10, 0.8, 0.7, 0.9)]
    chart = line_chart(points, baseline=0.2, target=0.9, glyphs=ASCII)
    assert chart.plain().isascii()
    assert legend(baseline=0.2, target=0.9, glyphs=ASCII).plain().isascii()


def test_rich_text_is_the_plain_text_in_colours() -> None:
    chart = line_chart([Point(0, 0.2), Point(10, 0.8)], target=0.9)
    text = chart.rich()
    assert [line.rstrip() for line in text.plain.split("\n")] == chart.plain().split(
        "\n"
    )
    assert any("cyan" in str(span.style) for span in text.spans)
    assert any("green" in str(span.style) for span in text.spans)


def test_the_legend_names_only_what_is_drawn() -> None:
    full = legend(baseline=0.312, target=0.95).plain()
    assert "target 95%" in full
    assert "untrained 31%" in full
    assert "interval" in full
    bare = legend(band=False).plain()
    assert "target" not in bare
    assert "untrained" not in bare
    assert "interval" not in bare


@pytest.mark.parametrize(
    ("values", "drawn"),
    [
        ([], ""),
        ([0.0, 0.5, 1.0], "▁▅█"),
        ([None, 0.2, math.nan], " ▂ "),
        ([-3.0, 9.0], "▁█"),
    ],
)
def test_sparkline(values: list[float | None], drawn: str) -> None:
    assert sparkline(values) == drawn


def test_a_long_sparkline_keeps_its_ends() -> None:
    line = sparkline([0.0] + [0.5] * 100 + [1.0], width=10)
    assert len(line) == 10
    assert line[0] == "▁"
    assert line[-1] == "█"
    assert sparkline([0.0, 1.0], glyphs=ASCII).isascii()
    assert sparkline([0.5], width=1, glyphs=UNICODE) == "▅"

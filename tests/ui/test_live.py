"""The views of a run, fed with events."""

from __future__ import annotations

import io
from typing import Any

from rich.console import Console

from agentgym.core import events
from agentgym.runs.view import RunView
from agentgym.ui.charts import ASCII
from agentgym.ui.live import LiveView, PlainView, curve, picture, untrained, view


class FakeClock:
    def __init__(self) -> None:
        self.now = 100.0

    def __call__(self) -> float:
        return self.now


def metrics(reliability: float) -> dict[str, Any]:
    return {
        "tool_reliability": reliability,
        "tool_reliability_interval": [reliability - 0.05, reliability + 0.02],
        "task_success": reliability / 2,
    }


def values(**more: Any) -> dict[str, Any]:
    return {
        "mean_reward": 0.5,
        "success": 0.4,
        "reliability": 0.6,
        "entropy": 0.3,
        "gradient_norm": 0.9,
        "groups": 16,
        "groups_without_variance": 3,
        "clipped": 0,
        "broken": 0,
        "unrewarded": 0,
        **more,
    }


CONFIG = {"scenario": "shop", "policy": "planner", "seed": 7, "episodes": 1000}
FAILED = {
    "success": False,
    "opening": [{"role": "user", "content": "Where is it?"}],
    "steps": [{"failure": "wrong_tool", "calls": [{"name": "f", "arguments": {}}]}],
}
SOLVED = {"success": True, "steps": []}


def story() -> list[events.Event]:
    return [
        events.RunStarted("r1", dict(CONFIG)),
        events.BaselineMeasured(metrics(0.3), (FAILED, SOLVED)),
        events.IterationDone(1, 250, values()),
        events.IterationDone(2, 500, values(clipped=1, broken=2)),
        events.EvaluationDone(2, 500, "validation", metrics(0.8), (FAILED,)),
    ]


def run_of(*happened: events.Event, clock: FakeClock | None = None) -> RunView:
    run = RunView(targets={"tool_reliability": 0.95}, clock=clock or FakeClock())
    for event in happened:
        run.apply(event)
    return run


def test_the_curve_is_that_of_the_validation_tasks() -> None:
    run = run_of(*story())
    run.apply(events.EvaluationDone(4, 1000, "heldout", metrics(0.97)))
    assert [(p.x, p.y) for p in curve(run)] == [(0, 0.3), (500, 0.8)]
    assert curve(run)[1].low == 0.75
    assert untrained(run) == 0.3
    assert untrained(RunView()) is None


def test_plain_lines_tell_the_story() -> None:
    lines: list[str] = []
    with PlainView(lines.append, run_of()) as listener:
        for event in story():
            listener(event)
        listener(events.CheckpointSaved(2, "x"))
        listener(events.Warned("mind the gap"))
        listener(events.Adjusted(2, {"learning_rate": 0.1}))
        listener(events.Paused(2))
        listener(events.Resumed(2))
        listener(events.RunStopped("enough"))
        listener(events.RunStarted("r1", dict(CONFIG), resumed_from=9))
    assert lines[0] == "run r1: shop, policy planner, seed 7, 1,000 episodes"
    assert lines[1].split() == (
        "0 episodes reliability 30.0% [25.0, 32.0] success 15.0%".split()
    )
    assert "500 episodes" in lines[2]
    assert "80.0% [75.0, 82.0]" in lines[2]
    assert lines[3:] == [
        "warning: mind the gap",
        "adjusted: learning_rate=0.1",
        "paused. Resume with: agentgym runs resume",
        "resumed",
        "stopped: enough",
        "run r1: shop, policy planner, seed 7, 1,000 episodes,"
        " resumed from iteration 9",
    ]


def drawn(run: RunView, width: int = 100, height: int = 40) -> str:
    console = Console(width=width, file=io.StringIO(), record=True)
    console.print(picture(run, width, height))
    return console.export_text()


def test_the_picture_shows_all_that_was_promised() -> None:
    clock = FakeClock()
    run = run_of(*story()[:2], clock=clock)
    clock.now += 10
    for event in story()[2:]:
        run.apply(event)
    text = drawn(run)
    assert "shop, policy planner, seed 7, 1,000 episodes" in text
    assert "500 / 1,000 episodes  50/s  10 s left" in text
    assert "reliability 80.0% [75.0, 82.0]   success 40.0%" in text
    assert "untrained 30.0%" in text
    assert "target 95%" in text
    assert "groups without variance 6 of 32" in text
    assert "clipped 1" in text
    assert "broken 2" in text
    assert 'wrong_tool    f()  "Where is it?"' in text
    assert "░" in text


def test_what_a_policy_tells_about_itself_is_shown() -> None:
    run = run_of(*story())
    assert "tokens read" not in drawn(run)
    run.values |= {"tokens_read": 12345, "cache_hits": 0.9, "memory_mb": 2048.0}
    assert "tokens read 12,345  from the cache 90%  memory 2,048 MB" in drawn(run)


def test_the_picture_is_drawn_before_anything_is_known() -> None:
    text = drawn(RunView())
    assert "starting" in text
    assert "not measured yet" in text


def test_the_picture_fits_the_height_of_the_terminal() -> None:
    run = run_of(*story())
    run.failures = [FAILED] * 9
    run.values["tokens_read"] = 1
    for height in (20, 24, 25, 60):
        assert drawn(run, 100, height).count("\n") < height


def test_no_line_is_wider_than_the_terminal() -> None:
    run = run_of(*story())
    for width in (40, 80, 120):
        assert all(len(line) <= width for line in drawn(run, width).split("\n"))


def test_the_live_view_draws_and_leaves_the_last_picture() -> None:
    out = io.StringIO()
    console = Console(file=out, force_terminal=True, width=90, height=40)
    clock = FakeClock()
    listener = view(console, run_of(clock=clock), glyphs=ASCII)
    assert isinstance(listener, LiveView)
    with listener:
        for event in story():
            listener(event)
        listener(events.Warned("mind the [gap]"))
    text = out.getvalue()
    assert "500 / 1,000 episodes" in text
    assert "mind the [gap]" in text
    # The last picture is whole, and nothing wipes it out afterwards.
    assert text.rindex("Where is it?") > text.rindex("\x1b[2K")


def test_frequent_events_are_not_drawn_each_time() -> None:
    out = io.StringIO()
    console = Console(file=out, force_terminal=True, width=90, height=40)
    clock = FakeClock()
    with LiveView(console, run_of(clock=clock)) as listener:
        listener(story()[0])
        before = len(out.getvalue())
        for i in range(50):
            listener(events.IterationDone(i, i, values()))
        assert len(out.getvalue()) == before
        clock.now += 1
        listener(events.IterationDone(51, 51, values()))
        assert len(out.getvalue()) > before


def test_where_there_is_no_terminal_lines_are_printed() -> None:
    out = io.StringIO()
    listener = view(Console(file=out, force_terminal=False), RunView())
    assert isinstance(listener, PlainView)
    listener(story()[0])
    assert out.getvalue() == "run r1: shop, policy planner, seed 7, 1,000 episodes\n"

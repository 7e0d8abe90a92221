"""The views of a run, fed with events."""

from __future__ import annotations

import io
from typing import Any

from rich.console import Console

from agentgym.core import events
from agentgym.ui.charts import ASCII
from agentgym.ui.live import LiveView, PlainView, Progress, picture, view


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


def run_of(*happened: events.Event, clock: FakeClock | None = None) -> Progress:
    progress = Progress(target=0.95, clock=clock or FakeClock())
    for event in happened:
        progress(event)
    return progress


def test_progress_folds_a_run() -> None:
    progress = run_of(*story())
    assert progress.run_id == "r1"
    assert progress.total == 1000
    assert progress.episodes == 500
    assert progress.phase == "training"
    assert progress.baseline_reliability == 0.3
    assert [(p.x, p.y) for p in progress.points()] == [(0, 0.3), (500, 0.8)]
    assert progress.points()[1].low == 0.75
    assert progress.counts == {
        "groups": 32,
        "groups_without_variance": 6,
        "clipped": 1,
        "broken": 2,
        "unrewarded": 0,
    }
    assert progress.failures == [FAILED]


def test_rate_and_remaining_time_count_from_the_first_episode_on() -> None:
    clock = FakeClock()
    progress = run_of(*story()[:2], clock=clock)
    assert progress.rate is None
    assert progress.remaining is None
    clock.now += 10
    progress(events.IterationDone(1, 250, values()))
    assert progress.rate == 25.0
    assert progress.remaining == 30.0


def test_a_pause_does_not_count_as_training_time() -> None:
    clock = FakeClock()
    progress = run_of(*story()[:3], clock=clock)
    progress(events.Paused(1))
    assert progress.phase == "paused"
    clock.now += 1000
    progress(events.Resumed(1))
    clock.now += 5
    progress(events.IterationDone(2, 500, values()))
    assert progress.rate == 50.0


def test_a_resumed_run_keeps_what_was_known_and_drops_what_is_made_again() -> None:
    progress = Progress()
    progress.measure_baseline(metrics(0.3))
    progress.evaluate(500, metrics(0.8))
    progress.evaluate(750, metrics(0.9))
    progress(events.RunStarted("r1", dict(CONFIG), resumed_from=2))
    assert progress.phase == "training"
    assert progress.baseline_reliability == 0.3
    progress(events.IterationDone(3, 600, values()))
    assert progress.rate is None
    progress(events.EvaluationDone(3, 600, "validation", metrics(0.85)))
    assert [x for x, _ in progress.evaluations] == [0, 500, 600]


def test_phases_to_the_end() -> None:
    progress = run_of(*story())
    progress(events.IterationDone(4, 1000, values()))
    assert progress.phase == "measuring on held-out tasks"
    progress(events.RunFinished({}))
    assert progress.phase == "finished"
    assert run_of(events.RunStopped("stopped on request")).phase == "stopped on request"
    assert run_of(events.RunFailed("boom")).phase == "failed"
    early = run_of(
        *story(), events.EvaluationDone(3, 600, "validation", metrics(0.99999))
    )
    assert early.phase == "training"
    early.target = 0.9
    early(events.EvaluationDone(3, 700, "validation", metrics(0.97)))
    assert early.phase == "measuring on held-out tasks"


def test_held_out_figures_are_no_part_of_the_curve() -> None:
    progress = run_of(*story())
    progress(events.EvaluationDone(4, 1000, "heldout", metrics(0.97)))
    assert len(progress.points()) == 2


def test_adjusted_settings_and_the_run_s_own_target_count() -> None:
    progress = run_of(events.RunStarted("r", {**CONFIG, "target_reliability": 0.8}))
    assert progress.target == 0.8
    progress(events.Adjusted(1, {"episodes": 2000}))
    assert progress.total == 2000


def test_plain_lines_tell_the_story() -> None:
    lines: list[str] = []
    with PlainView(lines.append, Progress(clock=FakeClock())) as listener:
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
        "paused; `agentgym runs resume` lets it go on",
        "goes on",
        "stopped: enough",
        "run r1: shop, policy planner, seed 7, 1,000 episodes,"
        " resumed from iteration 9",
    ]


def drawn(progress: Progress, width: int = 100, height: int = 40) -> str:
    console = Console(width=width, file=io.StringIO(), record=True)
    console.print(picture(progress, width, height))
    return console.export_text()


def test_the_picture_shows_all_that_was_promised() -> None:
    clock = FakeClock()
    progress = run_of(*story()[:2], clock=clock)
    clock.now += 10
    for event in story()[2:]:
        progress(event)
    text = drawn(progress)
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
    progress = run_of(*story())
    assert "tokens read" not in drawn(progress)
    progress.values |= {"tokens_read": 12345, "cache_hits": 0.9, "memory_mb": 2048.0}
    assert "tokens read 12,345  from the cache 90%  memory 2,048 MB" in drawn(progress)


def test_the_picture_is_drawn_before_anything_is_known() -> None:
    text = drawn(Progress())
    assert "starting" in text
    assert "not measured yet" in text


def test_the_picture_fits_the_height_of_the_terminal() -> None:
    progress = run_of(*story())
    progress.failures = [FAILED] * 9
    progress.values["tokens_read"] = 1
    for height in (20, 24, 25, 60):
        assert drawn(progress, 100, height).count("\n") < height


def test_no_line_is_wider_than_the_terminal() -> None:
    progress = run_of(*story())
    for width in (40, 80, 120):
        assert all(len(line) <= width for line in drawn(progress, width).split("\n"))


def test_the_live_view_draws_and_leaves_the_last_picture() -> None:
    out = io.StringIO()
    console = Console(file=out, force_terminal=True, width=90, height=40)
    clock = FakeClock()
    listener = view(console, Progress(target=0.95, clock=clock), glyphs=ASCII)
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
    with LiveView(console, Progress(clock=clock)) as listener:
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
    listener = view(Console(file=out, force_terminal=False), Progress())
    assert isinstance(listener, PlainView)
    listener(story()[0])
    assert out.getvalue() == "run r1: shop, policy planner, seed 7, 1,000 episodes\n"

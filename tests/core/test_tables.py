"""Tables, figures and episodes as text."""

from __future__ import annotations

from typing import Any

import pytest
from rich.console import Console

from agentgym.core import tables
from agentgym.core.metrics import AtMost
from agentgym.core.tables import Table, before_after, episode_lines, failure_line

BASELINE: dict[str, Any] = {
    "tool_reliability": 0.3124,
    "tool_reliability_interval": [0.28, 0.345],
    "task_success": 0.0,
    "task_success_interval": [0.0, 0.009],
    "avg_tokens_used": 4571.6,
    "avg_response_time": 0.0246,
    "cost_per_solved_task": 0.0351,
    "cost_reduction": None,
}
TRAINED: dict[str, Any] = {
    "tool_reliability": 0.9681,
    "tool_reliability_interval": [0.952, 0.979],
    "task_success": 0.93,
    "task_success_interval": [0.9, 0.95],
    "avg_tokens_used": 1203.2,
    "avg_response_time": 0.0119,
    "cost_per_solved_task": 0.00021,
    "cost_reduction": 0.25,
    "time_savings": 0.9979,
    "total_training_time": 30.2,
    "manual_hours": 4.0,
}
TARGETS = {"tool_reliability": 0.95, "cost_reduction": 0.3, "time_savings": 0.98}

EPISODE: dict[str, Any] = {
    "task_id": "validation-0-7",
    "tags": ["refund"],
    "success": False,
    "opening": [
        {"role": "system", "content": "You help."},
        {"role": "user", "content": "My [kettle] leaks.\nOrder 12."},
    ],
    "steps": [
        {
            "content": None,
            "calls": [{"name": "lookup_order", "arguments": {"order_id": "12"}}],
            "results": [{"content": '{"total": 3}', "failure": None}],
            "correct": True,
            "failure": None,
            "reward": 0.5,
            "confidence": 0.91,
        },
        {
            "content": None,
            "calls": [{"name": "escalate", "arguments": {}}],
            "results": [{"content": "{}", "failure": None}],
            "correct": False,
            "failure": "wrong_tool",
            "reward": -1.0,
            "confidence": 0.4,
        },
        {"content": "Bye.", "calls": [], "results": [], "failure": None},
    ],
}


def test_columns_are_aligned() -> None:
    table = Table(("name", "n"), [("a", "1"), ("long name", "1,000")], frozenset({"n"}))
    assert table.plain() == "name           n\na              1\nlong name  1,000"


def test_an_empty_table_is_its_headers() -> None:
    assert Table(("name", "n"), []).plain() == "name  n"


def test_a_rich_table_shows_brackets_as_they_are() -> None:
    console = Console(width=80, record=True, file=open("/dev/null", "w"))  # noqa: SIM115
    console.print(Table(("what",), [("[bold]x[/]",)]).rich())
    assert "[bold]x[/]" in console.export_text()


def test_before_after_states_figures_intervals_and_targets() -> None:
    rows = before_after(BASELINE, TRAINED, TARGETS).rows
    assert rows[0] == (
        "tool reliability",
        "31.2% [28.0, 34.5]",
        "96.8% [95.2, 97.9]",
        ">= 95%",
        "yes",
    )
    assert rows[1][1:] == ("0.0% [0.0, 0.9]", "93.0% [90.0, 95.0]", "", "")
    assert rows[2][1:3] == ("4,572", "1,203")
    assert rows[3][1:] == (
        "over $0.035",
        "$0.00021 (-25%)",
        ">= 30% less",
        "no",
    )
    assert rows[4][1:3] == ("24.6 ms", "11.9 ms")


def test_before_after_shows_a_scenarios_own_figures_and_limits() -> None:
    own = {"finds": {"value": 0.9, "low": 0.85, "high": 0.94, "tasks": 40}}
    targets = {"finds": 0.95, "avg_response_time": 300.0}
    rows = before_after(BASELINE, {**TRAINED, "measures": own}, targets).rows
    assert rows[2] == ("finds", "-", "90.0% [85.0, 94.0]", ">= 95%", "no")
    assert rows[5][3:] == ("<= 300 s", "yes")
    limits = {"finds": AtMost(0.95)}
    rows = before_after(BASELINE, {**TRAINED, "measures": own}, limits).rows
    assert rows[2][3:] == ("<= 95%", "yes")


def test_a_target_is_missed_by_what_was_not_measured() -> None:
    rows = before_after(BASELINE, {**TRAINED, "cost_reduction": None}, TARGETS).rows
    assert rows[3][-1] == "no"


def test_time_savings_say_against_what() -> None:
    line = tables.time_savings(TRAINED, TARGETS)
    assert "99.79%" in line
    assert "target 98%" in line
    assert "against 4 h of tuning prompts by hand" in line
    assert "30 s" in line
    assert "target" not in tables.time_savings(TRAINED, {})
    assert tables.time_savings(BASELINE, TARGETS) == ""


@pytest.mark.parametrize(
    ("seconds", "text"),
    [
        (None, "-"),
        (0.04, "0.0 s"),
        (9.96, "10.0 s"),
        (42.4, "42 s"),
        (185, "3:05 min"),
        (3723, "1:02:03 h"),
    ],
)
def test_duration(seconds: float | None, text: str) -> None:
    assert tables.duration(seconds) == text


@pytest.mark.parametrize(
    ("seconds", "text"),
    [
        (1, "just now"),
        (300, "5 min ago"),
        (7200, "2 h ago"),
        (200_000, "2 d ago"),
        (-5, "just now"),
    ],
)
def test_ago(seconds: float, text: str) -> None:
    assert tables.ago(1e9 - seconds, 1e9) == text


def test_unknown_figures_are_dashes() -> None:
    assert tables.rate({}, "tool_reliability") == "-"
    assert tables.share(None) == tables.number(None) == tables.dollars(None) == "-"
    assert tables.milliseconds(None) == tables.ago(None, 0) == "-"
    assert tables.rate({"x": 0.5}, "x") == "50.0%"
    assert tables.dollars(12.345) == "$12.35"


def test_a_call_is_written_as_people_write_it() -> None:
    call = {"name": "f", "arguments": {"a": "x", "b": 1, "c": True}}
    assert tables.call_text(call) == 'f(a="x", b=1, c=true)'


def test_a_failure_line_names_kind_call_and_message() -> None:
    line = failure_line(EPISODE, 90)
    assert line.startswith("wrong_tool    escalate()")
    assert '"My [kettle] leaks. Order 12."' in line
    assert len(failure_line(EPISODE, 40)) <= 40


def test_a_failure_line_without_a_failed_step() -> None:
    assert failure_line({"steps": []}, 80).startswith("not solved")
    crashed = {"failure": "agent_crash", "failure_text": "OSError: gone"}
    assert failure_line(crashed, 80) == "agent_crash   OSError: gone"
    spoke = {"steps": [{"failure": "no_call", "content": "I am\ndone"}]}
    assert failure_line(spoke, 80) == "no_call       I am done"


def test_an_episode_shows_calls_arguments_results_and_rewards() -> None:
    text = "\n".join(line for line, _ in episode_lines(EPISODE))
    assert "validation-0-7  failed  (refund)" in text
    assert "You help" not in text
    assert 'lookup_order(order_id="12")' in text
    assert '-> {"total": 3}' in text
    assert "[reward +0.50, confidence 91%]" in text
    assert "[wrong_tool, reward -1.00, confidence 40%]" in text
    assert "3. says: Bye." in text
    assert "[not judged]" in text


def test_an_episode_shows_what_the_user_replied() -> None:
    asked = {"content": "Which order?", "reply": "Number [12]."}
    lines = [line for line, _ in episode_lines({"task_id": "t", "steps": [asked]})]
    assert lines[1:3] == ["  1. says: Which order?", "     user: Number [12]."]


def test_an_episode_that_broke_off_says_why() -> None:
    crashed = {"failure": "agent_crash", "failure_text": "OSError: gone"}
    assert episode_lines(crashed)[-1] == ("  ended early: OSError: gone", "red")
    lines = episode_lines({"task_id": "t", "success": None, "failure": "agent_crash"})
    assert lines[0][0] == "t  not judged"
    assert lines[-1] == ("  ended early: agent_crash", "red")

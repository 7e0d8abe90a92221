"""`agentgym scenarios`."""

from __future__ import annotations

from pathlib import Path
from typing import Any

TINY = "tiny_scenario:Tiny"

BROKEN = """
from tiny_scenario import Tiny

class Nameless(Tiny):
    description = ""

    def success_criteria(self):
        return {"tool_reliabilty": 0.9}
"""


def test_list(cli: Any) -> None:
    done = cli("scenarios", "list")
    assert done.code == 0
    assert "customer_support  easy" in done.out
    listed = cli("scenarios", "list", "--json").json["scenarios"]
    assert {"name", "description", "difficulty", "estimated_time"} <= set(listed[0])


def test_show(cli: Any) -> None:
    done = cli("scenarios", "show", "customer_support")
    assert done.code == 0, done.err
    for part in ("Targets", "tool_reliability", "Tools (", "Example task", "  user: "):
        assert part in done.out
    facts = cli("scenarios", "show", TINY, "--json").json
    assert facts["options"] == {"crash": False}
    assert facts["tools"][0]["function"]["name"] == "open_gate"
    assert facts["training_defaults"]


def test_show_what_is_not_there(cli: Any) -> None:
    done = cli("scenarios", "show", "customer_suport")
    assert done.code == 2
    assert "Did you mean 'customer_support'?" in done.error


def test_check_explains_rule_by_rule(cli: Any) -> None:
    Path("broken.py").write_text(BROKEN)
    done = cli("scenarios", "check", "broken:Nameless")
    assert done.code == 1
    assert "WRONG  " in done.out
    assert "ok     " in done.out
    assert "tool_reliabilty" in done.out
    report = cli("scenarios", "check", "broken:Nameless", "--json")
    assert report.code == 1
    assert report.json["ok"] is False
    wrong = [check for check in report.json["checks"] if not check["ok"]]
    assert wrong and all(check["explanation"] for check in wrong)


def test_a_scenario_that_keeps_the_rules(cli: Any) -> None:
    done = cli("scenarios", "check", TINY, "--json")
    assert done.json["checks"]
    assert done.code == (0 if done.json["ok"] else 1)

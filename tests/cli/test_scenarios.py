"""`agentgym scenarios`."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

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


def test_new_writes_a_scenario_that_trains(cli: Any) -> None:
    done = cli("scenarios", "new", "pet_shop")
    assert done.code == 0 and "agentgym train pet_shop:PetShop" in done.out
    checked = cli("scenarios", "check", "pet_shop:PetShop")
    assert checked.code == 0, checked.out
    small = ("--episodes", "1500", "--eval-tasks", "50", "--heldout-tasks", "50")
    result = cli("train", "pet_shop:PetShop", *small, "--json").json
    before, after = (result[name]["task_success"] for name in ("baseline", "metrics"))
    assert after >= before + 0.3


def test_the_skeleton_is_the_example(cli: Any) -> None:
    assert cli("scenarios", "new", "smart_home", "--json").json == {
        "file": "smart_home.py",
        "scenario": "smart_home:SmartHome",
    }
    example = Path(__file__).parents[2] / "examples" / "custom_scenario.py"
    assert Path("smart_home.py").read_text() == example.read_text()


@pytest.mark.parametrize(
    ("name", "says"),
    [
        ("customer_support", "Scenario 'customer_support' already exists"),
        ("taken", "taken.py already exists"),
        ("My-Shop", "Invalid scenario name"),
        ("../x", "Invalid scenario name"),
        ("class", "Invalid scenario name"),
    ],
)
def test_new_refuses(cli: Any, name: str, says: str) -> None:
    Path("taken.py").write_text("mine")
    assert says in cli("scenarios", "new", name).error
    assert Path("taken.py").read_text() == "mine"
    assert [p.name for p in Path().iterdir()] == ["taken.py"]

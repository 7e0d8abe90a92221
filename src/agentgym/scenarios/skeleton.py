"""The template of `agentgym scenarios new NAME`."""

from __future__ import annotations

import keyword
import re
from pathlib import Path

from agentgym.errors import UsageError

# The text of examples/custom_scenario.py; docs/writing-a-scenario.md explains it.
_SKELETON = '''\
"""A complete scenario: run this file to train on it."""

import random

from agentgym import Environment, Scenario, ScenarioRegistry, Task, Tool, Trainer
from agentgym.core.tools import FailureKind
from agentgym.scenarios.environment import RIGHT, Verdict

ROOM = {"type": "string", "enum": ["kitchen", "bathroom", "bedroom", "office"]}
SCHEMA = {"type": "object", "properties": {"room": ROOM}, "required": ["room"]}
WORDINGS = {  # Each split has its own: agents are measured on new ones.
    "train": ["Heat the {} if it is cold.", "Is the {} cold? Then warm it up."],
    "validation": ["If the {} feels chilly, turn the heating on."],
    "heldout": ["Warm up the {} in case it got cold there."],
}


def measure(world, room):
    return {"feels": "cold" if world["cold"] else "warm"}


def heat(world, room):
    world["heated"].append(room)
    return {"heating": "on"}


class Home(Environment):
    def tools(self):
        return [
            Tool("measure", "Measure how warm a room is.", SCHEMA, measure, True),
            Tool("heat", "Turn on the heating of a room.", SCHEMA, heat, True),
        ]

    def make_world(self, task):
        plan = ["measure", "heat"] if task.goal["cold"] else ["measure"]
        return {"cold": task.goal["cold"], "heated": [], "plan": plan}

    def judge_call(self, call, result):
        if call.name not in self.world["plan"][:1]:
            return Verdict(False, FailureKind.WRONG_TOOL)
        if call.arguments["room"] != self.task.goal["room"]:
            return Verdict(False, FailureKind.BAD_ARGUMENTS)
        self.world["plan"].pop(0)
        return RIGHT

    def judge_message(self, content):
        return Verdict(False, FailureKind.NO_CALL) if self.world["plan"] else RIGHT

    def outcome(self):
        wanted = [self.task.goal["room"]] if self.task.goal["cold"] else []
        solved = self.world["heated"] == wanted and not self.world["plan"]
        return solved, float(solved)


class CLASS(Scenario):
    name, description = "NAME", "Heats the rooms that are cold"
    difficulty, estimated_time = "easy", "seconds"

    def tasks(self, split, seed, count):
        return [self.draw(split, f"{split}-{seed}-{i}") for i in range(count)]

    def draw(self, split, id):
        rng = random.Random(id)
        goal = {"room": rng.choice(ROOM["enum"]), "cold": rng.random() < 0.5}
        text = rng.choice(WORDINGS[split]).format(goal["room"])
        ask = ({"role": "user", "content": text},)
        return Task(id, ask, goal=goal, best_steps=2 + goal["cold"], split=split)

    def create_environment(self, tasks=(), **settings):
        return Home(tasks or self.tasks("train", 0, 8), **settings)

    def success_criteria(self):
        return {"tool_reliability": 0.95}


if __name__ == "__main__":
    ScenarioRegistry.register(CLASS)
    result = Trainer().train("NAME", episodes=6_000)
    before, after = result.baseline.tool_reliability, result.metrics.tool_reliability
    print(f"tool reliability on unseen wording: {before:.0%} -> {after:.0%}")
'''


def skeleton(name: str) -> tuple[str, str]:
    """A complete scenario that trains, to start your own from.

    Args:
        name: Name of the scenario and its module.

    Returns:
        The module's source, and the name of its class.

    Raises:
        UsageError: The name isn't valid.
    """
    if not re.fullmatch(r"[a-z][a-z0-9_]{0,63}", name) or keyword.iskeyword(name):
        raise UsageError(
            f"Invalid scenario name '{name}'. Use lower-case letters, digits and _, "
            "for example my_shop."
        )
    class_name = "".join(part.capitalize() for part in name.split("_"))
    if class_name == "Home":
        class_name = "HomeScenario"
    return _SKELETON.replace("CLASS", class_name).replace("NAME", name), class_name


def write_skeleton(name: str, folder: Path) -> tuple[Path, str]:
    """Writes the skeleton to NAME.py.

    Returns:
        The file, and the name of the class in it.

    Raises:
        UsageError: The file already exists, or cannot be written.
    """
    source, class_name = skeleton(name)
    path = folder / f"{name}.py"
    try:
        with path.open("x", encoding="utf-8") as file:
            file.write(source)
    except FileExistsError:
        raise UsageError(f"{path} already exists. Choose another name.") from None
    except OSError as error:
        raise UsageError(
            f"{path} cannot be written: {error.strerror or error}."
        ) from None
    return path, class_name

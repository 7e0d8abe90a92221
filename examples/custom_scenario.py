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


class SmartHome(Scenario):
    name, description = "smart_home", "Heats the rooms that are cold"
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
    ScenarioRegistry.register(SmartHome)
    result = Trainer().train("smart_home", episodes=6_000)
    before, after = result.baseline.tool_reliability, result.metrics.tool_reliability
    print(f"tool reliability on unseen wording: {before:.0%} -> {after:.0%}")

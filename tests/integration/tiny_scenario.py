"""A scenario small enough to train on in a second: gates that open and close."""

from __future__ import annotations

import os
import random
import time
from typing import Any

from agentgym.core.task import Split, Task
from agentgym.core.tools import FailureKind, Tool, ToolCall, ToolResult
from agentgym.scenarios.base import Scenario
from agentgym.scenarios.environment import RIGHT, Environment, Verdict

_WORDS = {
    "train": {
        "open_gate": ["Please open gate {}", "Cars wait, open {}", "Open up {}"],
        "close_gate": ["Please close gate {}", "Night falls, close {}", "Close up {}"],
    },
    "validation": {
        "open_gate": ["Could you open {}?", "They should open {} soon"],
        "close_gate": ["Could you close {}?", "They should close {} soon"],
    },
    "heldout": {
        "open_gate": ["I want you to open {}", "It is time to open {}"],
        "close_gate": ["I want you to close {}", "It is time to close {}"],
    },
}
_LETTERS = {"train": "ABCDEF", "validation": "KLMN", "heldout": "RSTU"}


def _set(state: str) -> Any:
    def run(world: dict[str, str], gate: str) -> dict[str, str]:
        world[gate] = state
        return {"gate": gate, "state": state}

    return run


_GATE = {
    "type": "object",
    "properties": {
        "gate": {
            "type": "string",
            "pattern": "^[A-Z][0-9]{2}$",
            "description": "Code of the gate",
        }
    },
    "required": ["gate"],
}
_TOOLS = [
    Tool("open_gate", "Opens a gate", _GATE, _set("open"), takes_world=True),
    Tool("close_gate", "Closes a gate", _GATE, _set("closed"), takes_world=True),
    Tool("report_fault", "Reports a broken gate", _GATE, _set("broken"), True),
]


class Gates(Environment):
    """One gate to open or close."""

    crash = False

    def tools(self) -> list[Tool]:
        return _TOOLS

    def make_world(self, task: Task) -> dict[str, str]:
        if self.crash:
            raise RuntimeError("the gate house is on fire")
        return {}

    def judge_call(self, call: ToolCall, result: ToolResult) -> Verdict:
        assert self.task is not None
        tool, gate = self.task.goal
        if call.name != tool:
            return Verdict(False, FailureKind.WRONG_TOOL, harmful=True)
        if call.arguments.get("gate") != gate:
            return Verdict(False, FailureKind.BAD_ARGUMENTS)
        if len(self.messages) > 2:
            return Verdict(False, FailureKind.NEEDLESS_CALL)
        return RIGHT

    def judge_message(self, content: str) -> Verdict:
        return RIGHT if self._done() else Verdict(False, FailureKind.NO_CALL)

    def outcome(self) -> tuple[bool, float]:
        return self._done(), float(self._done())

    def _done(self) -> bool:
        assert self.task is not None
        tool, gate = self.task.goal
        return bool(self.world == {gate: "open" if tool == "open_gate" else "closed"})


class Tiny(Scenario):
    """Opens and closes gates."""

    name = "tiny"
    description = "Gates that open and close"
    difficulty = "easy"
    estimated_time = "a second"
    options = {"crash": False}

    def tasks(self, split: Split, seed: int, count: int) -> list[Task]:
        rng = random.Random(f"{split} {seed}")
        # Lets a test be sure that it catches a run before it is over.
        time.sleep(float(os.environ.get("TINY_DELAY", "0")))
        tasks = []
        for i in range(count):
            tool = rng.choice(["open_gate", "close_gate"])
            gate, other = (
                f"{rng.choice(_LETTERS[split])}{rng.randrange(10, 100)}" for _ in "ab"
            )
            text = rng.choice(_WORDS[split][tool]).format(gate)
            if rng.random() < 0.5:
                text = f"I am at {other}. {text}"
            tasks.append(
                Task(
                    id=f"{split}-{seed}-{i}",
                    messages=({"role": "user", "content": text},),
                    goal=(tool, gate),
                    best_steps=2,
                    split=split,
                    tags=(tool,),
                )
            )
        return tasks

    def create_environment(
        self, tasks: Any = (), *, max_steps: int = 10, runner: Any = None
    ) -> Gates:
        environment = Gates(tasks, max_steps=max_steps, runner=runner)
        environment.crash = self.settings["crash"]
        return environment

    def success_criteria(self) -> dict[str, float]:
        return {"tool_reliability": 0.95}

    def training_defaults(self) -> dict[str, Any]:
        return {
            "episodes": 192,
            "group_size": 4,
            "batch_size": 4,
            "eval_every": 48,
            "eval_tasks": 16,
            "heldout_tasks": 16,
            "target_reliability": 1.0,
        }

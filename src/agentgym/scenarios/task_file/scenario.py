"""The scenario for a user's own tasks: `agentgym train --tasks tasks.jsonl`."""

from __future__ import annotations

import contextlib
import random
from collections import OrderedDict
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from agentgym.core.task import Split, Task
from agentgym.core.tools import FailureKind, Tool, ToolCall, ToolResult, ToolRunner
from agentgym.errors import ConfigError, ScenarioError, did_you_mean
from agentgym.scenarios.base import Scenario
from agentgym.scenarios.environment import RIGHT, Environment, Verdict, questions
from agentgym.scenarios.task_file.expected import CallProgress
from agentgym.scenarios.task_file.file import TaskIndex, open_tasks
from agentgym.scenarios.task_file.line import Given, TaskLine, bound_tools
from agentgym.utils.objects import load_object

_KEPT = 4096
"""Maximum number of cached tasks; caching keeps their tools the same objects."""
_KEPT_BYTES = 8 << 20
"""Maximum size of their lines in bytes."""
_SHOWN_TOOLS = 256


class TaskFile(Scenario):
    """Tasks from a file, each with its own tools or with the agent's.

    Options:
        tasks: The file.
        allow_code: Whether to run the functions that the file names.
        reward: `module:function` that judges tasks without `expected` and `check`; it
            takes the same arguments as a `check`.
        dry_run: Comma-separated names of tools that must not run; or "all".
        sandbox: `module:function` that returns a context manager for each episode.
    """

    name = "task_file"
    description = "Your own tasks, from a JSON Lines file (train --tasks FILE)"
    difficulty = "medium"
    estimated_time = "minutes"
    options = {
        "tasks": "",
        "allow_code": False,
        "reward": "",
        "dry_run": "",
        "sandbox": "",
    }
    takes_agent_tools = True

    def __init__(self, *, agent_tools: Sequence[Tool] = (), **options: Any) -> None:
        super().__init__(**options)
        self.agent_tools = tuple(agent_tools)
        self._dry = {n.strip() for n in self.settings["dry_run"].split(",")} - {""}
        self._check_dry_run()
        self._index: TaskIndex | None = None
        self._kept: OrderedDict[tuple[Split, int], Task] = OrderedDict()
        self._bytes = 0
        if self.settings["tasks"]:
            reward = self.settings["reward"]
            given = Given(self.agent_tools, judged=bool(reward))
            self._index, report = open_tasks(self.settings["tasks"], given)
            if reward and not report.unjudged:
                raise ConfigError(
                    "Option 'reward' is unused: every task has expected or check. "
                    "Remove it, or remove those fields from some tasks."
                )
            if report.code is not None and not self.settings["allow_code"]:
                raise ConfigError(
                    f"{Path(self.settings['tasks']).name}, line {report.code[1]} names "
                    f"Python to run: {report.code[0]}. If you trust the file, add "
                    "--set allow_code=true."
                )

    def tasks(self, split: Split, seed: int, count: int) -> list[Task]:
        """Draws tasks from the file.

        Tasks repeat in training only: measuring on a task twice adds no information.
        """
        index = self._tasks()
        total = index.count(split)
        rng = random.Random(f"{split} {seed}")
        rounds = -(-count // total) if split == "train" else 1
        drawn = [
            position
            for _ in range(rounds)
            for position in rng.sample(range(total), min(total, count))
        ]
        return [self._task(index, split, position) for position in drawn[:count]]

    def create_environment(
        self,
        tasks: Sequence[Task] = (),
        *,
        max_steps: int = 10,
        runner: ToolRunner | None = None,
        render_mode: str | None = None,
    ) -> TaskFileEnvironment:
        """An environment with the tools of the current task."""
        return TaskFileEnvironment(
            tasks or self.tasks("train", 0, 64),
            max_steps=max_steps,
            patience=1,
            runner=runner,
            render_mode=render_mode,
            reward=self.settings["reward"],
            sandbox=self.settings["sandbox"],
        )

    def success_criteria(self) -> dict[str, float]:
        """The default target of a training; your file may need another one."""
        return {"task_success": 0.9, "tool_reliability": 0.95}

    def training_defaults(self) -> dict[str, Any]:
        """Large batches, to learn what holds for all tools."""
        return {"episodes": 12_000, "eval_every": 3_000, "batch_size": 48}

    def runs_live(self) -> list[str]:
        """The names of the agent's tools that really run in training."""
        return [tool.name for tool in self.agent_tools if not self._is_dry(tool.name)]

    def _is_dry(self, name: str) -> bool:
        return name in self._dry or "all" in self._dry

    def _check_dry_run(self) -> None:
        known = [tool.name for tool in self.agent_tools]
        for name in sorted(self._dry - {*known, "all"}) if known else ():
            raise ConfigError(
                f"dry_run: the agent has no tool '{name}'.{did_you_mean(name, known)}"
            )

    def _tasks(self) -> TaskIndex:
        if self._index is None:
            raise ConfigError(
                "Scenario task_file needs a task file: --tasks FILE, or tasks=... in"
                " Python."
            )
        return self._index

    def _task(self, index: TaskIndex, split: Split, position: int) -> Task:
        key = (split, position)
        task = self._kept.get(key)
        if task is None:
            line = index.read(split, [position])[0]
            task = self._kept[key] = make_task(line, split, self._is_dry)
            self._bytes += task.goal.size
            while len(self._kept) > 1 and (
                len(self._kept) > _KEPT or self._bytes > _KEPT_BYTES
            ):
                self._bytes -= self._kept.popitem(last=False)[1].goal.size
        self._kept.move_to_end(key)
        return task


class TaskFileEnvironment(Environment):
    """Plays one task at a time, with its own tools."""

    world: dict[str, Any]

    def __init__(
        self,
        tasks: Sequence[Task],
        *,
        reward: str = "",
        sandbox: str = "",
        **options: Any,
    ) -> None:
        """Creates an environment.

        Args:
            tasks: The tasks that `reset` chooses from.
            reward: See `TaskFile`.
            sandbox: See `TaskFile`.
            **options: See `Environment`.
        """
        self._reward = reward
        self._sandbox = load_function(sandbox) if sandbox else contextlib.nullcontext
        self._entered = contextlib.ExitStack()
        super().__init__(tasks, **options)

    def tools(self) -> Sequence[Tool]:
        """The tools of all given tasks, up to a limit."""
        found: dict[str, Tool] = {}
        for task in self.tasks:
            for tool in task.world:
                if len(found) < _SHOWN_TOOLS:
                    found.setdefault(tool.name, tool)
        return list(found.values())

    def tools_of(self, task: Task) -> Sequence[Tool]:
        """The task's own."""
        return tuple(task.world)

    def reset_task(self, task: Task, seed: int = 0) -> None:
        """See `Environment`; also switches to the task's tools."""
        self.offer(task.world)
        super().reset_task(task, seed)
        self._line: TaskLine = task.goal
        self._progress = CallProgress(self._line.courses or (), self._tools)
        self._calls: list[dict[str, Any]] = []
        self._checked: float | None = None
        self._wrong = False
        self._answers = dict(self._line.answers)

    def make_world(self, task: Task) -> dict[str, Any]:
        """An empty dict; live tools with `world` as first parameter may use it."""
        self._entered.enter_context(self._sandbox())
        return {}

    def close_world(self, world: dict[str, Any]) -> None:
        """Exits the sandbox."""
        self._entered.close()

    def judge_call(self, call: ToolCall, result: ToolResult) -> Verdict:
        """A call is right if it is expected; with `check`, if it ran."""
        verdict = self._judge(call, result)
        self._wrong |= not verdict.correct
        return verdict

    def _judge(self, call: ToolCall, result: ToolResult) -> Verdict:
        repeated = any(
            (c["name"], c["arguments"]) == (call.name, call.arguments)
            for c in self._calls
        )
        self._calls.append(
            {
                "name": call.name,
                "arguments": call.arguments,
                "result": result.content,
                "ok": result.ok,
            }
        )
        if result.failure in (FailureKind.UNKNOWN_TOOL, FailureKind.BAD_ARGUMENTS):
            return Verdict(False, result.failure)
        if self._line.courses is None or self._progress.take(call, counts=result.ok):
            return RIGHT
        wrong = self._progress.nearly(call)
        if wrong is not None:
            # A repeated call has no wrong arguments: it is needless.
            return Verdict(
                False, FailureKind.BAD_ARGUMENTS, wrong_arguments=wrong or None
            )
        done = self._calls[:-1] and self._progress.finished
        kind = FailureKind.NEEDLESS_CALL if repeated or done else FailureKind.WRONG_TOOL
        return Verdict(False, kind)

    def judge_message(self, content: str) -> Verdict:
        """Questions are right if the user has an answer, closing if all is done."""
        if self._asked(content):
            return RIGHT
        return RIGHT if self._score() == 1.0 else Verdict(False, FailureKind.NO_CALL)

    def reply(self, content: str) -> str | None:
        """The user answers each question that the task has an answer for, once."""
        words = self._asked(content)
        return self._answers.pop(words) if words else None

    def _asked(self, content: str) -> str:
        """The key in `answers` that a message asks for; "" if none."""
        asked = " ".join(questions(content)).lower()
        return next((words for words in self._answers if words.lower() in asked), "")

    def outcome(self) -> tuple[bool, float]:
        """Solved if the agent closed after all expected calls and no others."""
        closed = self.messages[-1]["role"] == "assistant" and not self._wrong
        score = self._score()
        if closed and score == 1.0:
            return True, 1.0
        return False, 0.5 * min(1.0, score)

    def _score(self) -> float:
        line = self._line
        if line.courses is not None:
            return 1.0 if self._progress.finished else min(0.99, self._progress.share)
        if self._checked is None:
            self._checked = self._check(line)
        return self._checked

    def _check(self, line: TaskLine) -> float:
        state = {
            "id": line.id,
            "messages": list(self.messages),
            "calls": list(self._calls),
            "world": self.world,
        }
        judge = line.check or self._reward
        score = load_function(judge)(state)
        if isinstance(score, bool | int | float) and 0 <= score <= 1:
            return float(score)
        raise ScenarioError(
            f"{judge} returned {score!r} for task '{line.id}'. It must return true, "
            "false or a number from 0 to 1."
        )


def load_function(reference: str) -> Callable[..., Any]:
    """The function that a `module:function` names; its module may lie here.

    Raises:
        ScenarioError: There is none.
    """
    found = load_object(reference, "Function", error=ScenarioError)
    if not callable(found):
        raise ScenarioError(f"Function '{reference}' isn't callable.")
    function: Callable[..., Any] = found
    return function


def make_task(
    line: TaskLine, split: Split, dry: Callable[[str], bool] = lambda name: False
) -> Task:
    """Returns a line's task; `dry` tells which tools must not run."""
    return Task(
        line.id,
        line.messages,
        world=tuple(bound_tools(line, load_function, dry)),
        goal=line,
        best_steps=line.best_steps,
        difficulty=line.difficulty,
        split=split,
        tags=(_kind(line),),
    )


def _kind(line: TaskLine) -> str:
    if line.courses is None:
        return "check"
    if not any(line.courses):
        return "abstain"
    steps = [step for course in line.courses for step in course]
    return "parallel" if any(len(step) > 1 for step in steps) else "call"

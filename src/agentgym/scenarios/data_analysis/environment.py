"""The environment of data_analysis: the files, the tools and the judge."""

from __future__ import annotations

from collections.abc import Sequence

from agentgym.core.task import Task
from agentgym.core.tools import FailureKind, Tool, ToolCall, ToolResult
from agentgym.scenarios.data_analysis.plan import Goal, wrong_arguments
from agentgym.scenarios.data_analysis.tools import TOOLS, World
from agentgym.scenarios.environment import Verdict
from agentgym.scenarios.planned import PlannedEnvironment

_WASTE = 0.5
"""Share of a solved task's outcome that depends on query efficiency."""


class DataAnalysisEnvironment(PlannedEnvironment):
    """Plays one question at a time."""

    world: World

    def tools(self) -> Sequence[Tool]:
        """The analyst's tools."""
        return TOOLS

    def reset_task(self, task: Task, seed: int = 0) -> None:
        """See `Environment`; also selects the task's files."""
        super().reset_task(task, seed)
        goal: Goal = task.goal
        self._goal = goal
        self._next = 0
        self._astray = False

    def make_world(self, task: Task) -> World:
        """An empty analysis; datasets are shared and never change."""
        return World(task.world)

    def judge_call(self, call: ToolCall, result: ToolResult) -> Verdict:
        """A call is right if it is the next one in the plan.

        After a wrong file or filter, the agent has to load the right file again.
        """
        repeated = self.repeats(call)
        plan = self._goal.plan
        number = 0 if self._astray else self._next
        due = plan[number] if number < len(plan) else None
        wrong = None
        if due is not None and due.tool == call.name:
            wrong = wrong_arguments(due, call)
            if not wrong and self._suits(call, result):
                if result.ok:
                    self._next, self._astray = number + 1, False
                return Verdict(True, wrong_arguments=wrong)
        if result.failure in (FailureKind.UNKNOWN_TOOL, FailureKind.BAD_ARGUMENTS):
            return Verdict(False, result.failure, wrong_arguments=wrong)
        if result.ok and call.name in ("load_data", "filter_data"):
            self._astray = True
        if due is None or repeated:
            kind = FailureKind.NEEDLESS_CALL
        elif wrong is not None:
            kind = FailureKind.BAD_ARGUMENTS
        else:
            kind = FailureKind.WRONG_TOOL
        # An answer to the user can't be undone.
        harmful = result.ok and call.name == "answer"
        return Verdict(False, kind, harmful, wrong)

    def outcome(self) -> tuple[bool, float]:
        """Judged by the answer and the amount of data scanned."""
        if self.closed and self.finished:
            world = self.world
            saved = self._goal.efficiency(world.rows_scanned, world.bytes_scanned)
            return True, 1.0 - _WASTE * (1.0 - saved)
        return False, 0.5 * self._next / len(self._goal.plan)

    @property
    def finished(self) -> bool:
        """Whether the question is answered, with a chart if the user wants one."""
        return self._next == len(self._goal.plan) and not self._astray

    def _suits(self, call: ToolCall, result: ToolResult) -> bool:
        """Whether a chart is right; always true for other calls."""
        if call.name != "plot_chart" or not result.ok:
            return True
        return self.world.charts[-1].shown in self._goal.charts

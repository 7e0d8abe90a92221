"""The environment of code_review: the submission, the tools and the judge."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from agentgym.core.task import Task
from agentgym.core.tools import FailureKind, Tool, ToolCall, ToolResult
from agentgym.scenarios.code_review.guide import Category, page_of
from agentgym.scenarios.code_review.plan import Comment, Goal, Issue
from agentgym.scenarios.code_review.tasks import ReviewSpec
from agentgym.scenarios.code_review.tools import TOOLS, World
from agentgym.scenarios.environment import RIGHT, Verdict
from agentgym.scenarios.planned import PlannedEnvironment

_EXPLANATION, _WASTE = 0.25, 0.25
"""Shares of a solved task's outcome that depend on comments' details, and on costs."""
_FALSE = 0.25
"""The cost of a false comment in an unsolved task."""


class CodeReviewEnvironment(PlannedEnvironment):
    """Plays one review at a time."""

    world: World

    def tools(self) -> Sequence[Tool]:
        """The reviewer's tools."""
        return TOOLS

    def reset_task(self, task: Task, seed: int = 0) -> None:
        """See `Environment`; also selects the submission."""
        super().reset_task(task, seed)
        goal: Goal = task.goal
        self._goal = goal
        self._left = list(goal.checks)
        self._open = list(goal.issues)
        # The state of the review before the judged call.
        self._checked: tuple[str, Category] | None = None
        self._looked_up: set[str] = set()
        self._suggested = False

    def make_world(self, task: Task) -> World:
        """A new review; analyses are shared and never change."""
        spec: ReviewSpec = task.world
        return World(spec.analyses(), spec.submitted, spec.house)

    def judge_call(self, call: ToolCall, result: ToolResult) -> Verdict:
        """A call is right if the review needs it at this point.

        The agent has to handle a check's findings before the next check; apart from
        that, any order is right.
        """
        if result.failure in (FailureKind.UNKNOWN_TOOL, FailureKind.BAD_ARGUMENTS):
            return Verdict(False, result.failure)
        if call.name == "comment":
            verdict = self._judge_comment(call, result)
        elif call.name == "search_documentation":
            verdict = self._judge_search(call)
        elif call.name == "suggest_improvements":
            verdict = self._judge_suggestion(call, result)
        elif call.name in ("approve", "request_changes"):
            verdict = self._judge_verdict(call, result)
        else:
            verdict = self._judge_check(call, result)
        self._checked = self.world.checked
        self._looked_up = set(self.world.looked_up)
        return verdict

    @property
    def finished(self) -> bool:
        """Whether the review has its verdict."""
        return self.world.verdict is not None

    def outcome(self) -> tuple[bool, float]:
        """Judged by comments, verdict and the cost of the tools."""
        goal, world = self._goal, self.world
        score = goal.score(world.comments)
        right = world.verdict == goal.verdict and not score.false and not self._left
        if self.closed and right and score.detected == len(goal.issues):
            saved = min(1.0, goal.cost / world.cost)
            lost = _EXPLANATION * (1 - score.explanation) + _WASTE * (1 - saved)
            return True, 1.0 - lost
        steps = len(goal.checks) + len(goal.issues)
        done = len(goal.checks) - len(self._left) + score.detected * score.explanation
        return False, max(0.0, 0.5 * done / steps - _FALSE * score.false)

    # Kinds of calls --------------------------------------------------------------

    def _judge_check(self, call: ToolCall, result: ToolResult) -> Verdict:
        check = call.name, call.arguments["file"]
        due = self._left
        # The agent can know which checks the code needs only after analysing it.
        if due and due[0][0] == "analyze_code":
            due = due[:1]
        if self._unfinished():
            return Verdict(False, FailureKind.WRONG_TOOL)
        if check in due:
            if result.ok:
                self._left.remove(check)
            return _told(())
        if call.name in {name for name, _ in due}:
            return _told(["file"])
        needless = not due or check in self._goal.checks
        kind = FailureKind.NEEDLESS_CALL if needless else FailureKind.WRONG_TOOL
        return Verdict(False, kind)

    def _judge_comment(self, call: ToolCall, result: ToolResult) -> Verdict:
        here = self._known_issues(self._open)
        if self._checked is None or not here:
            return Verdict(False, FailureKind.WRONG_TOOL)
        made = Comment(self._checked[0], **call.arguments)
        issue = next((i for i in here if i.line == made.line), None)
        if issue is None:
            # Judged by the first issue, which is the one on the sheet.
            return _told(["line", *here[0].misnamed(made)])
        misnamed = issue.misnamed(made)
        if result.ok and "category" not in misnamed:
            self._open.remove(issue)
        return _told(misnamed)

    def _judge_search(self, call: ToolCall) -> Verdict:
        due = {page_of(topic) for topic in self._due_topics()}
        if not due:
            return Verdict(False, FailureKind.NEEDLESS_CALL)
        return _told([] if call.arguments["page"] in due else ["page"])

    def _judge_suggestion(self, call: ToolCall, result: ToolResult) -> Verdict:
        known = self._known_issues(self._goal.issues)
        if not self._goal.suggests or self._suggested or not known:
            return Verdict(False, FailureKind.NEEDLESS_CALL)
        if call.arguments["line"] not in {issue.line for issue in known}:
            return _told(["line"])
        self._suggested = result.ok
        return _told([])

    def _judge_verdict(self, call: ToolCall, result: ToolResult) -> Verdict:
        ready = not self._left and not self._unfinished()
        if self._goal.suggests and not self._suggested:
            ready = False
        if ready and call.name == self._goal.verdict:
            return RIGHT
        # A verdict can't be undone.
        return Verdict(False, FailureKind.WRONG_TOOL, harmful=result.ok)

    # The state of the review -----------------------------------------------------

    def _unfinished(self) -> bool:
        """Whether the last check has unhandled findings."""
        return bool(self._known_issues(self._open) or self._due_topics())

    def _known_issues(self, issues: Iterable[Issue]) -> list[Issue]:
        """The issues that the last check showed and the agent can recognise."""
        return [
            issue
            for issue in issues
            if (issue.file, issue.category) == self._checked
            and issue.problem not in self._due_topics()
        ]

    def _due_topics(self) -> set[str]:
        """House rules for the last check's findings that weren't looked up yet."""
        if self._checked is None or self._checked[1] != "style":
            return set()
        return set(self._goal.topics.get(self._checked[0], ())) - self._looked_up


def _told(wrong: Iterable[str]) -> Verdict:
    """A verdict on a call of the right tool, by its wrong arguments."""
    names = frozenset(wrong)
    if names:
        return Verdict(False, FailureKind.BAD_ARGUMENTS, wrong_arguments=names)
    return Verdict(True, wrong_arguments=names)

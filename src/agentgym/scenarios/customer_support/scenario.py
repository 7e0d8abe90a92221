"""The customer_support scenario: environment, judge and targets."""

from __future__ import annotations

import random
import re
from collections.abc import Sequence
from typing import Any

from agentgym.core.task import Split, Task
from agentgym.core.tools import FailureKind, Tool, ToolCall, ToolError, ToolResult
from agentgym.scenarios.customer_support import tools as shop
from agentgym.scenarios.customer_support.intents import Issue
from agentgym.scenarios.customer_support.tasks import (
    SYSTEM_PROMPT,
    Goal,
    ShopSpec,
    make_task,
)
from agentgym.scenarios.customer_support.world import World
from agentgym.scenarios.environment import RIGHT, Verdict, questions
from agentgym.scenarios.planned import GeneratedScenario, Milestone, PlannedEnvironment

# How the customer recognises which value a question asks for.
_ASKED = {
    "order_id": re.compile(r"\border\b", re.IGNORECASE),
    "email": re.compile(r"\be-?mail\b", re.IGNORECASE),
    "address": re.compile(r"\b(?<!mail )address\b", re.IGNORECASE),
}


class CustomerSupport(GeneratedScenario):
    """A shop's service desk: sixteen kinds of request, fifteen tools."""

    name = "customer_support"
    description = "Service desk of an online shop: orders, refunds, accounts, how-tos"
    difficulty = "easy"
    estimated_time = "about a minute"
    system_prompt = SYSTEM_PROMPT
    options = {"tool_failure_rate": 0.0, "patience": 1}

    def make_task(self, split: Split, rng: random.Random, name: str) -> Task:
        """A request. Splits share no phrasings, names, numbers or help topics."""
        return make_task(split, rng, name)

    def environment(self) -> type[CustomerSupportEnvironment]:
        """The environment's class."""
        return CustomerSupportEnvironment

    def success_criteria(self) -> dict[str, float]:
        """The published targets; `docs/scenarios/customer_support.md` defines them."""
        return {"tool_reliability": 0.95, "cost_reduction": 0.30, "time_savings": 0.98}

    def training_defaults(self) -> dict[str, Any]:
        """Many tasks with few siblings per update: the variety of wording is hard."""
        return {
            "episodes": 15_000,
            "eval_every": 5_000,
            "learning_rate": 0.01,
            "batch_size": 48,
            "group_size": 8,
        }


class CustomerSupportEnvironment(PlannedEnvironment):
    """Serves one customer at a time."""

    world: World

    def tools(self) -> Sequence[Tool]:
        """The shop's tools."""
        return shop.TOOLS

    def reset_task(self, task: Task, seed: int = 0) -> None:
        """See `Environment`."""
        super().reset_task(task, seed)
        goal: Goal = task.goal
        self._goal = goal
        self._next = [0] * len(goal.issues)
        self._harmed = False

    def make_world(self, task: Task) -> World:
        """A database with the task's rows."""
        spec: ShopSpec = task.world
        return World(spec.image)

    def close_world(self, world: World) -> None:
        """Closes the database."""
        world.close()

    def judge_call(self, call: ToolCall, result: ToolResult) -> Verdict:
        """A call is right if one of the open requests needs it next."""
        repeated = self.repeats(call)
        due = [self._due(i) for i in range(len(self._goal.issues))]
        fits = (call.name, "") in {(m.tool, m.ask) for options in due for m in options}
        for i, options in enumerate(due):
            for milestone in options:
                if milestone.tool == call.name and self._matches(milestone, call):
                    if result.ok and milestone in self._goal.issues[i].plan:
                        self._next[i] += 1
                    return RIGHT
        if result.failure in (FailureKind.UNKNOWN_TOOL, FailureKind.BAD_ARGUMENTS):
            return Verdict(False, result.failure)
        harmful = result.ok and call.name in shop.WRITING_TOOLS
        self._harmed |= harmful
        if repeated or self.finished:
            kind = FailureKind.NEEDLESS_CALL
        elif fits:
            kind = FailureKind.BAD_ARGUMENTS
        else:
            kind = FailureKind.WRONG_TOOL
        return Verdict(False, kind, harmful)

    def judge_message(self, content: str) -> Verdict:
        """Questions are right for missing values, closing if all is done."""
        asked = _asked_for(content)
        for i, issue in enumerate(self._goal.issues):
            for milestone in self._due(i):
                if milestone.ask in asked:
                    if milestone in issue.plan:
                        self._next[i] += 1
                    return RIGHT
        return super().judge_message(content)

    def reply(self, content: str) -> str | None:
        """The customer answers questions; anything else closes the conversation."""
        if not questions(content):
            return None
        for what in _asked_for(content):
            answer = self._goal.answers.get(what)
            if answer is not None and not self._known(answer):
                return answer
        return "I have told you all I know."

    def outcome(self) -> tuple[bool, float]:
        """Judged by the database and by whether all requests are completed."""
        if self.closed and self.finished and not self._harmed:
            assert self.task is not None
            if self.world.effects() == self.task.world.expected_effects:
                return True, 1.0
        total = sum(len(issue.plan) for issue in self._goal.issues)
        if self._harmed or not total:
            return False, 0.0
        return False, 0.5 * sum(self._next) / total

    @property
    def finished(self) -> bool:
        """Whether all requests are completed."""
        return all(
            done == len(issue.plan)
            for done, issue in zip(self._next, self._goal.issues, strict=True)
        )

    def _due(self, i: int) -> list[Milestone]:
        """The steps of which a request needs one next."""
        issue = self._goal.issues[i]
        if self._next[i] >= len(issue.plan):
            return []
        missing = self._missing(issue)
        if missing == "email":
            return [Milestone("", ask="email")]
        if missing == "order_id":
            if self._known(self._goal.email):
                return [Milestone("find_orders", {"email": self._goal.email})]
            return [Milestone("", ask="order_id"), Milestone("", ask="email")]
        return [issue.plan[self._next[i]]]

    def _missing(self, issue: Issue) -> str:
        if issue.needs == "order_id" and not self._known(issue.order_id):
            return "order_id"
        if issue.needs == "email" and not self._known(self._goal.email):
            return "email"
        return ""

    def _known(self, value: str) -> bool:
        return any(
            message["role"] in ("user", "tool") and value in (message["content"] or "")
            for message in self.messages
        )

    def _article_for(self, query: str) -> str | None:
        # A query is judged by the article it finds. Searches again, because an
        # injected fault may have hidden the result.
        try:
            return str(shop.search_knowledge_base(self.world, query)["article"])
        except ToolError:
            return None

    def _matches(self, milestone: Milestone, call: ToolCall) -> bool:
        for name, wanted in milestone.arguments.items():
            if name == "article":
                if self._article_for(str(call.arguments.get("query"))) != wanted:
                    return False
                continue
            given = call.arguments.get(name)
            if isinstance(wanted, bool) or not isinstance(wanted, float):
                same = (
                    _plain(given) == _plain(wanted)
                    if name == "address"
                    else given == wanted
                )
            else:
                same = (
                    isinstance(given, int | float)
                    and not isinstance(given, bool)
                    and abs(given - wanted) < 0.005
                )
            if not same:
                return False
        return True


def _plain(value: Any) -> str:
    return re.sub(r"[^a-z0-9]+", " ", str(value).lower()).strip()


def _asked_for(content: str) -> list[str]:
    # The whole message counts: "Your order number, please. Could you look it up?"
    if not questions(content):
        return []
    return [what for what, pattern in _ASKED.items() if pattern.search(content)]

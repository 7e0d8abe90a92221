"""Generates tasks: a customer with requests, a world, and the right course."""

from __future__ import annotations

import random
from dataclasses import dataclass
from functools import cached_property
from typing import Any

from agentgym.core.task import Difficulty, Split, Task
from agentgym.scenarios.customer_support.intents import INTENTS, PAIRABLE, Draft, Issue
from agentgym.scenarios.customer_support.language import Speaker
from agentgym.scenarios.customer_support.tools import TOOLS, WRITING_TOOLS
from agentgym.scenarios.customer_support.world import Rows, World
from agentgym.scenarios.planned import opening
from agentgym.scenarios.wording import closed

SYSTEM_PROMPT = (
    "You work in the customer service of an online shop. Solve the customer's request "
    "with the tools. Ask if something is missing. Close with a short answer."
)


@dataclass(slots=True)
class Goal:
    """How an episode is judged.

    Attributes:
        answers: The customer's replies about "order_id", "email" and "address".
    """

    issues: list[Issue]
    email: str
    answers: dict[str, str]


class ShopSpec:
    """The specification of a task's world, to create it for each episode."""

    def __init__(self, rows: Rows, issues: list[Issue]) -> None:
        self.rows = rows
        self.issues = issues

    @cached_property
    def image(self) -> bytes:
        """The database that an episode opens."""
        return World.image(self.rows)

    @cached_property
    def expected_effects(self) -> frozenset[tuple[Any, ...]]:
        """The state of the world after the right course, found by running it."""
        functions = {tool.name: tool.function for tool in TOOLS}
        world = World(self.image)
        for milestone in (m for issue in self.issues for m in issue.plan):
            function = functions.get(milestone.tool)
            if function is not None and milestone.tool in WRITING_TOOLS:
                function(world, **milestone.arguments)
        effects = world.effects()
        world.close()
        return effects


def make_task(split: Split, rng: random.Random, task_id: str) -> Task:
    """Generates one task of a split."""
    speaker = Speaker(split, rng)
    draft = Draft(speaker, speaker.email())
    draft.add("customers", draft.email, speaker.name())
    if rng.random() < 0.1:
        draft.complete = True
        first, second = rng.sample(list(PAIRABLE), 2)
        issue, request = PAIRABLE[first](draft)
        other, more = PAIRABLE[second](draft)
        joint = speaker.say("second_issue")
        request = f"{closed(request)} {joint} {_lower_first(more)}"
        issues = [issue, other]
    else:
        issue, request = rng.choice(INTENTS)(draft)
        issues = [issue]
    text = _dress(draft, issues, request)
    best = sum(len(i.plan) + _preparation(i, draft) for i in issues) + 1
    return Task(
        id=task_id,
        messages=opening(SYSTEM_PROMPT, text),
        world=ShopSpec(draft.rows, issues),
        goal=Goal(issues, draft.email, draft.answers),
        best_steps=best,
        difficulty=_difficulty(issues, best),
        split=split,
        tags=tuple(i.intent for i in issues),
    )


def _difficulty(issues: list[Issue], best: int) -> Difficulty:
    if len(issues) > 1 or best >= 4:
        return "hard"
    return "medium" if best == 3 else "easy"


def _preparation(issue: Issue, draft: Draft) -> int:
    """Number of decisions until the values that the plan needs are known."""
    if issue.needs == "order_id":
        if "order_id" not in draft.answers:
            return 1  # find_orders by the address in the message
        return 1 if issue.order_id in draft.answers["order_id"] else 2
    return 1 if issue.needs == "email" else 0


def _dress(draft: Draft, issues: list[Issue], request: str) -> str:
    """Adds greeting, small talk, distractors and closing to the request."""
    speaker, rng = draft.speaker, draft.speaker.rng
    pieces = [closed(request), draft.mentioned]
    orders = [issue.order_id for issue in issues if issue.order_id]
    shown = [order for order in orders if order in request]
    # Two requests with their numbers are difficult enough.
    alone = len(issues) == 1
    if alone and shown and rng.random() < 0.35:
        other = speaker.near(shown[0]) if rng.random() < 0.4 else speaker.order_id()
        _add_bystander(draft, other)
        pieces.append(speaker.say("other_order", other_order=other))
    elif alone and draft.email in request + draft.mentioned and rng.random() < 0.35:
        other_email = speaker.email()
        draft.add("customers", other_email, speaker.name())
        pieces.append(speaker.say("other_email", other_email=other_email))
    if rng.random() < 0.4:
        filler = speaker.say(
            "filler",
            # Adds numbers that look like order numbers.
            zip=speaker.order_id() if alone and shown else speaker.postcode(),
            phone=speaker.phone(),
            name=speaker.name(),
        )
        pieces.append(filler)
    if rng.random() < 0.4:
        pieces.append(speaker.say("closing"))
    if rng.random() < 0.4:
        pieces.insert(0, speaker.say("greeting"))
    return " ".join(piece for piece in pieces if piece)


def _add_bystander(draft: Draft, order_id: str) -> None:
    """Adds an existing order that isn't the one to act on."""
    number, *_ = draft.order(status="delivered", delivered_days=3)
    for table in ("orders", "items", "shipments", "payments"):
        draft.rows[table] = [
            tuple(order_id if value == number else value for value in row)
            for row in draft.rows[table]
        ]


def _lower_first(text: str) -> str:
    word = text.split(" ", 1)[0]
    keep = word.startswith("I'") or word == "I" or not word.rstrip(",.").isalpha()
    return text if keep else text[:1].lower() + text[1:]

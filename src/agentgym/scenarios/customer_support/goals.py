"""What a customer wants, and how an episode is judged.

Each request (`Issue`) carries a plan: the calls, in order, that serve it in this world.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import Any

from agentgym.scenarios.customer_support.tools import TOOLS, WRITING_TOOLS
from agentgym.scenarios.customer_support.world import Rows, World
from agentgym.scenarios.planned import Milestone


@dataclass(slots=True)
class Issue:
    """One request of the customer.

    Attributes:
        plan: What to do, once the order number or the e-mail address is known.
        order_id: The order it is about, if any.
        needs: What must be known before the plan can start: "order_id" or "email".
    """

    intent: str
    plan: list[Milestone]
    order_id: str = ""
    needs: str = ""


@dataclass(slots=True)
class Goal:
    """How an episode is judged.

    Attributes:
        answers: What the customer says when asked for "order_id", "email", "address".
    """

    issues: list[Issue]
    email: str
    answers: dict[str, str]


class ShopSpec:
    """From which a task's world is built, as often as it is needed."""

    def __init__(self, rows: Rows, issues: list[Issue]) -> None:
        self.rows = rows
        self.issues = issues

    @cached_property
    def image(self) -> bytes:
        """The database that an episode opens."""
        return World.image(self.rows)

    @cached_property
    def expected_effects(self) -> frozenset[tuple[Any, ...]]:
        """What the world looks like after the right course, found by taking it."""
        functions = {tool.name: tool.function for tool in TOOLS}
        world = World(self.image)
        for milestone in (m for issue in self.issues for m in issue.plan):
            function = functions.get(milestone.tool)
            if function is not None and milestone.tool in WRITING_TOOLS:
                function(world, **milestone.arguments)
        effects = world.effects()
        world.close()
        return effects

"""The goals of a customer, and how an episode is judged.

Each request (`Issue`) has a plan: the calls that serve it in this world, in order.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import Any

from agentgym.scenarios.customer_support.tools import TOOLS, WRITING_TOOLS
from agentgym.scenarios.customer_support.world import Rows, World


@dataclass(frozen=True, slots=True)
class Milestone:
    """One step of a plan: call a tool with these arguments, or ask for a value."""

    tool: str
    arguments: tuple[tuple[str, Any], ...] = ()
    ask: str = ""


@dataclass(slots=True)
class Issue:
    """One request of the customer.

    Attributes:
        plan: The steps after the order number or e-mail address is known.
        order_id: The order it is about, if any.
        needs: The value that the plan needs first: "order_id" or "email".
    """

    intent: str
    plan: list[Milestone]
    order_id: str = ""
    needs: str = ""


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
                function(world, **dict(milestone.arguments))
        effects = world.effects()
        world.close()
        return effects

"""Records an agent's requests and answers, and turns them into trajectories.

Every answer becomes a step with the sampler's own record: tokens and log-probabilities,
or the policy's trace if it has no tokens. No text is ever tokenised again.
"""

from __future__ import annotations

import dataclasses
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass

from agentgym.core.task import Task
from agentgym.core.trajectory import Step, Trajectory
from agentgym.episodes.continuity import Context, Continuity, History


@dataclass(slots=True, eq=False)
class Exchange:
    """One request and its answer.

    Attributes:
        step: The decision.
        continuity: How the request relates to earlier conversations.
        parent: The exchange that it continues.
        children: Number of exchanges that continue it.
        side: Whether the request was marked as not being the agent's decision.
        used: Whether the decision had an effect on the world.
    """

    number: int
    context: Context
    step: Step
    continuity: Continuity
    parent: Exchange | None = None
    side: bool = False
    children: int = 0
    used: bool = False

    @property
    def path(self) -> list[Exchange]:
        """The conversation up to and including this exchange."""
        found: list[Exchange] = []
        at: Exchange | None = self
        while at is not None:
            found.append(at)
            at = at.parent
        return found[::-1]


class Recorder:
    """The record of one session. Not thread-safe."""

    def __init__(self) -> None:
        self.exchanges: list[Exchange] = []
        self._history = History()

    def add(self, context: Context, step: Step, *, side: bool = False) -> Exchange:
        """Records an answer.

        Args:
            context: The request's context.
            step: The decision that answered it.
            side: Whether the request was marked as not being the agent's decision.
        """
        continuity, parent = self._history.add(context, step.message)
        exchange = Exchange(
            len(self.exchanges),
            dataclasses.replace(context, texts=()),
            step,
            continuity,
            None if parent is None else self.exchanges[parent],
            side,
        )
        if exchange.parent is not None:
            exchange.parent.children += 1
        self.exchanges.append(exchange)
        return exchange

    @property
    def decisions(self) -> list[Exchange]:
        """All exchanges except side calls."""
        return [e for e in self.exchanges if not self.is_side_call(e)]

    def is_side_call(self, exchange: Exchange) -> bool:
        """Whether an exchange isn't a decision of the agent.

        Examples are commit messages, memories, summaries and the choice of the next
        speaker: single questions without tools that share no message with any other
        conversation of the session, and whose answer had no effect and wasn't
        continued. A session's first exchange is one only if other conversations exist.
        """
        if exchange.side or not self._stands_alone(exchange):
            return exchange.side
        return exchange.number > 0 or any(
            not self._stands_alone(e) and e.continuity is not Continuity.SUMMARISED
            for e in self.exchanges
        )

    def _stands_alone(self, exchange: Exchange) -> bool:
        if (
            exchange.used
            or exchange.children
            or exchange.parent is not None
            or exchange.context.tools
            or exchange.continuity is Continuity.SUMMARISED
        ):
            return False
        said = exchange.context.said
        return not any(
            e.context.said & said for e in self.exchanges if e is not exchange
        )

    @property
    def breaks(self) -> Counter[Continuity]:
        """Number of decisions that didn't continue a conversation, by class."""
        usual = (Continuity.FIRST, Continuity.CONTINUED)
        return Counter(
            e.continuity for e in self.decisions if e.continuity not in usual
        )

    def trajectories(self, task: Task) -> list[Trajectory]:
        """Returns one trajectory per conversation, in the order in which they ended.

        A conversation that branches becomes several trajectories with the same
        beginning. The shared steps belong to the first; in the others they are marked
        as replayed, so that the policy learns from them only once.
        """
        decisions = self.decisions
        gone_on = {id(e.parent) for e in decisions}
        seen: set[int] = set()
        found = []
        for leaf in decisions:
            if id(leaf) in gone_on:
                continue
            steps = []
            for exchange in leaf.path:
                if exchange.side:
                    continue
                again = exchange.number in seen
                seen.add(exchange.number)
                steps.append(
                    dataclasses.replace(exchange.step, replayed=True)
                    if again
                    else exchange.step
                )
            found.append(Trajectory(task, steps))
        return found


_BREAKS = {
    Continuity.BRANCHED: "repeat requests that were already answered",
    Continuity.SUMMARISED: "shorten or rewrite their history",
    Continuity.SUB_AGENT: "consist of several agents",
    Continuity.UNRELATED: "start unrelated conversations",
}


def warnings_of(breaks: Counter[Continuity]) -> Sequence[str]:
    """Warnings about breaks, one line for each kind."""
    return [
        f"Agents {_BREAKS[kind]} ({count} times, '{kind}'). AgentGym treats what"
        " follows as a separate conversation."
        for kind, count in sorted(breaks.items())
    ]

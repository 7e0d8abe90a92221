"""Records what an agent asks and is answered, and makes trajectories of it.

Every answer becomes a step with what the sampler itself recorded: its tokens and
log-probabilities where the policy has any, the policy's own trace where it has not. No
text is ever tokenised again.
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
        continuity: What the request did with the conversations before it.
        parent: The exchange that it went on from.
        children: How many went on from it.
        side: Whoever asked said that it is no decision of the agent.
        used: The decision had an effect on the world.
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
        """The conversation that led here, this one included."""
        found: list[Exchange] = []
        at: Exchange | None = self
        while at is not None:
            found.append(at)
            at = at.parent
        return found[::-1]


class Recorder:
    """The record of one session. For one thread at a time."""

    def __init__(self) -> None:
        self.exchanges: list[Exchange] = []
        self._history = History()

    def add(self, context: Context, step: Step, *, side: bool = False) -> Exchange:
        """Records an answer.

        Args:
            context: Of the request.
            step: The decision that answered it.
            side: Whether the agent says that it is no decision of its own.
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
        """All exchanges but side calls."""
        return [e for e in self.exchanges if not self.is_side_call(e)]

    def is_side_call(self, exchange: Exchange) -> bool:
        """Whether an exchange is no decision of the agent.

        Commit messages, memories, summaries, the choice of the next speaker: a single
        question without tools that shares no message with any other conversation of
        the session, and whose answer had no effect and was not gone on with. The first
        of a session is one only if there is a conversation beside it.
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
        """How often a decision did not simply go on, by what it did instead."""
        usual = (Continuity.FIRST, Continuity.CONTINUED)
        return Counter(
            e.continuity for e in self.decisions if e.continuity not in usual
        )

    def trajectories(self, task: Task) -> list[Trajectory]:
        """One trajectory for each conversation, in the order in which they ended.

        Where a conversation branches there are several with the same beginning. What
        they share belongs to the first of them; in the others it is marked as
        replayed, so that nothing is learned from it twice.
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
    Continuity.BRANCHED: "ask again where they were answered already",
    Continuity.SUMMARISED: "cut or retell their history",
    Continuity.SUB_AGENT: "consist of several agents",
    Continuity.UNRELATED: "begin conversations that share nothing",
}


def warnings_of(breaks: Counter[Continuity]) -> Sequence[str]:
    """What a person should know about breaks, in one line for each kind."""
    return [
        f"Agents {_BREAKS[kind]} ({count} times, '{kind}'): what follows is learned"
        " from as a conversation of its own."
        for kind, count in sorted(breaks.items())
    ]

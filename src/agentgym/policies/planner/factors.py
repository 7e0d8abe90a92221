"""The factors of a decision: a distribution each, and what was drawn from it.

A decision is made in factors: first what to do (finish, ask, or one of the tools),
then what to ask for, or the value of each parameter of the tool, each on its own.
"""

from __future__ import annotations

import zlib
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from agentgym.core.task import Message
from agentgym.policies.base import Sampling
from agentgym.policies.built_in import pick
from agentgym.policies.planner.facts import ToolFact, ValueFact, prior
from agentgym.policies.planner.features import BLOCKS, POINTER_FEATURES, State
from agentgym.policies.planner.heads import (
    Array,
    Case,
    ChoiceHead,
    PointerHead,
    log_softmax,
)
from agentgym.policies.planner.toolset import ASK, FINISH, Parameter

FactorKey = str | tuple[int, int]
"""Names a factor: one of the following, or (tool, parameter) by their positions."""
OPTION, CALL, ABOUT = "option", "call", "about"
"""What to do; which tool to call, where one must be; what to ask for."""

_CURIOSITY = 0.5
"""How much exploration prefers what is likely: 0 not at all, 1 as the policy itself."""

# An untrained planner prefers tools whose description resembles what was said, calls
# nothing twice, and finishes when a call has succeeded. Of values that are listed by
# name alone it takes the one that was said, so surely that a few tasks don't make it
# memorize which value goes with which other words. Where values are described, people
# may well say the name of one and mean another.
_SIMILARITY = {"tool": 3.0, "value": 2.0, "pointer": 3.0}
_TOOL_PRIOR = prior(
    ToolFact,
    {
        ToolFact.CALLED: -8.0,
        ToolFact.JUST_CALLED: -6.0,
        ToolFact.RESULT_FITS: 1.0,
        ToolFact.FINISH: 8.0,
        ToolFact.IDLE: -3.0,
        ToolFact.ASKED: -8.0,
    },
)
_VALUE_PRIOR = prior(
    ValueFact,
    {ValueFact.SAID: 1.0, ValueFact.SAID_PLAINLY: 5.0, ValueFact.FOUND: 2.0},
)


@dataclass(frozen=True, slots=True, eq=False)
class Pointing:
    """What one distribution of the pointer head is computed from."""

    parameter: Parameter
    values: Array
    """One row for each value that was found."""


@dataclass(slots=True, eq=False)
class Choice:
    """One factor: a distribution and what was drawn from it."""

    key: FactorKey
    head: str
    case: Case | Pointing
    """What its distribution is computed from."""
    logprobs: Array
    chosen: int = 0
    explored: bool = False


@dataclass(slots=True, eq=False)
class Trace:
    """What `learn` needs of a decision.

    Attributes:
        state_key: Of the request. Siblings with the same one share distributions.
        messages: Of the request.
        drawn: Log-probability of each choice under the sampler, exploration included.
    """

    state_key: str
    messages: tuple[Message, ...]
    state: State
    choices: list[Choice]
    drawn: list[float]

    def small(self) -> dict[str, Any]:
        """Plain data, from which `Heads.rebuilt` makes it again."""
        return {
            "state_key": self.state_key,
            "messages": self.messages,
            "tools": self.state.toolset.tools,
            "choices": [[c.key, c.chosen, c.explored] for c in self.choices],
            "drawn": self.drawn,
        }


class Heads:
    """The heads of a planner and the distributions that they give."""

    def __init__(self) -> None:
        self.tool = ChoiceHead(_TOOL_PRIOR, _SIMILARITY["tool"], seed=1, habits=True)
        self.value = ChoiceHead(_VALUE_PRIOR, _SIMILARITY["value"], seed=2)
        self.pointer = PointerHead(
            BLOCKS, POINTER_FEATURES, (0.0, 0.0, _SIMILARITY["pointer"])
        )
        self.by_name: dict[str, ChoiceHead | PointerHead] = {
            "tool": self.tool,
            "value": self.value,
            "pointer": self.pointer,
        }

    def choice(self, state: State, key: FactorKey) -> Choice:
        """A factor by its name, over a distribution computed once for each state."""
        known: Choice | None = state.distributions.get(key)
        if known is None:
            known = state.distributions[key] = self._compute(state, key)
        return replace(known)

    def rebuilt(self, small: Mapping[str, Any], state: State) -> Trace:
        """The trace that `small` was made of."""
        choices = []
        for key, chosen, explored in small["choices"]:
            choice = self.choice(state, key if isinstance(key, str) else tuple(key))
            choice.chosen, choice.explored = chosen, explored
            choices.append(choice)
        messages = tuple(small["messages"])
        return Trace(small["state_key"], messages, state, choices, small["drawn"])

    def _compute(self, state: State, key: FactorKey) -> Choice:
        name, case = self._case(state, key)
        if isinstance(case, Pointing):
            own = case.parameter
            logits = self.pointer.scores(own.slot, own.query, case.values)
        else:
            head = self.by_name[name]
            assert isinstance(head, ChoiceHead)
            logits = head.logits(case)
        return Choice(key, name, case, log_softmax(logits))

    def _case(self, state: State, key: FactorKey) -> tuple[str, Case | Pointing]:
        """The head that a factor is drawn from, and what it is given."""
        known: tuple[str, Case | Pointing] | None = state.cases.get(key)
        if known is None:
            known = state.cases[key] = self._make_case(state, key)
        return known

    def _make_case(self, state: State, key: FactorKey) -> tuple[str, Case | Pointing]:
        tools = state.toolset
        said, past = state.clauses, state.history
        if key in (OPTION, CALL):
            open_ = state.open
            if key == CALL:
                open_ = open_ & (np.arange(len(open_)) > max(FINISH, ASK))
            # Once something has been done, whether to finish depends on that, not on
            # any single clause: one that is settled must not hide one that is not.
            settled = 1 if state.last is not None else 0
            if tools.shared_rows:
                # Whether any tool is right depends on how well they fit, not on words.
                settled = 2
            gated = tools.shared_rows and state.last is None
            case = Case(tools.options, said, past, state.facts, open_, settled, gated)
            return "tool", case
        if key == ABOUT:
            assert tools.ask_options is not None
            return "value", Case(tools.ask_options, said, past, state.ask_facts())
        assert isinstance(key, tuple)
        tool, index = key
        parameter = tools.parameters[tool][index]
        if parameter.options is not None and parameter.values is not None:
            facts = state.value_facts(parameter)
            return "value", Case(parameter.options, said, past, facts)
        found = state.candidates(tool, parameter)
        values = state.pointer_features(found, parameter.name)
        return "pointer", Pointing(parameter, values)


def draw(choice: Choice, sampling: Sampling, share: float) -> float:
    """Draws one factor; returns the log-probability with which it was drawn.

    Args:
        choice: The factor; takes what is drawn.
        sampling: How, and what siblings have not tried; but for the share of
            exploration.
        share: Of the draws that explore.
    """
    rng = sampling.rng
    if rng is None:
        choice.chosen = int(choice.logprobs.argmax())
        return float(choice.logprobs[choice.chosen])
    odds = np.exp(choice.logprobs)
    if share <= 0:
        choice.chosen = pick(odds, rng)
        return float(choice.logprobs[choice.chosen])
    # Siblings that explore at one state try different things: each draws from what
    # the others have left.
    order = rng
    everything = np.flatnonzero(odds > 0).tolist()
    left = sampling.untried.get(choice.key) or everything
    if sampling.turn is not None:
        name = zlib.crc32(repr(choice.key).encode())
        order = np.random.default_rng([*sampling.turn.order, name])
        left = []
        # What those before it try here, if they explore as much as this one.
        for _ in range(sampling.turn.number):
            left = left or list(everything)
            if order.random() < share:
                del left[pick(_curious(odds[left]), order)]
        left = left or everything
    curious = _curious(odds[left])
    choice.explored = bool(order.random() < share)
    if choice.explored:
        at = pick(curious, order)
        choice.chosen = left[at]
        sampling.untried[choice.key] = left[:at] + left[at + 1 :]
    else:
        choice.chosen = pick(odds, rng)
    by_exploring = curious[left.index(choice.chosen)] if choice.chosen in left else 0.0
    return float(np.log((1 - share) * odds[choice.chosen] + share * by_exploring))


def _curious(odds: Array) -> Array:
    flat: Array = odds ** np.float32(_CURIOSITY)
    flat /= flat.sum()
    return flat

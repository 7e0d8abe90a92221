"""The factors of a decision: a distribution each, and what was drawn from it.

A decision is made in factors: first what to do (finish, ask, or one of the tools),
then what to ask for, or the value of each parameter of the tool, each on its own.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np
import numpy.typing as npt

from agentgym.policies.planner.facts import ToolFact, ValueFact, prior
from agentgym.policies.planner.features import (
    ASK,
    BLOCKS,
    FINISH,
    POINTER_FEATURES,
    Parameter,
    State,
)
from agentgym.policies.planner.heads import (
    Array,
    ChoiceHead,
    Options,
    PointerHead,
    log_softmax,
)

FactorKey = str | tuple[int, int]
"""Names a factor: one of the following, or (tool, parameter) by their positions."""
OPTION, CALL, ABOUT = "option", "call", "about"
"""What to do; which tool to call, where one must be; what to ask for."""

# An untrained planner prefers tools whose description resembles what was said, calls
# nothing twice, and finishes when a call has succeeded.
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
_VALUE_PRIOR = prior(ValueFact, {ValueFact.SAID: 1.0, ValueFact.FOUND: 2.0})


@dataclass(slots=True, eq=False)
class Choice:
    """One factor: a distribution and what was drawn from it."""

    key: FactorKey
    head: str
    logprobs: Array
    chosen: int = 0
    explored: bool = False
    parameter: Parameter | None = None
    options: Options | None = None
    facts: Array | None = None
    way: tuple[Array, ...] = ()
    """What a choice head's `backward` needs."""


@dataclass(slots=True, eq=False)
class Trace:
    """What `learn` needs of a decision."""

    state: State
    choices: list[Choice]
    drawn: list[float]
    """Log-probability of each choice under the sampler, exploration included."""


class Heads:
    """The heads of a planner and the distributions that they give."""

    def __init__(self) -> None:
        self.tool = ChoiceHead(_TOOL_PRIOR, _SIMILARITY["tool"], seed=1)
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

    def _compute(self, state: State, key: FactorKey) -> Choice:
        if key in (OPTION, CALL):
            open_ = state.open
            if key == CALL:
                open_ = open_ & (np.arange(len(open_)) > max(FINISH, ASK))
            # Once something has been done, whether to finish depends on that, not on
            # any single clause: one that is settled must not hide one that is not.
            settled = 1 if state.last is not None else 0
            return self._described(
                key,
                "tool",
                state,
                state.toolset.options,
                state.facts,
                open_,
                settled,
            )
        if key == ABOUT:
            assert state.toolset.ask_options is not None
            return self._described(
                key, "value", state, state.toolset.ask_options, state.ask_facts()
            )
        assert isinstance(key, tuple)
        tool, index = key
        parameter = state.toolset.parameters[tool][index]
        if parameter.options is not None and parameter.values is not None:
            facts = state.value_facts(parameter.values)
            return self._described(key, "value", state, parameter.options, facts)
        features = state.features.get(key)
        if features is None:
            found = state.candidates(tool, parameter)
            features = state.pointer_features(found, parameter.name)
            state.features[key] = features
        logits = self.pointer.scores(parameter.slot, parameter.query, features)
        return Choice(key, "pointer", log_softmax(logits), parameter=parameter)

    def _described(
        self,
        key: FactorKey,
        name: str,
        state: State,
        options: Options,
        facts: Array,
        open_: npt.NDArray[np.bool_] | None = None,
        detached: int = 0,
    ) -> Choice:
        head = self.by_name[name]
        assert isinstance(head, ChoiceHead)
        logits, way = head.scores(
            options, state.clauses, state.history, facts, detached
        )
        if open_ is not None:
            logits = np.where(open_, logits, -np.inf)
        return Choice(
            key, name, log_softmax(logits), options=options, facts=facts, way=way
        )


def draw(
    state: State, choice: Choice, rng: np.random.Generator | None, share: float
) -> float:
    """Draws one factor; returns the log-probability with which it was drawn."""
    if rng is None:
        choice.chosen = int(choice.logprobs.argmax())
        return float(choice.logprobs[choice.chosen])
    odds = np.exp(choice.logprobs)
    valid = np.flatnonzero(odds > 0)
    choice.explored = bool(rng.random() < share)
    if choice.explored:
        # Siblings at one state take turns through a random order, so that they
        # try different things; each of them alone still draws uniformly.
        untried = state.untried.setdefault(choice.key, [])
        if not untried:
            untried.extend(rng.permutation(valid).tolist())
        choice.chosen = untried.pop()
    else:
        total = odds.cumsum()
        at = int(np.searchsorted(total, rng.random() * total[-1], side="right"))
        choice.chosen = min(at, int(valid[-1]))
    return float(np.log((1 - share) * odds[choice.chosen] + share / len(valid)))

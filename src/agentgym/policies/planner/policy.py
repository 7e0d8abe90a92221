"""The planner policy: decides by its heads, learns by policy gradient.

It chooses among finishing, asking and the tools, then, given a tool, the value of each
parameter on its own. Wording is frozen: its messages to the user come from fixed
phrases, or from a language model that it drives.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any, Self, Unpack

import numpy as np

from agentgym.core.task import Message
from agentgym.core.tools import Tool, ToolCall
from agentgym.core.trajectory import Group
from agentgym.errors import FormatError
from agentgym.policies.base import (
    Decision,
    DecisionRequest,
    Sampling,
    UpdateSettings,
    UpdateStats,
)
from agentgym.policies.built_in import BuiltInPolicy, Calibration, PolicyFiles
from agentgym.policies.calls.conversation import (
    Called,
    asking_words,
    closing_words,
    content_text,
)
from agentgym.policies.planner.encoder import MINILM, WIDTH, SentenceEncoder
from agentgym.policies.planner.factors import (
    ABOUT,
    CALL,
    OPTION,
    Choice,
    FactorKey,
    Heads,
    Trace,
    draw,
)
from agentgym.policies.planner.facts import KIND_OF_TOOLS
from agentgym.policies.planner.features import State, texts_to_encode
from agentgym.policies.planner.heads import NO_ROW, Array
from agentgym.policies.planner.learner import DEFAULTS, Learner, PlannerOptions
from agentgym.policies.planner.toolset import ABSENT, ASK, FINISH, ToolSet
from agentgym.policies.planner.vectors import TextCache

_FILES = PolicyFiles(
    "planner", "agentgym-planner", 5, "planner.json", "planner.safetensors"
)

_LAYERS = 4
"""Of the encoder's six: a third less is computed, and what is learned carries over to
wordings never seen no worse than on the last."""
_EXPLORE_OPTION = 0.7
"""Share of exploration that goes to the option; the parameters get the rest."""
_CACHE_BYTES = 192 << 20
_TOOLSET_BYTES = 128 << 20
"""What the compiled tool sets may take, about."""
_MAX_KNOWN_TOOLS = 64
"""Tools that may have rows of their own; see `PlannerPolicy._shared_rows`."""
_MAX_DESCRIBED = 16_384
_MAX_COUNTED = 20_000
_COUNTED_CHARACTERS = 8 << 20
"""Texts of which the number of tokens is remembered, and their length in all."""


class PlannerPolicy(BuiltInPolicy[ToolSet, State]):
    """Tool and parameter heads over a frozen sentence encoder."""

    name = "planner"
    training_defaults = {
        "learning_rate": 0.007,
        "group_size": 24,
        "batch_size": 16,
        "exploration": 0.1,
        "entropy": 0.02,
    }
    policy_options = PlannerOptions
    assets = (MINILM,)
    _max_toolsets = 1024

    def __init__(
        self, encoder: SentenceEncoder | None = None, options: PlannerOptions = DEFAULTS
    ) -> None:
        """Makes an untrained planner.

        Args:
            encoder: Reads texts; by default the one that all planners share.
            options: How it learns.
        """
        super().__init__()
        self.options = options
        self.encoder = encoder or SentenceEncoder.load(_LAYERS)
        self.heads = Heads()
        self.slots: dict[str, dict[str, int]] = {n: {} for n in self.heads.by_name}
        """Row of each tool, value and parameter in the arrays of its head."""
        self._make_room()
        self._learner = Learner(self.heads, self.options)
        self._texts = TextCache(self.encoder, _CACHE_BYTES)
        self._compiled_bytes = 0
        self._described: dict[str, Array] = {}
        """Encoded sentences of descriptions: tool sets have tools in common."""
        self._tokens: dict[str, int] = {}
        self._counted = 0
        """Characters of the texts whose tokens are remembered."""

    @classmethod
    def create(cls, seed: int, options: PlannerOptions) -> Self:
        """Makes an untrained planner. Nothing in it is random."""
        return cls(options=options)

    # Deciding --------------------------------------------------------------------

    def _answer(
        self, requests: Sequence[DecisionRequest], how: Sequence[Sampling]
    ) -> list[Decision]:
        return list(map(self._decide, requests, self._read(requests), how))

    def prepare(self, conversations: Sequence[Sequence[Message]]) -> None:
        """Encodes what was said in a worker thread."""
        self._texts.prefetch(
            text
            for messages in conversations
            for text in texts_to_encode(self._reader.read(messages))
        )

    def _new_states(
        self, asked: Mapping[str, tuple[DecisionRequest, ToolSet]]
    ) -> dict[str, State]:
        read = {
            key: (toolset, self._reader.read(request.messages))
            for key, (request, toolset) in asked.items()
        }
        texts = self._texts.get(
            text for _, parts in read.values() for text in texts_to_encode(parts)
        )
        return {
            key: State(toolset, parts, texts) for key, (toolset, parts) in read.items()
        }

    def _decide(
        self, request: DecisionRequest, state: State, sampling: Sampling
    ) -> Decision:
        # At most one factor is explored at a time: a tool that is new gets the
        # parameters that the policy thinks best, and the other way round.
        share = sampling.exploration
        callable_ = state.open[max(FINISH, ASK) + 1 :].any()
        first = CALL if request.must_call and callable_ else OPTION
        choices = [self.heads.choice(state, first)]
        drawn = [draw(choices[0], sampling, _EXPLORE_OPTION * share)]
        option = choices[0].chosen
        rest: Sequence[FactorKey] = []
        if option == ASK:
            rest = [ABOUT]
        elif option != FINISH:
            count = len(state.toolset.parameters[option - 2])
            rest = [(option - 2, index) for index in range(count)]
        for key in rest:
            choices.append(self.heads.choice(state, key))
            part = 0.0 if choices[0].explored else (1 - _EXPLORE_OPTION) * share
            drawn.append(draw(choices[-1], sampling, part / len(rest)))
        logprob = float(sum(c.logprobs[c.chosen] for c in choices))
        decision = self._phrase(state, option, choices)
        decision.logprob = sum(drawn)
        decision.confidence = self.calibration.confidence(float(np.exp(logprob)))
        decision.prompt_tokens = state.toolset.tokens + sum(
            self._message_tokens(message) for message in request.messages
        )
        decision.completion_tokens = self._message_tokens(decision.message)
        if sampling.rng is not None:  # Otherwise the trace has no use.
            decision.trace = Trace(
                request.state_key, tuple(request.messages), state, choices, drawn
            )
        return decision

    def _phrase(self, state: State, option: int, choices: list[Choice]) -> Decision:
        if option == FINISH:
            return Decision(
                {"role": "assistant", "content": closing_words(state.last)}, "finish"
            )
        if option == ASK:
            about = list(state.toolset.askable.values())[choices[1].chosen]
            text = asking_words(about)
            return Decision({"role": "assistant", "content": text}, "ask")
        tool = state.toolset.tools[option - 2]
        arguments = {}
        parameters = state.toolset.parameters[option - 2]
        for p, choice in zip(parameters, choices[1:], strict=True):
            values = p.values or [c.value for c in state.candidates(option - 2, p)]
            if values[choice.chosen] is not ABSENT:
                arguments[p.name] = values[choice.chosen]
        made = sum(isinstance(part, Called) for part in state.parts)
        return Decision.calling(ToolCall(tool.name, arguments, f"call_{made}"))

    # Learning --------------------------------------------------------------------

    def learn(
        self, groups: Sequence[Group], **settings: Unpack[UpdateSettings]
    ) -> UpdateStats:
        """Takes one update; `learner` says how."""
        traces = [
            step.trace
            for group in groups
            for trajectory in group.trajectories
            for step in trajectory.steps
            if step.trace is not None
        ]
        # Tools that were never announced, such as an agent's.
        self._find_rows(trace.state.toolset for trace in traces)
        stats = self._learner.update(groups, **settings)
        self._states.clear()
        return stats

    def meet(self, tools: Iterable[Sequence[Tool]]) -> None:
        """Gives tools rows of their own; if there are too many, one for their kind."""
        offered = list(tools)
        names = {*self.slots["tool"], *(tool.name for some in offered for tool in some)}
        if len(names) > _MAX_KNOWN_TOOLS and not self._shared_rows:
            self.slots["tool"][KIND_OF_TOOLS] = len(self.slots["tool"])
            self._forget_tools()
            self._states.clear()
        self._find_rows(map(self._toolset, offered))

    def _find_rows(self, toolsets: Iterable[ToolSet]) -> None:
        def row(head: str, name: str) -> int:
            return self.slots[head].setdefault(name, len(self.slots[head]))

        for toolset in toolsets:
            if not toolset.complete:
                toolset.find_rows(row)
        self._make_room()

    def _make_room(self) -> None:
        """A row for each name, and one of zeros behind them for all other names."""
        for name, head in self.heads.by_name.items():
            head.parameters.grow(len(self.slots[name]) + 1)

    def rebuild(self, traces: Sequence[dict[str, Any]]) -> list[Trace]:
        """See `Policy`."""
        requests = [
            DecisionRequest(t["messages"], t["tools"], t["state_key"]) for t in traces
        ]
        states = self._read(requests)
        return [self.heads.rebuilt(*one) for one in zip(traces, states, strict=True)]

    # Tokens, saving, loading -----------------------------------------------------

    def count_tokens(self, text: str) -> int:
        """Tokens of the encoder's tokenizer; remembered for texts seen lately."""
        known = self._tokens.get(text)
        if known is None:
            full = self._counted > _COUNTED_CHARACTERS
            if full or len(self._tokens) > _MAX_COUNTED:
                self._tokens.clear()
                self._counted = 0
            known = self._tokens[text] = self.encoder.count_tokens(text)
            self._counted += len(text)
        return known

    def _message_tokens(self, message: Mapping[str, Any]) -> int:
        total = 0
        if message.get("content"):
            total += self.count_tokens(content_text(message["content"]))
        for call in message.get("tool_calls") or ():
            function = call["function"]
            total += self.count_tokens(f"{function['name']}({function['arguments']})")
        return total

    def state(self) -> dict[str, Any]:
        """Weights, slots, optimiser and calibration."""
        return {**self.weights(), "optimizer": self._learner.optimizer.state()}

    def weights(self) -> dict[str, Any]:
        """Weights, slots and calibration."""
        return {
            "slots": {head: dict(rows) for head, rows in self.slots.items()},
            "weights": {
                name: dict(head.parameters.arrays)
                for name, head in self.heads.by_name.items()
            },
            "calibration": [self.calibration.slope, self.calibration.offset],
        }

    def load_state(self, state: Mapping[str, Any]) -> None:
        """Restores what `state` or `weights` returned."""
        self._load_weights(state["slots"], state["weights"])
        self._learner = Learner(self.heads, self.options)
        if "optimizer" in state:
            self._learner.optimizer.load_state(state["optimizer"])
        self.calibration = Calibration(*map(float, state["calibration"]))

    def _load_weights(
        self,
        slots: Mapping[str, Mapping[str, int]],
        weights: Mapping[str, Mapping[str, Any]],
    ) -> None:
        for name, head in self.heads.by_name.items():
            arrays = head.parameters.arrays
            for key, old in arrays.items():
                new = np.array(weights[name][key], np.float32)
                if new.shape[1:] != old.shape[1:] or (
                    key not in head.parameters.row_arrays and new.shape != old.shape
                ):
                    raise FormatError(
                        f"The planner's weights '{name}.{key}' have shape {new.shape}, "
                        f"not {old.shape}: another version wrote them."
                    )
                arrays[key] = new
            head.parameters.version += 1
        self.slots = {
            n: {k: int(i) for k, i in slots[n].items()} for n in self.heads.by_name
        }
        self._make_room()
        self._forget_tools()
        self._states.clear()

    def save(self, folder: Path) -> None:
        """Writes `planner.safetensors` and `planner.json`."""
        arrays = {
            f"{name}.{key}": np.ascontiguousarray(
                array[: len(self.slots[name])]
                if key in head.parameters.row_arrays
                else array
            )
            for name, head in self.heads.by_name.items()
            for key, array in head.parameters.arrays.items()
        }
        facts = {
            "slots": self.slots,
            "calibration": [self.calibration.slope, self.calibration.offset],
        }
        _FILES.write(folder, facts, arrays)

    @classmethod
    def load(cls, folder: Path) -> PlannerPolicy:
        """Reads what `save` wrote.

        Raises:
            FormatError: The files are missing, damaged or from another version.
        """
        with _FILES.read(folder) as (facts, arrays):
            policy = cls()
            weights: dict[str, dict[str, Any]] = {
                name: {} for name in policy.heads.by_name
            }
            for key, array in arrays.items():
                name, _, rest = key.partition(".")
                weights[name][rest] = array
            policy._load_weights(facts["slots"], weights)
            policy.calibration = Calibration(*map(float, facts["calibration"]))
        return policy

    # -----------------------------------------------------------------------------

    def _compile(self, tools: Sequence[Tool], definitions: str) -> ToolSet:
        if self._compiled_bytes > _TOOLSET_BYTES:
            self._forget_tools()
        toolset = ToolSet(
            hashlib.blake2b(definitions.encode(), digest_size=12).hexdigest(),
            tools,
            self._pooled,
            lambda text: self._texts.get([text])[text],
            self.count_tokens(definitions),
            self._shared_rows,
        )
        toolset.find_rows(lambda head, name: self.slots[head].get(name, NO_ROW))
        self._compiled_bytes += toolset.size + len(definitions)
        return toolset

    def _forget_tools(self) -> None:
        super()._forget_tools()
        self._compiled_bytes = 0

    @property
    def _shared_rows(self) -> bool:
        """Whether so many tools were seen that they share rows.

        A private row would be memorized, and says nothing about the next tool.
        The rows of their kind hold what all tools have in common.
        """
        return KIND_OF_TOOLS in self.slots["tool"]

    def _pooled(self, texts: Sequence[str]) -> Array:
        if not texts:
            return np.zeros((0, WIDTH), np.float32)
        if len(self._described) > _MAX_DESCRIBED:
            self._described.clear()
        fresh = [text for text in dict.fromkeys(texts) if text not in self._described]
        for text, encoded in zip(fresh, self.encoder.encode(fresh), strict=True):
            self._described[text] = encoded.pooled
        return np.stack([self._described[text] for text in texts])

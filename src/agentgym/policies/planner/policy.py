"""The planner policy: decides by its heads, learns by policy gradient.

It chooses among finishing, asking and the tools, then, given a tool, the value of each
parameter on its own. Wording is frozen: what it says to the user comes from fixed
phrases, or from a language model that it drives.
"""

from __future__ import annotations

import json
import time
from collections.abc import Iterable, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np

from agentgym.core.errors import FormatError, TrainingDiverged
from agentgym.core.task import Message
from agentgym.core.tools import Tool, ToolCall
from agentgym.core.trajectory import Group
from agentgym.policies.base import (
    GREEDY,
    Decision,
    DecisionRequest,
    Policy,
    Sampling,
    UpdateStats,
)
from agentgym.policies.planner.conversation import Called, Reader, content_text
from agentgym.policies.planner.encoder import WIDTH, EncodedText, SentenceEncoder
from agentgym.policies.planner.features import (
    ABSENT,
    ASK,
    BLOCKS,
    FINISH,
    POINTER_FEATURES,
    Parameter,
    State,
    ToolSet,
    texts_to_encode,
    tool_prior,
)
from agentgym.policies.planner.heads import (
    Adam,
    Array,
    ChoiceHead,
    Options,
    PointerHead,
    log_softmax,
)
from agentgym.utils.files import atomic_write_bytes

FORMAT = "agentgym-planner"
FORMAT_VERSION = 1

_COMPONENT = {
    "tool": "tool_selection",
    "value": "parameter_selection",
    "pointer": "parameter_selection",
}

# What is shared by all options moves them all at once: a small share of the rate.
_RATES = {"match": 0.03, "described": 0.1, "facts": 0.3}

# An untrained planner prefers tools whose description resembles what was said, calls
# nothing twice, and finishes when a call has succeeded.
_SIMILARITY = {"tool": 3.0, "value": 2.0, "pointer": 3.0}
_TOOL_PRIOR = tool_prior(
    called=-8.0, just_called=-6.0, result_fits=1.0, finish=8.0, idle=-3.0, asked=-8.0
)
_VALUE_PRIOR = (1.0, 2.0, 0.0, 0.0)

_PASSES = 6
"""Times that an update goes over its samples."""
_CLIP = 0.3
"""How far the later passes may move the ratio of probabilities from 1."""
_BLAME = 0.5
"""Weight of what went wrong, relative to what went right."""
_LOST = 10.0
"""Entropy bonus where all siblings went wrong alike, relative to elsewhere."""
_EXPLORE_OPTION = 0.7
"""Share of exploration that goes to the option; the parameters get the rest."""
_MAX_GRADIENT = 5.0
_CACHE_BYTES = 96 << 20
_TEXT_BYTES = 4096
"""What a cached text takes besides its hidden states, about."""
_AHEAD = 8
"""Texts that are encoded ahead at a time."""


_OPTION, _ABOUT = "option", "about"
"""Factors of a decision: what to do, what to ask for; the others are (tool, index)."""


@dataclass(slots=True, eq=False)
class _Choice:
    """One factor of a decision: a distribution and what was drawn from it."""

    key: Any
    head: str
    logprobs: Array
    chosen: int = 0
    explored: bool = False
    parameter: Parameter | None = None
    options: Options | None = None
    facts: Array | None = None
    way: Any = None
    """What a choice head's `backward` needs."""


@dataclass(slots=True, eq=False)
class Trace:
    """What `learn` needs of a decision."""

    state: State
    choices: list[_Choice]
    drawn: list[float]
    """Log-probability of each choice under the sampler, exploration included."""


class PlannerPolicy(Policy):
    """Tool and parameter heads over a frozen sentence encoder."""

    name = "planner"
    training_defaults = {
        "learning_rate": 0.007,
        "group_size": 24,
        "batch_size": 16,
        "exploration": 0.1,
        "entropy": 0.02,
    }

    def __init__(self, encoder: SentenceEncoder | None = None) -> None:
        self.encoder = encoder or SentenceEncoder.load()
        self.heads: dict[str, ChoiceHead | PointerHead] = {
            "tool": ChoiceHead(_TOOL_PRIOR, _SIMILARITY["tool"], seed=1),
            "value": ChoiceHead(_VALUE_PRIOR, _SIMILARITY["value"], seed=2),
            "pointer": PointerHead(
                BLOCKS, POINTER_FEATURES, (0.0, 0.0, _SIMILARITY["pointer"])
            ),
        }
        self.slots: dict[str, dict[str, int]] = {name: {} for name in self.heads}
        self.optimizer = Adam()
        self.calibration = (1.0, 0.0)
        """Slope and offset on the log-odds of the raw confidence."""
        self._reader = Reader()
        self._texts = _TextCache(self.encoder, _CACHE_BYTES)
        self._toolsets: dict[tuple[int, ...], tuple[ToolSet, Sequence[Tool]]] = {}
        self._states: dict[str, State] = {}
        self._tokens: dict[str, int] = {}

    # Deciding --------------------------------------------------------------------

    def decide(
        self, requests: Sequence[DecisionRequest], sampling: Sampling = GREEDY
    ) -> list[Decision]:
        """Answers all requests; equal states are computed once."""
        started = time.perf_counter()
        states = self._read(requests)
        decisions = [
            self._decide(request, state, sampling)
            for request, state in zip(requests, states, strict=True)
        ]
        share = (time.perf_counter() - started) / max(1, len(requests))
        for decision in decisions:
            decision.latency = share
        return decisions

    def prepare(self, conversations: Sequence[Sequence[Message]]) -> None:
        """Encodes what was said in a worker thread."""
        self._texts.prefetch(
            text
            for messages in conversations
            for text in texts_to_encode(self._reader.read(messages))
        )

    def _read(self, requests: Sequence[DecisionRequest]) -> list[State]:
        fresh: dict[str, tuple[DecisionRequest, ToolSet]] = {}
        keys = []
        for i, request in enumerate(requests):
            toolset = self._toolset(request.tools)
            key = f"{request.state_key or f'#{i}'} {id(toolset)}"
            keys.append(key)
            if not request.state_key or key not in self._states:
                fresh.setdefault(key, (request, toolset))
        read = {
            key: (toolset, self._reader.read(request.messages))
            for key, (request, toolset) in fresh.items()
        }
        texts = self._texts.get(
            text for _, parts in read.values() for text in texts_to_encode(parts)
        )
        if len(self._states) > 4096:
            self._states.clear()
        made = {
            key: State(toolset, parts, texts) for key, (toolset, parts) in read.items()
        }
        self._states.update((k, v) for k, v in made.items() if not k.startswith("#"))
        return [made.get(key) or self._states[key] for key in keys]

    def _decide(
        self, request: DecisionRequest, state: State, sampling: Sampling
    ) -> Decision:
        if request.exploration is not None:
            sampling = Sampling(sampling.rng, request.exploration)
        # At most one factor is explored at a time: a tool that is new gets the
        # parameters that the policy thinks best, and the other way round.
        share = sampling.exploration
        choices = [self._choice(state, _OPTION)]
        drawn = [self._draw(state, choices[0], sampling.rng, _EXPLORE_OPTION * share)]
        option = choices[0].chosen
        rest: list[Any] = []
        if option == ASK:
            rest = [_ABOUT]
        elif option != FINISH:
            count = len(state.toolset.parameters[option - 2])
            rest = [(option - 2, index) for index in range(count)]
        for key in rest:
            choices.append(self._choice(state, key))
            part = 0.0 if choices[0].explored else (1 - _EXPLORE_OPTION) * share
            drawn.append(self._draw(state, choices[-1], sampling.rng, part / len(rest)))
        logprob = float(sum(c.logprobs[c.chosen] for c in choices))
        decision = self._phrase(state, option, choices)
        decision.logprob = sum(drawn)
        decision.confidence = self._calibrated(logprob)
        decision.prompt_tokens = state.toolset.tokens + sum(
            self._message_tokens(message) for message in request.messages
        )
        decision.completion_tokens = self._message_tokens(decision.message)
        decision.trace = Trace(state, choices, drawn)
        return decision

    @staticmethod
    def _draw(
        state: State, choice: _Choice, rng: np.random.Generator | None, share: float
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

    def _choice(self, state: State, key: Any) -> _Choice:
        """A factor by its name, over a distribution computed once for each state."""
        known: _Choice | None = state.distributions.get(key)
        if known is None:
            known = state.distributions[key] = self._compute(state, key)
        return replace(known)

    def _compute(self, state: State, key: Any) -> _Choice:
        if key == _OPTION:
            # Once something has been done, whether to finish depends on that, not on
            # any single clause: one that is settled must not hide one that is not.
            settled = 1 if state.last is not None else 0
            return self._described(
                key,
                "tool",
                state,
                state.toolset.options,
                state.facts,
                state.open,
                settled,
            )
        if key == _ABOUT:
            assert state.toolset.ask_options is not None
            return self._described(
                key, "value", state, state.toolset.ask_options, state.ask_facts()
            )
        tool, index = key
        parameter = state.toolset.parameters[tool][index]
        if parameter.options is not None and parameter.values is not None:
            facts = state.value_facts(parameter.values)
            return self._described(key, "value", state, parameter.options, facts)
        pointer = self.heads["pointer"]
        assert isinstance(pointer, PointerHead)
        features = state.features.get(key)
        if features is None:
            found = state.candidates(tool, parameter)
            features = state.pointer_features(found, parameter.name)
            state.features[key] = features
        logits = pointer.scores(parameter.slot, parameter.query, features)
        return _Choice(key, "pointer", log_softmax(logits), parameter=parameter)

    def _described(
        self,
        key: Any,
        name: str,
        state: State,
        options: Options,
        facts: Array,
        open_: Any = None,
        detached: int = 0,
    ) -> _Choice:
        head = self.heads[name]
        assert isinstance(head, ChoiceHead)
        logits, way = head.scores(
            options, state.clauses, state.history, facts, detached
        )
        if open_ is not None:
            logits = np.where(open_, logits, -np.inf)
        return _Choice(
            key, name, log_softmax(logits), options=options, facts=facts, way=way
        )

    def _phrase(self, state: State, option: int, choices: list[_Choice]) -> Decision:
        if option == FINISH:
            return Decision(
                {"role": "assistant", "content": closing_words(state.last)}, "finish"
            )
        if option == ASK:
            about = list(state.toolset.askable.values())[choices[1].chosen]
            text = f"Could you please tell me the {about}?"
            return Decision({"role": "assistant", "content": text}, "ask")
        tool = state.toolset.tools[option - 2]
        arguments = {}
        for choice in choices[1:]:
            p = state.toolset.parameters[option - 2][choice.key[1]]
            values = p.values or [c.value for c in state.candidates(option - 2, p)]
            if values[choice.chosen] is not ABSENT:
                arguments[p.name] = values[choice.chosen]
        made = sum(isinstance(part, Called) for part in state.parts)
        call = ToolCall(tool.name, arguments, f"call_{made}")
        message = {
            "role": "assistant",
            "content": None,
            "tool_calls": [call.to_openai()],
        }
        return Decision(message, "call", (call,))

    # Learning --------------------------------------------------------------------

    def learn(
        self,
        groups: Sequence[Group],
        *,
        learning_rate: float,
        entropy: float,
        trainable: frozenset[str],
    ) -> UpdateStats:
        """Policy-gradient passes over the current weights' own samples.

        The tool and the parameters of a step are credited apart, with the advantages
        that each of them has among its siblings. The first pass follows
        -w A log p, the later ones the same with PPO's clipped ratio p / p_sampled, and
        every distribution gets an entropy bonus: a larger one where all siblings went
        wrong alike. w is 1 for what went well. What went badly counts half, and less
        where only exploration made it likely (p / q, q the sampler's probability): a
        lucky find counts in full, a blunder the policy would not have made does not.
        """
        factors: list[tuple[State, _Choice, float, float]] = []
        steps = 0
        for step in (s for g in groups for t in g.trajectories for s in t.steps):
            trace: Trace | None = step.trace
            if trace is None:
                continue
            used = False
            for i, choice in enumerate(trace.choices):
                given = step.advantage if i == 0 else step.parameter_advantage
                if given is not None:
                    factors.append((trace.state, choice, given, trace.drawn[i]))
                    used = True
            steps += used
        stats = UpdateStats(steps_learned=steps)
        learnable = [n for n in self.heads if _COMPONENT[n] in trainable]
        for _ in range(_PASSES if factors else 0):
            gradients = {n: self.heads[n].parameters.zeros() for n in learnable}
            upstream = self._upstream(factors, entropy, stats)
            self._backward(upstream, gradients, len(factors))
            self._apply(gradients, learning_rate, stats)
            for state, *_ in factors:
                state.distributions.clear()
        self._states.clear()
        return stats

    def _upstream(
        self,
        factors: Sequence[tuple[State, _Choice, float, float]],
        entropy: float,
        stats: UpdateStats,
    ) -> list[tuple[State, _Choice, Array]]:
        """The loss's gradient with respect to the logits of each distribution."""
        pushes: dict[tuple[int, Any], tuple[State, _Choice, Array]] = {}
        informed: set[tuple[int, Any]] = set()
        stats.loss = stats.entropy = 0.0
        for state, sampled, advantage, drawn in factors:
            key = (id(state), sampled.key)
            if key not in pushes:
                now = self._choice(state, sampled.key)
                pushes[key] = (state, now, np.zeros_like(now.logprobs))
            _, now, push = pushes[key]
            logprob = float(now.logprobs[sampled.chosen])
            before = float(sampled.logprobs[sampled.chosen])
            weight = advantage
            if weight < 0:
                weight *= _BLAME * min(1.0, float(np.exp(before - drawn)))
            if weight:
                informed.add(key)
            stats.loss -= weight * logprob / len(factors)
            ratio = float(np.exp(logprob - before))
            if (ratio > 1 + _CLIP) if weight > 0 else (ratio < 1 - _CLIP):
                continue
            push += weight * ratio * np.exp(now.logprobs)
            push[sampled.chosen] -= weight * ratio
        for key, (_, now, push) in pushes.items():
            finite = np.where(np.isfinite(now.logprobs), now.logprobs, 0.0)
            probabilities = np.exp(now.logprobs)
            spread = -float((probabilities * finite).sum())
            stats.entropy += spread / len(pushes)
            bonus = entropy if key in informed else _LOST * entropy
            push += bonus * probabilities * (finite + spread)
        return list(pushes.values())

    def _backward(
        self,
        upstream: Sequence[tuple[State, _Choice, Array]],
        gradients: dict[str, dict[str, Array]],
        count: int,
    ) -> None:
        matches: dict[str, dict[int, Any]] = {n: {} for n in gradients}
        for state, choice, raw in upstream:
            name = choice.head
            if name not in gradients:
                continue
            push = (raw / count).astype(np.float32)
            head = self.heads[name]
            if isinstance(head, PointerHead):
                assert choice.parameter is not None
                slot, query = choice.parameter.slot, choice.parameter.query
                features = state.features[choice.key]
                head.backward(
                    gradients[name], matches[name], slot, query, features, push
                )
            else:
                assert choice.options is not None and choice.facts is not None
                head.backward(
                    gradients[name],
                    matches[name],
                    choice.options,
                    state.clauses,
                    state.history,
                    choice.facts,
                    choice.way,
                    push,
                )
        for name, waiting in matches.items():
            self.heads[name].finish(gradients[name], waiting)

    def _apply(
        self,
        gradients: dict[str, dict[str, Array]],
        learning_rate: float,
        stats: UpdateStats,
    ) -> None:
        stats.gradient_norms = dict.fromkeys(_COMPONENT.values(), 0.0)
        for name, arrays in gradients.items():
            squares = sum(float((g * g).sum()) for g in arrays.values())
            stats.gradient_norms[_COMPONENT[name]] += squares
        total = float(np.sqrt(sum(stats.gradient_norms.values())))
        stats.gradient_norms = {
            k: float(np.sqrt(v)) for k, v in stats.gradient_norms.items()
        }
        stats.gradient_norm = total
        if not np.isfinite(total):
            raise TrainingDiverged(
                "The update is not finite. Lower the learning rate and resume the run "
                "from its last checkpoint."
            )
        shrink = 1.0
        if total > _MAX_GRADIENT:
            shrink = _MAX_GRADIENT / total
            stats.clipped = True
        for name, arrays in gradients.items():
            parameters = self.heads[name].parameters
            for array, gradient in arrays.items():
                if shrink != 1.0:
                    gradient *= np.float32(shrink)
                rate = learning_rate * _RATES.get(array, 1.0)
                self.optimizer.step(
                    f"{name}.{array}", parameters.arrays[array], gradient, rate
                )
            parameters.version += 1

    # Confidence ------------------------------------------------------------------

    def calibrate(self, decisions: Sequence[tuple[float, bool]]) -> None:
        """Fits slope and offset on the log-odds (Platt scaling), a little damped."""
        if not decisions:
            return
        a, b = self.calibration
        raw = np.array([(_logit(c) - b) / a for c, _ in decisions])
        right = np.array([r for _, r in decisions], float)
        # Platt's targets keep the fit finite when everything is right.
        n1, n0 = right.sum(), (1 - right).sum()
        target = np.where(right > 0, (n1 + 1) / (n1 + 2), 1 / (n0 + 2))
        slope, offset = 1.0, 0.0
        for _ in range(50):
            p = _sigmoid(slope * raw + offset)
            w = p * (1 - p) + 1e-9
            g = np.array(
                [((p - target) * raw).sum() + 0.1 * (slope - 1), (p - target).sum()]
            )
            h = np.array(
                [
                    [(w * raw * raw).sum() + 0.1, (w * raw).sum()],
                    [(w * raw).sum(), w.sum()],
                ]
            )
            slope, offset = np.array([slope, offset]) - np.linalg.solve(h, g)
            slope = max(float(slope), 0.05)
        self.calibration = (float(slope), float(offset))

    def _calibrated(self, logprob: float) -> float:
        a, b = self.calibration
        return float(_sigmoid(a * _logit(float(np.exp(logprob))) + b))

    # Tokens, saving, loading -----------------------------------------------------

    def count_tokens(self, text: str) -> int:
        """Tokens of the encoder's tokenizer; remembered for texts seen lately."""
        known = self._tokens.get(text)
        if known is None:
            if len(self._tokens) > 20_000:
                self._tokens.clear()
            known = self._tokens[text] = self.encoder.count_tokens(text)
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
        return {
            "slots": {head: dict(rows) for head, rows in self.slots.items()},
            "weights": {
                name: dict(head.parameters.arrays) for name, head in self.heads.items()
            },
            "optimizer": self.optimizer.state(),
            "calibration": list(self.calibration),
        }

    def load_state(self, state: Mapping[str, Any]) -> None:
        """Takes on what `state` returned."""
        self._load_weights(state["slots"], state["weights"])
        self.optimizer = Adam()
        self.optimizer.load_state(state["optimizer"])
        slope, offset = state["calibration"]
        self.calibration = (float(slope), float(offset))

    def _load_weights(
        self,
        slots: Mapping[str, Mapping[str, int]],
        weights: Mapping[str, Mapping[str, Any]],
    ) -> None:
        for name, head in self.heads.items():
            arrays = head.parameters.arrays
            for key, old in arrays.items():
                new = np.array(weights[name][key], np.float32)
                if new.shape[1:] != old.shape[1:] or (
                    key not in head.parameters.row_arrays and new.shape != old.shape
                ):
                    raise FormatError(
                        f"The planner's weights '{name}.{key}' have the shape "
                        f"{new.shape}, not {old.shape}: made by another version."
                    )
                arrays[key] = new
            head.parameters.version += 1
        self.slots = {n: {k: int(i) for k, i in slots[n].items()} for n in self.heads}
        self._toolsets.clear()
        self._states.clear()

    def save(self, folder: Path) -> None:
        """Writes `planner.safetensors` and `planner.json`."""
        from safetensors.numpy import save

        arrays = {
            f"{name}.{key}": np.ascontiguousarray(array)
            for name, head in self.heads.items()
            for key, array in head.parameters.arrays.items()
        }
        about = {
            "format": FORMAT,
            "version": FORMAT_VERSION,
            "slots": self.slots,
            "calibration": list(self.calibration),
        }
        atomic_write_bytes(folder / "planner.safetensors", save(arrays))
        atomic_write_bytes(
            folder / "planner.json", json.dumps(about, indent=1).encode()
        )

    @classmethod
    def load(cls, folder: Path) -> PlannerPolicy:
        """Reads what `save` wrote.

        Raises:
            FormatError: If the files are missing, damaged or of another version.
        """
        from safetensors import SafetensorError
        from safetensors.numpy import load_file

        try:
            about = json.loads((folder / "planner.json").read_text(encoding="utf-8"))
            if about.get("format") != FORMAT or about.get("version") != FORMAT_VERSION:
                raise FormatError(
                    f"{folder} is no planner of format version {FORMAT_VERSION}. "
                    "Train it again with this version of AgentGym."
                )
            flat = load_file(folder / "planner.safetensors")
            policy = cls()
            weights: dict[str, dict[str, Any]] = {name: {} for name in policy.heads}
            for key, array in flat.items():
                name, _, rest = key.partition(".")
                weights[name][rest] = array
            policy._load_weights(about["slots"], weights)
            slope, offset = about["calibration"]
            policy.calibration = (float(slope), float(offset))
        except (OSError, SafetensorError, ValueError, KeyError, TypeError) as error:
            raise FormatError(
                f"{folder} does not hold a planner that can be read "
                f"({type(error).__name__}: {error}). Train it again, or restore it."
            ) from None
        return policy

    # -----------------------------------------------------------------------------

    def _toolset(self, tools: Sequence[Tool]) -> ToolSet:
        key = tuple(id(tool) for tool in tools)
        known = self._toolsets.get(key)
        if known is not None:
            return known[0]
        if len(self._toolsets) > 1024:
            self._toolsets.clear()
        definitions = json.dumps([tool.to_openai() for tool in tools])
        toolset = ToolSet(
            tools, self._slot, self._pooled, self.count_tokens(definitions)
        )
        for name, head in self.heads.items():
            head.parameters.grow(len(self.slots[name]))
        # The tools are kept with it, so that no other tool can get their ids.
        self._toolsets[key] = (toolset, tuple(tools))
        return toolset

    def _slot(self, head: str, name: str) -> int:
        rows = self.slots[head]
        return rows.setdefault(name, len(rows))

    def _pooled(self, texts: Sequence[str]) -> Array:
        if not texts:
            return np.zeros((0, WIDTH), np.float32)
        return np.stack([encoded.pooled for encoded in self.encoder.encode(texts)])


class _TextCache:
    """Encoded texts, the most recently used within a memory bound.

    A worker thread encodes ahead. The encoder gives the same bits whichever way a
    text comes to it, so only the time depends on who was first.
    """

    def __init__(self, encoder: SentenceEncoder, limit: int) -> None:
        self._encoder = encoder
        self._limit = limit
        self._size = 0
        self._texts: dict[str, EncodedText] = {}
        self._ahead: dict[str, Future[list[EncodedText]]] = {}
        self._worker: ThreadPoolExecutor | None = None

    def prefetch(self, texts: Iterable[str]) -> None:
        fresh = [
            text
            for text in dict.fromkeys(texts)
            if text not in self._texts and text not in self._ahead
        ]
        if self._worker is None:
            self._worker = ThreadPoolExecutor(1, "agentgym-encoder")
        for start in range(0, len(fresh), _AHEAD):
            some = fresh[start : start + _AHEAD]
            future = self._worker.submit(self._encoder.encode, some)
            self._ahead.update(dict.fromkeys(some, future))

    def get(self, texts: Iterable[str]) -> dict[str, EncodedText]:
        wanted = dict.fromkeys(texts)
        for text in wanted:
            if text in self._ahead:
                self._take(self._ahead[text].result())
        self._take(self._encoder.encode([t for t in wanted if t not in self._texts]))
        found = {}
        for text in wanted:
            # Taken out and put back: a dict keeps the order of insertion.
            found[text] = self._texts[text] = self._texts.pop(text)
        while self._size > self._limit and len(self._texts) > len(wanted):
            oldest = next(iter(self._texts))
            self._size -= self._texts.pop(oldest).hidden.nbytes + _TEXT_BYTES
        return found

    def _take(self, texts: Sequence[EncodedText]) -> None:
        for encoded in texts:
            self._ahead.pop(encoded.text, None)
            if encoded.text not in self._texts:
                self._size += encoded.hidden.nbytes + _TEXT_BYTES
            self._texts[encoded.text] = encoded


def closing_words(last: Called | None) -> str:
    """The frozen wording of a closing answer: what the last tool said, in short."""
    if last is None:
        return "Thank you for your message. Nothing else needs to be done."
    facts = [
        f"{f.key}: {f.value}" for f in last.result.fields[:6] if f.value is not None
    ]
    # A closing answer asks nothing, whatever a tool's texts say.
    return f"It is done. {'; '.join(facts)}.".replace("?", ".")


def _sigmoid(x: Any) -> Any:
    return 1 / (1 + np.exp(-np.clip(x, -60, 60)))


def _logit(p: float) -> float:
    p = min(max(p, 1e-6), 1 - 1e-6)
    return float(np.log(p / (1 - p)))

"""The language-model policy: a causal LM that chooses among valid calls.

It writes what the model's own chat template writes, but only what the tools' schemas
allow: see `options`, `trie` and `engine`. It learns by `learner`.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, Self, Unpack

import numpy as np
import torch

from agentgym.core.task import Message
from agentgym.core.tools import Tool, ToolCall
from agentgym.core.trajectory import Group
from agentgym.errors import ContextExceeded, FormatError
from agentgym.policies.base import (
    Decision,
    DecisionRequest,
    Sampling,
    UpdateSettings,
    UpdateStats,
)
from agentgym.policies.built_in import BuiltInPolicy, Calibration, PolicyFiles
from agentgym.policies.calls.conversation import Called
from agentgym.policies.llm.cache import PrefixCache, Segment
from agentgym.policies.llm.engine import Branch, Engine
from agentgym.policies.llm.hardware import (
    Workers,
    best_device,
    half_pays,
    in_chunks,
    memory_told,
    peak_mb,
)
from agentgym.policies.llm.learner import Learner
from agentgym.policies.llm.lora import export_merged, lora_arrays, set_lora_arrays
from agentgym.policies.llm.models import (
    DEFAULTS,
    EMBEDDED,
    LlmOptions,
    find_model,
    load_model,
)
from agentgym.policies.llm.options import Option, ToolSet
from agentgym.policies.llm.prompt import ChatFormat
from agentgym.policies.llm.state import (
    Drawn,
    State,
    Trace,
    Walk,
    draw_any,
    draw_group,
    draw_known,
)
from agentgym.policies.llm.trie import TOOL

if TYPE_CHECKING:
    from agentgym.policies.llm.free_form import FreeForm
    from agentgym.utils.assets import DownloadProgress

_FILES = PolicyFiles(
    "language-model policy", "agentgym-llm", 1, "llm.json", "adapter.safetensors"
)
_LEARNING_LAYERS = 10
_RANK = 16
_CACHE_BYTES = 1 << 29
_CHUNK = 384
"""Tokens read in one forward pass: more would attend to much that is masked."""
_END = 5
"""Last tokens of a prompt, from which on weights are learned: there a template says
that it is the model's turn, and the model gathers what it has read."""
_Wanted = Sequence[tuple[State, Sequence[int]]]
"""States, and places of their tries."""


class LlmPolicy(BuiltInPolicy[ToolSet, State]):
    """A causal language model with LoRA on its upper layers.

    Args:
        model: A known name, a name on the Hugging Face hub, or a folder.
        seed: Of the first weights.
        half: Whether frozen weights are multiplied in bfloat16; by default on
            CUDA.
        options: How it learns.
    """

    name = "llm"
    training_defaults = {
        "episodes": 14_000,
        "learning_rate": 0.0015,
        "group_size": 96,
        "batch_size": 12,
        "max_mistakes": 1,
        "revisit": 0.0,
        "exploration": 0.1,
        "entropy": 0.02,
        "eval_every": 5_000,
        "eval_tasks": 60,
        "heldout_tasks": 150,
    }
    policy_options = LlmOptions
    language_model = True
    _max_toolsets = 64
    export_formats = ("huggingface",)

    def __init__(
        self,
        model: str = EMBEDDED,
        seed: int = 0,
        *,
        half: bool | None = None,
        options: LlmOptions = DEFAULTS,
    ) -> None:
        super().__init__()
        self.options = options
        self.model_name = model
        self.seed = seed
        weights, self.tokenizer = load_model(find_model(model))
        device = best_device()
        torch.nn.Module.to(weights, device)
        self.engine = Engine(
            weights,
            learning_layers=_LEARNING_LAYERS,
            rank=_RANK,
            seed=seed,
            half=half_pays(device) if half is None else half,
        )
        self._workers = Workers(None if device.type == "cpu" else 1)
        self.format = ChatFormat(self.tokenizer)
        self.learner = Learner(self.engine, self._workers, self.options)
        self._context = int(weights.config.max_position_embeddings)
        self._cache = PrefixCache(_CACHE_BYTES)

    @classmethod
    def create(cls, seed: int, options: LlmOptions) -> Self:
        """Loads the language model, with LoRA matrices that change nothing yet."""
        return cls(options.model, seed, options=options)

    @classmethod
    def fetch(
        cls, options: LlmOptions, progress: DownloadProgress | None = None
    ) -> None:
        """Downloads the language model; see `Policy.fetch`."""
        find_model(options.model, progress)

    # Deciding --------------------------------------------------------------------

    @memory_told()
    def _answer(
        self, requests: Sequence[DecisionRequest], how: Sequence[Sampling]
    ) -> list[Decision]:
        """Answers all requests.

        Raises:
            ContextExceeded: A conversation is longer than the model can read.
            OutOfMemory: It doesn't fit into memory.
        """
        # Siblings meet again at the same state, so that it is kept while they are
        # drawn. Without drawing, no request repeats, and keeping it takes memory.
        states = self._read(requests, keep=any(own.rng is not None for own in how))
        drawn = [
            draw_known(state, request.known, own) or draw_group(state, own)
            for request, state, own in zip(requests, states, how, strict=True)
        ]
        values = self._draw_values(
            [
                None if among else Walk(state, group.chosen, own.rng)
                for state, own, (group, among) in zip(states, how, drawn, strict=True)
            ]
        )
        return [
            self._finish(request, state, own, group, value or among)
            for request, state, own, (group, among), value in zip(
                requests, states, how, drawn, values, strict=True
            )
        ]

    def _draw_values(self, walks: Sequence[Walk | None]) -> list[Drawn | None]:
        """Draws an option for each walk, all of them step by step at once."""
        going = [walk for walk in walks if walk is not None]
        while going := [walk for walk in going if walk.place is not None]:
            wanted: dict[int, tuple[State, set[int]]] = {}
            for walk in going:
                places = walk.wanted()
                if places:
                    _, own = wanted.setdefault(id(walk.state), (walk.state, set()))
                    own.update(places)
            chunks = in_chunks(
                [(state, sorted(places)) for state, places in wanted.values()],
                lambda pair: len(pair[0].trie.to_read(pair[1])),
                _CHUNK,
            )
            self._score(chunks, read=False)
            for walk in going:
                walk.go()
        return [None if walk is None else walk.drawn for walk in walks]

    def _finish(
        self,
        request: DecisionRequest,
        state: State,
        sampling: Sampling,
        group: Drawn,
        value: Drawn | Sequence[int],
    ) -> Decision:
        if anything := not isinstance(value, Drawn):
            value = draw_any(state, value, sampling, group.chosen)
        option = state.groups[group.chosen][value.chosen]
        decision = self._phrase(state.options[option], request.messages)
        decision.logprob = group.drawn + value.drawn
        certain = group.logprob + (value.drawn if anything else value.logprob)
        decision.confidence = self.calibration.confidence(float(np.exp(certain)))
        decision.prompt_tokens = state.segment.end
        decision.completion_tokens = len(state.completions[option])
        decision.sampled = state.sampled(option, group, value)
        if sampling.rng is not None:  # Otherwise it takes memory for nothing.
            logprobs = (group.logprob, value.logprob)
            decision.trace = Trace(request.asked(), state, option, logprobs)
        return decision

    def _phrase(self, option: Option, messages: Sequence[Message]) -> Decision:
        if option.kind != "call":
            return Decision({"role": "assistant", "content": option.text}, option.kind)
        parts = self._reader.read(messages)
        made = sum(isinstance(part, Called) for part in parts)
        arguments = dict(option.arguments or {})
        return Decision.calling(ToolCall(option.tool, arguments, f"call_{made}"))

    # Reading ---------------------------------------------------------------------

    def _new_states(
        self, asked: Mapping[str, tuple[DecisionRequest, ToolSet]]
    ) -> dict[str, State]:
        """Reads states, with the probabilities of what is chosen first."""
        made = {key: self._new_state(*one) for key, one in asked.items()}
        chunks = in_chunks(
            [(s, s.trie.places(kind=TOOL)) for s in made.values()],
            lambda pair: pair[0].segment.unread + 16,
            _CHUNK,
        )
        self._score(chunks, read=True)
        for state in made.values():
            self._cache.add(state.segment)
        return made

    def _new_state(self, request: DecisionRequest, toolset: ToolSet) -> State:
        tokens, opening = self.format.prompt(request.messages, request.tools)
        options = toolset.options(self._reader.read(request.messages))
        completions = self.format.completions(options)
        longest = len(tokens) + max(map(len, completions))
        if longest > self._context:
            raise ContextExceeded(
                f"The conversation and its tools take {longest:,} tokens, but the "
                f"context of model '{self.model_name}' is {self._context:,}. Shorten "
                "it, offer fewer tools, or choose a model with a longer context."
            )
        parent = self._cache.find(tokens)
        if parent is None:
            parent = Segment(None, tokens[: max(1, opening)])
            self.engine.read([Branch(parent)])
            self._cache.add(parent)
        if parent.parent is None:
            self.engine.refresh(parent)
        # The end stands apart: gradients flow through it, and through what is written
        # behind it, alone.
        middle = tokens[parent.end : -_END]
        if middle:
            parent = Segment(parent, middle)
        segment = Segment(parent, tokens[parent.end :])
        return State(segment, options, completions)

    def _score(self, chunks: Sequence[_Wanted], *, read: bool) -> None:
        """Fills in the edges of some places of some states."""
        if len(chunks) == 1:  # All cores at one forward pass.
            self._score_chunk(chunks[0], read=read)
            return
        list(self._workers.map(partial(self._score_chunk, read=read), chunks))

    def _score_chunk(self, wanted: _Wanted, *, read: bool) -> None:
        """Fills in the edges of some places of some states, in one forward pass."""
        branches, nodes = [], []
        for state, places in wanted:
            branch, numbers = state.branch(places, read=read)
            branches.append(branch)
            nodes.append(numbers)
        hidden = self.engine.read(branches)
        for (state, places), branch, numbers, rows in zip(
            wanted, branches, nodes, hidden, strict=True
        ):
            trie = state.trie
            assert branch.hidden is not None
            state.hidden.update(zip(numbers, branch.hidden, strict=True))
            edges = np.flatnonzero(np.isin(trie.nodes, list(places)))
            where = {-1: 0} | {n: 1 + i for i, n in enumerate(numbers)}
            at = [where[int(row)] for row in trie.rows[edges]]
            labels = torch.from_numpy(trie.labels[edges]).to(rows.device)
            logits = self.engine.edge_logits(rows[at], labels).double().cpu().numpy()
            place = trie.nodes[edges]
            for p in places:
                own = logits[place == p]
                total = float(np.logaddexp.reduce(own))
                state.edges[edges[place == p]] = own - total

    def _compile(self, tools: Sequence[Tool], definitions: str) -> ToolSet:
        return ToolSet(tools)

    def _forget_tools(self) -> None:
        super()._forget_tools()
        self._states.clear()

    # Learning --------------------------------------------------------------------

    @memory_told()
    def rebuild(self, traces: Sequence[dict[str, Any]]) -> list[Trace]:
        """See `Policy`. Reuses what this process has read, bit for bit.

        Otherwise it is read again for these traces alone: the result doesn't depend
        on who played, and equals what was read there up to rounding.
        """
        requests = [
            DecisionRequest(t["messages"], t["tools"], t["state_key"]) for t in traces
        ]
        if not all(
            self._key(request, self._toolset(request.tools)) in self._states
            for request in requests
        ):
            self._forget()
            # Turn by turn, as in the episode.
            for turns in sorted({len(request.messages) for request in requests}):
                self._read([r for r in requests if len(r.messages) == turns])
        return list(map(Trace.rebuilt, traces, requests, self._read(requests)))

    @memory_told()
    def learn(
        self, groups: Sequence[Group], **settings: Unpack[UpdateSettings]
    ) -> UpdateStats:
        """Takes one update; `learner` says how.

        Raises:
            TrainingDiverged: Its numbers aren't finite.
            OutOfMemory: It doesn't fit into memory.
        """
        stats = self.learner.update(groups, **settings)
        self._forget()
        return stats

    def stats(self) -> dict[str, float]:
        """Tokens that went through the model, what the cache saved, and memory."""
        cache = self._cache
        return {
            "tokens_read": self.engine.tokens_read,
            "tokens_learned": self.engine.tokens_learned,
            "cache_hits": cache.hits / max(1, cache.hits + cache.misses),
            "memory_mb": peak_mb(),
        }

    def free_form(self) -> FreeForm:
        """The same model without the constraint, as any other runtime would run it."""
        from agentgym.policies.llm.free_form import FreeForm

        self._forget()  # It reads on its own and needs the memory.
        return FreeForm(self.engine.model, self.format, self.tokenizer)

    def _forget(self) -> None:
        self._states.clear()
        self._cache.forget_turns()

    # Tokens, saving, loading -----------------------------------------------------

    def count_tokens(self, text: str) -> int:
        """Tokens of the model's tokenizer."""
        return self.format.count(text)

    def state(self) -> dict[str, Any]:
        """LoRA's matrices, the optimiser and the calibration."""
        return {**self.weights(), "optimizer": self.learner.state()}

    def weights(self) -> dict[str, Any]:
        """LoRA's matrices and the calibration: a third of what `state` holds."""
        return {
            "lora": lora_arrays(self.engine.model),
            "calibration": [self.calibration.slope, self.calibration.offset],
        }

    def load_state(self, state: Mapping[str, Any]) -> None:
        """Restores what `state` or `weights` returned."""
        set_lora_arrays(self.engine.model, state["lora"])
        self.learner = Learner(self.engine, self._workers, self.options)
        if "optimizer" in state:
            self.learner.load_state(state["optimizer"])
        self.calibration = Calibration(*map(float, state["calibration"]))
        self.engine.version += 1
        self._forget()

    def save(self, folder: Path) -> None:
        """Writes `adapter.safetensors` and `llm.json`."""
        facts = {
            "model": self.model_name,
            "fingerprint": self.engine.fingerprint(),
            "seed": self.seed,
            "calibration": [self.calibration.slope, self.calibration.offset],
        }
        _FILES.write(folder, facts, lora_arrays(self.engine.model))

    @classmethod
    def load(cls, folder: Path) -> LlmPolicy:
        """Reads what `save` wrote.

        Raises:
            FormatError: The files are missing, damaged or from another version.
            AssetError: The model that it was trained from isn't available.
        """
        with _FILES.read(folder) as (facts, arrays):
            policy = cls(str(facts["model"]), int(facts["seed"]))
            if policy.engine.fingerprint() != facts["fingerprint"]:
                raise FormatError(
                    f"{folder} was trained on another version of model "
                    f"'{facts['model']}'. Restore the original model."
                )
            set_lora_arrays(policy.engine.model, arrays)
            policy.calibration = Calibration(*map(float, facts["calibration"]))
        policy.engine.version += 1
        policy._forget()
        return policy

    def export(self, folder: Path, format: str = "huggingface") -> None:
        """Writes the merged model, as any runtime reads it; see `Policy.export`."""
        if format not in self.export_formats:
            super().export(folder, format)
        export_merged(self.engine.model, self.tokenizer, folder)

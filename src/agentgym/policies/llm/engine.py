"""Runs the language model over forests of tokens, through transformers' own modules.

A *forest* is any set of tokens in which each one has a parent: conversations that share
their beginning, and the options that branch off behind them. It is read in one forward
pass. A token attends to its ancestors and to nothing else (see `attention`), and its
position is its depth. So every token gets the same numbers as in a plain sequence, and
shared parts are computed once.

The model is cut in two. The lower part is frozen, so its output for a token never
changes; the upper part learns. Both are the transformers model itself, with fewer
layers.

`Segment`s keep keys, values and the hidden states at the cut, so that a conversation
that continues is not read again. See `PrefixCache`.
"""

from __future__ import annotations

import copy
import hashlib
import threading
from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from torch import nn

from agentgym.errors import FormatError
from agentgym.policies.llm.attention import NAME as ATTENTION
from agentgym.policies.llm.attention import Forest, Grove, Tree
from agentgym.policies.llm.attention import register as register_attention
from agentgym.policies.llm.cache import KV, Segment
from agentgym.policies.llm.lora import FrozenLinear, add_lora

if TYPE_CHECKING:
    from transformers import PreTrainedModel

_PROBE_TOKENS = 6
_TOLERANCE = 1e-4


class Branch:
    """A part of a forest: a segment to be read, and nodes that branch off its end.

    Attributes:
        segment: Ends where the nodes begin.
        read: Whether the segment itself is part of this forest, with all before it
            that was not read yet; else its keys and values are used as they are.
        tokens: Of the nodes.
        parents: Of the nodes; -1 for the segment's last token.
        hidden: Of the nodes at the cut, if known.
        loose: Nodes from which some earlier tokens may be hidden; see
            `Engine.learn`.
    """

    __slots__ = ("hidden", "loose", "parents", "read", "segment", "tokens")

    def __init__(
        self,
        segment: Segment,
        tokens: Sequence[int] = (),
        parents: Sequence[int] = (),
        *,
        read: bool = True,
    ) -> None:
        self.segment = segment
        self.read = read
        self.tokens = tokens
        self.parents = parents
        self.hidden: torch.Tensor | None = None
        self.loose: Sequence[int] = ()


class Layout:
    """Where everything in a forest stands: rows, depths and what attends to what.

    Rows are the tokens to be read. Those of one conversation stand together, segments
    first, and so do conversations with the same opening.
    """

    def __init__(
        self, branches: Sequence[Branch], *, device: torch.device | None = None
    ) -> None:
        self._device = device
        reading: dict[int, Segment] = {}
        for branch in branches:
            for segment in branch.segment.chain if branch.read else ():
                if segment is branch.segment or not segment.keys:
                    reading[id(segment)] = segment
        groves: dict[int, dict[int, list[int]]] = {}
        for i, branch in enumerate(branches):
            opening, *turns = branch.segment.chain
            # What is read together with its opening, or branches off it, is one tree.
            first = turns[0] if turns and id(opening) not in reading else opening
            groves.setdefault(id(opening), {}).setdefault(id(first), []).append(i)
        self.tokens: list[int] = []
        self.depths: list[int] = []
        self.segments: list[tuple[Segment, slice]] = []
        self.nodes: list[slice] = [slice(0)] * len(branches)
        """Rows of each branch's nodes."""
        self.last: list[int] = [-1] * len(branches)
        """Row of the last token of each branch's segment; -1 if that is past."""
        self.groves: list[Grove] = []
        for trees in groves.values():
            start = len(self.tokens)
            planted = [self._plant(branches, own, reading) for own in trees.values()]
            some = branches[next(iter(trees.values()))[0]]
            opening = some.segment.chain[0]
            past = None if id(opening) in reading else opening
            rows = slice(start, len(self.tokens))
            self.groves.append(Grove(past, rows, planted))

    def _plant(
        self,
        branches: Sequence[Branch],
        own: Sequence[int],
        reading: Mapping[int, Segment],
    ) -> Tree:
        """Adds the rows of one conversation."""
        start = len(self.tokens)
        known = {id(s): s for i in own for s in branches[i].segment.chain}
        # Shorter chains first, so that every attended segment has its columns.
        segments = sorted(known.values(), key=lambda s: s.start)
        new = [s for s in segments if id(s) in reading]
        past = [s for s in segments if id(s) not in reading and s.parent is not None]
        columns: dict[int, slice] = {}
        count = 0
        for segment in [*past, *new]:
            columns[id(segment)] = slice(count, count + len(segment.tokens))
            count += len(segment.tokens)
        width = sum(len(s.tokens) for s in past)
        for segment in new:
            rows = slice(len(self.tokens), len(self.tokens) + len(segment.tokens))
            self.segments.append((segment, rows))
            self.tokens += segment.tokens
            self.depths += range(segment.start, segment.end)
        for i in own:
            branch = branches[i]
            first = len(self.tokens)
            self.nodes[i] = slice(first, first + len(branch.tokens))
            self.tokens += branch.tokens
            depth: list[int] = []
            for p in branch.parents:
                depth.append(branch.segment.end if p < 0 else depth[p] + 1)
            self.depths += depth
        total = len(self.tokens) - start
        seen = np.zeros((total, width + total), np.bool_)
        for segment in new:
            at = columns[id(segment)]
            rows = slice(at.start - width, at.stop - width)
            for before in segment.chain[:-1]:
                if id(before) in columns:
                    seen[rows, columns[id(before)]] = True
            seen[rows, at] = np.tri(len(segment.tokens), dtype=np.bool_)
        for i in own:
            branch = branches[i]
            base = np.zeros(width + total, np.bool_)
            for segment in branch.segment.chain:
                if id(segment) in columns:
                    base[columns[id(segment)]] = True
            first = self.nodes[i].start - start
            for n, p in enumerate(branch.parents):
                seen[first + n] = base if p < 0 else seen[first + p]
                seen[first + n, width + first + n] = True
            if id(branch.segment) in reading:
                self.last[i] = start + columns[id(branch.segment)].stop - 1 - width
        rows = slice(start, start + total)
        return Tree(rows, past, torch.from_numpy(~seen).to(self._device))

    def forget(
        self, branches: Sequence[Branch], share: float, rng: np.random.Generator
    ) -> None:
        """Hides a share of each conversation's past from segments and loose nodes."""
        loose = np.zeros(len(self.tokens), np.bool_)
        for _, rows in self.segments:
            loose[rows] = True
        for branch, rows in zip(branches, self.nodes, strict=True):
            loose[rows.start + np.array(branch.loose, np.int64)] = True
        for tree in (tree for grove in self.groves for tree in grove.trees):
            count = sum(len(segment.tokens) for segment in tree.past)
            gone = np.zeros(tree.hidden.shape, np.bool_)
            gone[:, :count] = rng.random(count) < share
            gone &= loose[tree.rows, None]
            tree.hidden |= torch.from_numpy(gone).to(self._device)


class _Kept:
    """Keeps the keys and values that transformers' layers make of the rows."""

    def __init__(self) -> None:
        self.new: dict[int, KV] = {}

    def update(
        self, keys: torch.Tensor, values: torch.Tensor, layer: int, *_: Any, **__: Any
    ) -> KV:
        """Called by each attention layer."""
        self.new[layer] = keys, values
        return keys, values

    def get_seq_length(self, layer: int = 0) -> int:
        """Tokens that were read before: positions are given, so no caller needs it."""
        return 0


class Engine:
    """A causal language model in two parts, the upper one with LoRA.

    Attributes:
        model: The complete model, as transformers made it.
        cut: Number of frozen layers.
        version: Counts the changes of the weights.
        tokens_read: Rows that went through the lower part so far.
        tokens_learned: Rows that went through the upper part with gradients.
    """

    def __init__(
        self,
        model: PreTrainedModel,
        *,
        learning_layers: int,
        rank: int,
        seed: int,
        half: bool = False,
    ) -> None:
        self.model: Any = model.eval()
        for parameter in model.parameters():
            parameter.requires_grad_(False)
        base: Any = model.get_decoder()
        if not all(hasattr(base, n) for n in ("layers", "norm", "embed_tokens")):
            raise FormatError(
                f"{type(model).__name__} is not supported: it is not built like the "
                "Llama, Qwen and SmolLM families. Name another model with --model."
            )
        count = len(base.layers)
        self.cut = max(0, count - learning_layers)
        if len(set(getattr(base.config, "layer_types", None) or ["full"])) > 1:
            # Layers find their kind by their number, so such a model isn't cut.
            self.cut = 0
        add_lora(base.layers, self.cut, rank, seed, half=half)
        self._embed = base.embed_tokens
        self._norm = base.norm
        self._lower = _part(base, 0, self.cut)
        self._upper = _part(base, self.cut, count)
        head = model.get_output_embeddings()
        self._head: torch.Tensor = head.weight
        self._all = FrozenLinear(head, half=half)
        # Of four dimensions, so that transformers doesn't build a mask.
        self._no_mask = torch.empty(1, 1, 0, 0, device=self._head.device)
        self._half = half
        register_attention()
        base.config._attn_implementation = ATTENTION
        self.version = 0
        self.tokens_read = 0
        self.tokens_learned = 0
        self._counting = threading.Lock()
        self._check(half)

    @property
    def device(self) -> torch.device:
        """Where the model is."""
        return self._head.device

    def fingerprint(self) -> str:
        """Identifies the frozen weights by the first few of each matrix."""
        digest = hashlib.blake2b(digest_size=12)
        for name, parameter in self.model.named_parameters():
            if not name.endswith((".down", ".up")):
                some = parameter.detach().flatten()[:64].float().cpu().numpy()
                digest.update(name.replace(".base.", ".").encode() + some.tobytes())
        return digest.hexdigest()

    @torch.no_grad()
    def read(self, branches: Sequence[Branch]) -> list[torch.Tensor]:
        """Reads a forest and keeps what it learns in its segments.

        Returns:
            For each branch, the last hidden states of its segment's last token and of
            its nodes, one row each. A branch whose segment was read before has none
            of the former: its first row is NaN.
        """
        layout = Layout(branches, device=self.device)
        embedded = self._embed(self._tensor(layout.tokens))
        kept = _Kept()
        middle = embedded
        if self.cut:
            middle = self._run(self._lower, embedded, layout, kept)
        top = self._run(self._upper, middle, layout, kept)
        self._count(read=len(layout.tokens))
        for segment, rows in layout.segments:
            segment.hidden = middle[rows].clone()
            segment.keys = {
                layer: (k[:, :, rows].clone(), v[:, :, rows].clone())
                for layer, (k, v) in kept.new.items()
            }
            segment.version = self.version
        for branch, rows in zip(branches, layout.nodes, strict=True):
            branch.hidden = middle[rows].clone()
        return self._rows(layout, top)

    @torch.no_grad()
    def read_lower(self, branches: Sequence[Branch]) -> None:
        """Finds the hidden states at the cut of nodes behind segments read before."""
        layout = Layout(branches, device=self.device)
        hidden = self._embed(self._tensor(layout.tokens))
        if self.cut:
            hidden = self._run(self._lower, hidden, layout, _Kept())
        self._count(read=len(layout.tokens))
        for branch, rows in zip(branches, layout.nodes, strict=True):
            branch.hidden = hidden[rows].clone()

    def learn(
        self,
        branches: Sequence[Branch],
        *,
        forget: float = 0.0,
        rng: np.random.Generator | None = None,
    ) -> list[torch.Tensor]:
        """Reads a forest again from the cut upwards, with gradients.

        What comes before the branches' own segments is reused as it was read: no
        gradient flows through its keys and values. So shorter segments cost less.

        Args:
            branches: The forest.
            forget: Share of each conversation's earlier tokens that segments and loose
                nodes do not see.
            rng: Draws these.
        """
        layout = Layout(branches, device=self.device)
        if rng is not None:
            layout.forget(branches, forget, rng)
        middle = torch.empty(
            len(layout.tokens), self._head.shape[1], device=self.device
        ).to(self._head.dtype)
        for segment, rows in layout.segments:
            assert segment.hidden is not None
            middle[rows] = segment.hidden
        for branch, rows in zip(branches, layout.nodes, strict=True):
            if branch.hidden is not None:
                middle[rows] = branch.hidden
        top = self._run(self._upper, middle, layout, _Kept())
        self._count(learned=len(layout.tokens))
        return self._rows(layout, top)

    @torch.no_grad()
    def refresh(self, segment: Segment) -> None:
        """Brings an opening up to the current weights; its lower part still holds."""
        if segment.version == self.version:
            return
        assert segment.parent is None and segment.hidden is not None
        layout = Layout([Branch(segment)], device=self.device)
        kept = _Kept()
        self._run(self._upper, segment.hidden, layout, kept)
        segment.keys.update(kept.new)
        segment.version = self.version

    def edge_logits(self, hidden: torch.Tensor, labels: torch.Tensor) -> torch.Tensor:
        """Logit of one token for each row."""
        return (hidden * self._head[labels]).sum(-1)

    def all_logits(self, hidden: torch.Tensor) -> torch.Tensor:
        """Logits of the whole vocabulary for each row."""
        logits: torch.Tensor = self._all(hidden)
        return logits

    # -----------------------------------------------------------------------------

    def _count(self, *, read: int = 0, learned: int = 0) -> None:
        with self._counting:
            self.tokens_read += read
            self.tokens_learned += learned

    def _run(
        self,
        part: Any,
        hidden: torch.Tensor,
        layout: Layout,
        kept: _Kept,
    ) -> torch.Tensor:
        output = part(
            inputs_embeds=hidden[None],
            attention_mask=self._no_mask,
            position_ids=self._tensor(layout.depths)[None],
            past_key_values=kept,
            use_cache=True,
            forest=Forest(layout.groves, self._half),
        )
        result: torch.Tensor = output.last_hidden_state[0]
        return result

    def _rows(self, layout: Layout, top: torch.Tensor) -> list[torch.Tensor]:
        missing = top.new_full((1, top.shape[1]), float("nan"))
        return [
            torch.cat([missing if last < 0 else top[last : last + 1], top[rows]])
            for last, rows in zip(layout.last, layout.nodes, strict=True)
        ]

    def _tensor(self, values: Iterable[int]) -> torch.Tensor:
        return torch.tensor(list(values), dtype=torch.long, device=self.device)

    @torch.no_grad()
    def _check(self, half: bool) -> None:
        """Compares with a plain forward pass: other architectures may scale logits."""
        # Ordinary tokens: a row of special ones blows up the least rounding.
        middle = self._head.shape[0] // 2
        ids = list(range(middle, middle + _PROBE_TOKENS))
        plain = self.model(self._tensor(ids)[None]).logits[0]
        opening = Segment(None, ids[:2])
        self.read([Branch(opening)])
        rows = self.read(
            [Branch(Segment(opening, ids[2:4]), ids[4:], range(-1, len(ids) - 5))]
        )[0]
        ours = self.all_logits(rows)
        self.tokens_read = 0
        gap = float((ours - plain[3:]).abs().max() / plain.abs().max())
        limit = 0.05 if half or ours.dtype != torch.float32 else _TOLERANCE
        if not gap <= limit:
            raise FormatError(
                f"{type(self.model).__name__} is not supported: its logits differ by "
                f"{gap:.2g} from those of its layers. Name another model with --model."
            )


def _part(base: Any, first: int, last: int) -> Any:
    """The same model with some of its layers; weights are shared, nothing is copied."""
    part = copy.copy(base)
    part._modules = dict(base._modules)
    part.layers = nn.ModuleList(list(base.layers)[first:last])
    if last < len(base.layers):
        part.norm = nn.Identity()
    return part

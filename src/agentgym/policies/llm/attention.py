"""Attention over a forest of tokens, without what no token attends to.

Conversations with the same tools start alike: a token attends mostly to the opening,
which all of them share, and otherwise only to its own conversation. So one product
without a mask covers the opening's keys for all rows, and separate products cover each
conversation's own keys. No time is spent on products that a mask would throw away, or
on gradients of the opening, which needs none.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import torch
from torch import nn

from agentgym.policies.llm.cache import Segment

NAME = "agentgym_forest"


@dataclass(slots=True)
class Tree:
    """Rows that may attend to each other, and to segments that were read before.

    Attributes:
        rows: In the forest.
        past: Segments, other than the opening.
        hidden: What each row doesn't attend to: columns are the past, then the rows.
    """

    rows: slice
    past: list[Segment]
    hidden: torch.Tensor


@dataclass(slots=True)
class Grove:
    """Trees behind one opening; their rows stand together.

    Attributes:
        opening: Was read before; None if its rows are among these.
    """

    opening: Segment | None
    rows: slice
    trees: list[Tree]


@dataclass(slots=True)
class Forest:
    """What attention must know about the rows; `half` multiplies in half precision."""

    groves: list[Grove]
    half: bool


def register() -> None:
    """Registers this kind of attention with transformers."""
    from transformers import AttentionInterface, AttentionMaskInterface
    from transformers.masking_utils import sdpa_mask

    AttentionInterface.register(NAME, _attention)
    AttentionMaskInterface.register(NAME, sdpa_mask)


def _attention(
    module: Any,
    query: torch.Tensor,
    key: torch.Tensor,
    value: torch.Tensor,
    mask: torch.Tensor | None,
    *,
    scaling: float,
    forest: Forest | None = None,
    **options: Any,
) -> tuple[torch.Tensor, None]:
    """Called by each attention layer of a transformers model."""
    if forest is None:  # The model runs alone, as in `generate`.
        if mask is not None:
            return _folded(query, key, value, mask, scaling), None
        from transformers.integrations.sdpa_attention import sdpa_attention_forward

        output, _ = sdpa_attention_forward(
            module, query, key, value, mask, scaling=scaling, **options
        )
        return output, None
    grouped = query[0].unflatten(0, (key.shape[1], -1))
    given = grouped, key[0], value[0], scaling, forest, module.layer_idx
    if torch.is_grad_enabled() or forest.half or query.device.type != "cpu":
        output = _ForestAttention.apply(*given)  # type: ignore[no-untyped-call]
    else:
        output = _reading(*given)
    return output.flatten(0, 1).transpose(0, 1)[None], None


def _folded(
    query: torch.Tensor,
    key: torch.Tensor,
    value: torch.Tensor,
    mask: torch.Tensor,
    scaling: float,
) -> torch.Tensor:
    """Of a batch: queries that share a key head stand in rows, so no key is copied."""
    each = query.shape[1] // key.shape[1]
    rows = query.unflatten(1, (key.shape[1], each)).flatten(2, 3)
    seen = mask[..., : key.shape[2]].repeat(1, 1, each, 1)
    output = nn.functional.scaled_dot_product_attention(
        rows, key, value, seen, scale=scaling
    )
    result: torch.Tensor = output.unflatten(2, (each, -1)).flatten(1, 2)
    return result.transpose(1, 2).contiguous()


def _reading(
    query: torch.Tensor,
    key: torch.Tensor,
    value: torch.Tensor,
    scaling: float,
    forest: Forest,
    layer: int,
) -> torch.Tensor:
    """The same as `_ForestAttention` without gradients, in half the time.

    What a row makes of the opening comes from torch's own attention, which keeps no
    table of weights. It is then weighed against what the row makes of its own tree.
    """
    output = torch.empty_like(query, memory_format=torch.contiguous_format)
    for grove in forest.groves:
        if grove.opening is None:
            output[:, :, grove.rows] = _plain(query, key, value, scaling, grove)
            continue
        own = query[:, :, grove.rows]
        keys, values = _opening(grove, layer, half=False)
        attend = torch.ops.aten._scaled_dot_product_flash_attention_for_cpu
        # Queries that share a key head stand in rows, so no key is copied.
        of_opening, total = attend(
            own.flatten(1, 2)[None], keys[None], values[None], scale=scaling
        )
        of_opening = of_opening[0].unflatten(1, own.shape[1:3])
        total = total[0].unflatten(1, own.shape[1:3])
        for tree, at, _ in _trees(grove, 0):
            scores = _product(own[:, :, at] * scaling, _all(tree, layer, key, 0).mT)
            scores.masked_fill_(tree.hidden, -torch.inf)
            own_total = scores.logsumexp(-1)
            weights = torch.exp(scores - own_total[..., None])
            result = _product(weights, _all(tree, layer, value, 1))
            share = torch.sigmoid(own_total - total[:, :, at])[..., None]
            output[:, :, tree.rows] = torch.lerp(of_opening[:, :, at], result, share)
    return output


class _ForestAttention(torch.autograd.Function):
    """Of queries [key heads, queries of each, rows, size] and keys [key heads, ...].

    Keys and values of what was read before get no gradient.
    """

    @staticmethod
    def forward(
        ctx: Any,
        query: torch.Tensor,
        key: torch.Tensor,
        value: torch.Tensor,
        scaling: float,
        forest: Forest,
        layer: int,
    ) -> torch.Tensor:
        output = torch.empty_like(query, memory_format=torch.contiguous_format)
        weights = []
        for grove in forest.groves:
            if grove.opening is None:
                output[:, :, grove.rows] = _plain(query, key, value, scaling, grove)
                continue
            own = query[:, :, grove.rows] * scaling
            keys, values = _opening(grove, layer, forest.half)
            scores = _products(own, keys, grove, -torch.inf)
            start = keys.shape[1]
            for tree, at, columns in _trees(grove, start):
                part = _product(own[:, :, at], _all(tree, layer, key, 0).mT)
                part.masked_fill_(tree.hidden, -torch.inf)
                scores[:, :, at, columns] = part
            weight = torch.softmax(scores, -1)
            result = _product(weight[..., :start], values).float()
            for tree, at, columns in _trees(grove, start):
                own_values = _all(tree, layer, value, 1)
                result[:, :, at] += _product(weight[:, :, at, columns], own_values)
            output[:, :, grove.rows] = result
            weights.append(weight)
        if any(ctx.needs_input_grad):
            ctx.save_for_backward(query, key, value, output, *weights)
            ctx.given = scaling, forest, layer
        return output

    @staticmethod
    def backward(ctx: Any, *gradients: torch.Tensor) -> Any:
        (gradient,) = gradients
        query, key, value, output, *weights = ctx.saved_tensors
        scaling, forest, layer = ctx.given
        to_query = torch.empty_like(query, memory_format=torch.contiguous_format)
        to_key, to_value = torch.zeros_like(key), torch.zeros_like(value)
        for grove, weight in zip(forest.groves, weights, strict=True):
            own = query[:, :, grove.rows] * scaling
            told = gradient[:, :, grove.rows]
            keys, values = _opening(grove, layer, forest.half)
            start = keys.shape[1]
            change = _products(told, values, grove, 0.0)
            for tree, at, columns in _trees(grove, start):
                own_values = _all(tree, layer, value, 1)
                change[:, :, at, columns] = _product(told[:, :, at], own_values.mT)
            mean = (told * output[:, :, grove.rows]).sum(-1, keepdim=True)
            change -= mean
            change *= weight
            result = _product(change[..., :start], keys).float()
            for tree, at, columns in _trees(grove, start):
                part = change[:, :, at, columns]
                result[:, :, at] += _product(part, _all(tree, layer, key, 0))
                new = slice(part.shape[-1] - part.shape[-2], None)
                to_key[:, tree.rows] = _turned(part[..., new], own[:, :, at])
                part = weight[:, :, at, columns]
                to_value[:, tree.rows] = _turned(part[..., new], told[:, :, at])
            to_query[:, :, grove.rows] = result * scaling
        return to_query, to_key, to_value, None, None, None


def _plain(
    query: torch.Tensor,
    key: torch.Tensor,
    value: torch.Tensor,
    scaling: float,
    grove: Grove,
) -> torch.Tensor:
    """Where the opening itself is read, which never needs a gradient."""
    (tree,) = grove.trees
    own = [tensor[:, tree.rows][:, None] for tensor in (key, value)]
    keys, values = (tensor.expand(-1, query.shape[1], -1, -1) for tensor in own)
    return nn.functional.scaled_dot_product_attention(
        query[:, :, tree.rows], keys, values, ~tree.hidden, scale=scaling
    )


def _opening(grove: Grove, layer: int, half: bool) -> tuple[torch.Tensor, torch.Tensor]:
    """Keys and values of the opening."""
    assert grove.opening is not None
    keys, values = (tensor[0] for tensor in grove.opening.keys[layer])
    return (keys.bfloat16(), values.bfloat16()) if half else (keys, values)


def _products(
    rows: torch.Tensor, columns: torch.Tensor, grove: Grove, fill: float
) -> torch.Tensor:
    """Of all rows with the opening's columns, with room for those of the trees."""
    start = columns.shape[1]
    widest = max(tree.hidden.shape[1] for tree in grove.trees)
    result = torch.empty((*rows.shape[:3], start + widest), device=rows.device)
    result[..., start:] = fill
    result[..., :start] = _product(rows, columns.mT)
    return result


def _trees(grove: Grove, start: int) -> Iterator[tuple[Tree, slice, slice]]:
    """Trees with their rows in the grove, and their columns."""
    first = grove.rows.start
    for tree in grove.trees:
        rows = slice(tree.rows.start - first, tree.rows.stop - first)
        yield tree, rows, slice(start, start + tree.hidden.shape[1])


def _all(tree: Tree, layer: int, new: torch.Tensor, which: int) -> torch.Tensor:
    """A tree's keys, or values: those of the past, then the new ones."""
    own = new[:, tree.rows]
    if not tree.past:
        return own
    return torch.cat([*(s.keys[layer][which][0] for s in tree.past), own], 1)


def _product(a: torch.Tensor, b: torch.Tensor) -> torch.Tensor:
    """Of [heads, queries, rows, x] and [heads, x, y], in the latter's precision."""
    result = torch.bmm(a.to(b.dtype).flatten(1, 2), b)
    return torch.unflatten(result, 1, a.shape[1:3])


def _turned(a: torch.Tensor, b: torch.Tensor) -> torch.Tensor:
    """Of [heads, queries, rows, x], turned, and [heads, queries, rows, y]."""
    return torch.bmm(a.to(b.dtype).flatten(1, 2).mT, b.flatten(1, 2))

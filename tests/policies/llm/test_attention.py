"""Attention in parts must be the same as one product under a mask."""

from __future__ import annotations

from types import SimpleNamespace

import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from transformers.integrations.sdpa_attention import sdpa_attention_forward

from agentgym.policies.llm.attention import Forest, _attention
from agentgym.policies.llm.cache import Segment
from agentgym.policies.llm.engine import Branch, Layout

HEADS, QUERIES, SIZE = 2, 3, 8
MODULE = SimpleNamespace(layer_idx=0)


def read_before(parent: Segment | None, length: int) -> Segment:
    segment = Segment(parent, [1] * length)
    shape = (1, HEADS, length, SIZE)
    segment.keys = {0: (torch.randn(shape), torch.randn(shape))}
    return segment


def ancestors(branches: list[Branch], layout: Layout) -> list[list[object]]:
    """For each row, what it attends to: (segment, place), or the number of a row."""
    rows: list[list[object]] = [[] for _ in layout.tokens]
    start = {id(s): r.start for s, r in layout.segments}

    def before(segment: Segment | None) -> list[object]:
        if segment is None:
            return []
        first = start.get(id(segment))
        own: list[object] = [
            (segment, i) if first is None else first + i
            for i in range(len(segment.tokens))
        ]
        return [*before(segment.parent), *own]

    for segment, at in layout.segments:
        seen = before(segment)
        for i in range(len(segment.tokens)):
            rows[at.start + i] = seen[: len(seen) - len(segment.tokens) + i + 1]
    for branch, at in zip(branches, layout.nodes, strict=True):
        for i, parent in enumerate(branch.parents):
            above = before(branch.segment) if parent < 0 else rows[at.start + parent]
            rows[at.start + i] = [*above, at.start + i]
    return rows


@given(st.data())
@settings(max_examples=60)
def test_like_one_product_under_a_mask(data: st.DataObject) -> None:
    torch.manual_seed(data.draw(st.integers(0, 1000)))
    branches, past = [], []
    for _ in range(data.draw(st.integers(1, 3), "openings")):
        opening = read_before(None, data.draw(st.integers(1, 5)))
        past.append(opening)
        for _ in range(data.draw(st.integers(0, 3), "conversations")):
            segment = opening
            if data.draw(st.booleans(), "a turn was read before"):
                segment = read_before(opening, data.draw(st.integers(1, 4)))
                past.append(segment)
            segment = Segment(segment, [1] * data.draw(st.integers(1, 4)))
            for _ in range(data.draw(st.integers(1, 2), "branches")):
                count = data.draw(st.integers(0, 4), "nodes")
                parents = [data.draw(st.integers(-1, i - 1)) for i in range(count)]
                branches.append(Branch(segment, [1] * count, parents))
    layout = Layout(branches)
    total = len(layout.tokens)
    if not total:
        return
    query, key, value = (
        torch.randn(1, heads, total, SIZE, requires_grad=True)
        for heads in (HEADS * QUERIES, HEADS, HEADS)
    )
    columns = {(id(s), i): 0 for s in past for i in range(len(s.tokens))}
    columns = {place: number for number, place in enumerate(columns)}
    mask = torch.zeros(total, len(columns) + total, dtype=torch.bool)
    for row, seen in enumerate(ancestors(branches, layout)):
        for one in seen:
            if isinstance(one, int):
                mask[row, len(columns) + one] = True
            else:
                mask[row, columns[id(one[0]), one[1]]] = True  # type: ignore[index]
    keys = torch.cat([*(s.keys[0][0] for s in past), key], 2)
    values = torch.cat([*(s.keys[0][1] for s in past), value], 2)
    expected = torch.nn.functional.scaled_dot_product_attention(
        query,
        keys.repeat_interleave(QUERIES, 1),
        values.repeat_interleave(QUERIES, 1),
        mask,
        scale=0.4,
    ).transpose(1, 2)
    for half, tolerance in ((False, 1e-5), (True, 0.1)):
        forest = Forest(layout.groves, half)
        found, _ = _attention(
            MODULE, query, key, value, None, scaling=0.4, forest=forest
        )
        assert float((found - expected).detach().abs().max()) < tolerance
        weight = torch.arange(found.numel()).reshape(found.shape).sin()
        ours, theirs = (
            torch.autograd.grad(
                (result * weight).sum(), (query, key, value), retain_graph=True
            )
            for result in (found, expected)
        )
        for one, other in zip(ours, theirs, strict=True):
            assert float((one - other).abs().max()) < tolerance


@given(st.integers(1, 3), st.integers(1, 4), st.integers(0, 5), st.integers(0, 99))
@settings(max_examples=30)
def test_by_itself_it_is_that_of_transformers(
    batch: int, rows: int, past: int, seed: int
) -> None:
    """As in `generate`, with rows that are padded and keys that are shared."""
    torch.manual_seed(seed)
    columns = past + rows
    query = torch.randn(batch, HEADS * QUERIES, rows, SIZE)
    key, value = torch.randn(2, batch, HEADS, columns, SIZE).unbind()
    mask = torch.rand(batch, 1, rows, columns + 2) < 0.7
    mask[..., 0] = True
    module = SimpleNamespace(
        layer_idx=0, num_key_value_groups=QUERIES, training=False, is_causal=True
    )
    expected, _ = sdpa_attention_forward(
        module, query, key, value, mask[..., :columns], scaling=0.3
    )
    found, _ = _attention(module, query, key, value, mask, scaling=0.3)
    assert found.shape == expected.shape
    assert torch.allclose(found, expected, atol=1e-5)

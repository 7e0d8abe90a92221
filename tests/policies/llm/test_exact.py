"""What the forest says of a token is what a plain transformers forward says."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from agentgym.core.tools import Tool
from agentgym.policies.base import DecisionRequest, Sampling
from agentgym.policies.llm.engine import Branch, Layout
from agentgym.policies.llm.lora import lora_layers
from agentgym.policies.llm.policy import LlmPolicy
from agentgym.policies.llm.state import State, Walk
from agentgym.policies.llm.trie import TOOL, VALUE

TOOLS = [
    Tool(
        "look_up",
        "Looks up an order.",
        {
            "type": "object",
            "properties": {"order": {"type": "string", "pattern": "^[0-9]{5}$"}},
            "required": ["order"],
        },
    ),
    Tool(
        "refund",
        "Pays money back.",
        {
            "type": "object",
            "properties": {
                "order": {"type": "string", "pattern": "^[0-9]{5}$"},
                "why": {"enum": ["late", "lost", "broken"]},
            },
            "required": ["order", "why"],
        },
    ),
]
OPENING = [
    {"role": "system", "content": "You help."},
    {"role": "user", "content": "Where are 12345 and 12399? One is late."},
]
LATER = [
    *OPENING,
    {
        "role": "assistant",
        "content": None,
        "tool_calls": [
            {
                "id": "call_0",
                "type": "function",
                "function": {"name": "look_up", "arguments": '{"order": "12345"}'},
            }
        ],
    },
    {"role": "tool", "tool_call_id": "call_0", "content": '{"total": 17.5}'},
]


def plain_logprobs(policy: LlmPolicy, prompt: list[int], state: State) -> list[Any]:
    """Log-probabilities of each option's tokens under the constraint, one by one."""
    found = []
    for completion in state.completions:
        with torch.no_grad():
            logits = policy.engine.model(torch.tensor([prompt + list(completion)]))
        rows = logits.logits[0].double()
        logprobs = []
        for depth, token in enumerate(completion):
            following = sorted(
                {
                    other[depth]
                    for other in state.completions
                    if len(other) > depth
                    and list(other[:depth]) == list(completion[:depth])
                }
            )
            row = rows[len(prompt) - 1 + depth][following]
            logprobs.append(float(torch.log_softmax(row, 0)[following.index(token)]))
        found.append(np.array(logprobs))
    return found


def check(policy: LlmPolicy) -> None:
    """Both turns of a conversation, the second one on what is kept of the first."""
    for messages in (OPENING, LATER):
        request = DecisionRequest(messages, TOOLS)
        state = policy._read([request])[0]
        policy._score_chunk([(state, state.trie.places(kind=VALUE))], read=False)
        prompt, _ = policy.format.prompt(messages, TOOLS)
        expected = np.array([p.sum() for p in plain_logprobs(policy, prompt, state)])
        found = np.array([state.edges[path].sum() for path in state.trie.paths])
        assert np.abs(found - expected).max() < 1e-4
        assert np.exp(expected).sum() == pytest.approx(1.0, abs=1e-6)
        for options, logprob in zip(
            state.groups.values(), state.group_logprobs, strict=True
        ):
            inside = np.logaddexp.reduce(expected[options])
            assert logprob == pytest.approx(inside, abs=1e-4)
    assert policy._cache.hits > 0


@pytest.mark.parametrize("family", ["llama", "qwen3"])
def test_tokens_as_they_were_sampled(families: dict[str, Path], family: str) -> None:
    policy = LlmPolicy(str(families[family]), half=False)
    shake(policy)
    rng = np.random.default_rng(0)
    for messages in (OPENING, LATER):
        request = DecisionRequest(messages, TOOLS, "state")
        policy._forget()
        prompt, _ = policy.format.prompt(messages, TOOLS)
        drawn = policy.decide([request] * 40, Sampling(rng))
        state = policy._read([request])[0]
        expected = plain_logprobs(policy, prompt, state)
        completions = [tuple(completion) for completion in state.completions]
        for decision in drawn:
            sampled = decision.sampled
            assert sampled is not None and list(sampled.prompt) == prompt
            option = completions.index(sampled.completion)
            assert policy.format.end == sampled.completion[-1]
            gap = np.abs(np.array(sampled.logprobs) - expected[option])
            assert gap.max() < 1e-4
        assert len({d.sampled.completion for d in drawn if d.sampled}) > 3
        # Exploration included, they add up to what the decision was drawn with.
        for decision in policy.decide([request] * 40, Sampling(rng, 0.7)):
            assert decision.sampled is not None
            logprobs = decision.sampled.logprobs
            assert len(logprobs) == len(decision.sampled.completion)
            assert sum(logprobs) == pytest.approx(decision.logprob, abs=1e-9)


def shake(policy: LlmPolicy) -> None:
    """Makes LoRA do something, as training would."""
    generator = torch.Generator().manual_seed(1)
    with torch.no_grad():
        for _, lora in lora_layers(policy.engine.model):
            lora.up.copy_(0.02 * torch.randn(lora.up.shape, generator=generator))
    policy.engine.version += 1
    policy._forget()


@pytest.mark.parametrize("family", ["llama", "qwen2", "qwen3"])
def test_families(families: dict[str, Path], family: str) -> None:
    policy = LlmPolicy(str(families[family]), half=False)
    assert policy.format.native is (family != "llama")
    assert 0 <= policy.engine.cut < 4
    check(policy)
    shake(policy)
    check(policy)


def test_embedded_model(smollm2: Path) -> None:
    policy = LlmPolicy(str(smollm2), half=False)
    shake(policy)
    check(policy)


def test_half_precision_is_close(smollm2: Path) -> None:
    """Also where a machine has no instructions for it: slow there, but right."""
    found = []
    for half in (False, True):
        policy = LlmPolicy(str(smollm2), half=half)
        shake(policy)
        state = policy._read([DecisionRequest(LATER, TOOLS)])[0]
        found.append(state.group_logprobs)
    full, rounded = found
    assert 0 < np.abs(full - rounded).max() < 0.3
    assert full.argmax() == rounded.argmax()


@pytest.mark.parametrize("family", ["llama", "qwen3"])
def test_learning_sees_the_same(families: dict[str, Path], family: str) -> None:
    policy = LlmPolicy(str(families[family]), half=False)
    shake(policy)
    first = policy._read([DecisionRequest(OPENING, TOOLS)])[0]
    later = policy._read([DecisionRequest(LATER, TOOLS)])[0]
    assert first.segment in later.segment.chain
    branches = []
    for state in (first, later):
        places = state.trie.places(range(len(state.options)))
        branch, _ = state.branch(places, read=False)
        branches.append(branch)
    read = policy.engine.read(branches)
    for branch in branches:
        branch.read = True
    learned = policy.engine.learn(branches)
    for one, other in zip(read, learned, strict=True):
        assert torch.isfinite(other).all()
        # The prompt's last token was read before, so only the nodes can be compared.
        assert (one[1:] - other[1:]).abs().max() < 1e-4
        assert other.requires_grad


def test_only_segments_and_loose_nodes_forget(families: dict[str, Path]) -> None:
    policy = LlmPolicy(str(families["llama"]), half=False)
    shake(policy)
    state = policy._read([DecisionRequest(LATER, TOOLS)])[0]
    branch, numbers = state.branch(state.trie.places(kind=TOOL), read=True)
    tokens = state.completions[0][:-1]
    answer = Branch(state.segment, tokens, range(-1, len(tokens) - 1), read=False)
    branch.loose = range(len(numbers))
    forest = [branch, answer]
    layout = Layout(forest)
    (tree,) = layout.groves[0].trees
    before = tree.hidden.clone()
    past = sum(len(segment.tokens) for segment in tree.past)
    layout.forget(forest, 1.0, np.random.default_rng(0))
    kept = layout.nodes[1]
    assert torch.equal(tree.hidden[kept], before[kept])
    assert tree.hidden[: kept.start, :past].all()
    assert torch.equal(tree.hidden[:, past:], before[:, past:])

    policy.engine.read_lower([answer])
    branch.hidden = torch.stack([state.hidden[n] for n in numbers])
    plain = policy.engine.learn(forest)
    found = [
        policy.engine.learn(forest, forget=share, rng=np.random.default_rng(seed))
        for share, seed in ((0.0, 0), (0.5, 0), (0.5, 0), (0.5, 1))
    ]
    assert torch.equal(found[0][0], plain[0])
    assert torch.equal(found[1][0], found[2][0])
    for other in (found[0][0], found[3][0]):
        assert not torch.allclose(found[1][0], other)


@pytest.mark.parametrize("family", ["llama", "qwen3"])
def test_a_walk_draws_by_the_same_odds(families: dict[str, Path], family: str) -> None:
    """Step by step as from the whole list; what lies off the way is not read."""
    many = {"enum": [f"{letter}{n}" for letter in "abcd" for n in range(10)]}
    pick = Tool(
        "pick",
        "Picks.",
        {
            "type": "object",
            "properties": {"first": many, "second": many},
            "required": ["first", "second"],
        },
    )
    policy = LlmPolicy(str(families[family]), half=False)
    shake(policy)
    state = policy._read([DecisionRequest(OPENING, [pick])])[0]
    group = max(state.groups)
    assert len(state.groups[group]) > 500
    rng = np.random.default_rng(1)
    walks = [Walk(state, group, rng if i else None) for i in range(6)]
    drawn = policy._draw_values(walks)
    known = np.isfinite(state.edges)
    assert known.sum() < len(state.edges) / 4
    policy._score_chunk([(state, state.trie.places(kind=VALUE))], read=False)
    for walk in drawn:
        assert walk is not None
        path = state.trie.paths[state.groups[group][walk.chosen]]
        inside = path[state.trie.kinds[path] == VALUE]
        expected = state.edges[inside].sum()
        assert walk.logprob == pytest.approx(expected, abs=1e-4)
        assert walk.drawn == walk.logprob
    greedy = drawn[0]
    assert greedy is not None
    for edge in state.trie.paths[state.groups[group][greedy.chosen]]:
        if state.trie.kinds[edge] == VALUE:
            here = state.trie.nodes == state.trie.nodes[edge]
            assert state.edges[edge] == state.edges[here].max()


def test_no_tool_reaches_another(families: dict[str, Path]) -> None:
    """Batches of other conversations change nothing but the last bits."""
    policy = LlmPolicy(str(families["llama"]), half=False)
    alone = policy._read([DecisionRequest(OPENING, TOOLS)])[0]
    others = [
        DecisionRequest([{"role": "user", "content": f"Order {n}?"}], TOOLS)
        for n in range(10000, 10020)
    ]
    policy._cache.clear()
    together = policy._read([*others, DecisionRequest(OPENING, TOOLS)])[-1]
    assert np.nanmax(np.abs(alone.edges - together.edges)) < 1e-4

"""What the forest says of a token is what a plain transformers forward says."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from agentgym.core.tools import Tool
from agentgym.policies.base import DecisionRequest
from agentgym.policies.llm.lora import lora_layers
from agentgym.policies.llm.policy import LlmPolicy
from agentgym.policies.llm.state import State

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


def plain_logprobs(policy: LlmPolicy, prompt: list[int], state: State) -> Any:
    """Log-probability of each option under the constraint, one sequence at a time."""
    totals = []
    for completion in state.completions:
        with torch.no_grad():
            logits = policy.engine.model(torch.tensor([prompt + list(completion)]))
        rows = logits.logits[0].double()
        total = 0.0
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
            total += float(torch.log_softmax(row, 0)[following.index(token)])
        totals.append(total)
    return np.array(totals)


def check(policy: LlmPolicy) -> None:
    """Both turns of a conversation, the second one on what is kept of the first."""
    for messages in (OPENING, LATER):
        request = DecisionRequest(messages, TOOLS)
        state = policy._read([request])[0]
        policy._decide_values([(state, group) for group in state.groups])
        prompt, _ = policy.format.prompt(messages, TOOLS)
        expected = plain_logprobs(policy, prompt, state)
        found = np.array([state.edges[path].sum() for path in state.trie.paths])
        assert np.abs(found - expected).max() < 1e-4
        assert np.exp(expected).sum() == pytest.approx(1.0, abs=1e-6)
        groups, logprobs = state.group_logprobs()
        for group, logprob in zip(groups, logprobs, strict=True):
            inside = np.logaddexp.reduce(expected[state.groups[group]])
            assert logprob == pytest.approx(inside, abs=1e-4)
    assert policy._cache.hits > 0


def shake(policy: LlmPolicy) -> None:
    """Makes LoRA do something, as training would."""
    generator = torch.Generator().manual_seed(1)
    with torch.no_grad():
        for _, lora in lora_layers(policy.engine.model):
            lora.up.copy_(0.02 * torch.randn(lora.up.shape, generator=generator))
    policy._weights_changed()


@pytest.mark.parametrize("family", ["llama", "qwen2", "qwen3"])
def test_families(families: dict[str, Path], family: str) -> None:
    policy = LlmPolicy(str(families[family]))
    assert policy.format.native is (family != "llama")
    assert 0 <= policy.engine.cut < 4
    check(policy)
    shake(policy)
    check(policy)


def test_embedded_model(smollm2: Path) -> None:
    policy = LlmPolicy(str(smollm2))
    shake(policy)
    check(policy)


@pytest.mark.parametrize("family", ["llama", "qwen3"])
def test_learning_sees_the_same(families: dict[str, Path], family: str) -> None:
    policy = LlmPolicy(str(families[family]))
    shake(policy)
    first = policy._read([DecisionRequest(OPENING, TOOLS)])[0]
    later = policy._read([DecisionRequest(LATER, TOOLS)])[0]
    assert later.segment.parent is first.segment
    branches = []
    for state in (first, later):
        places = state.trie.places(range(len(state.options)))
        branch, _ = state.branch(places, read=False)
        branches.append(branch)
    read = policy.engine.read(branches)
    learned = policy.engine.learn(branches)
    for one, other in zip(read, learned, strict=True):
        assert torch.isfinite(other).all()
        # The prompt's last token was read before, so only the nodes can be compared.
        assert (one[1:] - other[1:]).abs().max() < 1e-4
        assert other.requires_grad


def test_no_tool_reaches_another(families: dict[str, Path]) -> None:
    """Batches of other conversations change nothing but the last bits."""
    policy = LlmPolicy(str(families["llama"]))
    alone = policy._read([DecisionRequest(OPENING, TOOLS)])[0]
    others = [
        DecisionRequest([{"role": "user", "content": f"Order {n}?"}], TOOLS)
        for n in range(10000, 10020)
    ]
    policy._cache.clear()
    together = policy._read([*others, DecisionRequest(OPENING, TOOLS)])[-1]
    assert np.nanmax(np.abs(alone.edges - together.edges)) < 1e-4

"""What a decision of the policy llm costs, against `generate` and the same options.

    python benchmarks/llm_forward.py [--quick] [--json]

Ours scores the options of a state as a trie behind a kept prompt. The peer is
transformers' `generate` (greedy, with its own KV cache and the same opening kept), held
to the same options by `prefix_allowed_tokens_fn`. Both answer the same conversations
with the embedded model in float32 on one thread, and must choose the same call unless
greedy decoding itself is led astray.

Rows: CPU seconds for a decision by the number of tools (5, 20, 80) and by the length of
the conversation. Leaves out: batching across conversations, which helps both, and
learning.
"""

from __future__ import annotations

import copy
import sys
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).parent))

from _common import parser, report, say, table

SUBJECTS = (
    "order parcel invoice refund account voucher ticket address payment return "
    "review device contract meter policy claim flight room table course"
).split()
VERBS = ("look_up", "cancel", "change", "send")


def make_tools(count: int) -> list[Any]:
    """Tools with a number to find in the chat, and sometimes a choice."""
    from agentgym.core.tools import Tool

    tools = []
    for i in range(count):
        verb, subject = VERBS[i // len(SUBJECTS)], SUBJECTS[i % len(SUBJECTS)]
        properties: dict[str, Any] = {
            f"{subject}_id": {"type": "string", "pattern": "^[0-9]{5}$"}
        }
        if i % 3 == 0:
            properties["how"] = {"enum": ["now", "later", "never"]}
        tools.append(
            Tool(
                f"{verb}_{subject}",
                f"Use it to {verb.replace('_', ' ')} the {subject} of a customer.",
                {
                    "type": "object",
                    "properties": properties,
                    "required": list(properties),
                },
            )
        )
    return tools


def chat(turns: int) -> list[dict[str, Any]]:
    """A conversation with some calls behind it."""
    messages: list[dict[str, Any]] = [
        {"role": "system", "content": "You help customers."},
        {"role": "user", "content": "What has become of 12345? And of 67890?"},
    ]
    for turn in range(turns):
        call = {"name": "look_up_order", "arguments": '{"order_id": "12345"}'}
        messages += [
            {
                "role": "assistant",
                "content": None,
                "tool_calls": [
                    {"id": f"c{turn}", "type": "function", "function": call}
                ],
            },
            {
                "role": "tool",
                "tool_call_id": f"c{turn}",
                "content": '{"order_id": "12345", "status": "sent", "total": 17.5, '
                f'"seen": {turn}, "place": "Hall {turn}", "carrier": "Swift"}}',
            },
        ]
    return messages


def measured(function: Callable[[], Any], times: int) -> tuple[float, Any]:
    """CPU seconds of one call, and what it gave."""
    started = time.process_time()
    for _ in range(times):
        result = function()
    return (time.process_time() - started) / times, result


def generate(policy: Any, tokens: list[int], state: Any, kept: Any) -> Any:
    """The peer: token by token, allowed tokens only."""
    import torch

    tree: dict[int, Any] = {}
    for completion in state.completions:
        node = tree
        for token in completion:
            node = node.setdefault(token, {})

    def allowed(_: int, ids: Any) -> Sequence[int]:
        node = tree
        for token in ids[len(tokens) :].tolist():
            node = node.get(token, {})
        return list(node) or [policy.format.end]

    with torch.no_grad():
        out = policy.engine.model.generate(
            input_ids=torch.tensor([tokens]),
            attention_mask=torch.ones(1, len(tokens), dtype=torch.long),
            past_key_values=copy.deepcopy(kept),
            do_sample=False,
            max_new_tokens=64,
            eos_token_id=policy.format.end,
            pad_token_id=policy.format.end,
            prefix_allowed_tokens_fn=allowed,
        )
    return out[0, len(tokens) :].tolist()


def main() -> None:
    """Measures and prints."""
    options = parser(__doc__).parse_args()
    import torch
    from transformers import DynamicCache

    from agentgym.policies.base import DecisionRequest
    from agentgym.policies.llm.policy import LlmPolicy

    torch.set_num_threads(1)
    times = 1 if options.quick else 5
    policy = LlmPolicy()
    rows = []
    for count, turns in [(5, 0), (20, 0), (80, 0), (20, 2), (20, 6)]:
        if options.quick and count > 20:
            continue
        tools = make_tools(count)
        request = DecisionRequest(chat(turns), tools)
        tokens, opening = policy.format.prompt(request.messages, tools)
        policy.decide([request])  # Reads the opening.
        kept: Any = DynamicCache()
        with torch.no_grad():
            policy.engine.model(torch.tensor([tokens[:opening]]), past_key_values=kept)

        def ours(request: DecisionRequest = request) -> Any:
            # Each time as if the conversation had never been seen.
            policy._cache.forget_turns()
            return policy.decide([request])[0]

        seconds, decision = measured(ours, times)
        before = policy.engine.tokens_read
        ours()
        read = policy.engine.tokens_read - before
        state = policy._read([request])[0]

        def peer(tokens: Any = tokens, state: Any = state, kept: Any = kept) -> Any:
            return generate(policy, tokens, state, kept)

        theirs, written = measured(peer, times)
        rows.append(
            {
                "tools": count,
                "conversation_tokens": len(tokens) - opening,
                "opening_tokens": opening,
                "options": len(state.options),
                "tokens_read": read,
                "cpu_seconds": seconds,
                "generate_cpu_seconds": theirs,
                "ratio": theirs / seconds,
                "same_choice": list(decision.sampled.completion) == written,
            }
        )
        say(f"{count:3} tools, {turns} turns: {seconds:.3f} s, generate {theirs:.3f} s")
    header = ("tools", "chat tokens", "options", "ours", "generate", "ratio", "same")
    lines = [
        (
            str(row["tools"]),
            str(row["conversation_tokens"]),
            str(row["options"]),
            f"{row['cpu_seconds']:.3f} s",
            f"{row['generate_cpu_seconds']:.3f} s",
            f"{row['ratio']:.1f}",
            "yes" if row["same_choice"] else "no",
        )
        for row in rows
    ]
    report(
        options,
        name="llm_forward",
        rows=rows,
        ratio=min(row["ratio"] for row in rows),
        peer="transformers generate under the same constraint, CPU of one decision",
        text=table(header, lines),
    )


if __name__ == "__main__":
    main()

"""The same model without the constraint, as any other runtime would run it.

`transformers`' own `generate`, greedy, on the chat template's prompt; what it writes is
read by a general parser. No grammar, no candidates, no trie. This is only for
measuring: every result has `free_form_reliability` next to `tool_reliability`.
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from typing import Any

import torch
from transformers import DynamicCache
from transformers.cache_utils import DynamicLayer

from agentgym.core.tools import ToolCall
from agentgym.policies.base import GREEDY, Decision, DecisionRequest, Sampling
from agentgym.policies.llm.parse import parse_call
from agentgym.policies.llm.prompt import ChatFormat

MAX_NEW_TOKENS = 96
_AT_ONCE = 8
"""Conversations that are written together: each has the opening's keys for itself."""


class _GrowingLayer(DynamicLayer):
    """Keys and values of one layer, copied for some rows, that grow in place.

    transformers' own layer copies everything before each new token, which took more
    time than the model itself.
    """

    def __init__(
        self, keys: torch.Tensor, values: torch.Tensor, count: int, room: int
    ) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self.lazy_initialization(keys, values)
        _, heads, length, size = keys.shape
        self._room = []
        for known in (keys, values):
            room_for_all = known.new_empty(count, heads, length + room, size)
            room_for_all[..., :length, :] = known
            self._room.append(room_for_all)
        self.keys, self.values = (tensor[..., :length, :] for tensor in self._room)

    def update(
        self, key_states: torch.Tensor, value_states: torch.Tensor, *_: Any, **__: Any
    ) -> tuple[torch.Tensor, torch.Tensor]:
        """Called by each attention layer."""
        start = self.get_seq_length()
        stop = start + key_states.shape[-2]
        for tensor, new in zip(self._room, (key_states, value_states), strict=True):
            tensor[..., start:stop, :] = new
        self.keys, self.values = (tensor[..., :stop, :] for tensor in self._room)
        return self.keys, self.values


class FreeForm:
    """Decides by plain generation; learns nothing."""

    def __init__(self, model: Any, format_: ChatFormat, tokenizer: Any) -> None:
        self._model = model
        self._format = format_
        self._tokenizer = tokenizer
        self._openings: dict[tuple[int, ...], Any] = {}

    def decide(
        self, requests: Sequence[DecisionRequest], sampling: Sampling = GREEDY
    ) -> list[Decision]:
        """Answers all requests with what the model writes."""
        started = time.perf_counter()
        prompts: list[tuple[list[int], int]] = []
        known: dict[str, int] = {}
        which = []
        for i, request in enumerate(requests):
            key = request.state_key or f"#{i}"
            if key not in known:
                known[key] = len(prompts)
                prompts.append(self._format.prompt(request.messages, request.tools))
            which.append(known[key])
        order = sorted(range(len(prompts)), key=lambda i: len(prompts[i][0]))
        written: dict[int, list[int]] = {}
        for start in range(0, len(order), _AT_ONCE):
            some = order[start : start + _AT_ONCE]
            answers = self._generate([prompts[i] for i in some])
            written |= dict(zip(some, answers, strict=True))
        share = (time.perf_counter() - started) / max(1, len(requests))
        return [
            self._decision(request, prompts[i][0], written[i], share)
            for request, i in zip(requests, which, strict=True)
        ]

    @torch.no_grad()
    def _generate(self, prompts: Sequence[tuple[list[int], int]]) -> list[list[int]]:
        head = min(length for _, length in prompts)
        opening = tuple(prompts[0][0][:head])
        if any(tuple(tokens[:head]) != opening for tokens, _ in prompts):
            opening = ()
        rests = [tokens[len(opening) :] for tokens, _ in prompts]
        width = max(map(len, rests))
        pad = self._format.end
        # What is padded stands between the common opening and the rest.
        ids = [[*opening, *[pad] * (width - len(r)), *r] for r in rests]
        mask = [
            [1] * len(opening) + [0] * (width - len(r)) + [1] * len(r) for r in rests
        ]
        given: dict[str, Any] = {}
        if opening:
            room = width + MAX_NEW_TOKENS
            given["past_key_values"] = self._cache(opening, len(prompts), room)
        device = self._model.device
        output = self._model.generate(
            input_ids=torch.tensor(ids, device=device),
            attention_mask=torch.tensor(mask, device=device),
            do_sample=False,
            max_new_tokens=MAX_NEW_TOKENS,
            eos_token_id=self._format.end,
            pad_token_id=pad,
            **given,
        )
        answers = output[:, len(opening) + width :].tolist()
        return [row[: row.index(pad) + 1] if pad in row else row for row in answers]

    def _cache(self, opening: tuple[int, ...], count: int, room: int) -> Any:
        """The opening's keys and values for each of some rows, and room for more."""
        if opening not in self._openings:
            cache = DynamicCache()
            ids = torch.tensor([opening], device=self._model.device)
            self._model.get_decoder()(ids, past_key_values=cache, use_cache=True)
            self._openings = {opening: cache}
        cache = DynamicCache()
        for layer in self._openings[opening].layers:
            cache.layers.append(_GrowingLayer(layer.keys, layer.values, count, room))
        return cache

    def _decision(
        self,
        request: DecisionRequest,
        prompt: list[int],
        written: list[int],
        latency: float,
    ) -> Decision:
        text = self._tokenizer.decode(written, skip_special_tokens=True).strip()
        call = parse_call(text)
        decision = Decision({"role": "assistant", "content": text}, "finish")
        if call is not None:
            made = sum(m.get("role") == "tool" for m in request.messages)
            given = ToolCall(call[0], call[1], f"call_{made}")
            decision = Decision.calling(given)
        decision.prompt_tokens = len(prompt)
        decision.completion_tokens = len(written)
        decision.latency = latency
        return decision

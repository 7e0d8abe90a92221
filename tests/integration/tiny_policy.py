"""A policy of a few numbers for the tiny scenario: trains in milliseconds."""

from __future__ import annotations

import re
import zlib
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from agentgym.core.tools import ToolCall
from agentgym.core.trajectory import Group
from agentgym.errors import FormatError
from agentgym.policies.base import (
    GREEDY,
    Decision,
    DecisionRequest,
    Policy,
    Sampling,
    UpdateStats,
)

_WORDS = 64
_STEM = re.compile(r"\b[a-z]{4}")


class TinyPolicy(Policy):
    """Chooses a tool by the words it reads, and the first or the last code."""

    name = "tiny"
    training_defaults = {"learning_rate": 0.5}

    def __init__(self, seed: int = 0) -> None:
        rng = np.random.default_rng(seed)
        self.tool = 0.01 * rng.standard_normal((_WORDS, 3))
        self.code = np.zeros(2)
        self.updates = 0
        self.calibrated_on = 0

    @classmethod
    def create(cls, seed: int, options: Any) -> TinyPolicy:
        return cls(seed)

    def decide(
        self, requests: Sequence[DecisionRequest], sampling: Sampling = GREEDY
    ) -> list[Decision]:
        return [
            self._decide(request, request.sampling(sampling)) for request in requests
        ]

    def _decide(self, request: DecisionRequest, sampling: Sampling) -> Decision:
        if request.messages[-1]["role"] == "tool":
            message = {"content": "It is done."}
            return Decision(message, "finish", confidence=0.9, prompt_tokens=5)
        text = str(request.messages[-1]["content"])
        words = [zlib.crc32(w.encode()) % _WORDS for w in _STEM.findall(text.lower())]
        codes = re.findall(r"[A-Z]\d\d", text)
        if not codes:
            return Decision({"content": "Which gate?"}, "ask", confidence=0.2)
        tool, p_tool = _draw(self.tool[words].sum(axis=0), sampling)
        end, p_code = _draw(self.code, sampling)
        call = ToolCall(request.tools[tool].name, {"gate": codes[-end]})
        return Decision(
            {"content": None, "tool_calls": [call.to_openai()]},
            "call",
            (call,),
            confidence=float(p_tool[tool] * p_code[end]),
            prompt_tokens=10,
            completion_tokens=2,
            trace=(words, tool, p_tool, end, p_code),
        )

    def learn(
        self,
        groups: Sequence[Group],
        *,
        learning_rate: float,
        entropy: float,
        trainable: frozenset[str],
    ) -> UpdateStats:
        stats = UpdateStats()
        for group in groups:
            for trajectory in group.trajectories:
                for step in trajectory.steps:
                    if step.advantage is None or step.trace is None:
                        continue
                    words, tool, p_tool, end, p_code = step.trace
                    rate = learning_rate * step.advantage / 16
                    if "tool_selection" in trainable:
                        self.tool[words] += rate * (np.eye(3)[tool] - p_tool)
                    if "parameter_selection" in trainable:
                        self.code += rate * (np.eye(2)[end] - p_code)
                    stats.steps_learned += 1
        self.updates += 1
        return stats

    def small_trace(self, trace: Any) -> Any:
        words, tool, p_tool, end, p_code = trace
        return [words, tool, p_tool.tolist(), end, p_code.tolist()]

    def rebuild(self, traces: Sequence[Any]) -> list[Any]:
        return [(w, t, np.array(p), e, np.array(c)) for w, t, p, e, c in traces]

    def calibrate(self, decisions: Sequence[tuple[float, bool]]) -> None:
        self.calibrated_on = len(decisions)

    def count_tokens(self, text: str) -> int:
        return len(text.split())

    def state(self) -> dict[str, Any]:
        return {"tool": self.tool, "code": self.code, "updates": self.updates}

    def load_state(self, state: Mapping[str, Any]) -> None:
        self.tool = np.array(state["tool"])
        self.code = np.array(state["code"])
        self.updates = int(state["updates"])

    def save(self, folder: Path) -> None:
        np.save(folder / "tool.npy", self.tool)
        np.save(folder / "code.npy", self.code)

    @classmethod
    def load(cls, folder: Path) -> TinyPolicy:
        policy = cls()
        try:
            policy.tool = np.load(folder / "tool.npy")
            policy.code = np.load(folder / "code.npy")
        except (OSError, ValueError):
            raise FormatError(f"{folder} holds no tiny policy.") from None
        return policy


def _draw(logits: Any, sampling: Sampling) -> tuple[int, Any]:
    p = np.exp(logits - logits.max())
    p /= p.sum()
    if sampling.rng is None:
        return int(p.argmax()), p
    if sampling.rng.random() < sampling.exploration:
        return int(sampling.rng.integers(len(p))), p
    return int(sampling.rng.choice(len(p), p=p)), p

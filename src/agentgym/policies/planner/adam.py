"""The planner's optimiser, in numpy."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from agentgym.policies.planner.heads import Array

_BETA1, _BETA2 = 0.9, 0.98
"""How much of the gradient's moments is kept at each step."""


class Adam:
    """Adam on named arrays, each with a rate of its own."""

    def __init__(self) -> None:
        self.steps: dict[str, int] = {}
        self.first: dict[str, Array] = {}
        self.second: dict[str, Array] = {}

    def step(self, name: str, array: Array, gradient: Array, rate: float) -> None:
        """Moves an array against its gradient, in place."""
        first, second = self._moments(name, array)
        count = self.steps[name] = self.steps.get(name, 0) + 1
        first *= _BETA1
        first += (1 - _BETA1) * gradient
        second *= _BETA2
        second += (1 - _BETA2) * gradient * gradient
        scale = np.sqrt(second)
        scale *= np.float32(1 / np.sqrt(1 - _BETA2**count))
        scale += np.float32(1e-8)
        np.divide(first, scale, out=scale)
        scale *= np.float32(rate / (1 - _BETA1**count))
        array -= scale

    def _moments(self, name: str, array: Array) -> tuple[Array, Array]:
        for table in (self.first, self.second):
            known = table.get(name)
            if known is None:
                table[name] = np.zeros_like(array)
            elif len(known) < len(array):
                more = np.zeros((len(array) - len(known), *array.shape[1:]), np.float32)
                table[name] = np.concatenate([known, more])
        return self.first[name], self.second[name]

    def state(self) -> dict[str, Any]:
        """All there is to save."""
        return {
            "steps": dict(self.steps),
            "first": dict(self.first),
            "second": dict(self.second),
        }

    def load_state(self, state: Mapping[str, Any]) -> None:
        """Takes on what `state` returned."""
        self.steps = {name: int(n) for name, n in state["steps"].items()}
        self.first = {n: np.array(a, np.float32) for n, a in state["first"].items()}
        self.second = {n: np.array(a, np.float32) for n, a in state["second"].items()}

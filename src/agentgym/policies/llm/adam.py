"""Adam, with a state that can be saved."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
import torch

_BETAS = (0.9, 0.95)


class Adam:
    """Moves some matrices, by name.

    Attributes:
        parameters: The matrices.
        steps: Taken so far.
    """

    def __init__(self, parameters: Mapping[str, torch.Tensor]) -> None:
        self.parameters = dict(parameters)
        self.steps = 0
        self._first = {k: torch.zeros_like(p) for k, p in self.parameters.items()}
        self._second = {k: torch.zeros_like(p) for k, p in self.parameters.items()}

    @torch.no_grad()
    def step(self, gradients: Mapping[str, torch.Tensor], rate: float) -> None:
        """Takes a step."""
        self.steps += 1
        one, two = _BETAS
        for name, parameter in self.parameters.items():
            gradient = gradients[name]
            first, second = self._first[name], self._second[name]
            first.mul_(one).add_(gradient, alpha=1 - one)
            second.mul_(two).addcmul_(gradient, gradient, value=1 - two)
            scale = (second / (1 - two**self.steps)).sqrt_().add_(1e-8)
            parameter.addcdiv_(first, scale, value=-rate / (1 - one**self.steps))

    def state(self) -> dict[str, Any]:
        """The moments and the number of steps."""
        return {
            "steps": self.steps,
            "first": {k: t.cpu().numpy().copy() for k, t in self._first.items()},
            "second": {k: t.cpu().numpy().copy() for k, t in self._second.items()},
        }

    def load_state(self, state: Mapping[str, Any]) -> None:
        """Takes on what `state` returned."""
        self.steps = int(state["steps"])
        for own, saved in ((self._first, "first"), (self._second, "second")):
            for name, tensor in own.items():
                tensor.copy_(torch.from_numpy(np.array(state[saved][name])))

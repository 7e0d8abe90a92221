"""LoRA: small trainable matrices beside the frozen ones of the top layers."""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import Any

import torch
from torch import nn


class LoraLinear(nn.Module):
    """A frozen linear layer plus `scale * B A x`; B starts at zero."""

    def __init__(
        self, base: nn.Linear, rank: int, scale: float, generator: torch.Generator
    ) -> None:
        super().__init__()
        self.base = base
        self.scale = scale
        down = torch.randn(rank, base.in_features, generator=generator)
        down /= math.sqrt(base.in_features)
        self.down = nn.Parameter(down.to(base.weight.device))
        up = torch.zeros(base.out_features, rank, device=base.weight.device)
        self.up = nn.Parameter(up)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """Applies the layer."""
        y: torch.Tensor = self.base(x)
        low = nn.functional.linear(x.to(self.down.dtype), self.down)
        return y + (nn.functional.linear(low, self.up) * self.scale).to(y.dtype)

    def delta(self) -> torch.Tensor:
        """What the trained matrices add to the frozen one."""
        return self.scale * (self.up @ self.down)


def add_lora(layers: nn.ModuleList, first: int, rank: int, seed: int) -> None:
    """Puts LoRA beside every linear layer of `layers[first:]`."""
    generator = torch.Generator().manual_seed(seed)
    for layer in list(layers)[first:]:
        for parent in list(layer.modules()):
            for name, child in list(parent.named_children()):
                if isinstance(child, nn.Linear):
                    setattr(parent, name, LoraLinear(child, rank, 2.0, generator))


def lora_layers(model: nn.Module) -> Iterator[tuple[str, LoraLinear]]:
    """The LoRA layers of a model by name."""
    for name, module in model.named_modules():
        if isinstance(module, LoraLinear):
            yield name, module


def merged_state(model: nn.Module) -> dict[str, Any]:
    """The state dict that the model would have if LoRA were part of its weights."""
    state: dict[str, Any] = {}
    deltas = {f"{name}.weight": lora.delta() for name, lora in lora_layers(model)}
    for name, tensor in model.state_dict().items():
        if name.endswith((".down", ".up")):
            continue
        name = name.replace(".base.", ".")
        delta = deltas.get(name)
        state[name] = tensor if delta is None else tensor + delta.to(tensor.dtype)
    return state

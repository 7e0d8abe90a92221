"""LoRA: small trainable matrices beside the frozen ones of the top layers.

`Adam` moves them; `export_merged` writes a model that contains them.
"""

from __future__ import annotations

import math
import os
import shutil
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import numpy as np
import torch
from safetensors.torch import save_file
from torch import nn

from agentgym.errors import FormatError, StoreError

_BETAS = (0.9, 0.95)
"""How much of the gradient's moments Adam keeps at each step."""


class FrozenLinear(nn.Module):
    """A linear layer that doesn't learn, optionally multiplied in half precision.

    Input and output stay in full precision, so that only the factors of one product
    are rounded, and errors don't add up from layer to layer.
    """

    def __init__(self, base: nn.Linear, *, half: bool) -> None:
        super().__init__()
        self.base = base
        self.fast: torch.Tensor | None
        fast = base.weight.detach().bfloat16() if half else None
        self.register_buffer("fast", fast, persistent=False)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """Applies the layer."""
        if self.fast is None:
            y: torch.Tensor = self.base(x)
            return y
        y = nn.functional.linear(x.bfloat16(), self.fast).to(x.dtype)
        return y if self.base.bias is None else y + self.base.bias


class LoraLinear(FrozenLinear):
    """A frozen linear layer plus `scale * B A x`; B starts at zero."""

    def __init__(
        self,
        base: nn.Linear,
        rank: int,
        scale: float,
        generator: torch.Generator,
        *,
        half: bool = False,
    ) -> None:
        super().__init__(base, half=half)
        self.scale = scale
        down = torch.randn(rank, base.in_features, generator=generator)
        down /= math.sqrt(base.in_features)
        self.down = nn.Parameter(down.to(base.weight.device))
        up = torch.zeros(base.out_features, rank, device=base.weight.device)
        self.up = nn.Parameter(up)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """Applies the layer."""
        y = super().forward(x)
        low = nn.functional.linear(x.to(self.down.dtype), self.down)
        return y + (nn.functional.linear(low, self.up) * self.scale).to(y.dtype)

    def delta(self) -> torch.Tensor:
        """What the trained matrices add to the frozen one."""
        return self.scale * (self.up @ self.down)


def add_lora(
    layers: nn.ModuleList, first: int, rank: int, seed: int, *, half: bool = False
) -> None:
    """Puts LoRA beside every linear layer of `layers[first:]`.

    With `half`, what is frozen is multiplied in half precision, in all layers.
    """
    generator = torch.Generator().manual_seed(seed)
    for number, layer in enumerate(layers):
        for parent in list(layer.modules()):
            for name, child in list(parent.named_children()):
                if not isinstance(child, nn.Linear):
                    continue
                if number >= first:
                    new = LoraLinear(child, rank, 2.0, generator, half=half)
                    setattr(parent, name, new)
                elif half:
                    setattr(parent, name, FrozenLinear(child, half=True))


def lora_layers(model: nn.Module) -> Iterator[tuple[str, LoraLinear]]:
    """The LoRA layers of a model by name."""
    for name, module in model.named_modules():
        if isinstance(module, LoraLinear):
            yield name, module


def lora_arrays(model: nn.Module) -> dict[str, Any]:
    """Copies of the matrices that learn, by name."""
    return {
        f"{name}.{part}": getattr(lora, part).detach().cpu().numpy().copy()
        for name, lora in lora_layers(model)
        for part in ("down", "up")
    }


def set_lora_arrays(model: nn.Module, arrays: Mapping[str, Any]) -> None:
    """Restores what `lora_arrays` returned.

    Raises:
        FormatError: They belong to another model.
    """
    with torch.no_grad():
        for name, lora in lora_layers(model):
            for part in ("down", "up"):
                own = getattr(lora, part)
                array = np.array(arrays[f"{name}.{part}"], np.float32)
                if array.shape != tuple(own.shape):
                    raise FormatError(
                        f"The adapter's '{name}.{part}' has shape {array.shape}, not "
                        f"{tuple(own.shape)}: it belongs to another model."
                    )
                own.copy_(torch.from_numpy(array))


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
        """Restores what `state` returned."""
        self.steps = int(state["steps"])
        for own, saved in ((self._first, "first"), (self._second, "second")):
            for name, tensor in own.items():
                tensor.copy_(torch.from_numpy(np.array(state[saved][name])))


def export_merged(model: Any, tokenizer: Any, folder: Path) -> None:
    """Writes config, merged weights (safetensors) and tokenizer.

    Any runtime that reads such folders can serve it, without AgentGym.

    Raises:
        StoreError: The folder can't be written, or already exists.
    """
    if folder.exists():
        raise StoreError(f"{folder} already exists. Choose another folder.")
    draft = folder.with_name(f".{folder.name}.draft")
    try:
        shutil.rmtree(draft, ignore_errors=True)
        draft.mkdir(parents=True)
        state = merged_state(model)
        if model.config.tie_word_embeddings:
            state = {k: v for k, v in state.items() if k != "lm_head.weight"}
        tensors = {name: tensor.contiguous() for name, tensor in state.items()}
        save_file(tensors, draft / "model.safetensors", {"format": "pt"})
        model.config.save_pretrained(draft)
        model.generation_config.save_pretrained(draft)
        tokenizer.save_pretrained(draft)
        os.replace(draft, folder)
    except OSError as error:
        raise StoreError(
            f"Cannot write the model to {folder}: {error.strerror or error}."
        ) from error
    finally:
        shutil.rmtree(draft, ignore_errors=True)

"""Where the model runs, and in which precision products are taken there."""

from __future__ import annotations

import torch


def best_device() -> torch.device:
    """A GPU if there is one, else the CPU."""
    if torch.cuda.is_available():
        return torch.device("cuda")
    if torch.backends.mps.is_available():
        return torch.device("mps")
    return torch.device("cpu")


def half_pays(device: torch.device) -> bool:
    """Whether products in bfloat16 are faster there than in full precision.

    A CPU without instructions for them emulates them, several times slower.
    """
    if device.type == "cuda":
        return bool(torch.cuda.is_bf16_supported(including_emulation=False))
    if device.type == "cpu":
        known = torch.cpu.get_capabilities()
        return bool(known.get("avx512_bf16") or known.get("amx_bf16"))
    return False

"""Where the model runs, and in which precision products are taken there."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import torch

from agentgym.core.errors import OutOfMemory


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


@contextmanager
def memory_told() -> Iterator[None]:
    """Says what to do where memory does not suffice.

    Raises:
        OutOfMemory: It did not.
    """
    try:
        yield
    except (MemoryError, RuntimeError) as error:
        # torch has an error of its own for GPUs only.
        told = str(error)
        if not (
            isinstance(error, MemoryError | torch.OutOfMemoryError)
            or "can't allocate memory" in told
        ):
            raise
        raise OutOfMemory(
            "There is not enough memory for the language model and what it reads. "
            "Lower batch_size or group_size, take a smaller model, or free some "
            "memory; a run goes on from its last checkpoint with `agentgym runs "
            "resume`."
        ) from None

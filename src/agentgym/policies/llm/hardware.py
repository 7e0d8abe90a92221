"""Where the model runs, and in which precision products are taken there."""

from __future__ import annotations

import resource
import sys
from collections.abc import Iterator
from contextlib import contextmanager

import torch

from agentgym.errors import OutOfMemory


def best_device() -> torch.device:
    """A GPU if there is one, else the CPU."""
    if torch.cuda.is_available():
        return torch.device("cuda")
    if torch.backends.mps.is_available():
        return torch.device("mps")
    return torch.device("cpu")


def half_pays(device: torch.device) -> bool:
    """Whether bfloat16 products are faster there. On nearly all CPUs they are not."""
    return device.type == "cuda" and bool(
        torch.cuda.is_bf16_supported(including_emulation=False)
    )


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


def peak_mb() -> float:
    """Megabytes: the most memory that this process has held."""
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    return peak / (1 << 20 if sys.platform == "darwin" else 1 << 10)

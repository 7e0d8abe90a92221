"""Where the model runs, and in which precision products are taken there."""

from __future__ import annotations

import hashlib
import json
import subprocess
import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from functools import lru_cache
from typing import Any

import torch

from agentgym.errors import OutOfMemory
from agentgym.utils.files import atomic_write_bytes, user_cache_dir

_PAYS = 1.2
"""How many times as fast products must be, so that rounding them is worth it."""
_PROBE_SECONDS = 60
_PROBE = """
import time, torch
torch.set_num_threads(1)
def seconds(kind):
    rows, matrix = torch.ones(256, 576, dtype=kind), torch.ones(1536, 576, dtype=kind)
    best = 1e9
    for _ in range(6):
        began = time.perf_counter()
        for _ in range(8):
            torch.nn.functional.linear(rows, matrix)
        best = min(best, time.perf_counter() - began)
    return best
print(seconds(torch.float32) / seconds(torch.bfloat16))
"""


def best_device() -> torch.device:
    """A GPU if there is one, else the CPU."""
    if torch.cuda.is_available():
        return torch.device("cuda")
    if torch.backends.mps.is_available():
        return torch.device("mps")
    return torch.device("cpu")


def half_pays(device: torch.device) -> bool:
    """Whether products in bfloat16 are faster there than in full precision."""
    if device.type == "cuda":
        return bool(torch.cuda.is_bf16_supported(including_emulation=False))
    return device.type == "cpu" and half_speed() >= _PAYS


@lru_cache(maxsize=1)
def half_speed() -> float:
    """How many times as fast a CPU multiplies in bfloat16; 0 if it cannot.

    A CPU without instructions for them emulates such products, several times slower.
    Some have the instructions and are slower all the same; and where a virtual machine
    offers instructions that it does not carry out, the process that tries them is
    killed. So another process tries, once for each machine; what it found is kept, so
    that the same machine always computes in the same way.
    """
    known = torch.cpu.get_capabilities()
    if not (known.get("avx512_bf16") or known.get("amx_bf16")):
        return 0.0
    path = user_cache_dir() / "hardware.json"
    key = _machine(known)
    found: dict[str, float] = {}
    with suppress(OSError, ValueError, TypeError):
        found = dict(json.loads(path.read_text(encoding="utf-8")))
    if not isinstance(found.get(key), float):
        speed = _try_half()
        if speed is None:
            return 0.0
        found[key] = speed
        with suppress(OSError):  # It is found out again next time.
            path.parent.mkdir(parents=True, exist_ok=True)
            atomic_write_bytes(path, json.dumps(found, indent=1).encode())
    return found[key]


def _machine(known: Mapping[str, Any]) -> str:
    """Names a kind of machine, and the torch that runs on it."""
    about = json.dumps([torch.__version__, dict(known)], sort_keys=True, default=str)
    return hashlib.blake2b(about.encode(), digest_size=8).hexdigest()


def _try_half() -> float | None:
    """The speed; None if it could not be found out this time."""
    try:
        tried = subprocess.run(
            [sys.executable, "-c", _PROBE],
            capture_output=True,
            text=True,
            timeout=_PROBE_SECONDS,
            check=True,
        )
        return float(tried.stdout)
    except (subprocess.CalledProcessError, ValueError):
        return 0.0
    except (OSError, subprocess.TimeoutExpired):
        return None


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
    import resource
    import sys

    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    return peak / (1 << 20 if sys.platform == "darwin" else 1 << 10)

"""Whether the memory of a language model's training is bounded, and stays what it is.

    python benchmarks/llm_memory.py

Trains the embedded model on customer_support for 50,000 episodes, and takes the memory
that the process holds after every update. The learning rate is next to nothing, while
all else is as in any training, updates included: so tasks remain unsolved, groups
remain whole, which makes 50,000 episodes of far fewer tasks. Beside it: the most
that a process takes which loads the model with transformers, and reads one opening. The
last row is the peak with the closing evaluation, free-form included.
"""

from __future__ import annotations

import resource
import statistics
import sys
import tempfile
from typing import Any

from _common import Row, measure, parser, report, say, table

from agentgym import Trainer, TrainingConfig
from agentgym.core.events import Event, IterationDone

LIMIT_MB = 3 * 1024
_MEGABYTE = 1 << 20
_PARTS = 5
_PLAIN = """
import torch
from transformers import AutoModelForCausalLM
from agentgym.policies.llm.models import EMBEDDED, find_model
model = AutoModelForCausalLM.from_pretrained(find_model(EMBEDDED))
with torch.no_grad():
    model(torch.arange(1000, 1651)[None])
"""


def held() -> float:
    """Megabytes that this process holds now."""
    with open("/proc/self/statm", encoding="ascii") as file:
        pages = int(file.read().split()[1])
    return pages * resource.getpagesize() / _MEGABYTE


def main() -> None:
    """Trains, and prints the memory of each fifth of the training."""
    options = parser(__doc__).parse_args()
    episodes = 2_500 if options.quick else 50_000
    plain = measure([sys.executable, "-c", _PLAIN]).peak_bytes / _MEGABYTE
    taken: list[tuple[int, float, float]] = []

    def hear(event: Event) -> None:
        if isinstance(event, IterationDone):
            peak = float(event.values["memory_mb"])
            taken.append((event.episodes, held(), peak))
            say(f"{event.episodes:,} episodes: {taken[-1][1]:,.0f} MB held")

    settings: dict[str, Any] = {
        "scenario": "customer_support",
        "policy": "llm",
        "episodes": episodes,
        "learning_rate": 1e-7,
        "eval_every": episodes,
        "heldout_tasks": 30,
        "free_form_tasks": 10,
        "seed": 0,
    }
    with tempfile.TemporaryDirectory() as home:
        Trainer(TrainingConfig(**settings), home=home, listeners=[hear]).train()
    closing = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
    rows: list[Row] = [{"episodes": "plain model", "held_mb": None, "peak_mb": plain}]
    for part in range(_PARTS):
        low, high = (episodes * (part + i) / _PARTS for i in (0, 1))
        own = [entry for entry in taken if low < entry[0] <= high]
        if own:
            rows.append(
                {
                    "episodes": f"{low:,.0f} to {high:,.0f}",
                    "held_mb": statistics.mean(held for _, held, _ in own),
                    "most_held_mb": max(held for _, held, _ in own),
                    "peak_mb": max(peak for *_, peak in own),
                    "updates": len(own),
                }
            )
    second, last = rows[min(2, len(rows) - 1)], rows[-1]
    steady = last["held_mb"] / second["held_mb"]
    rows.append({"episodes": "evaluation", "held_mb": None, "peak_mb": closing})
    lines = [
        [
            row["episodes"],
            str(row.get("updates", "")),
            "" if row["held_mb"] is None else f"{row['held_mb']:,.0f}",
            f"{row['most_held_mb']:,.0f}" if "most_held_mb" in row else "",
            f"{row['peak_mb']:,.0f}",
        ]
        for row in rows
    ]
    header = ("episodes", "updates", "MB held (mean)", "most", "peak so far")
    report(
        options,
        name="llm_memory",
        rows=rows,
        ratio=plain / closing,
        peer="the same model in transformers, peak memory against ours",
        text=(
            f"{table(header, lines)}\n\n"
            f"peak {closing:,.0f} MB (limit: {LIMIT_MB:,} MB); the last fifth holds "
            f"{steady:.3f} times as much as the second"
        ),
    )


if __name__ == "__main__":
    main()

"""What the benchmarks share: options, measured processes, intervals, tables, JSON.

Every benchmark takes `--quick` (a small version, for trying out) and `--json` (one
object on standard output: `name`, `rows`, `ratio`, `peer`; all else goes to standard
error). `ratio` is ours against the named peer, and larger is better for us; None means
that it could not be measured.
"""

from __future__ import annotations

import argparse
import json
import math
import os
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

# Before numpy is imported, here and in every process that is started.
os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")

Row = dict[str, Any]

# Two-sided 95% quantiles of Student's t, by degrees of freedom.
_T = {1: 12.706, 2: 4.303, 3: 3.182, 4: 2.776, 5: 2.571, 6: 2.447, 7: 2.365, 8: 2.306}

_TRAIN = """
import json, sys
from agentgym import Trainer, TrainingConfig
config = TrainingConfig(**json.loads(sys.argv[1]))
json.dump(Trainer(config).train().to_dict(), sys.stdout)
"""


def parser(text: str | None) -> argparse.ArgumentParser:
    """A parser with the options that all benchmarks have.

    Args:
        text: The benchmark's docstring.
    """
    made = argparse.ArgumentParser(
        description=text, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    made.add_argument("--quick", action="store_true", help="a small version")
    made.add_argument("--json", action="store_true", help="print one JSON object")
    return made


def say(text: str = "") -> None:
    """Prints a line for people; standard output may be needed for JSON."""
    print(text, file=sys.stderr, flush=True)


@dataclass(frozen=True)
class Measured:
    """A process that has ended well.

    Attributes:
        seconds: By the clock.
        cpu_seconds: Of all its threads, user and system.
        peak_bytes: The most memory it held at once.
    """

    output: str
    seconds: float
    cpu_seconds: float
    peak_bytes: int


def measure(command: Sequence[str], environment: Mapping[str, str] = {}) -> Measured:
    """Runs a command to its end.

    Raises:
        SystemExit: If the command fails; its own words have been shown.
    """
    with tempfile.TemporaryFile() as output, tempfile.TemporaryFile() as errors:
        started = time.perf_counter()
        process = subprocess.Popen(
            command,
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=errors,
            env={**os.environ, **environment},
        )
        _, status, usage = os.wait4(process.pid, 0)
        seconds = time.perf_counter() - started
        process.returncode = os.waitstatus_to_exitcode(status)
        output.seek(0)
        errors.seek(0)
        if process.returncode != 0:
            say(errors.read().decode(errors="replace"))
            raise SystemExit(f"{command[0]} ended with {process.returncode}")
        unit = 1 if sys.platform == "darwin" else 1024
        return Measured(
            output.read().decode(),
            seconds,
            usage.ru_utime + usage.ru_stime,
            usage.ru_maxrss * unit,
        )


def train(**settings: Any) -> tuple[dict[str, Any], Measured]:
    """Trains in a process and a home of its own.

    Returns:
        `TrainingResult.to_dict()`, and what the process took.
    """
    with tempfile.TemporaryDirectory() as home:
        done = measure(
            [sys.executable, "-c", _TRAIN, json.dumps(settings)],
            {"AGENTGYM_HOME": home},
        )
    return json.loads(done.output), done


def agentgym(*arguments: str) -> list[str]:
    """The command line of this very installation."""
    script = Path(sys.executable).with_name("agentgym")
    start = [str(script)] if script.exists() else [sys.executable, "-m", "agentgym"]
    return [*start, *arguments]


def mean_interval(values: Sequence[float]) -> tuple[float, float]:
    """95% interval of a mean over a few runs (Student's t)."""
    mean, count = statistics.fmean(values), len(values)
    if count < 2:
        return (-math.inf, math.inf)
    half = _T.get(count - 1, 1.96) * statistics.stdev(values) / math.sqrt(count)
    return (mean - half, mean + half)


def median_interval(values: Sequence[float]) -> tuple[float, float]:
    """95% interval of a median, from the order of the values."""
    ordered, count = sorted(values), len(values)
    # The k-th smallest and largest: binomial with p = 1/2.
    tail, k = 0.5**count, 0
    while k < (count - 1) // 2 and tail <= 0.025:
        k += 1
        tail += math.comb(count, k) * 0.5**count
    k = max(0, k - 1)
    return (ordered[k], ordered[count - 1 - k])


def latencies(taken: Sequence[float], seconds: float) -> Row:
    """Of requests that took so many seconds each, and so many in all."""
    ordered = sorted(1000 * value for value in taken)
    return {
        "requests": len(ordered),
        "requests_per_second": len(ordered) / seconds,
        "p50_ms": statistics.median(ordered),
        "p99_ms": ordered[min(len(ordered) - 1, int(0.99 * len(ordered)))],
    }


def share(value: float, interval: Sequence[float] | None = None) -> str:
    """A share as people read it."""
    if interval is None:
        return f"{value:.1%}"
    return f"{value:.1%} ({100 * interval[0]:.1f} to {100 * interval[1]:.1f})"


def table(header: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    """A table in Markdown, aligned."""
    cells = [list(header), *(list(row) for row in rows)]
    widths = [max(len(row[i]) for row in cells) for i in range(len(header))]
    lines = [
        "| " + " | ".join(c.ljust(w) for c, w in zip(row, widths, strict=True)) + " |"
        for row in cells
    ]
    rule = "|" + "|".join("-" * (width + 2) for width in widths) + "|"
    return "\n".join([lines[0], rule, *lines[1:]])


def report(
    options: argparse.Namespace,
    *,
    name: str,
    rows: Sequence[Row],
    ratio: float | None,
    peer: str,
    text: str,
) -> None:
    """Prints the outcome: the text, and with `--json` the one object.

    Args:
        options: From `parser`.
        name: Of the benchmark.
        rows: One for each contestant or size.
        ratio: Ours against the peer; larger is better for us.
        peer: What ours was compared with.
        text: For people: a table, and what it says.
    """
    print(text, file=sys.stderr if options.json else sys.stdout, flush=True)
    if options.json:
        value = {"name": name, "rows": list(rows), "ratio": ratio, "peer": peer}
        print(json.dumps(value, indent=2, allow_nan=False))

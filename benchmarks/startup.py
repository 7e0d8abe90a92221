"""How long the command line takes to answer.

    python benchmarks/startup.py

CPU milliseconds of `agentgym --version` and `agentgym scenarios list` beside those of
an interpreter that does nothing: medians of 20, taken in turn, so that a busy moment of
the machine hits all alike. Run it in an installed environment: without the `agentgym`
script beside the interpreter, `python -m agentgym` is measured, which is slower.
"""

from __future__ import annotations

import statistics
import sys

from _common import Row, agentgym, measure, median_interval, parser, report, table

VERSION_LIMIT, LIST_LIMIT = 2.0, 150.0


def main() -> None:
    """Measures all three and prints their rows."""
    options = parser(__doc__).parse_args()
    commands = {
        "python -c pass": [sys.executable, "-c", "pass"],
        "agentgym --version": agentgym("--version"),
        "agentgym scenarios list": agentgym("scenarios", "list"),
    }
    taken: dict[str, list[float]] = {name: [] for name in commands}
    for command in commands.values():
        measure(command)  # Compiles modules and warms the disk cache.
    for _ in range(5 if options.quick else 20):
        for name, command in commands.items():
            taken[name].append(1000 * measure(command).cpu_seconds)
    rows: list[Row] = [
        {
            "command": name,
            "cpu_ms": statistics.median(values),
            "cpu_ms_interval": list(median_interval(values)),
            "runs": len(values),
        }
        for name, values in taken.items()
    ]
    bare, version, listing = (row["cpu_ms"] for row in rows)
    lines = [
        [
            row["command"],
            f"{row['cpu_ms']:.1f}",
            "{:.1f} to {:.1f}".format(*row["cpu_ms_interval"]),
        ]
        for row in rows
    ]
    report(
        options,
        name="startup",
        rows=rows,
        ratio=bare / version,
        peer="python -c pass, CPU time against agentgym --version",
        text=(
            f"{table(('command', 'CPU ms (median)', '95% interval'), lines)}\n\n"
            f"--version takes {version / bare:.2f} times as long as an interpreter "
            f"that does nothing (aim: at most {VERSION_LIMIT:g})\n"
            f"scenarios list takes {listing:.0f} ms (aim: below {LIST_LIMIT:g})"
        ),
    )


if __name__ == "__main__":
    main()

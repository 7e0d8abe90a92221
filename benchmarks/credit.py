"""Two ways to give credit: for the whole episode, or for the step at its state.

    python benchmarks/credit.py

Three seeds of customer_support with `credit="broadcast"` and with `credit="state"`
(docs/rewards.md), all else equal: the same episodes and tasks, and no early stop.
Figures are of held-out tasks.
"""

from __future__ import annotations

import statistics

from _common import Row, mean_interval, parser, report, say, share, table, train

WAYS = ("broadcast", "state")


def run(credit: str, seed: int, episodes: int) -> Row:
    """Trains once."""
    result, done = train(
        scenario="customer_support",
        credit=credit,
        seed=seed,
        episodes=episodes,
        target_reliability=1.0,
    )
    after = result["metrics"]
    return {
        "credit": credit,
        "seed": seed,
        "episodes": after["episodes_completed"],
        "tool_reliability": after["tool_reliability"],
        "tool_reliability_interval": after["tool_reliability_interval"],
        "task_success": after["task_success"],
        "task_success_interval": after["task_success_interval"],
        "cpu_seconds": done.cpu_seconds,
    }


def main() -> None:
    """Runs all pairs and prints their rows."""
    options = parser(__doc__).parse_args()
    seeds, episodes = (range(1), 1_024) if options.quick else (range(3), 10_000)
    rows = []
    for seed in seeds:
        for credit in WAYS:
            say(f"seed {seed}, {credit} ...")
            rows.append(run(credit, seed, episodes))
    header = ("credit", "seed", "episodes", "tool reliability", "task success", "CPU s")
    lines = [
        [
            row["credit"],
            str(row["seed"]),
            f"{row['episodes']:,}",
            share(row["tool_reliability"], row["tool_reliability_interval"]),
            share(row["task_success"], row["task_success_interval"]),
            f"{row['cpu_seconds']:.0f}",
        ]
        for row in sorted(rows, key=lambda row: (row["credit"], row["seed"]))
    ]
    by_way = {
        way: [row["tool_reliability"] for row in rows if row["credit"] == way]
        for way in WAYS
    }
    means = {way: statistics.fmean(values) for way, values in by_way.items()}
    text = table(header, lines) + "\n"
    for way, values in by_way.items():
        interval = mean_interval(values) if len(values) > 1 else None
        text += f"\nmean over seeds, {way}: {share(means[way], interval)}"
    report(
        options,
        name="credit",
        rows=rows,
        ratio=means["state"] / means["broadcast"] if means["broadcast"] else None,
        peer="credit broadcast to the whole episode, held-out tool reliability",
        text=text,
    )


if __name__ == "__main__":
    main()

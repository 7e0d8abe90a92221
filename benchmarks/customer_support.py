"""How well, and how soon, customer_support is learned: five seeds, each from scratch.

    python benchmarks/customer_support.py
    python benchmarks/customer_support.py --policy llm --seeds 3

Each seed is one `agentgym train customer_support --seed S --json` in a process and a
home of its own. Reliability and success are those of the held-out tasks, which training
never sees, with their 95% intervals; the untrained policy on the same tasks stands
beside them. A language model is also measured free-form, without the constraint. Always
exits with 0: it reports, and does not judge.

What such commands printed can be kept in files and given with --results, so that the
seeds can be trained side by side, or on several machines:

    python benchmarks/customer_support.py --results seed0.json seed1.json ...
"""

from __future__ import annotations

import json
import statistics
import tempfile
from pathlib import Path

from _common import Row, agentgym, mean_interval, measure, parser, report, say, table
from _common import share as percent

RELIABILITY, SUCCESS = 0.95, 0.90


def train(policy: str, seed: int, episodes: int | None) -> Row:
    """Trains one seed."""
    command = agentgym("train", "customer_support", "--policy", policy)
    command += ["--seed", str(seed), "--json"]
    if episodes is not None:
        command += ["--episodes", str(episodes)]
    with tempfile.TemporaryDirectory() as home:
        done = measure(command, {"AGENTGYM_HOME": home})
    return {**row(json.loads(done.output)), "cpu_seconds": done.cpu_seconds}


def row(result: Row) -> Row:
    """What a training's result says, as a row."""
    after, before = result["metrics"], result["baseline"]
    return {
        "seed": result["config"]["seed"],
        "tool_reliability": after["tool_reliability"],
        "tool_reliability_interval": after["tool_reliability_interval"],
        "task_success": after["task_success"],
        "task_success_interval": after["task_success_interval"],
        "baseline_tool_reliability": before["tool_reliability"],
        "baseline_task_success": before["task_success"],
        "free_form_reliability": after["free_form_reliability"],
        "free_form_interval": after["free_form_reliability_interval"],
        "baseline_free_form_reliability": before["free_form_reliability"],
        "cost_reduction": after["cost_reduction"],
        "time_savings": after["time_savings"],
        "episodes": after["episodes_completed"],
        "tasks": after["tasks"],
        "training_seconds": after["total_training_time"],
        "cpu_seconds": None,
        "meets_reliability": after["tool_reliability"] >= RELIABILITY,
        "meets_success": after["task_success"] >= SUCCESS,
    }


def cells(row: Row) -> list[str]:
    """A row as people read it."""
    cost = row["cost_reduction"]
    free = []
    if row["free_form_reliability"] is not None:
        free = [
            percent(row["baseline_free_form_reliability"]),
            percent(row["free_form_reliability"], row["free_form_interval"]),
        ]
    return [
        str(row["seed"]),
        percent(row["baseline_tool_reliability"]),
        percent(row["tool_reliability"], row["tool_reliability_interval"]),
        *free,
        percent(row["baseline_task_success"]),
        percent(row["task_success"], row["task_success_interval"]),
        percent(cost) if cost is not None else "",
        f"{row['episodes']:,}",
        f"{row['training_seconds']:.0f}",
        f"{row['cpu_seconds']:.0f}" if row["cpu_seconds"] is not None else "",
        "yes" if row["meets_reliability"] and row["meets_success"] else "no",
    ]


def main() -> None:
    """Runs the seeds and prints their rows."""
    arguments = parser(__doc__)
    arguments.add_argument("--results", nargs="+", type=Path, metavar="FILE")
    arguments.add_argument("--policy", choices=("planner", "llm"), default="planner")
    arguments.add_argument(
        "--seeds", type=int, default=5, help="how many; 5 by default"
    )
    options = arguments.parse_args()
    seeds = range(2 if options.quick else options.seeds)
    episodes = 1_024 if options.quick else None
    if options.results:
        rows = [row(json.loads(path.read_text())) for path in options.results]
    else:
        rows = []
        for seed in seeds:
            say(f"seed {seed} ...")
            rows.append(train(options.policy, seed, episodes))
    free = rows[0]["free_form_reliability"] is not None
    header = (
        "seed",
        "reliability untrained",
        "trained (95% interval)",
        *(["free-form untrained", "trained (95% interval)"] if free else []),
        "success untrained",
        "trained (95% interval)",
        "cost reduction",
        "episodes",
        "training s",
        "CPU s in all",
        f"at least {RELIABILITY:.0%} / {SUCCESS:.0%}",
    )
    after = [row["tool_reliability"] for row in rows]
    before = statistics.fmean(row["baseline_tool_reliability"] for row in rows)
    low, high = mean_interval(after)
    met = sum(row["meets_reliability"] and row["meets_success"] for row in rows)
    text = (
        f"customer_support, {rows[0]['tasks']} held-out tasks a seed\n\n"
        f"{table(header, [cells(row) for row in rows])}\n\n"
        f"mean reliability over seeds: {percent(before)} untrained, "
        f"{percent(statistics.fmean(after), (low, high))} trained\n"
        f"{free_form(rows) if free else ''}"
        f"{met} of {len(rows)} seeds reach {RELIABILITY:.0%} reliability and "
        f"{SUCCESS:.0%} success"
    )
    report(
        options,
        name="customer_support",
        rows=rows,
        ratio=statistics.fmean(after) / before if before else None,
        peer="the untrained policy, held-out tool reliability",
        text=text,
    )


def free_form(rows: list[Row]) -> str:
    """A line of what remains without the constraint."""
    found = [row["free_form_reliability"] for row in rows]
    kept = [row["free_form_reliability"] / row["tool_reliability"] for row in rows]
    return (
        f"mean free-form: {percent(statistics.fmean(found), mean_interval(found))}; of "
        f"the reliability under the constraint each keeps "
        f"{', '.join(f'{share:.0%}' for share in kept)}\n"
    )


if __name__ == "__main__":
    main()

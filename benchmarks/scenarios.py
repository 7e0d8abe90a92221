"""How far scenarios are learned against their own targets: three seeds of each.

    python benchmarks/scenarios.py
    python benchmarks/scenarios.py --scenario data_analysis --seeds 5
    python benchmarks/scenarios.py --policy planner --policy llm

Each row is one `agentgym train SCENARIO --policy POLICY --seed S --json` in a process
and a home of its own. Figures are those of the held-out tasks, which training never
sees, with their 95% intervals; the untrained policy on the same tasks stands beside
them. Always exits with 0: it reports, and does not judge.

What such commands printed can be kept in files and given with --results, so that the
seeds can be trained side by side, or on several machines:

    python benchmarks/scenarios.py --results data_analysis_0.json ...

A scenario is added by a line in `FIGURES`.
"""

from __future__ import annotations

import itertools
import json
import statistics
import tempfile
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from _common import Row, agentgym, mean_interval, measure, parser, report, say, table
from _common import share as percent

from agentgym.core.metrics import AtMost

FIGURES = {
    "code_review": ("issue_detection", "false_positive_rate", "explanation_quality"),
    "data_analysis": ("insight_accuracy", "query_efficiency", "chart_fit"),
    "service_desks": ("asking",),
}
"""The scenarios, and which of their own figures to show."""
POLICIES = ("planner", "llm")
QUICK_EPISODES = 512


def train(scenario: str, policy: str, seed: int, episodes: int | None) -> Row:
    """Trains one seed."""
    say(f"{scenario}, {policy}, seed {seed} ...")
    command = agentgym("train", scenario, "--policy", policy, "--seed", str(seed))
    command.append("--json")
    if episodes is not None:
        command += ["--episodes", str(episodes)]
    with tempfile.TemporaryDirectory() as home:
        done = measure(command, {"AGENTGYM_HOME": home})
    return {**row(json.loads(done.output)), "cpu_seconds": done.cpu_seconds}


def row(result: Row) -> Row:
    """What a training's result says, as a row."""
    after, before, config = result["metrics"], result["baseline"], result["config"]
    own = {
        name: {"untrained": before["measures"].get(name), "trained": found}
        for name, found in after["measures"].items()
    }
    return {
        "scenario": config["scenario"],
        "policy": config["policy"],
        "seed": config["seed"],
        "figures": own,
        "tool_reliability": after["tool_reliability"],
        "tool_reliability_interval": after["tool_reliability_interval"],
        "baseline_tool_reliability": before["tool_reliability"],
        "free_form": after["free_form_reliability"],
        "free_form_interval": after["free_form_reliability_interval"],
        "baseline_free_form": before["free_form_reliability"],
        "response_seconds": after["avg_response_time"],
        "episodes": after["episodes_completed"],
        "tasks": after["tasks"],
        "training_seconds": after["total_training_time"],
        "cpu_seconds": None,
    }


def targets(scenario: str) -> dict[str, float]:
    """What the scenario wants to reach."""
    from agentgym.scenarios.registry import ScenarioRegistry

    return ScenarioRegistry.load(scenario).success_criteria()


def shown(figure: Row | None) -> str:
    """A figure as people read it."""
    if figure is None:
        return "none"
    return percent(figure["value"], (figure["low"], figure["high"]))


def cells(row: Row) -> list[str]:
    """A row as people read it."""
    own = row["figures"]
    figures = [
        shown((own.get(name) or {}).get(state))
        for name in FIGURES[row["scenario"]]
        for state in ("untrained", "trained")
    ]
    reliability = percent(row["tool_reliability"], row["tool_reliability_interval"])
    cpu = row["cpu_seconds"]
    return [
        row["policy"],
        str(row["seed"]),
        *figures,
        percent(row["baseline_tool_reliability"]),
        reliability,
        f"{1000 * row['response_seconds']:.0f}",
        f"{row['episodes']:,}",
        f"{row['training_seconds']:.0f}",
        "" if cpu is None else f"{cpu:.0f}",
    ]


def means(scenario: str, rows: list[Row]) -> list[str]:
    """A line for each policy and figure: its mean over seeds against the target."""
    lines = []
    for policy, name in itertools.product(
        dict.fromkeys(row["policy"] for row in rows), FIGURES[scenario]
    ):
        own = [
            row["figures"][name]["trained"] for row in rows if row["policy"] == policy
        ]
        found = [figure["value"] for figure in own if figure]
        if len(found) < 2:  # One seed is its own mean, and has no interval.
            continue
        wanted = targets(scenario).get(name)
        bound = "at most " if isinstance(wanted, AtMost) else ""
        target = "" if wanted is None else f"; the target is {bound}{wanted:.0%}"
        mean = percent(statistics.fmean(found), mean_interval(found))
        lines.append(f"{policy}, {name}, mean over {len(found)} seeds: {mean}{target}")
    return lines


def free_form(rows: list[Row]) -> list[str]:
    """A line for each language model: how reliable it is without the constraint."""
    return [
        f"{row['policy']}, seed {row['seed']}, free-form reliability: "
        f"{percent(row['baseline_free_form'])} untrained, "
        f"{percent(row['free_form'], row['free_form_interval'])} trained"
        for row in rows
        if row["free_form"] is not None
    ]


def main() -> None:
    """Trains every scenario with every policy, and prints the rows."""
    arguments = parser(__doc__)
    arguments.add_argument("--scenario", choices=FIGURES, action="append")
    arguments.add_argument(
        "--policy", choices=POLICIES, action="append", help="the planner by default"
    )
    arguments.add_argument("--seeds", type=int, default=3)
    arguments.add_argument(
        "--jobs", type=int, default=1, help="trainings side by side; they slow down"
    )
    arguments.add_argument("--results", nargs="+", type=Path, metavar="FILE")
    options = arguments.parse_args()
    seeds, episodes = (1, QUICK_EPISODES) if options.quick else (options.seeds, None)
    if options.results:
        rows = [row(json.loads(path.read_text())) for path in options.results]
    else:
        runs = [
            (scenario, policy, seed, episodes)
            for scenario in options.scenario or FIGURES
            for policy in options.policy or POLICIES[:1]
            for seed in range(seeds)
        ]
        with ThreadPoolExecutor(options.jobs) as pool:
            rows = list(pool.map(lambda run: train(*run), runs))
    parts = []
    for scenario in dict.fromkeys(row["scenario"] for row in rows):
        mine = [row for row in rows if row["scenario"] == scenario]
        header = ["policy", "seed"]
        for name in FIGURES[scenario]:
            header += [f"{name.replace('_', ' ')}, untrained", "trained (95% interval)"]
        header += ["reliability, untrained", "trained (95% interval)"]
        header += ["response ms", "episodes", "training s", "CPU s in all"]
        parts.append(
            f"{scenario}, {mine[0]['tasks']} held-out tasks a seed\n\n"
            f"{table(header, [cells(row) for row in mine])}\n\n"
            + "\n".join([*means(scenario, mine), *free_form(mine)])
        )
    ratio = gain(rows)
    report(
        options,
        name="scenarios",
        rows=rows,
        ratio=ratio,
        peer="the untrained policy, held-out tool reliability",
        text="\n\n".join(parts),
    )


def gain(rows: list[Row]) -> float | None:
    """Mean reliability, trained over untrained; None if that is 0."""
    before = statistics.fmean(row["baseline_tool_reliability"] for row in rows)
    after = statistics.fmean(row["tool_reliability"] for row in rows)
    return after / before if before else None


if __name__ == "__main__":
    main()

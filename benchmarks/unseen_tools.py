"""Whether training on some tools makes an agent better with others: three seeds.

    python benchmarks/unseen_tools.py
    python benchmarks/unseen_tools.py --policy llm --seeds 1 --episodes 3000

Each seed makes a file of 400 function-calling tasks with 300 tools (`_function_calls`
says how), trains a policy (the planner, if nothing is said) on the 220 tasks of its
training split, and measures it, beside the untrained one, on 120 held-out tasks whose
tools and wordings are nowhere in training. A task counts as right if every call was
right, none was needless, and none was made where none was right. Those last ones, where
the right tool is missing and the agent should abstain, are counted apart as well.

The gain is measured on the same tasks, so its interval is that of the mean of paired
differences.
"""

from __future__ import annotations

import json
import math
import statistics
import sys
import tempfile
from pathlib import Path

from _common import Row, mean_interval, measure, parser, report, say, share, table
from _function_calls import write_tasks

_RUN = """
import json, sys
from agentgym import TrainedAgent, Trainer
from agentgym.training.evaluation import evaluate
from agentgym.training.rollout import Rollout
from agentgym.policies.registry import create_policy
from agentgym.scenarios.registry import ScenarioRegistry

settings = json.loads(sys.argv[1])
result = Trainer().train("task_file", **settings)
scenario = ScenarioRegistry.load("task_file", tasks=settings["tasks"])
tasks = scenario.tasks("heldout", 0, 10**6)
rollout = Rollout(scenario, max_steps=10)
found = {}
for name, policy in (
    ("untrained", create_policy(settings["policy"], settings["seed"])),
    ("trained", TrainedAgent.load(result.model).policy),
):
    episodes = evaluate(policy, rollout, tasks).trajectories
    found[name] = [bool(episode.success) for episode in episodes]
found["abstain"] = ["abstain" in task.tags for task in tasks]
found["seconds"] = result.metrics.total_training_time
found["episodes"] = result.metrics.episodes_completed
json.dump(found, sys.stdout)
"""


def run(policy: str, seed: int, episodes: int | None) -> Row:
    """Trains and measures one seed."""
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "tasks.jsonl"
        write_tasks(path, seed)
        settings = {"tasks": str(path), "policy": policy, "seed": seed}
        if episodes is not None:
            settings["episodes"] = episodes
        done = measure(
            [sys.executable, "-c", _RUN, json.dumps(settings)],
            {"AGENTGYM_HOME": str(Path(folder) / "home")},
        )
    found = json.loads(done.output)
    return {
        "seed": seed,
        "tasks": len(found["abstain"]),
        "episodes": found["episodes"],
        "training_seconds": found["seconds"],
        "cpu_seconds": done.cpu_seconds,
        **_part("all", found, [True] * len(found["abstain"])),
        **_part("call", found, [not abstains for abstains in found["abstain"]]),
        **_part("abstain", found, found["abstain"]),
    }


def _part(name: str, found: Row, chosen: list[bool]) -> Row:
    before, after = (
        [right for right, mine in zip(found[who], chosen, strict=True) if mine]
        for who in ("untrained", "trained")
    )
    gains = [int(b) - int(a) for a, b in zip(before, after, strict=True)]
    mean = statistics.fmean(gains)
    half = 1.96 * statistics.stdev(gains) / math.sqrt(len(gains))
    return {
        f"{name}_tasks": len(gains),
        f"{name}_untrained": statistics.fmean(before),
        f"{name}_trained": statistics.fmean(after),
        f"{name}_gain": mean,
        f"{name}_gain_interval": [mean - half, mean + half],
    }


def cells(row: Row) -> list[str]:
    """A row as people read it."""
    parts = [str(row["seed"])]
    for name in ("all", "call", "abstain"):
        parts += [
            share(row[f"{name}_untrained"]),
            share(row[f"{name}_trained"]),
            share(row[f"{name}_gain"], row[f"{name}_gain_interval"]),
        ]
    return [*parts, f"{row['training_seconds']:.0f}"]


def main() -> None:
    """Runs the seeds and prints their rows."""
    made = parser(__doc__)
    made.add_argument("--policy", choices=("planner", "llm"), default="planner")
    made.add_argument("--seeds", type=int, default=3, help="how many; 3 by default")
    made.add_argument("--episodes", type=int, help="the policy's own default if not")
    options = made.parse_args()
    seeds = range(1 if options.quick else options.seeds)
    episodes = 1_000 if options.quick else options.episodes
    rows = []
    for seed in seeds:
        say(f"seed {seed} ...")
        rows.append(run(options.policy, seed, episodes))
    header = ["seed"]
    for name in ("all tasks", "where a call is right", "where none is"):
        header += [f"{name}: untrained", "trained", "gain (95% interval)"]
    lines = []
    for name, title in (("all", "all"), ("call", "calls"), ("abstain", "abstention")):
        gains = [row[f"{name}_gain"] for row in rows]
        before = statistics.fmean(row[f"{name}_untrained"] for row in rows)
        after = statistics.fmean(row[f"{name}_trained"] for row in rows)
        text = f"{title}: {share(before)} untrained, {share(after)} trained"
        if len(gains) > 1:
            gain = share(statistics.fmean(gains), mean_interval(gains))
            text += f", gain over seeds {gain}"
        lines.append(text)
    sure = sum(row["all_gain_interval"][0] > 0 for row in rows)
    count = f"{rows[0]['all_tasks']} held-out tasks a seed"
    report(
        options,
        name="unseen_tools",
        rows=rows,
        ratio=_ratio(rows),
        peer=f"the untrained {options.policy} on the same held-out tasks",
        text=(
            f"{count}, {rows[0]['abstain_tasks']} of them without a right call\n\n"
            f"{table([*header, 'training s'], [cells(row) for row in rows])}\n\n"
            + "\n".join(lines)
            + f"\nthe interval of the gain excludes 0 in {sure} of {len(rows)} seeds"
        ),
    )


def _ratio(rows: list[Row]) -> float | None:
    before = statistics.fmean(row["all_untrained"] for row in rows)
    after = statistics.fmean(row["all_trained"] for row in rows)
    return after / before if before else None


if __name__ == "__main__":
    main()

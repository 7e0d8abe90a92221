"""The same scenario trained three ways: built-in loop, a function, a program.

    python benchmarks/agents.py

customer_support is trained with the built-in loop, with examples/tool_loop_agent.py (a
function that asks its endpoint with OpenAI's client) and with examples/command_agent.py
(a program that is started anew for every episode), with the same settings and seed. A
reliability counts as the same if the 95% intervals of the two overlap.

What an episode costs is then measured for itself: the untrained planner plays tasks
that it has read before, so that next to nothing of the time is its own.

What it leaves out: agents that think for themselves, and longer trainings.
"""

from __future__ import annotations

import os
import resource
import sys
import time
from pathlib import Path
from typing import Any

from _common import Row, parser, report, say, share, table, train

EXAMPLES = Path(__file__).parents[1] / "examples"
WAYS: dict[str, dict[str, Any]] = {
    "built-in loop": {},
    "function": {"agent": "tool_loop_agent:agent"},
    "program": {
        "agent_command": f"{sys.executable} -S {EXAMPLES / 'command_agent.py'}"
    },
}


def main() -> None:
    """Trains each way, then measures episodes."""
    made = parser(__doc__)
    made.add_argument("--episodes", type=int, default=8_000, help="of each training")
    made.add_argument("--seed", type=int, default=0)
    options = made.parse_args()
    episodes = 400 if options.quick else options.episodes
    # Functions are named by their module, here and in the processes that train.
    os.environ["PYTHONPATH"] = os.pathsep.join(
        [str(EXAMPLES), *filter(None, [os.environ.get("PYTHONPATH")])]
    )
    sys.path.insert(0, str(EXAMPLES))
    rows: list[Row] = []
    for name, way in WAYS.items():
        say(f"Training: {name}")
        result, took = train(
            scenario="customer_support",
            episodes=episodes,
            seed=options.seed,
            eval_every=max(400, episodes // 2),
            eval_tasks=50,
            heldout_tasks=50 if options.quick else 400,
            target_reliability=1.0,
            **way,
        )
        metrics = result["metrics"]
        rows.append(
            {
                "way": name,
                "episodes": metrics["episodes_completed"],
                "untrained": result["baseline"]["tool_reliability"],
                "tool_reliability": metrics["tool_reliability"],
                "interval": metrics["tool_reliability_interval"],
                "failed_agents": sum(
                    metrics["failures"].get(kind, 0)
                    for kind in ("agent_crash", "agent_timeout", "no_decision")
                ),
                "seconds": took.seconds,
                "cpu_seconds": took.cpu_seconds,
            }
        )
        say(f"  {share(metrics['tool_reliability'], rows[-1]['interval'])}")
    say("Measuring episodes")
    for row in rows:
        row |= _episodes(WAYS[row["way"]], 40 if options.quick else 200)
    low, high = rows[0]["interval"]
    same = all(row["interval"][0] <= high and row["interval"][1] >= low for row in rows)
    lines = [
        [
            row["way"],
            share(row["untrained"]),
            share(row["tool_reliability"], row["interval"]),
            f"{row['seconds']:.0f}",
            f"{row['ms_per_episode']:.1f}",
            f"{row['cpu_ms_per_episode']:.1f}",
        ]
        for row in rows
    ]
    header = (
        "way, untrained, trained (95% interval), training s, ms an episode,"
        " CPU ms an episode"
    )
    worst = min(row["tool_reliability"] for row in rows[1:])
    report(
        options,
        name="agents",
        rows=rows,
        ratio=worst / rows[0]["tool_reliability"],
        peer="the built-in loop",
        text=(
            f"{table(header.split(', '), lines)}\n\n"
            f"{rows[0]['episodes']:,} episodes each; the intervals"
            f" {'overlap' if same else 'do not overlap'}"
        ),
    )


def _episodes(way: dict[str, Any], count: int) -> Row:
    """What an episode takes, in all processes together."""
    from agentgym import TrainingConfig
    from agentgym.runs.resolve import resolve

    job = resolve(TrainingConfig(scenario="customer_support", **way))
    policy = job.make_policy()
    rollout = job.make_rollout(say)
    tasks = job.scenario.tasks("train", 0, count)
    rollout.play(policy, tasks)
    clock, cpu = time.perf_counter(), _cpu()
    rollout.play(policy, tasks)
    clock, cpu = time.perf_counter() - clock, _cpu() - cpu
    rollout.close()
    return {
        "ms_per_episode": 1000 * clock / count,
        "cpu_ms_per_episode": 1000 * cpu / count,
    }


def _cpu() -> float:
    both = (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN)
    used = [resource.getrusage(who) for who in both]
    return sum(one.ru_utime + one.ru_stime for one in used)


if __name__ == "__main__":
    main()

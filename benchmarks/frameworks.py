"""customer_support trained through the agent loops of LangChain, AutoGen and CrewAI.

    python benchmarks/frameworks.py
    python benchmarks/frameworks.py --python crewai=.venv-crewai/bin/python

`--python autogen_classic=.venv-classic/bin/python` adds classic AutoGen.

For each framework the scenario is trained with the framework's own agent in the place
of the built-in loop. The model is then loaded in a fresh process and plays held-out
tasks twice: with the built-in loop, and as an agent of `to_langchain()` and its
siblings in the framework's own loop (`_drive.py`). The aim is that the two are no more
than two points apart.

A framework that is not installed in the environment at hand (or in the one named by
`--python`) is left out, and said to be.

What it leaves out: seeds; the frameworks' other kinds of agents.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

from _common import Row, measure, parser, report, say, share, table

FRAMEWORKS = ("langchain", "autogen", "autogen_classic", "crewai")

_TRAIN = """
import json, sys
from agentgym import Trainer
settings = json.loads(sys.argv[1])
result = Trainer().train("customer_support", **settings)
untrained = result.baseline.tool_reliability
json.dump({"model": result.model, "untrained": untrained}, sys.stdout)
"""
_THERE = """
import sys
from agentgym.integrations.base import ADAPTERS
sys.exit(ADAPTERS[sys.argv[1]].problem())
"""


def main() -> None:
    """Trains, loads and plays."""
    made = parser(__doc__)
    made.add_argument("--episodes", type=int, default=8_000, help="of each training")
    made.add_argument("--tasks", type=int, default=200, help="held-out tasks to play")
    made.add_argument("--seed", type=int, default=0)
    made.add_argument(
        "--python",
        action="append",
        default=[],
        metavar="FRAMEWORK=PYTHON",
        help="interpreter of the environment that has a framework",
    )
    options = made.parse_args()
    interpreters = dict(pair.split("=", 1) for pair in options.python)
    rows: list[Row] = []
    for framework in FRAMEWORKS:
        python = interpreters.get(framework, sys.executable)
        there = subprocess.run(
            [python, "-c", _THERE, framework], capture_output=True, text=True
        )
        if there.returncode != 0:
            say(f"Left out: {framework} ({there.stderr.strip().splitlines()[-1]})")
            continue
        rows.append(_row(framework, python, options))
    if not rows:
        raise SystemExit("None of the frameworks is installed here.")
    lines = [
        [
            row["framework"],
            share(row["untrained"]),
            share(row["built_in"], row["built_in_interval"]),
            share(row["driven"], row["driven_interval"]),
            f"{100 * (row['driven'] - row['built_in']):+.1f}",
            f"{row['same_calls']}",
            f"{row['seconds']:.0f}",
            f"{row['playing_seconds']:.0f}",
        ]
        for row in rows
    ]
    header = (
        "framework, untrained, trained: built-in loop, trained: framework drives,"
        " points apart, tasks with the same calls, training s, playing s"
    )
    widest = max(abs(row["driven"] - row["built_in"]) for row in rows)
    verdict = "within two points" if widest <= 0.02 else "more than two points"
    report(
        options,
        name="frameworks",
        rows=rows,
        ratio=min(row["driven"] / max(row["built_in"], 1e-9) for row in rows),
        peer="the built-in loop",
        text=(
            f"{table(header.split(', '), lines)}\n\n"
            f"{rows[0]['episodes']:,} episodes each, {rows[0]['tasks']} held-out tasks:"
            f" {verdict} ({100 * widest:.1f} at most)"
        ),
    )


def _row(framework: str, python: str, options: Any) -> Row:
    episodes = 200 if options.quick else options.episodes
    count = 20 if options.quick else options.tasks
    settings = {
        # Which AutoGen it is follows from what is installed.
        "framework": framework.removesuffix("_classic"),
        "episodes": episodes,
        "seed": options.seed,
        "eval_every": max(400, episodes // 2),
        "eval_tasks": 50,
        "heldout_tasks": 50,
        "target_reliability": 1.0,
    }
    say(f"Training through {framework}")
    with tempfile.TemporaryDirectory() as home:
        where = {"AGENTGYM_HOME": home, "PYTHONPATH": _path()}
        took = measure([python, "-c", _TRAIN, json.dumps(settings)], where)
        trained = _last_line(took.output)
        drive = str(Path(__file__).with_name("_drive.py"))
        command = [python, drive, trained["model"], framework, str(count)]
        playing = measure(command, where)
        played = _last_line(playing.output)
    built_in, driven = played["built_in"], played["driven"]
    row: Row = {
        "framework": framework,
        "episodes": episodes,
        "tasks": count,
        "untrained": trained["untrained"],
        "built_in": built_in["tool_reliability"],
        "built_in_interval": built_in["tool_reliability_interval"],
        "driven": driven["tool_reliability"],
        "driven_interval": driven["tool_reliability_interval"],
        "same_calls": played["same"],
        "gave_up": played["gave_up"],
        "seconds": took.seconds,
        "playing_seconds": playing.seconds,
        "cpu_seconds": took.cpu_seconds,
    }
    say(f"  {share(row['driven'], row['driven_interval'])}")
    for text in row["gave_up"]:
        say(f"  gave up on {text}")
    return row


def _last_line(output: str) -> dict[str, Any]:
    """What the script printed, between whatever a framework did."""
    start = output.rindex("\n{") + 1 if "\n{" in output else 0
    found: dict[str, Any] = json.JSONDecoder().raw_decode(output, start)[0]
    return found


def _path() -> str:
    source = Path(__file__).parents[1] / "src"
    return os.pathsep.join([str(source), *filter(None, [os.environ.get("PYTHONPATH")])])


if __name__ == "__main__":
    main()

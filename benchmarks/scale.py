"""Does a long training cost more for each episode than a short one?

    python benchmarks/scale.py

10,000 and 100,000 episodes of customer_support, each in a process of its own, without
early stop. Peak memory must not grow with the number of episodes, nor CPU time with
their place in the run. CPU time is that of the whole process: start, evaluations and
checkpoints included, which weigh more in the short run. Episodes are not all alike:
early ones mostly branch off a sibling, whose text is encoded already; later ones mostly
start new tasks, which cost more each. The ratio shows both.
"""

from __future__ import annotations

from _common import Row, parser, report, say, table, train

MEMORY_LIMIT, TIME_LIMIT = 1.3, 1.2


def run(episodes: int) -> Row:
    """Trains once."""
    result, done = train(
        scenario="customer_support",
        episodes=episodes,
        target_reliability=1.0,
    )
    count = result["metrics"]["episodes_completed"]
    return {
        "episodes": count,
        "peak_megabytes": done.peak_bytes / 1e6,
        "cpu_seconds": done.cpu_seconds,
        "cpu_ms_per_episode": 1000 * done.cpu_seconds / count,
        "seconds": done.seconds,
        "tool_reliability": result["metrics"]["tool_reliability"],
    }


def main() -> None:
    """Runs both sizes and prints their rows."""
    options = parser(__doc__).parse_args()
    sizes = (1_024, 4_096) if options.quick else (10_000, 100_000)
    rows = []
    for episodes in sizes:
        say(f"{episodes:,} episodes ...")
        rows.append(run(episodes))
    header = ("episodes", "peak memory MB", "CPU s", "CPU ms an episode", "wall s")
    lines = [
        [
            f"{row['episodes']:,}",
            f"{row['peak_megabytes']:.0f}",
            f"{row['cpu_seconds']:.1f}",
            f"{row['cpu_ms_per_episode']:.2f}",
            f"{row['seconds']:.1f}",
        ]
        for row in rows
    ]
    short, long = rows
    memory = long["peak_megabytes"] / short["peak_megabytes"]
    each = long["cpu_ms_per_episode"] / short["cpu_ms_per_episode"]
    report(
        options,
        name="scale",
        rows=rows,
        ratio=1 / memory,
        peer=f"peak memory of {short['episodes']:,} episodes",
        text=(
            f"{table(header, lines)}\n\n"
            f"memory: {memory:.2f} times (aim: at most {MEMORY_LIMIT})\n"
            f"CPU time an episode: {each:.2f} times (aim: at most {TIME_LIMIT})"
        ),
    )


if __name__ == "__main__":
    main()

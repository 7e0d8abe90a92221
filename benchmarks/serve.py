"""How fast a served model answers, alone and when many ask at once.

    python benchmarks/serve.py [--policy llm]

Trains a policy for customer_support, for a few episodes only, serves it with
`agentgym serve` in a process of its own and asks it from this one, over loopback, with
one and with sixteen connections that each send the next request when the last is
answered. Every request opens a new conversation: its wording has not been seen before,
so that it has to be read. Beside them: `TrainedAgent.run` in this process on such
conversations, and the server on one conversation that it knows by heart, which leaves
little but HTTP (and equal questions that wait together are decided once).

The client is asyncio on bare sockets: it takes about 0.1 ms of CPU for a request, but
it needs a processor, too. What it leaves out: TLS, a network, slow readers.
"""

from __future__ import annotations

import asyncio
import itertools
import json
import os
import re
import statistics
import subprocess
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from _common import Row, agentgym, latencies, parser, report, say, table

MODEL = "customer_support"
AIM = 4.0
TRAINING: dict[str, dict[str, int]] = {
    "planner": {"episodes": 512, "eval_tasks": 20, "heldout_tasks": 20},
    "llm": {
        "episodes": 64,
        "batch_size": 8,
        "group_size": 8,
        "eval_tasks": 2,
        "heldout_tasks": 2,
        "free_form_tasks": 1,
    },
}
"""How little training does: what is decided hardly matters for how long it takes."""
_COUNTER = itertools.count()
_WORDS = (
    "order parcel late broken refund invoice address change cancel password account"
    " delivery blue large yesterday please today missing wrong size money back help"
).split()


def fresh_text() -> str:
    """A message nobody has sent before, as long as those of the scenario."""
    n = next(_COUNTER)
    words = [_WORDS[(n * 7 + i * (1 + n % 5)) % len(_WORDS)] for i in range(18)]
    return f"Hello, {' '.join(words)}. It is about order {10_000 + n}. Thank you!"


async def _connection(
    port: int, bodies: Iterator[bytes], deadline: float, taken: list[float]
) -> None:
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    try:
        while time.perf_counter() < deadline:
            body = next(bodies)
            started = time.perf_counter()
            writer.write(
                b"POST /v1/chat/completions HTTP/1.1\r\nhost: x\r\ncontent-length: "
                b"%d\r\n\r\n%b" % (len(body), body)
            )
            head = await reader.readuntil(b"\r\n\r\n")
            length = re.search(rb"content-length: (\d+)", head)
            if not head.startswith(b"HTTP/1.1 200") or length is None:
                raise SystemExit(f"refused: {head.decode()}")
            await reader.readexactly(int(length[1]))
            taken.append(time.perf_counter() - started)
    finally:
        writer.close()


def load(port: int, body: Callable[[], bytes], width: int, seconds: float) -> Row:
    """Asks from so many connections for some seconds."""
    taken: list[float] = []
    bodies = iter(body, b"")

    async def main() -> None:
        deadline = time.perf_counter() + seconds
        await asyncio.gather(
            *(_connection(port, bodies, deadline, taken) for _ in range(width))
        )

    started = time.perf_counter()
    asyncio.run(main())
    return latencies(taken, time.perf_counter() - started)


def main() -> None:
    """Trains, serves, asks."""
    made = parser(__doc__)
    made.add_argument(
        "--rounds", type=int, default=5, help="times that each is measured"
    )
    made.add_argument("--policy", choices=tuple(TRAINING), default="planner")
    options = made.parse_args()
    seconds = 1.0 if options.quick else 4.0
    rounds = 2 if options.quick else options.rounds
    from agentgym import TrainedAgent, Trainer

    with tempfile.TemporaryDirectory() as home:
        say(f"Training the policy {options.policy} for a while")
        Trainer(home=Path(home)).train(
            MODEL, policy=options.policy, **TRAINING[options.policy]
        )
        agent = TrainedAgent.load(MODEL, home=Path(home))
        tools = [tool.to_openai() for tool in agent.tools]

        def body(text: str) -> bytes:
            messages = [{"role": "user", "content": text}]
            return json.dumps(
                {"model": MODEL, "messages": messages, "tools": tools}
            ).encode()

        known = body("Where is order 12345?")
        # What is measured, in turn, so that a busy moment hits all alike.
        cases: dict[str, Callable[[int], Row]] = {
            "in process": lambda port: _in_process(agent, fresh_text, seconds),
            "served, 1 at once": lambda port: load(
                port, lambda: body(fresh_text()), 1, seconds
            ),
            "served, 16 at once": lambda port: load(
                port, lambda: body(fresh_text()), 16, seconds
            ),
            "known conversation, in process": lambda port: _in_process(
                agent, lambda: "Where is order 12345?", seconds
            ),
            "known conversation, 1 at once": lambda port: load(
                port, lambda: known, 1, seconds
            ),
            "known conversation, 16 at once": lambda port: load(
                port, lambda: known, 16, seconds
            ),
        }
        with _served(home) as port:
            for case in cases.values():
                case(port)  # Once to warm up.
            measured: dict[str, list[Row]] = {name: [] for name in cases}
            for _ in range(rounds):
                for name, case in cases.items():
                    measured[name].append(case(port))
    rows: list[Row] = [
        {"case": name, "rounds": rounds, **_median(found)}
        for name, found in measured.items()
    ]
    by_case = {row["case"]: row for row in rows}
    ratio = (
        by_case["served, 16 at once"]["requests_per_second"]
        / by_case["served, 1 at once"]["requests_per_second"]
    )
    # Of the known one: how long reading takes varies by more than serving adds.
    added = (
        by_case["known conversation, 1 at once"]["p50_ms"]
        - by_case["known conversation, in process"]["p50_ms"]
    )
    lines = [
        [
            row["case"],
            f"{row['requests_per_second']:.0f}",
            f"{row['p50_ms']:.1f}",
            f"{row['p99_ms']:.1f}",
        ]
        for row in rows
    ]
    report(
        options,
        name="serve",
        rows=rows,
        ratio=ratio,
        peer="the same server, asked by one connection",
        text=(
            f"{table(('case', 'requests/s', 'p50 ms', 'p99 ms'), lines)}\n\n"
            f"Sixteen at once get {ratio:.1f} times the throughput of one (aim:"
            f" {AIM:g})\nServing adds {added:.1f} ms to the median of a decision"
        ),
    )


def _in_process(agent: Any, said: Callable[[], str], seconds: float) -> Row:
    taken: list[float] = []
    started = time.perf_counter()
    while time.perf_counter() - started < seconds:
        text = said()
        before = time.perf_counter()
        agent.run(text, max_steps=1)
        taken.append(time.perf_counter() - before)
    return latencies(taken, time.perf_counter() - started)


def _median(rows: list[Row]) -> Row:
    """The median of each figure over the rounds; requests are added up."""
    merged = {name: statistics.median(row[name] for row in rows) for name in rows[0]}
    return {**merged, "requests": sum(row["requests"] for row in rows)}


class _served:  # noqa: N801
    """A server in a process of its own, for the length of a `with`."""

    def __init__(self, home: str) -> None:
        self._process = subprocess.Popen(
            agentgym("serve", MODEL, "--port", "0", "--home", home),
            stderr=subprocess.PIPE,
            text=True,
            env={k: v for k, v in os.environ.items() if k != "AGENTGYM_API_KEY"},
        )

    def __enter__(self) -> int:
        assert self._process.stderr is not None
        for line in self._process.stderr:
            if found := re.search(r"Serving .* at http://[\d.]+:(\d+)/", line):
                return int(found[1])
        raise SystemExit("the server did not start")

    def __exit__(self, *problem: object) -> None:
        self._process.terminate()
        self._process.communicate()


if __name__ == "__main__":
    main()

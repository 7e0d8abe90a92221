"""What the gateway adds to a chat completion, beside other proxies.

    python benchmarks/gateway.py [--litellm PYTHON]

A stub that answers at once, in a process of its own, is asked directly and through
proxies, each in a process of its own: the gateway (which records every answer with its
token ids), a plain reverse proxy of Starlette and httpx in thirty lines (which records
nothing), and LiteLLM's proxy. LiteLLM pins many packages: `--litellm` names the Python
of an environment that has `litellm[proxy]`; without it, it is left out.

All are measured in turn, in one run, with one connection and with sixteen. Then a
thousand sessions are opened, asked and closed, and what the gateway holds is counted.

The client is asyncio on bare sockets, as in benchmarks/serve.py. What it leaves out:
TLS, a network, streams, and a model that takes its time.
"""

from __future__ import annotations

import asyncio
import json
import os
import re
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

from _common import Row, parser, report, say, table

AIM_MS = 1.0
AIM_RATIO = 10.0
_BODY = json.dumps(
    {
        "model": "stub",
        "messages": [
            {"role": "system", "content": "You book trips."},
            {"role": "user", "content": "To Rome by train, on Friday, please."},
        ],
        "tools": [
            {
                "type": "function",
                "function": {
                    "name": "book",
                    "description": "Books a trip",
                    "parameters": {
                        "type": "object",
                        "properties": {"to": {"type": "string"}},
                    },
                },
            }
        ],
    }
).encode()

_STUB = """
import json, sys
from starlette.applications import Starlette
from starlette.responses import Response
from starlette.routing import Route
from agentgym.serving import server

call = {"id": "call_1", "type": "function",
        "function": {"name": "book", "arguments": json.dumps({"to": "Rome"})}}
body = json.dumps({
    "id": "chatcmpl-1", "object": "chat.completion", "created": 1, "model": "stub",
    "prompt_token_ids": list(range(100)),
    "choices": [{"index": 0, "finish_reason": "tool_calls", "token_ids": [1, 2, 3],
        "message": {"role": "assistant", "content": None, "tool_calls": [call]},
        "logprobs": {"content": [
            {"token": "x", "logprob": -0.5, "bytes": None, "top_logprobs": []}] * 3}}],
    "usage": {"prompt_tokens": 100, "completion_tokens": 3, "total_tokens": 103},
}).encode()

async def chat(request):
    await request.body()
    return Response(body, media_type="application/json")

listener = server.bind("127.0.0.1", 0, guarded=False)
app = Starlette(routes=[Route("/v1/chat/completions", chat, methods=["POST"])])
server.run(app, listener, lambda: print(listener.getsockname()[1], flush=True))
"""

_PROXY = """
import contextlib, sys
import httpx
from starlette.applications import Starlette
from starlette.responses import Response
from starlette.routing import Route
from agentgym.serving import server

client = httpx.AsyncClient(timeout=60, trust_env=False)

async def chat(request):
    answer = await client.post(
        sys.argv[1] + "/chat/completions", content=await request.body(),
        headers={"content-type": "application/json"},
    )
    return Response(answer.content, answer.status_code, media_type="application/json")

listener = server.bind("127.0.0.1", 0, guarded=False)
app = Starlette(routes=[Route("/v1/chat/completions", chat, methods=["POST"])])
server.run(app, listener, lambda: print(listener.getsockname()[1], flush=True))
"""

# Sessions are opened by whoever writes a line, which is answered with id and key.
_GATEWAY = """
import json, os, sys, threading
from agentgym.agents.upstream import UpstreamBackend
from agentgym.agents.gateway import Gateway

def held():
    with open("/proc/self/status") as status:
        memory = next(line for line in status if line.startswith("VmRSS"))
    return {"files": len(os.listdir("/proc/self/fd")),
            "kilobytes": int(memory.split()[1]), "threads": threading.active_count()}

open_sessions = {}
with Gateway(UpstreamBackend(sys.argv[1], model="stub")) as gateway:
    print(gateway.port, flush=True)
    for line in sys.stdin:
        order, _, name = line.strip().partition(" ")
        if order == "open":
            session = gateway.open(max_requests=10**9)
            open_sessions[session.id] = session
            answer = {"id": session.id, "key": session.key}
        elif order == "close":
            session = open_sessions.pop(name)
            gateway.close(session)
            answer = {"recorded": len(session.recorder.exchanges)}
            del session
        else:
            answer = held()
        print(json.dumps(answer), flush=True)
"""

_LITELLM = """
model_list:
  - model_name: stub
    litellm_params:
      model: openai/stub
      api_base: {url}
      api_key: none
litellm_settings:
  telemetry: false
"""


class Server:
    """A server in a process of its own; it prints its port first."""

    def __init__(self, code: str, *arguments: str) -> None:
        self._process = subprocess.Popen(
            [sys.executable, "-c", code, *arguments],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )
        self.port = int(self.read())

    def read(self) -> str:
        """A line of its output."""
        assert self._process.stdout is not None
        return self._process.stdout.readline()

    def order(self, text: str) -> dict[str, Any]:
        """Writes a line, and reads the answer."""
        assert self._process.stdin is not None
        self._process.stdin.write(f"{text}\n")
        self._process.stdin.flush()
        answer: dict[str, Any] = json.loads(self.read())
        return answer

    def stop(self) -> None:
        """Ends it."""
        self._process.terminate()
        self._process.communicate()


class LiteLlm:
    """LiteLLM's proxy, from an environment that has it."""

    def __init__(self, python: str, url: str) -> None:
        self._folder = tempfile.TemporaryDirectory()
        config = Path(self._folder.name) / "config.yaml"
        config.write_text(_LITELLM.format(url=url))
        self.port = _free_port()
        self._process = subprocess.Popen(
            [
                str(Path(python).with_name("litellm")),
                "--config",
                str(config),
                "--host",
                "127.0.0.1",
                "--port",
                str(self.port),
            ],
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            env={**os.environ, "LITELLM_LOCAL_MODEL_COST_MAP": "True"},
        )
        deadline = time.monotonic() + 180
        while time.monotonic() < deadline and self._process.poll() is None:
            try:
                asyncio.run(_asked(self.port, "/v1/chat/completions", "none", 1, []))
                return
            except (OSError, SystemExit, EOFError):
                time.sleep(1)
        self.stop()
        raise SystemExit("LiteLLM's proxy did not start")

    def stop(self) -> None:
        """Ends it."""
        self._process.terminate()
        self._process.wait()
        self._folder.cleanup()


def _free_port() -> int:
    import socket

    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


async def _asked(
    port: int, path: str, key: str, requests: int, taken: list[float]
) -> None:
    """Asks so many times on one connection, and notes how long each took."""
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    question = (
        f"POST {path} HTTP/1.1\r\nhost: x\r\nauthorization: Bearer {key}\r\n"
        f"content-type: application/json\r\ncontent-length: {len(_BODY)}\r\n\r\n"
    ).encode() + _BODY
    try:
        for _ in range(requests):
            started = time.perf_counter()
            writer.write(question)
            head = await reader.readuntil(b"\r\n\r\n")
            length = re.search(rb"content-length: (\d+)", head)
            if not head.startswith(b"HTTP/1.1 200") or length is None:
                raise SystemExit(f"refused: {head.decode()}")
            await reader.readexactly(int(length[1]))
            taken.append(time.perf_counter() - started)
    finally:
        writer.close()


def load(port: int, path: str, key: str, width: int, requests: int) -> Row:
    """Asks from so many connections, so many times in all."""
    taken: list[float] = []

    async def main() -> None:
        each = requests // width
        await asyncio.gather(
            *(_asked(port, path, key, each, taken) for _ in range(width))
        )

    started = time.perf_counter()
    asyncio.run(main())
    seconds = time.perf_counter() - started
    ordered = sorted(1000 * value for value in taken)
    return {
        "requests": len(ordered),
        "requests_per_second": len(ordered) / seconds,
        "p50_ms": statistics.median(ordered),
        "p99_ms": ordered[min(len(ordered) - 1, int(0.99 * len(ordered)))],
    }


def main() -> None:
    """Starts all, asks in turn."""
    made = parser(__doc__)
    made.add_argument("--litellm", metavar="PYTHON", help="an environment with LiteLLM")
    made.add_argument("--rounds", type=int, default=7, help="times each is measured")
    options = made.parse_args()
    rounds = 3 if options.quick else options.rounds
    requests = 160 if options.quick else 640

    stub = Server(_STUB)
    url = f"http://127.0.0.1:{stub.port}/v1"
    gateway, proxy = Server(_GATEWAY, url), Server(_PROXY, url)
    litellm = None
    if options.litellm:
        say("Starting LiteLLM")
        litellm = LiteLlm(options.litellm, url)

    def through_gateway(width: int) -> Row:
        # A session for each round, as an episode would have.
        session = gateway.order("open")
        path = f"/s/{session['id']}/v1/chat/completions"
        row = load(gateway.port, path, session["key"], width, requests // 4)
        gateway.order(f"close {session['id']}")
        return row

    plain = "/v1/chat/completions"
    ways: dict[str, Any] = {
        "direct": lambda width: load(stub.port, plain, "none", width, requests),
        "gateway": through_gateway,
        "httpx reverse proxy": lambda width: load(
            proxy.port, plain, "none", width, requests
        ),
    }
    if litellm is not None:
        ways["LiteLLM proxy"] = lambda width: load(
            litellm.port, plain, "none", width, requests // 4
        )
    measured: dict[tuple[str, int], list[Row]] = {}
    try:
        for name, way in ways.items():
            say(f"Warming up: {name}")
            way(1)
        for number in range(rounds):
            say(f"Round {number + 1} of {rounds}")
            for width in (1, 16):
                for name, way in ways.items():
                    measured.setdefault((name, width), []).append(way(width))
        growth = sessions(gateway, 100 if options.quick else 1000)
    finally:
        for server in (gateway, proxy, stub, litellm):
            if server is not None:
                server.stop()

    rows: list[Row] = []
    for (name, width), found in measured.items():
        row = {k: statistics.median(r[k] for r in found) for k in found[0]}
        direct = measured["direct", width]
        for figure in ("p50_ms", "p99_ms"):
            base = statistics.median(r[figure] for r in direct)
            row[f"added_{figure}"] = row[figure] - base
        rows.append({"way": name, "connections": width, "rounds": rounds, **row})
    by_way = {(row["way"], row["connections"]): row for row in rows}
    added = by_way["gateway", 1]["added_p50_ms"]
    peer = "LiteLLM proxy" if litellm is not None else "httpx reverse proxy"
    ratio = by_way[peer, 1]["added_p50_ms"] / added
    rows.append({"way": "gateway", "sessions": growth.pop("sessions"), **growth})
    lines = [
        [
            row["way"],
            str(row["connections"]),
            f"{row['requests_per_second']:.0f}",
            f"{row['p50_ms']:.2f}",
            f"{row['p99_ms']:.2f}",
            f"{row['added_p50_ms']:.2f}",
            f"{row['added_p99_ms']:.2f}",
        ]
        for row in rows[:-1]
    ]
    header = "way, connections, requests/s, p50 ms, p99 ms, added p50, added p99"
    report(
        options,
        name="gateway",
        rows=rows,
        ratio=ratio,
        peer=peer,
        text=(
            f"{table(header.split(', '), lines)}\n\n"
            f"The gateway adds {added:.2f} ms to the median (aim: {AIM_MS:g}),"
            f" {ratio:.1f} times less than the {peer} (aim: {AIM_RATIO:g} times less"
            f" than LiteLLM)\n{rows[-1]['sessions']} sessions later it holds"
            f" {growth['kilobytes']:+} kB, {growth['files']:+} files and"
            f" {growth['threads']:+} threads"
        ),
    )


def sessions(gateway: Server, count: int) -> dict[str, int]:
    """What the gateway holds more after so many sessions."""

    def some(number: int) -> None:
        for _ in range(number):
            session = gateway.order("open")
            path = f"/s/{session['id']}/v1/chat/completions"
            load(gateway.port, path, session["key"], 1, 3)
            closed = gateway.order(f"close {session['id']}")
            assert closed == {"recorded": 3}

    some(count // 5)
    time.sleep(1)
    before = gateway.order("held")
    some(count)
    time.sleep(1)
    after = gateway.order("held")
    return {"sessions": count, **{name: after[name] - before[name] for name in before}}


if __name__ == "__main__":
    main()

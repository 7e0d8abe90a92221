from __future__ import annotations

import json
import re
import signal
import socket
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import openai
import pytest

import agentgym.serving

Spawn = Callable[..., subprocess.Popen[str]]


def _address(process: subprocess.Popen[str]) -> tuple[str, int]:
    assert process.stderr is not None
    for line in process.stderr:
        if found := re.search(r"Serving .* at http://([\d.]+):(\d+)/v1", line):
            return found[1], int(found[2])
    raise AssertionError("it ended before it answered")


@pytest.fixture
def process(spawn: Spawn, trained_home: Path) -> Iterator[subprocess.Popen[str]]:
    """A served model, in a process of its own."""
    started = spawn(
        *("serve", "tiny", "--port", "0", "--home", str(trained_home)),
        AGENTGYM_API_KEY="from the environment",
    )
    with started:
        try:
            yield started
        finally:
            started.kill()


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_it_answers_until_it_is_told_to_stop(
    process: subprocess.Popen[str], number: signal.Signals, eventually: Any
) -> None:
    host, port = _address(process)
    with openai.OpenAI(
        base_url=f"http://{host}:{port}/v1", api_key="from the environment"
    ) as client:
        assert [model.id for model in client.models.list()] == ["tiny_v1.1"]
    payload = {"model": "tiny", "messages": [{"role": "user", "content": "Thanks"}]}
    body = json.dumps(payload).encode()
    head = (
        "POST /v1/chat/completions HTTP/1.1\r\nhost: x\r\n"
        "authorization: Bearer from the environment\r\n"
        f"content-length: {len(body)}\r\nexpect: 100-continue\r\n\r\n"
    )
    with socket.create_connection((host, port), timeout=60) as waiting:
        waiting.sendall(head.encode())
        assert waiting.recv(65536).startswith(b"HTTP/1.1 100 ")
        waiting.sendall(body[:5])
        # A request that has begun is finished, although nobody else is let in.
        process.send_signal(number)
        eventually(lambda: socket.socket().connect_ex((host, port)))
        with pytest.raises(subprocess.TimeoutExpired):
            process.wait(0.5)
        waiting.sendall(body[5:])
        answer = b""
        while part := waiting.recv(65536):
            answer += part
        assert answer.startswith(b"HTTP/1.1 200")
        assert b'"finish_reason":"stop"' in answer
    out, err = process.communicate(timeout=60)
    assert (process.returncode, out) == (0, "")
    assert err == "Stopped. All requests were answered.\n"


def test_a_port_in_use_is_one_line(cli: Any, trained_home: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as other:
        port = str(other.getsockname()[1])
        done = cli("serve", "tiny", "--port", port, "--home", str(trained_home))
    assert done.code == 1
    assert done.error == (
        f"Port {port} on 127.0.0.1 is in use. Choose another with --port."
    )


def test_beyond_this_machine_a_key_is_needed(cli: Any) -> None:
    done = cli("serve", "tiny", "--host", "0.0.0.0", "--port", "0")
    assert done.code == 2
    assert "Set AGENTGYM_API_KEY or --api-key" in done.error


def test_wrong_usage(cli: Any) -> None:
    assert "and not empty" in cli("serve", "x", "--port", "0", "--api-key", " ").error
    assert "Model 'x' not found" in cli("serve", "x", "--port", "0").error
    assert "65535" in cli("serve", "x", "--port", "70000").error


def test_without_the_extra_it_is_named(
    cli: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "uvicorn", None)
    monkeypatch.delitem(sys.modules, "agentgym.serving.server", raising=False)
    monkeypatch.delattr(agentgym.serving, "server", raising=False)
    done = cli("serve", "tiny")
    assert done.code == 1
    assert "pip install 'openagentgym[api]'" in done.error


def test_a_folder_is_served_under_its_name(
    cli: Any, trained_home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    served = []
    monkeypatch.setattr(
        "agentgym.serving.server.run", lambda app, listener, started: started()
    )
    monkeypatch.setattr(
        "agentgym.serving.app.create_app",
        lambda agent, name, **options: served.append((name, options["api_key"])),
    )
    folder = trained_home / "models" / "tiny_v1.0"
    for model in (str(folder), f"{folder}/"):
        done = cli("serve", model, "--port", "0", "--api-key", " key ")
        assert done.code == 0 and "(model 'tiny_v1.0', with an API key)" in done.err
    assert served == [("tiny_v1.0", "key")] * 2

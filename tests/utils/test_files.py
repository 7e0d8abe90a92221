"""Atomic writes, locks between processes, and where the cache is."""

from __future__ import annotations

import multiprocessing
import os
import stat
import subprocess
import sys
import threading
import time
from pathlib import Path

import pytest

from agentgym.utils import files
from agentgym.utils.files import (
    atomic_path,
    atomic_write_bytes,
    atomic_write_text,
    file_lock,
    user_cache_dir,
)


def names(folder: Path) -> list[str]:
    return sorted(entry.name for entry in folder.iterdir())


def test_writes_new_and_replaces_old(tmp_path: Path) -> None:
    path = tmp_path / "a.bin"
    atomic_write_bytes(path, b"one")
    atomic_write_bytes(str(path), b"two")
    assert path.read_bytes() == b"two"
    assert names(tmp_path) == ["a.bin"]


def test_text_is_utf8_with_line_ends_as_given(tmp_path: Path) -> None:
    atomic_write_text(tmp_path / "t", "grüß\r\ndich\n")
    assert (tmp_path / "t").read_bytes() == "grüß\r\ndich\n".encode()


@pytest.mark.parametrize("error", [ValueError, KeyboardInterrupt, SystemExit])
def test_failure_keeps_the_old_file_and_no_temporary(
    tmp_path: Path, error: type[BaseException]
) -> None:
    path = tmp_path / "a"
    path.write_bytes(b"old")
    with pytest.raises(error), atomic_path(path) as temporary:
        temporary.write_bytes(b"half of the n")
        raise error
    assert path.read_bytes() == b"old"
    assert names(tmp_path) == ["a"]


def test_failing_replace_leaves_no_temporary(tmp_path: Path) -> None:
    (tmp_path / "taken").mkdir()
    with pytest.raises(OSError):
        atomic_write_bytes(tmp_path / "taken", b"x")
    assert names(tmp_path) == ["taken"]


def test_block_that_writes_nothing_is_an_error(tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError), atomic_path(tmp_path / "a"):
        pass
    assert names(tmp_path) == []


def test_temporary_is_hidden_and_in_the_same_folder(tmp_path: Path) -> None:
    with atomic_path(tmp_path / "a") as temporary:
        assert temporary.parent == tmp_path
        assert temporary.name.startswith(".a.")
        assert not temporary.exists()
        temporary.write_bytes(b"")


def test_data_reaches_the_disk_before_the_name_does(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    order: list[str] = []
    sync, replace = os.fsync, os.replace

    def note_sync(descriptor: int) -> None:
        is_folder = stat.S_ISDIR(os.fstat(descriptor).st_mode)
        order.append("sync folder" if is_folder else "sync file")
        sync(descriptor)

    def note_replace(source: Path, target: Path) -> None:
        order.append("replace")
        replace(source, target)

    monkeypatch.setattr(files.os, "fsync", note_sync)
    monkeypatch.setattr(files.os, "replace", note_replace)
    atomic_write_bytes(tmp_path / "a", b"x")
    assert order[:2] == ["sync file", "replace"]
    if sys.platform != "win32":
        assert order[2:] == ["sync folder"]


@pytest.mark.skipif(sys.platform == "win32", reason="POSIX permissions")
def test_permissions_follow_the_umask(tmp_path: Path) -> None:
    before = os.umask(0o027)
    try:
        atomic_write_bytes(tmp_path / "a", b"x")
    finally:
        os.umask(before)
    assert stat.S_IMODE((tmp_path / "a").stat().st_mode) == 0o640


def _hold(path: Path, held: multiprocessing.synchronize.Event) -> None:
    with file_lock(path):
        held.set()
        time.sleep(120)


def test_lock_excludes_another_process_and_dies_with_it(tmp_path: Path) -> None:
    context = multiprocessing.get_context("spawn")
    held = context.Event()
    holder = context.Process(target=_hold, args=(tmp_path / "lock", held))
    holder.start()
    try:
        assert held.wait(60)
        start = time.monotonic()
        with pytest.raises(TimeoutError), file_lock(tmp_path / "lock", timeout=0.2):
            pass
        assert 0.2 <= time.monotonic() - start < 60
    finally:
        holder.kill()
        holder.join()
    with file_lock(tmp_path / "lock", timeout=5):
        pass


def test_lock_excludes_another_thread(tmp_path: Path) -> None:
    inside = 0
    most = 0

    def work() -> None:
        nonlocal inside, most
        with file_lock(tmp_path / "lock"):
            inside += 1
            most = max(most, inside)
            time.sleep(0.01)
            inside -= 1

    threads = [threading.Thread(target=work) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert most == 1


def test_lock_is_freed_when_the_block_raises(tmp_path: Path) -> None:
    with pytest.raises(ValueError), file_lock(tmp_path / "lock"):
        raise ValueError
    with file_lock(tmp_path / "lock", timeout=0):
        pass


@pytest.mark.parametrize(
    ("own", "xdg", "expected"),
    [
        ("/own", "/xdg", "/own"),
        ("~/own", None, "/home/someone/own"),
        (None, "/xdg", "/xdg/agentgym"),
        ("", "", "/home/someone/.cache/agentgym"),
        (None, "relative", "/home/someone/.cache/agentgym"),
        (None, None, "/home/someone/.cache/agentgym"),
    ],
)
@pytest.mark.skipif(sys.platform == "win32", reason="POSIX paths")
def test_cache_dir(
    monkeypatch: pytest.MonkeyPatch, own: str | None, xdg: str | None, expected: str
) -> None:
    monkeypatch.setenv("HOME", "/home/someone")
    for variable, value in (("AGENTGYM_CACHE", own), ("XDG_CACHE_HOME", xdg)):
        if value is None:
            monkeypatch.delenv(variable, raising=False)
        else:
            monkeypatch.setenv(variable, value)
    assert user_cache_dir() == Path(expected)


def test_killed_writer_leaves_the_old_file(tmp_path: Path) -> None:
    path = tmp_path / "a"
    path.write_bytes(b"old")
    code = (
        "import os, sys; from agentgym.utils.files import atomic_path\n"
        "with atomic_path(sys.argv[1]) as temporary:\n"
        "    temporary.write_bytes(b'half'); os._exit(9)"
    )
    done = subprocess.run([sys.executable, "-c", code, str(path)], check=False)
    assert done.returncode == 9
    assert path.read_bytes() == b"old"

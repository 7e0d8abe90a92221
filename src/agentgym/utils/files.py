"""Atomic file writes, locks between processes, and the cache folder."""

from __future__ import annotations

import contextlib
import os
import secrets
import sys
import time
from collections.abc import Iterator
from pathlib import Path

if sys.platform == "win32":
    import msvcrt
else:
    import fcntl

_LOCK_POLL_SECONDS = 0.05


@contextlib.contextmanager
def atomic_path(path: Path | str) -> Iterator[Path]:
    """Yields a temporary path that becomes `path` if the block succeeds.

    Readers of `path` see the old file or the complete new one, never a part, even
    after a crash or a power cut. If the block raises, `path` doesn't change.

        with atomic_path("weights.npz") as temporary:
            np.savez(temporary.open("wb"), w=w)

    Args:
        path: The file to write, in an existing folder.

    Yields:
        An unused path in the same folder. The block must create and close a file there.
    """
    path = Path(path)
    temporary = path.parent / f".{path.name}.{secrets.token_hex(8)}.tmp"
    try:
        yield temporary
        _sync(temporary)
        os.replace(temporary, path)
    except BaseException:
        with contextlib.suppress(OSError):
            temporary.unlink()
        raise
    _sync_folder(path.parent)


def atomic_write_bytes(path: Path | str, data: bytes) -> None:
    """Writes `data` to `path` atomically, see `atomic_path`."""
    with atomic_path(path) as temporary:
        temporary.write_bytes(data)


def atomic_write_text(path: Path | str, text: str) -> None:
    """Writes `text` to `path` atomically: UTF-8, line ends unchanged."""
    atomic_write_bytes(path, text.encode("utf-8"))


@contextlib.contextmanager
def file_lock(path: Path | str, timeout: float | None = None) -> Iterator[None]:
    """Holds an exclusive lock across processes and threads.

    The operating system releases the lock when its holder ends, even after a crash.
    The file stays: deleting it would let two holders in.

    Args:
        path: The lock file, created if missing. Don't store anything in it.
        timeout: Seconds to wait; 0 tries once, None waits forever.

    Raises:
        TimeoutError: The lock wasn't released in time.
    """
    deadline = None if timeout is None else time.monotonic() + timeout
    descriptor = os.open(path, os.O_RDWR | os.O_CREAT, 0o666)
    try:
        while not _try_lock(descriptor):
            if deadline is not None and time.monotonic() >= deadline:
                raise TimeoutError(f"{path} is locked by another process.")
            time.sleep(_LOCK_POLL_SECONDS)
        try:
            yield
        finally:
            _unlock(descriptor)
    finally:
        os.close(descriptor)


def user_cache_dir() -> Path:
    """Returns the folder for downloads. It may not exist yet.

    `AGENTGYM_CACHE` if set, else `agentgym` in `XDG_CACHE_HOME` or in `~/.cache`.
    """
    own = os.environ.get("AGENTGYM_CACHE")
    if own:
        return Path(own).expanduser().absolute()
    shared = os.environ.get("XDG_CACHE_HOME", "")
    # The XDG specification says to ignore relative paths.
    base = Path(shared) if os.path.isabs(shared) else Path.home() / ".cache"
    return base / "agentgym"


def _sync(path: Path) -> None:
    # Windows flushes only files that are open for writing.
    descriptor = os.open(path, os.O_RDWR)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def _sync_folder(folder: Path) -> None:
    """Makes a rename in `folder` durable, where the system supports it."""
    if sys.platform != "win32":
        with contextlib.suppress(OSError):
            descriptor = os.open(folder, os.O_RDONLY)
            try:
                os.fsync(descriptor)
            finally:
                os.close(descriptor)


if sys.platform == "win32":

    def _try_lock(descriptor: int) -> bool:
        try:
            msvcrt.locking(descriptor, msvcrt.LK_NBLCK, 1)
        except OSError:
            return False
        return True

    def _unlock(descriptor: int) -> None:
        os.lseek(descriptor, 0, os.SEEK_SET)
        msvcrt.locking(descriptor, msvcrt.LK_UNLCK, 1)

else:

    def _try_lock(descriptor: int) -> bool:
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            return False
        return True

    def _unlock(descriptor: int) -> None:
        fcntl.flock(descriptor, fcntl.LOCK_UN)

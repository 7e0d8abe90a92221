"""Atomic file writes, our JSON files, locks between processes, the cache folder."""

from __future__ import annotations

import contextlib
import json
import os
import secrets
import sys
import time
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from agentgym.errors import FormatError

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
        sync(temporary)
        os.replace(temporary, path)
    except BaseException:
        with contextlib.suppress(OSError):
            temporary.unlink()
        raise
    # Some file systems cannot sync a folder.
    with contextlib.suppress(OSError):
        sync(path.parent)


def atomic_write_bytes(path: Path | str, data: bytes) -> None:
    """Writes `data` to `path` atomically, see `atomic_path`."""
    with atomic_path(path) as temporary:
        temporary.write_bytes(data)


def atomic_write_text(path: Path | str, text: str) -> None:
    """Writes `text` to `path` atomically: UTF-8, line ends unchanged."""
    atomic_write_bytes(path, text.encode("utf-8"))


@dataclass(frozen=True, slots=True)
class JsonFormat:
    """A kind of JSON file that says what it is, and in which version.

    Attributes:
        name: Marks such files.
        version: The version that is written and read.
        what: What a file is, for messages: "an AgentGym model".
    """

    name: str
    version: int
    what: str

    def write(self, path: Path | str, values: Mapping[str, Any]) -> None:
        """Writes the values atomically; they must be strict JSON."""
        data = {"format": self.name, "version": self.version, **values}
        atomic_write_text(path, f"{json.dumps(data, indent=2, allow_nan=False)}\n")

    def read(self, path: Path | str) -> dict[str, Any]:
        """Reads what `write` wrote.

        Raises:
            FormatError: The file is missing, truncated, foreign or of another version.
        """
        try:
            data = json.loads(Path(path).read_bytes())
        except OSError as error:
            raise FormatError(
                f"{path} cannot be read: {error.strerror or error}."
            ) from None
        except (ValueError, RecursionError):
            raise FormatError(
                f"{path} is truncated or isn't valid JSON. Train again, or restore a "
                "backup."
            ) from None
        if not isinstance(data, dict) or data.pop("format", None) != self.name:
            raise FormatError(f"{path} isn't {self.what}.")
        version = data.pop("version", None)
        if version != self.version:
            newer = isinstance(version, int) and version > self.version
            advice = "Update AgentGym" if newer else "Train again"
            raise FormatError(
                f"{path} has format version {version!r}, but this AgentGym reads "
                f"version {self.version}. {advice}."
            )
        return data


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


def sync(path: Path) -> None:
    """Makes a file, or a rename in a folder, durable."""
    # Windows flushes only files that are open for writing, and no folders.
    windows = sys.platform == "win32"
    if not (windows and path.is_dir()):
        descriptor = os.open(path, os.O_RDWR if windows else os.O_RDONLY)
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

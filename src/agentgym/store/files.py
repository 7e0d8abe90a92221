"""What to say when the file system refuses."""

from __future__ import annotations

import contextlib
import errno
from collections.abc import Iterator
from pathlib import Path

from agentgym.errors import StoreError

ELSEWHERE = "set AGENTGYM_HOME to another folder"
LOCKED = "is locked by another process: try again when it has finished"


@contextlib.contextmanager
def file_errors(path: Path) -> Iterator[None]:
    """Turns an `OSError` of the block into a `StoreError` that says what to do."""
    try:
        yield
    except OSError as error:
        raise _explain(error, path) from error


def _explain(error: OSError, path: Path) -> StoreError:
    if isinstance(error, TimeoutError):
        return StoreError(f"{path} {LOCKED}.")
    if error.errno in (errno.ENOSPC, errno.EDQUOT):
        advice = "the disk is full: free some space and try again"
    elif error.errno in (errno.EACCES, errno.EPERM, errno.EROFS):
        advice = f"no permission to write: make it writable, or {ELSEWHERE}"
    elif error.errno in (errno.EEXIST, errno.ENOTDIR):
        advice = f"a file stands where a folder is needed: move it, or {ELSEWHERE}"
    else:
        advice = f"{error.strerror or error}: fix that, or {ELSEWHERE}"
    return StoreError(f"Cannot use {path}: {advice}.")

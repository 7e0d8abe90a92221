"""Files that outlive a process and that other machines may need: models, checkpoints.

Names are relative paths with "/" between, such as "models/customer_support_v1.0".
Readers see a blob or a folder complete or not at all.
"""

from __future__ import annotations

import contextlib
import os
import shutil
from pathlib import Path
from typing import Protocol

from agentgym.utils.files import atomic_path, sync


class ArtifactStore(Protocol):
    """Where artifacts are kept. All methods raise `OSError` where storage fails."""

    def within(self, name: str) -> ArtifactStore:
        """The part of the store whose names begin with `name`."""

    def location(self, name: str) -> str:
        """Where an artifact is, for people."""

    def write(self, name: str, data: bytes, previous: str | None = None) -> None:
        """Writes a blob; what it replaces is kept as `previous`, if that is given."""

    def read(self, name: str) -> bytes:
        """Reads a blob; raises `FileNotFoundError` if it doesn't exist."""

    def publish(self, folder: Path, name: str) -> None:
        """Stores a local folder. The local copy is no longer needed."""

    def fetch(self, name: str, folder: Path) -> None:
        """Brings a stored folder to a local path, unless it is there already."""

    def delete(self, name: str) -> None:
        """Deletes a blob or a folder, if it exists."""

    def list(self) -> list[str]:
        """Names directly in this part of the store."""


class FolderArtifacts:
    """Artifacts in a folder, which machines may share."""

    def __init__(self, root: Path) -> None:
        self._root = root

    def within(self, name: str) -> FolderArtifacts:
        """See `ArtifactStore.within`."""
        return FolderArtifacts(self._root / name)

    def location(self, name: str) -> str:
        """See `ArtifactStore.location`."""
        return str(self._root / name)

    def write(self, name: str, data: bytes, previous: str | None = None) -> None:
        """See `ArtifactStore.write`."""
        path = self._root / name
        path.parent.mkdir(parents=True, exist_ok=True)
        with atomic_path(path) as temporary:
            temporary.write_bytes(data)
            if previous is not None:
                with contextlib.suppress(FileNotFoundError):
                    os.replace(path, self._root / previous)

    def read(self, name: str) -> bytes:
        """See `ArtifactStore.read`."""
        return (self._root / name).read_bytes()

    def publish(self, folder: Path, name: str) -> None:
        """See `ArtifactStore.publish`."""
        _sync_tree(folder)
        self._root.mkdir(parents=True, exist_ok=True)
        _bring(folder, self._root / name, move=True)
        # It is visible already; some file systems can't sync a folder.
        with contextlib.suppress(OSError):
            sync(self._root)

    def fetch(self, name: str, folder: Path) -> None:
        """See `ArtifactStore.fetch`."""
        if not folder.exists():
            folder.parent.mkdir(parents=True, exist_ok=True)
            _bring(self._root / name, folder, move=False)

    def delete(self, name: str) -> None:
        """See `ArtifactStore.delete`."""
        path, trash = self._root / name, draft_of(self._root / name)
        if path.is_dir():
            shutil.rmtree(trash, ignore_errors=True)
            path.rename(trash)
            shutil.rmtree(trash)
        else:
            path.unlink(missing_ok=True)

    def list(self) -> list[str]:
        """See `ArtifactStore.list`."""
        with contextlib.suppress(FileNotFoundError):
            names = sorted(path.name for path in self._root.iterdir())
            return [name for name in names if not name.startswith(".")]
        return []


def draft_of(path: Path) -> Path:
    """Where a folder is while it is not whole; a crash may leave it behind."""
    return path.with_name(f".{path.name}.draft")


def _bring(source: Path, target: Path, *, move: bool) -> None:
    """Puts a folder in its place as a whole."""
    if move and _on_one_disk(source, target.parent):
        source.rename(target)
        return
    draft = draft_of(target)
    shutil.rmtree(draft, ignore_errors=True)
    shutil.copytree(source, draft)
    _sync_tree(draft)
    draft.rename(target)
    if move:
        shutil.rmtree(source)


def _on_one_disk(one: Path, other: Path) -> bool:
    return one.stat().st_dev == other.stat().st_dev


def _sync_tree(folder: Path) -> None:
    """After a power cut a renamed folder must not hold empty files."""
    for path in folder.rglob("*"):
        if os.name != "nt" and path.is_file() and not path.is_symlink():
            sync(path)

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp
from safetensors.numpy import save

from agentgym.core.task import Task
from agentgym.core.tools import FailureKind
from agentgym.core.trajectory import Trajectory
from agentgym.errors import FailureBudgetExceeded, FormatError, StoreError
from agentgym.store.artifacts import FolderArtifacts
from agentgym.training.checkpoint import (
    FILE,
    PREVIOUS,
    Checkpoint,
    CheckpointFolder,
    LoopState,
    pack,
    unpack,
)

_JSON = st.none() | st.booleans() | st.integers(-(2**60), 2**60) | st.text()
_JSON |= st.floats(allow_nan=False, allow_infinity=False)
_ARRAYS = hnp.arrays(
    st.sampled_from([np.float32, np.float64, np.int64, np.bool_]),
    hnp.array_shapes(min_dims=0, max_dims=3, min_side=0, max_side=4),
)
_TREES = st.dictionaries(
    st.text(),
    st.recursive(
        _JSON | _ARRAYS,
        lambda inner: st.lists(inner) | st.dictionaries(st.text(), inner),
        max_leaves=12,
    ),
)


def _same(a: Any, b: Any) -> bool:
    if isinstance(a, np.ndarray):
        return a.dtype == b.dtype and a.shape == b.shape and a.tobytes() == b.tobytes()
    if isinstance(a, dict):
        return a.keys() == b.keys() and all(_same(a[key], b[key]) for key in a)
    if isinstance(a, list):
        return len(a) == len(b) and all(map(_same, a, b))
    return type(a) is type(b) and bool(a == b)


@settings(max_examples=25)
@given(_TREES)
def test_everything_comes_back_as_it_was(tree: dict[str, Any]) -> None:
    assert _same(unpack(pack(tree), "x"), tree)


def test_arrays_that_are_views_and_numpy_numbers() -> None:
    array = np.arange(12, dtype=np.float32).reshape(3, 4).T
    tree = unpack(pack({"a": array, "b": np.float32(0.5), "c": (1, 2)}), "x")
    assert np.array_equal(tree["a"], array)
    assert tree["b"] == 0.5 and tree["c"] == [1, 2]


def _checkpoint(iteration: int) -> Checkpoint:
    return Checkpoint(
        LoopState(
            {"learning_rate": 0.1},
            iteration=iteration,
            history=[{"episodes": 0, "tool_reliability_interval": [0.1, 0.2]}],
            recent=[[16, 1]],
        ),
        {"w": np.full(4, iteration, np.float32), "steps": {"w": iteration}},
        {"w": np.zeros(4, np.float32)},
    )


def test_save_and_load(tmp_path: Path) -> None:
    folder = CheckpointFolder(FolderArtifacts(tmp_path))
    assert folder.load() == (None, "")
    folder.save(_checkpoint(1))
    folder.save(_checkpoint(2))
    loaded, warning = folder.load()
    assert loaded is not None and warning == ""
    assert loaded.progress == _checkpoint(2).progress
    assert _same(loaded.policy, _checkpoint(2).policy)
    assert _same(loaded.best, _checkpoint(2).best)
    assert sorted(p.name for p in tmp_path.iterdir()) == [
        "checkpoint.previous.safetensors",
        "checkpoint.safetensors",
    ]
    folder.clear()
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize("keep", [0, 4, 100, -1])
def test_a_damaged_checkpoint_gives_way_to_the_one_before(
    tmp_path: Path, keep: int
) -> None:
    folder = CheckpointFolder(FolderArtifacts(tmp_path))
    folder.save(_checkpoint(1))
    folder.save(_checkpoint(2))
    newest = tmp_path / FILE
    newest.write_bytes(newest.read_bytes()[:keep])
    loaded, warning = folder.load()
    assert loaded is not None and loaded.progress.iteration == 1
    assert folder.path in warning and "resumes from" in warning
    (tmp_path / PREVIOUS).write_bytes(b"")
    with pytest.raises(FormatError, match="start a new one"):
        folder.load()


def test_a_missing_checkpoint_gives_way_silently(tmp_path: Path) -> None:
    """Killed between the two renames of a save."""
    folder = CheckpointFolder(FolderArtifacts(tmp_path))
    folder.save(_checkpoint(1))
    os.replace(tmp_path / FILE, tmp_path / PREVIOUS)
    loaded, warning = folder.load()
    assert loaded is not None and loaded.progress.iteration == 1
    assert warning == ""


@pytest.mark.parametrize(
    ("data", "text"),
    [
        (b"", "truncated or not an AgentGym"),
        (b"\x80\x04 a pickle, perhaps", "truncated or not an AgentGym"),
        (save({"w": np.zeros(3)}), "truncated or not an AgentGym"),
        (save({"w": np.zeros(3)}, {"format": "pt"}), "truncated or not an AgentGym"),
        (
            save({}, {"format": "agentgym-checkpoint", "version": "9", "json": "{}"}),
            "format version 9",
        ),
        (
            save({}, {"format": "agentgym-checkpoint", "version": "2", "json": "{"}),
            "is damaged",
        ),
        (pack({"progress": {}, "policy": {}, "best": {}}), "is damaged"),
        (pack({"progress": {"settings": {}}, "policy": {}}), "is damaged"),
    ],
)
def test_foreign_files(tmp_path: Path, data: bytes, text: str) -> None:
    folder = CheckpointFolder(FolderArtifacts(tmp_path))
    (tmp_path / FILE).write_bytes(data)
    with pytest.raises(FormatError, match=text):
        folder.load()


def test_a_checkpoint_that_cannot_be_read(tmp_path: Path) -> None:
    folder = CheckpointFolder(FolderArtifacts(tmp_path))
    (tmp_path / FILE).mkdir()
    with pytest.raises(FormatError, match="cannot be read"):
        folder.load()


def test_a_full_disk_keeps_the_old_checkpoint(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = CheckpointFolder(FolderArtifacts(tmp_path))
    folder.save(_checkpoint(1))

    def full(self: Path, data: bytes) -> int:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(Path, "write_bytes", full)
    with pytest.raises(StoreError, match="No space left on device. Free some space"):
        folder.save(_checkpoint(2))
    loaded, warning = folder.load()
    assert loaded is not None and loaded.progress.iteration == 1
    assert warning == ""


def _episodes(count: int, broken: int) -> list[Trajectory]:
    task = Task("1", ())
    return [
        Trajectory(task, failure=FailureKind.AGENT_CRASH, failure_text="OSError: gone")
        if i < broken
        else Trajectory(task)
        for i in range(count)
    ]


def test_the_failure_budget() -> None:
    progress = LoopState({})
    for _ in range(20):
        progress.count_broken(_episodes(100, 10), 0.1)
    assert sum(count for count, _ in progress.recent) < 700
    with pytest.raises(FailureBudgetExceeded, match="OSError: gone.*resume"):
        progress.count_broken(_episodes(100, 11), 0.1)


def test_the_failure_budget_waits_for_enough_episodes() -> None:
    progress = LoopState({})
    progress.count_broken(_episodes(4, 4), 0.1)
    with pytest.raises(FailureBudgetExceeded, match="6 of the last 6 episodes"):
        progress.count_broken(_episodes(2, 2), 0.1)


def test_no_failure_budget_at_all() -> None:
    progress = LoopState({})
    progress.count_broken(_episodes(4, 0), 0.0)
    with pytest.raises(FailureBudgetExceeded):
        progress.count_broken(_episodes(4, 1), 0.0)

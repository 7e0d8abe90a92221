"""Checkpoints: all that a training needs to resume exactly where it stopped.

A checkpoint is one safetensors file: the arrays as tensors, everything else as JSON in
its header, where an array stands as `{"$array": "<number>"}`. Nothing in it is code.
"""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Protocol

from agentgym.core.trajectory import Trajectory
from agentgym.errors import FailureBudgetExceeded, FormatError, StoreError

if TYPE_CHECKING:
    import numpy.typing as npt

FORMAT = "agentgym-checkpoint"
VERSION = 2

FILE = "checkpoint.safetensors"
PREVIOUS = "checkpoint.previous.safetensors"

_ARRAY = "$array"
_WINDOW = 500
_FEWEST = 50


@dataclass(slots=True)
class LoopState:
    """The state of a training, without the weights.

    Attributes:
        settings: The adjustable settings in force; see `control.ADJUSTABLE`.
        iteration: Updates made.
        episodes: Episodes trained on.
        seconds: Time spent, pauses left out, in all processes so far.
        baseline_tokens: Tokens that the untrained policy spends on a task.
        history: One entry for each evaluation on the validation tasks, the untrained
            policy's first.
        best_iteration: That of the best weights; 0 are the untrained ones.
        best_decisions: Confidence and correctness of each of their decisions on the
            validation tasks.
        convergence_episode: Episodes at the first evaluation that reached the target.
        recent: Episodes and how many of them crashed, for the latest iterations.
        sampler: State of the `Sampler`, which alone knows what it means.
    """

    settings: dict[str, float]
    iteration: int = 0
    episodes: int = 0
    seconds: float = 0.0
    baseline_tokens: float | None = None
    history: list[dict[str, Any]] = field(default_factory=list)
    best_iteration: int = 0
    best_decisions: list[tuple[float, bool]] = field(default_factory=list)
    convergence_episode: int | None = None
    recent: list[list[int]] = field(default_factory=list)
    sampler: dict[str, Any] = field(default_factory=dict)

    def count_broken(self, episodes: Sequence[Trajectory], budget: float) -> None:
        """Records how many episodes of an iteration crashed.

        The share is taken over the last 500 episodes, and never over fewer than 50:
        one crash in the first ten episodes says little.

        Raises:
            FailureBudgetExceeded: More crashed than the budget allows.
        """
        broken = [episode for episode in episodes if episode.failure is not None]
        self.recent.append([len(episodes), len(broken)])
        while sum(count for count, _ in self.recent[1:]) >= _WINDOW:
            del self.recent[0]
        seen = sum(count for count, _ in self.recent)
        bad = sum(count for _, count in self.recent)
        if broken and bad > budget * max(seen, _FEWEST):
            raise FailureBudgetExceeded(
                f"{bad} of the last {seen} episodes crashed, more than failure_budget "
                f"allows ({budget:.0%}). The latest error: {broken[0].failure_text}. "
                "Fix it, or raise failure_budget, and resume the run."
            )


@dataclass(slots=True)
class Checkpoint:
    """The state of a training between two iterations.

    Attributes:
        policy: `Policy.state()` of the newest weights.
        best: `Policy.weights()` of the best ones on the validation tasks.
    """

    progress: LoopState
    policy: dict[str, Any]
    best: dict[str, Any]


class Blobs(Protocol):
    """Keeps the files of a run; see `store.artifacts`."""

    def location(self, name: str) -> str:
        """Where a file is, for people."""

    def write(self, name: str, data: bytes, previous: str | None = None) -> None:
        """Writes a file completely or not at all; keeps the old one as `previous`."""

    def read(self, name: str) -> bytes:
        """Reads a file."""

    def delete(self, name: str) -> None:
        """Deletes a file, if it exists."""


class CheckpointFolder:
    """Keeps the newest checkpoint of a run and the one before it."""

    def __init__(self, blobs: Blobs) -> None:
        self.path = blobs.location(FILE)
        self._blobs = blobs

    def save(self, checkpoint: Checkpoint) -> None:
        """Writes the checkpoint; if that fails, the older one stays.

        Raises:
            StoreError: It cannot be written.
        """
        data = pack(
            {
                "progress": dataclasses.asdict(checkpoint.progress),
                "policy": checkpoint.policy,
                "best": checkpoint.best,
            }
        )
        try:
            self._blobs.write(FILE, data, previous=PREVIOUS)
        except OSError as error:
            raise StoreError(
                f"Cannot write {self.path}: {error.strerror or error}. Free some space "
                "or make the folder writable, then resume the run."
            ) from error

    def clear(self) -> None:
        """Removes the checkpoints of a run that no longer needs them."""
        for name in (FILE, PREVIOUS):
            self._blobs.delete(name)

    def load(self) -> tuple[Checkpoint | None, str]:
        """Reads the newest readable checkpoint.

        Returns:
            The checkpoint, or None; and a warning, or "".

        Raises:
            FormatError: Checkpoints exist, but none can be read.
        """
        problem: FormatError | None = None
        for name in (FILE, PREVIOUS):
            try:
                checkpoint = self._read(name)
            except FileNotFoundError:
                continue
            except FormatError as error:
                problem = problem or error
            else:
                return checkpoint, "" if problem is None else (
                    f"{problem} The run resumes from the checkpoint before it."
                )
        if problem is not None:
            raise FormatError(f"{problem} The run cannot be resumed: start a new one.")
        return None, ""

    def _read(self, name: str) -> Checkpoint:
        path = self._blobs.location(name)
        try:
            data = self._blobs.read(name)
        except FileNotFoundError:
            raise
        except OSError as error:
            raise FormatError(
                f"{path} cannot be read: {error.strerror or error}."
            ) from None
        tree = unpack(data, path)
        try:
            return Checkpoint(
                LoopState(**tree["progress"]), dict(tree["policy"]), dict(tree["best"])
            )
        except (KeyError, TypeError, ValueError):
            raise FormatError(f"{path} is damaged.") from None


def pack(tree: Mapping[str, Any]) -> bytes:
    """Encodes nested mappings and lists of arrays and plain JSON."""
    from safetensors.numpy import save

    arrays: dict[str, npt.NDArray[Any]] = {}
    text = json.dumps(_detach(tree, arrays), allow_nan=False)
    header = {"format": FORMAT, "version": str(VERSION), "json": text}
    data: bytes = save(arrays, header)
    return data


def unpack(data: bytes, name: str) -> dict[str, Any]:
    """Decodes what `pack` wrote.

    Args:
        data: The file's content.
        name: What to call the file in errors.

    Raises:
        FormatError: The data is truncated, foreign or of another version.
    """
    from safetensors import SafetensorError
    from safetensors.numpy import load

    header = _header(data)
    if header is None or header.get("format") != FORMAT:
        raise FormatError(f"{name} is truncated or not an AgentGym checkpoint.")
    if header.get("version") != str(VERSION):
        raise FormatError(
            f"{name} has format version {header.get('version')}; this AgentGym reads "
            f"version {VERSION}."
        )
    try:
        arrays = load(data)
        tree: dict[str, Any] = _attach(json.loads(header["json"]), arrays)
    except (SafetensorError, ValueError, KeyError, TypeError):
        raise FormatError(f"{name} is damaged.") from None
    return tree


def _header(data: bytes) -> dict[str, str] | None:
    """The file's own metadata: safetensors gives it only for files, not for bytes."""
    length = int.from_bytes(data[:8], "little")
    try:
        header = json.loads(data[8 : 8 + length])
        return dict(header["__metadata__"])
    except (ValueError, KeyError, TypeError):
        return None


def _detach(value: Any, arrays: dict[str, npt.NDArray[Any]]) -> Any:
    import numpy as np

    if isinstance(value, np.ndarray):
        number = str(len(arrays))
        arrays[number] = np.asarray(value, order="C")
        return {_ARRAY: number}
    if isinstance(value, np.generic):
        return value.item()
    if isinstance(value, Mapping):
        return {key: _detach(item, arrays) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [_detach(item, arrays) for item in value]
    return value


def _attach(value: Any, arrays: Mapping[str, npt.NDArray[Any]]) -> Any:
    if isinstance(value, dict):
        if value.keys() == {_ARRAY}:
            return arrays[value[_ARRAY]]
        return {key: _attach(item, arrays) for key, item in value.items()}
    if isinstance(value, list):
        return [_attach(item, arrays) for item in value]
    return value

"""Task files: read line by line, validated and split, with limited memory.

AgentGym keeps only the offset of each line, a hash of its id, and the number of its
tool set, so a file may be larger than memory.
"""

from __future__ import annotations

import hashlib
import os
import stat
from array import array
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from functools import lru_cache
from pathlib import Path
from typing import IO

import numpy as np
import numpy.typing as npt

from agentgym.core.task import SPLITS, Split
from agentgym.errors import ConfigError, FormatError
from agentgym.scenarios.task_file.line import (
    MAX_LINE,
    NOTHING_GIVEN,
    Given,
    TaskLine,
    read_line,
)

MAX_TASKS = 10_000_000
MAX_TOOL_NAMES = 1_000_000

_Numbers = npt.NDArray[np.int64]
_Splits = npt.NDArray[np.int8]

_SHARES = {"train": 0.6, "validation": 0.2, "heldout": 0.2}
_OPEN = len(SPLITS)
"""Stands for a split that the line doesn't name."""
_MOST = 100


@dataclass(frozen=True, slots=True)
class Mistake:
    """A problem in a line of a file."""

    line: int
    text: str

    def __str__(self) -> str:
        return f"line {self.line}: {self.text}"


@dataclass(slots=True)
class Report:
    """The result of checking a file.

    Attributes:
        mistakes: The problems, by line, up to the given maximum.
        stopped: Whether checking stopped early because of too many problems.
        tasks: Number of tasks.
        counts: Number of tasks per split and per difficulty.
        tools: Number of different tool names.
        unseen: Whether splits share no tools.
        unjudged: Number of tasks with neither `expected` nor `check`.
        code: The first `module:function` in the file, with its line; None without any.
    """

    mistakes: list[Mistake] = field(default_factory=list)
    stopped: bool = False
    tasks: int = 0
    counts: dict[str, int] = field(default_factory=dict)
    tools: int = 0
    unseen: bool = True
    unjudged: int = 0
    code: tuple[str, int] | None = None


class TaskIndex:
    """The positions of a file's tasks, by split."""

    def __init__(
        self, path: Path, offsets: array[int], splits: _Splits, given: Given
    ) -> None:
        self._path = path
        self._given = given
        where = np.frombuffer(offsets, np.int64)
        self._offsets = {split: where[splits == i] for i, split in enumerate(SPLITS)}

    def count(self, split: Split) -> int:
        """Number of tasks in a split."""
        return len(self._offsets[split])

    def read(self, split: Split, positions: Sequence[int]) -> list[TaskLine]:
        """Reads tasks by their positions in a split.

        Raises:
            FormatError: The file has changed since it was indexed.
        """
        lines = []
        try:
            with self._path.open("rb") as file:
                for position in positions:
                    file.seek(int(self._offsets[split][position]))
                    raw = file.readline(MAX_LINE + 1)
                    line, _ = read_line(raw, self._given)
                    if line is None:
                        raise FormatError(
                            f"{self._path} has changed since training started. Restore "
                            "it, or start a new training."
                        )
                    lines.append(line)
        except OSError as error:
            raise FormatError(_unreadable(self._path, error)) from None
        return lines


def open_tasks(
    path: Path | str, given: Given = NOTHING_GIVEN
) -> tuple[TaskIndex, Report]:
    """Validates and indexes a file; cached until the file changes.

    Args:
        path: The file.
        given: Defaults for all its lines.

    Raises:
        ConfigError: The file can't be read.
        FormatError: The file has problems; the message has the first.
    """
    path = Path(path)
    try:
        about = path.stat()
    except (OSError, ValueError) as error:
        raise ConfigError(_unreadable(path, error)) from None
    return _open_tasks(path.absolute(), about.st_size, about.st_mtime_ns, given)


@lru_cache(maxsize=2)
def _open_tasks(
    path: Path, size: int, changed: int, given: Given
) -> tuple[TaskIndex, Report]:
    report, index = _scan(path, most=1, given=given)
    if report.mistakes:
        raise FormatError(
            f"{path.name}, {report.mistakes[0]}. To see all problems, run: agentgym "
            f"tasks check {path}"
        )
    for split in SPLITS:
        if not index.count(split):
            raise FormatError(
                f"{path.name} has no task in split '{split}'. Assign some lines to it, "
                "or assign no splits at all and provide at least three tasks."
            )
    return index, report


def check_file(path: Path | str, most: int = _MOST) -> Report:
    """Checks a file for problems, without running any code that it names.

    Args:
        path: The file.
        most: Stop after this many problems.

    Raises:
        ConfigError: The file can't be read.
    """
    return _scan(Path(path), most)[0]


def _scan(
    path: Path, most: int, given: Given = NOTHING_GIVEN
) -> tuple[Report, TaskIndex]:
    report = Report()
    offsets, numbers = array("q"), array("q")
    ids, groups = array("Q"), array("q")
    named = array("b")
    tools = _ToolSets()
    counts: dict[str, int] = {}
    for number, offset, raw in _lines(path):
        if len(report.mistakes) >= most:
            report.stopped = True
            break
        if raw is None:
            text = f"too long; a line may have at most {MAX_LINE >> 20} MiB"
            report.mistakes.append(Mistake(number, text))
            continue
        line, problems = read_line(raw, given)
        room = most - len(report.mistakes)
        report.mistakes += [Mistake(number, text) for text in problems[:room]]
        if line is None:
            continue
        if len(offsets) >= MAX_TASKS or len(tools.names) > MAX_TOOL_NAMES:
            what = (
                f"{MAX_TASKS:,} tasks"
                if len(offsets) >= MAX_TASKS
                else f"{MAX_TOOL_NAMES:,} different tools"
            )
            report.mistakes.append(Mistake(number, f"more than {what}; split the file"))
            report.stopped = True
            break
        offsets.append(offset)
        numbers.append(number)
        ids.append(_hash(line.id))
        groups.append(tools.add([tool.name for tool in line.tools]))
        named.append(SPLITS.index(line.split) if line.split in SPLITS else _OPEN)
        counts[line.difficulty] = counts.get(line.difficulty, 0) + 1
        report.unjudged += line.courses is None and not line.check
        if line.code and report.code is None:
            report.code = (line.code[0], number)
    if not len(offsets) and not report.mistakes:
        report.mistakes.append(Mistake(1, "the file contains no task"))
    room = max(0, most - len(report.mistakes))
    report.mistakes += _duplicates(ids, numbers, room)
    report.mistakes.sort(key=lambda mistake: mistake.line)
    report.tasks, report.tools = len(offsets), len(tools.names)
    splits = _splits(ids, tools.roots(groups), named)
    report.unseen = _unseen(splits, tools.roots(groups))
    found = np.bincount(splits, minlength=len(SPLITS)) if len(splits) else [0, 0, 0]
    report.counts = {**dict(zip(SPLITS, map(int, found), strict=True)), **counts}
    return report, TaskIndex(path, offsets, splits, given)


def _lines(path: Path) -> Iterator[tuple[int, int, bytes | None]]:
    """Number, offset and bytes of each non-blank line; None if it is too long."""
    try:
        if not stat.S_ISREG(os.stat(path).st_mode):
            raise ConfigError(f"{path} isn't a file. Pass a file with one task a line.")
        with path.open("rb", buffering=1 << 20) as file:
            yield from _lines_of(file)
    except (OSError, ValueError) as error:
        raise ConfigError(_unreadable(path, error)) from None


def _lines_of(file: IO[bytes]) -> Iterator[tuple[int, int, bytes | None]]:
    number = offset = 0
    while raw := file.readline(MAX_LINE + 1):
        number += 1
        size = len(raw)
        too_long = size > MAX_LINE
        while too_long and not raw.endswith(b"\n"):
            raw = file.readline(1 << 20)
            if not raw:
                break
            size += len(raw)
        if too_long:
            yield number, offset, None
        else:
            mark = b"\xef\xbb\xbf"
            skipped = len(mark) if offset == 0 and raw.startswith(mark) else 0
            if raw[skipped:].strip():
                yield number, offset + skipped, raw[skipped:]
        offset += size


class _ToolSets:
    """Groups of tasks that share tools, directly or through other tasks."""

    def __init__(self) -> None:
        self.names: dict[int, int] = {}
        """The number of each tool, by the hash of its name."""
        self._parents = array("q")

    def add(self, names: Sequence[str]) -> int:
        """Joins the tools into one set; returns the number of one of them, or -1."""
        first = -1
        for name in names:
            key = _hash(name)
            number = self.names.setdefault(key, len(self.names))
            if number == len(self._parents):
                self._parents.append(number)
            root = self._root(number)
            if first < 0:
                first = root
            elif root != first:
                # The lower number, so that the order of joining doesn't matter.
                low, high = min(first, root), max(first, root)
                self._parents[high] = low
                first = low
        return first

    def roots(self, numbers: Sequence[int]) -> _Numbers:
        """The tool set of each task; -1 for tasks without tools."""
        return np.array([n if n < 0 else self._root(n) for n in numbers], np.int64)

    def _root(self, number: int) -> int:
        parents = self._parents
        while parents[number] != number:
            parents[number] = parents[parents[number]]
            number = parents[number]
        return number


def _splits(
    ids: array[int],
    roots: _Numbers,
    given: array[int],
) -> _Splits:
    """The split of each task: as given, else by tool set, else by the task's id."""
    chosen = np.array(given, np.int8)
    is_open = chosen == _OPEN
    if not is_open.any():
        return chosen
    sizes = np.bincount(chosen, minlength=_OPEN + 1)[:_OPEN].astype(float)
    groups = _open_groups(ids, roots, chosen)
    # Largest sets first, each to the split that lacks most; small ones even out.
    total = len(chosen)
    goals = [_SHARES[split] * total for split in SPLITS]
    for left, members in zip(range(len(groups), 0, -1), groups, strict=True):
        lacks = np.array(goals) - sizes
        if left <= np.count_nonzero(sizes == 0):
            # The last sets go to empty splits: no split may stay empty.
            lacks[sizes > 0] = -np.inf
        at = int(np.argmax(lacks))
        chosen[members] = at
        sizes[at] += len(members)
    if is_open.all() and not sizes.all() and total >= len(SPLITS):
        # All tasks are connected through shared tools, so split by task.
        order = np.argsort(np.frombuffer(ids, np.uint64), kind="stable")
        first = max(1, round(_SHARES["validation"] * total))
        second = max(1, round(_SHARES["heldout"] * total))
        chosen[:] = SPLITS.index("train")
        chosen[order[:first]] = SPLITS.index("validation")
        chosen[order[first : first + second]] = SPLITS.index("heldout")
    return chosen


def _open_groups(
    ids: array[int],
    roots: _Numbers,
    chosen: _Splits,
) -> list[_Numbers]:
    """Groups of tasks to assign to a split, largest first.

    Tasks that share tools with a task of a given split join that split here.
    """
    hashes = np.frombuffer(ids, np.uint64)
    is_open = chosen == _OPEN
    for split in range(len(SPLITS)):
        taken = np.unique(roots[(chosen == split) & (roots >= 0)])
        chosen[is_open & np.isin(roots, taken)] = split
        is_open = chosen == _OPEN
    places = np.flatnonzero(is_open)
    # A task without tools is a separate group.
    keys = np.where(roots[places] < 0, -1 - places, roots[places])
    order = np.argsort(keys, kind="stable")
    starts = np.flatnonzero(np.diff(keys[order], prepend=keys[order][:1] - 1))
    groups = np.split(places[order], starts[1:]) if len(places) else []
    return sorted(groups, key=lambda g: (-len(g), int(hashes[g].min())))


def _unseen(
    splits: _Splits,
    roots: _Numbers,
) -> bool:
    """Whether each tool set is in one split only."""
    pairs = np.unique(np.stack([roots, splits.astype(np.int64)]), axis=1)
    with_tools = pairs[0][pairs[0] >= 0]
    return len(with_tools) == len(np.unique(with_tools))


def _duplicates(ids: array[int], numbers: array[int], most: int) -> Iterator[Mistake]:
    hashes = np.frombuffer(ids, np.uint64)
    order = np.argsort(hashes, kind="stable")
    again = np.flatnonzero(hashes[order][1:] == hashes[order][:-1]) + 1
    for place in again[:most]:
        first = numbers[int(order[place - 1])]
        here = numbers[int(order[place])]
        yield Mistake(here, f"same id as line {first}; ids must be unique")


def _hash(text: str) -> int:
    digest = hashlib.blake2b(text.encode(), digest_size=8).digest()
    return int.from_bytes(digest, "little")


def _unreadable(path: Path, error: Exception) -> str:
    reason = getattr(error, "strerror", None) or error
    return f"Can't read {path}: {reason}."

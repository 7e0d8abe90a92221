"""What the store hands out: plain frozen values, free of any database."""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal, TypedDict, get_args

RunStatus = Literal[
    "queued", "running", "paused", "finished", "stopped", "interrupted", "failed"
]
RUN_STATUSES: tuple[str, ...] = get_args(RunStatus)
UNDER_WAY = ("running", "paused")
"""Statuses of a run that a process is running."""

_REFERENCE = re.compile(r"(?P<name>.+)[_:]v1\.(?P<minor>0|[1-9][0-9]{0,8})")


class RunFields(TypedDict, total=False):
    """What `Store.update_run` can change."""

    status: RunStatus
    episodes: int
    config: dict[str, Any]
    model: str | None
    error: str | None
    result: dict[str, Any] | None
    pid: int | None
    heartbeat: float


@dataclass(frozen=True, slots=True)
class RunRow:
    """One training run. Times are seconds since 1970.

    Attributes:
        number: Counts up in the order in which runs were created.
        status: As last written, but "interrupted" if the run was under way and its
            process is gone: it no longer exists on this host, or it sent no heartbeat
            for `LOST_AFTER` seconds.
        model: Full name of the model it produced; None before that.
        result: What came out; None before that.
        pid: The process that trains; None if unknown.
        process: Tells that process from a later one of the same pid, where the
            system can; None elsewhere.
        finished_at: When the status last became a final one; None while under way.
        targets: What the run should reach, by metric name.
        attempt: How often it was begun or resumed.
        last_seq: Events in its log.
    """

    id: str
    number: int
    scenario: str
    policy: str
    engine: str
    seed: int | None
    config: dict[str, Any]
    status: RunStatus
    episodes: int
    model: str | None
    error: str | None
    result: dict[str, Any] | None
    pid: int | None
    host: str | None
    process: str | None
    heartbeat: float | None
    created_at: float
    updated_at: float
    finished_at: float | None
    targets: dict[str, float]
    attempt: int
    last_seq: int


@dataclass(frozen=True, slots=True)
class TrajectoryRow:
    """One episode of the sample.

    Attributes:
        attempt: The attempt at the run that played it.
        number: Its place among the trajectories of its iteration.
        success: None if it was never judged; the store counts it as failed.
        data: The whole trajectory as it was given, `steps` included.
    """

    attempt: int
    iteration: int
    number: int
    success: bool | None
    task_id: str
    data: dict[str, Any]
    time: float

    @property
    def steps(self) -> list[dict[str, Any]]:
        """The steps within `data`."""
        steps: list[dict[str, Any]] = self.data.get("steps", [])
        return steps


@dataclass(frozen=True, slots=True)
class ModelVersion:
    """Names one version of a model."""

    name: str
    minor: int

    @property
    def version(self) -> str:
        """Such as "v1.2"."""
        return f"v1.{self.minor}"

    @property
    def full_name(self) -> str:
        """Such as "customer_support_v1.2"."""
        return f"{self.name}_{self.version}"


@dataclass(frozen=True, slots=True)
class ModelRow(ModelVersion):
    """One version of a model, complete in its folder."""

    run_id: str | None
    path: Path
    metadata: dict[str, Any]
    created_at: float


@dataclass(frozen=True, slots=True)
class ModelDraft(ModelVersion):
    """A version that is reserved and not yet there for others.

    Attributes:
        folder: Exists and is empty; write the model's files here.
        path: Where the folder will be once the draft is complete.
        metadata: Fill it before the block ends; it is stored with the model.
    """

    folder: Path
    path: Path
    metadata: dict[str, Any] = field(default_factory=dict)


def split_reference(reference: str) -> tuple[str, int | None]:
    """Splits "name_v1.2" or "name:v1.2"; the version is None if it names none."""
    match = _REFERENCE.fullmatch(reference)
    if match is None:
        return reference, None
    return match["name"], int(match["minor"])

"""Values as JSON that every reader accepts, browsers included."""

from __future__ import annotations

import json
from collections.abc import Mapping
from enum import Enum
from pathlib import PurePath
from typing import Any

from agentgym.core.metrics import AtMost, clean
from agentgym.errors import StoreError

MAX_TRAJECTORY_CHARACTERS = 200_000
_MAX_TEXT = 2_000


def encode(value: Any) -> str:
    """Encodes as strict JSON: numbers that are not finite become null.

    Raises:
        StoreError: Something in it isn't a JSON value, a NumPy number or array, a path
            or an enum.
    """
    try:
        try:
            return _dumps(value, allow_nan=False)
        except ValueError:
            # Rare enough that the second pass costs nothing.
            return _dumps(clean(json.loads(_dumps(value))), allow_nan=False)
    except (TypeError, ValueError, RecursionError) as error:
        raise StoreError(f"Cannot store this as JSON: {error}.") from error


def write_targets(targets: Mapping[str, float]) -> dict[str, Any]:
    """Targets as JSON, which has no type for `AtMost`."""
    return {
        name: {"at_most": float(wanted)} if isinstance(wanted, AtMost) else wanted
        for name, wanted in targets.items()
    }


def read_targets(values: Mapping[str, Any]) -> dict[str, float]:
    """Reads what `write_targets` wrote."""
    return {
        name: AtMost(value["at_most"]) if isinstance(value, dict) else value
        for name, value in values.items()
    }


def bounded(value: dict[str, Any]) -> dict[str, Any]:
    """Returns the trajectory, its long texts cut if it is too large to be kept."""
    if len(encode(value)) <= MAX_TRAJECTORY_CHARACTERS:
        return value
    cut: dict[str, Any] = _cut(json.loads(encode(value)))
    return cut


def _dumps(value: Any, *, allow_nan: bool = True) -> str:
    return json.dumps(value, allow_nan=allow_nan, default=_plain, separators=(",", ":"))


def _plain(value: Any) -> Any:
    if hasattr(value, "tolist"):
        return value.tolist()
    if isinstance(value, PurePath):
        return str(value)
    if isinstance(value, Enum):
        return value.value
    if isinstance(value, (set, frozenset)):
        return sorted(value)
    raise TypeError(f"a {type(value).__name__} is not a JSON value")


def _cut(value: Any) -> Any:
    if isinstance(value, str) and len(value) > _MAX_TEXT:
        return f"{value[:_MAX_TEXT]}… [{len(value) - _MAX_TEXT} characters cut]"
    if isinstance(value, dict):
        return {key: _cut(item) for key, item in value.items()}
    if isinstance(value, list):
        return [_cut(item) for item in value]
    return value

"""What the built-in policies share: what they have read, confidence and files."""

from __future__ import annotations

import contextlib
import json
import time
from abc import abstractmethod
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar, Generic, TypeVar

import numpy as np
import numpy.typing as npt
from safetensors import SafetensorError
from safetensors.numpy import load_file, save

from agentgym.core.tools import Tool
from agentgym.errors import FormatError
from agentgym.policies.base import GREEDY, Decision, DecisionRequest, Policy, Sampling
from agentgym.policies.calls.conversation import Reader
from agentgym.utils.files import atomic_write_bytes

ToolSetT = TypeVar("ToolSetT")
StateT = TypeVar("StateT")


class BuiltInPolicy(Policy, Generic[ToolSetT, StateT]):
    """Compiles each set of tools once, and reads each state once."""

    _max_toolsets: ClassVar[int]
    _max_states: ClassVar[int] = 4096

    def __init__(self) -> None:
        self.calibration = Calibration()
        self._reader = Reader()
        self._toolsets: dict[tuple[int, ...], tuple[ToolSetT, Sequence[Tool]]] = {}
        """By the identities of the tools: a training passes the same ones each time."""
        self._compiled: dict[str, ToolSetT] = {}
        """By definitions: other requests bring equal tools as new objects each time."""
        self._states: dict[str, StateT] = {}

    def decide(
        self, requests: Sequence[DecisionRequest], sampling: Sampling = GREEDY
    ) -> list[Decision]:
        """Answers all requests; equal states are read once."""
        started = time.perf_counter()
        how = [request.sampling(sampling) for request in requests]
        decisions = self._answer(requests, how)
        share = (time.perf_counter() - started) / max(1, len(requests))
        for decision in decisions:
            decision.latency = share
        return decisions

    @abstractmethod
    def _answer(
        self, requests: Sequence[DecisionRequest], how: Sequence[Sampling]
    ) -> list[Decision]:
        """Answers all requests, each drawn in its own way."""

    @abstractmethod
    def _compile(self, tools: Sequence[Tool], definitions: str) -> ToolSetT:
        """Compiles a new set of tools."""

    @abstractmethod
    def _new_states(
        self, asked: Mapping[str, tuple[DecisionRequest, ToolSetT]]
    ) -> dict[str, StateT]:
        """Reads new states, by their keys."""

    def small_trace(self, trace: Any) -> dict[str, Any]:
        """See `Policy`."""
        small: dict[str, Any] = trace.small()
        return small

    def calibrate(self, decisions: Sequence[tuple[float, bool]]) -> None:
        """Fits `confidence` by Platt scaling."""
        self.calibration = self.calibration.refitted(decisions)

    def _read(
        self, requests: Sequence[DecisionRequest], *, keep: bool = True
    ) -> list[StateT]:
        """States of the requests; those that others may share are kept."""
        if len(self._states) > self._max_states:
            self._states.clear()
        toolsets = [self._toolset(request.tools) for request in requests]
        fresh: dict[str, tuple[DecisionRequest, ToolSetT]] = {}
        keys = []
        for i, (request, toolset) in enumerate(zip(requests, toolsets, strict=True)):
            key = self._key(request, toolset, i)
            keys.append(key)
            if not request.state_key or key not in self._states:
                fresh.setdefault(key, (request, toolset))
        made = self._new_states(fresh)
        if keep:
            known = {k: s for k, s in made.items() if not k.startswith("#")}
            self._states.update(known)
        return [made.get(key) or self._states[key] for key in keys]

    def _key(self, request: DecisionRequest, toolset: ToolSetT, number: int = 0) -> str:
        return f"{request.state_key or f'#{number}'} {id(toolset)}"

    def _toolset(self, tools: Sequence[Tool]) -> ToolSetT:
        key = tuple(id(tool) for tool in tools)
        if key in self._toolsets:
            return self._toolsets[key][0]
        definitions = json.dumps([tool.to_openai() for tool in tools])
        toolset = self._compiled.get(definitions)
        if toolset is None:
            if len(self._compiled) > self._max_toolsets:
                self._forget_tools()
            toolset = self._compile(tools, definitions)
            self._compiled[definitions] = toolset
        if len(self._toolsets) > self._max_toolsets:
            self._toolsets.clear()
        # The tools are kept with it, so that no other tool can get their ids.
        self._toolsets[key] = (toolset, tuple(tools))
        return toolset

    def _forget_tools(self) -> None:
        self._toolsets.clear()
        self._compiled.clear()


@dataclass(frozen=True, slots=True)
class Calibration:
    """Slope and offset on the log-odds of a raw confidence."""

    slope: float = 1.0
    offset: float = 0.0

    def confidence(self, probability: float) -> float:
        """The calibrated confidence, 0 to 1."""
        return float(_sigmoid(self.slope * _logit(probability) + self.offset))

    def refitted(self, decisions: Sequence[tuple[float, bool]]) -> Calibration:
        """Platt scaling, a little damped, on the outcomes of decisions.

        Args:
            decisions: Pairs of the confidence that this calibration gave and whether
                the decision was right.
        """
        if not decisions:
            return self
        raw = np.array([(_logit(c) - self.offset) / self.slope for c, _ in decisions])
        right = np.array([r for _, r in decisions], float)
        # Platt's targets keep the fit finite when everything is right.
        n1, n0 = right.sum(), (1 - right).sum()
        target = np.where(right > 0, (n1 + 1) / (n1 + 2), 1 / (n0 + 2))
        slope, offset = 1.0, 0.0
        for _ in range(50):
            p = _sigmoid(slope * raw + offset)
            w = p * (1 - p) + 1e-9
            g = np.array(
                [((p - target) * raw).sum() + 0.1 * (slope - 1), (p - target).sum()]
            )
            h = np.array(
                [
                    [(w * raw * raw).sum() + 0.1, (w * raw).sum()],
                    [(w * raw).sum(), w.sum()],
                ]
            )
            slope, offset = np.array([slope, offset]) - np.linalg.solve(h, g)
            slope = max(float(slope), 0.05)
        return Calibration(float(slope), float(offset))


def pick(odds: npt.NDArray[Any], rng: np.random.Generator) -> int:
    """Draws one of some choices by their odds, which need not add up to 1."""
    total = odds.cumsum()
    at = int((total <= rng.random() * total[-1]).sum())
    # Rounding may lead past the last one that has any odds.
    return at if at < len(odds) and odds[at] > 0 else int(odds.nonzero()[0][-1])


def _sigmoid(x: Any) -> Any:
    return 1 / (1 + np.exp(-np.clip(x, -60, 60)))


def _logit(p: float) -> float:
    p = min(max(p, 1e-6), 1 - 1e-6)
    return float(np.log(p / (1 - p)))


@dataclass(frozen=True, slots=True)
class PolicyFiles:
    """The two files of a kind of policy.

    Attributes:
        what: What they contain, as messages call it.
        format: Marks them as such.
        version: Of the format.
        facts: Name of the JSON file.
        arrays: Name of the safetensors file.
    """

    what: str
    format: str
    version: int
    facts: str
    arrays: str

    def write(
        self, folder: Path, facts: Mapping[str, Any], arrays: dict[str, Any]
    ) -> None:
        """Writes both into an existing folder."""
        about = {"format": self.format, "version": self.version, **facts}
        atomic_write_bytes(folder / self.arrays, save(arrays))
        atomic_write_bytes(folder / self.facts, json.dumps(about, indent=1).encode())

    @contextlib.contextmanager
    def read(self, folder: Path) -> Iterator[tuple[dict[str, Any], dict[str, Any]]]:
        """Gives the facts and the arrays.

        Raises:
            FormatError: The files are missing, damaged or from another version, or
                using what they contain failed.
        """
        try:
            about = json.loads((folder / self.facts).read_text(encoding="utf-8"))
            if (about.get("format"), about.get("version")) != (
                self.format,
                self.version,
            ):
                raise FormatError(
                    f"{folder} doesn't contain a {self.what} of format version "
                    f"{self.version}. Train it again with this version of AgentGym."
                )
            yield about, load_file(folder / self.arrays)
        except (OSError, SafetensorError, ValueError, KeyError, TypeError) as error:
            raise FormatError(
                f"Cannot read the {self.what} in {folder} ({type(error).__name__}: "
                f"{error}). Restore its files, or train it again."
            ) from None

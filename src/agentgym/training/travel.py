"""Groups played in another process: as bytes, and back.

    plans -> pack_plans -> bytes -> unpack_plans -> rollout.groups
          -> pack_groups -> bytes -> unpack_groups -> policy.learn

The learner gets the same weights as if it had played the groups itself. The
bytes are compressed JSON; nothing in them is code.
"""

from __future__ import annotations

import dataclasses
import json
import zlib
from collections.abc import Sequence
from typing import Any

from agentgym.core.tools import FailureKind, Tool, ToolCall, ToolResult
from agentgym.core.trajectory import Group, GroupPlan, SampledTokens, Step, Trajectory
from agentgym.errors import FormatError
from agentgym.policies.base import Policy
from agentgym.training.sampler import Sampler

_STEP = [field.name for field in dataclasses.fields(Step)]
_TRAJECTORY = [f.name for f in dataclasses.fields(Trajectory) if f.name != "task"]


def pack_plans(plans: Sequence[GroupPlan]) -> bytes:
    """Plans without their tasks, which are drawn again where they are played."""
    return _encode([plan.to_dict() for plan in plans])


def unpack_plans(data: bytes, sampler: Sampler) -> list[GroupPlan]:
    """Reads what `pack_plans` wrote.

    Args:
        data: What it wrote.
        sampler: Draws the tasks, of the same scenario.

    Raises:
        FormatError: It is something else.
    """
    try:
        return [GroupPlan.from_dict(plan, sampler.task) for plan in _decode(data)]
    except (LookupError, TypeError) as error:
        raise _damaged(error) from None


def pack_groups(groups: Sequence[Group], policy: Policy) -> bytes:
    """Played groups with small traces; the policy says what these are."""
    table = _Table()
    return _encode(
        {
            "groups": [
                [
                    {
                        **{name: getattr(t, name) for name in _TRAJECTORY},
                        "steps": [_pack_step(s, policy, table) for s in t.steps],
                    }
                    for t in group.trajectories
                ]
                for group in groups
            ],
            "messages": table.messages,
            "tools": table.tools,
        }
    )


def unpack_groups(
    data: bytes, plans: Sequence[GroupPlan], policy: Policy
) -> list[Group]:
    """Reads what `pack_groups` wrote.

    Args:
        data: What it wrote.
        plans: Of the groups, in their order.
        policy: Has the weights that played.

    Raises:
        FormatError: It is something else.
    """
    try:
        packed = _decode(data)
        tools = [Tool.from_openai(definition) for definition in packed["tools"]]
        groups = []
        for plan, episodes in zip(plans, packed["groups"], strict=True):
            trajectories = [
                Trajectory(
                    plan.task,
                    **{
                        **episode,
                        "failure": _kind(episode["failure"]),
                        "steps": [_unpack_step(step) for step in episode["steps"]],
                    },
                )
                for episode in episodes
            ]
            steps = [s for t in trajectories for s in t.steps if s.trace is not None]
            small = [_filled(s.trace, packed["messages"], tools) for s in steps]
            for step, trace in zip(steps, policy.rebuild(small), strict=True):
                step.trace = trace
            groups.append(Group(plan.task, trajectories))
    except (LookupError, TypeError, ValueError) as error:
        raise _damaged(error) from None
    return groups


class _Table:
    """Messages and tools, each of them once."""

    def __init__(self) -> None:
        self.messages: list[Any] = []
        self.tools: list[Any] = []
        self._known: dict[Any, int] = {}
        self._kept: list[Any] = []
        """Objects that are known by their identity: nothing else may get that."""

    def number(self, thing: Any, rows: list[Any]) -> int:
        """Where it stands."""
        at = self._known.get(id(thing))
        if at is None:
            plain = thing.to_openai() if isinstance(thing, Tool) else thing
            text = json.dumps(plain)
            at = self._known.setdefault((id(rows), text), len(rows))
            if at == len(rows):
                rows.append(plain)
            self._known[id(thing)] = at
            self._kept.append(thing)
        return at

    def reduced(self, trace: Any) -> Any:
        """A small trace with numbers in the place of messages and tools."""
        if not isinstance(trace, dict) or "messages" not in trace:
            return trace
        return {
            **trace,
            "messages": [self.number(m, self.messages) for m in trace["messages"]],
            "tools": [self.number(t, self.tools) for t in trace["tools"]],
        }


def _filled(trace: Any, messages: Sequence[Any], tools: Sequence[Tool]) -> Any:
    if not isinstance(trace, dict) or "messages" not in trace:
        return trace
    return {
        **trace,
        "messages": [messages[at] for at in trace["messages"]],
        "tools": [tools[at] for at in trace["tools"]],
    }


def _pack_step(step: Step, policy: Policy, table: _Table) -> dict[str, Any]:
    plain = {name: getattr(step, name) for name in _STEP}
    if step.wrong_arguments is not None:
        plain["wrong_arguments"] = sorted(step.wrong_arguments)
    plain["calls"] = [dataclasses.asdict(call) for call in step.calls]
    plain["results"] = [dataclasses.asdict(result) for result in step.results]
    if step.sampled is not None:
        plain["sampled"] = dataclasses.asdict(step.sampled)
    if step.trace is not None:
        plain["trace"] = table.reduced(policy.small_trace(step.trace))
    return plain


def _unpack_step(data: dict[str, Any]) -> Step:
    step = Step(**data)
    if data["wrong_arguments"] is not None:
        step.wrong_arguments = frozenset(data["wrong_arguments"])
    step.calls = tuple(ToolCall(**call) for call in data["calls"])
    step.results = tuple(
        ToolResult(**{**result, "failure": _kind(result["failure"])})
        for result in data["results"]
    )
    step.failure = _kind(data["failure"])
    if data["sampled"] is not None:
        step.sampled = SampledTokens(*map(tuple, data["sampled"].values()))
    return step


def _kind(name: str | None) -> FailureKind | None:
    return None if name is None else FailureKind(name)


def _encode(value: Any) -> bytes:
    return zlib.compress(json.dumps(value).encode(), 1)


def _decode(data: bytes) -> Any:
    try:
        return json.loads(zlib.decompress(data))
    except (zlib.error, ValueError) as error:
        raise _damaged(error) from None


def _damaged(error: Exception) -> FormatError:
    return FormatError(
        f"This version of AgentGym can't read these groups or plans ({error})."
    )

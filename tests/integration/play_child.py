"""Plays groups in a process of its own: weights and plans in, groups out, as bytes.

    python play_child.py POLICY_MODULE:CLASS SCENARIO

Each message is a line with its length, and then so many bytes.
"""

from __future__ import annotations

import importlib
import sys
from typing import IO

from agentgym.scenarios.registry import ScenarioRegistry
from agentgym.training.checkpoint import unpack
from agentgym.training.rollout import Rollout
from agentgym.training.sampler import Sampler
from agentgym.training.travel import pack_groups, unpack_plans


def send(stream: IO[bytes], data: bytes) -> None:
    stream.write(b"%d\n" % len(data) + data)
    stream.flush()


def receive(stream: IO[bytes]) -> bytes | None:
    line = stream.readline()
    return stream.read(int(line)) if line else None


def main(policy_path: str, scenario_name: str) -> None:
    module, _, name = policy_path.partition(":")
    policy = getattr(importlib.import_module(module), name)()
    scenario = ScenarioRegistry.load(scenario_name)
    rollout = Rollout(scenario, max_steps=8)
    sampler = Sampler(scenario, 0)
    while (weights := receive(sys.stdin.buffer)) is not None:
        plans = receive(sys.stdin.buffer)
        assert plans is not None
        policy.load_state(unpack(weights, "the weights"))
        groups = rollout.groups(policy, unpack_plans(plans, sampler))
        send(sys.stdout.buffer, pack_groups(groups, policy))
    rollout.close()


if __name__ == "__main__":
    main(*sys.argv[1:])

"""Trains or resumes in a process of its own, and kills it at a chosen moment.

    python train_child.py HOME MOMENT [setting=value ...]      (a new run)
    python train_child.py HOME MOMENT resume

MOMENT is "never" or names a place and how often it is passed before the kill, such
as "IterationDone:3" (right after that event is heard) or "os.replace:5".
"""

from __future__ import annotations

import os
import signal
import sys
from collections import Counter
from typing import Any

from agentgym import Trainer
from agentgym.core.events import Event


def main(home: str, moment: str, *rest: str) -> None:
    place, _, count = moment.partition(":")
    passed: Counter[str] = Counter()

    def pass_by(name: str) -> None:
        passed[name] += 1
        if name == place and passed[name] == int(count):
            os.kill(os.getpid(), signal.SIGKILL)

    def hear(event: Event) -> None:
        pass_by(type(event).__name__)

    def watch(owner: Any, name: str, label: str) -> None:
        inner = getattr(owner, name)

        def watched(*arguments: Any, **named: Any) -> Any:
            pass_by(f"before {label}")
            result = inner(*arguments, **named)
            pass_by(label)
            return result

        setattr(owner, name, watched)

    watch(os, "replace", "os.replace")
    watch(os, "fsync", "os.fsync")
    from agentgym.policies.planner.policy import PlannerPolicy
    from agentgym.store import Store

    watch(PlannerPolicy, "learn", "learn")
    watch(Store, "_publish", "publish")
    watch(Store, "add_trajectories", "add_trajectories")
    watch(Store, "append_events", "append_events")
    if rest == ("resume",):
        Trainer.resume("last", home=home, listeners=[hear])
    else:
        pairs = [part.split("=") for part in rest]
        settings: Any = {k: int(v) if v.isdigit() else v for k, v in pairs}
        Trainer(home=home, listeners=[hear]).train("tiny_scenario:Tiny", **settings)


if __name__ == "__main__":
    main(*sys.argv[1:])

"""The engine `local`: AgentGym's own training loop."""

from __future__ import annotations

from contextlib import closing

from agentgym.engines.base import Context, Engine, Job
from agentgym.training.loop import LoopResult, run_training


class LocalEngine(Engine):
    """Trains with `training.loop.run_training`."""

    name = "local"

    def train(self, job: Job, context: Context) -> LoopResult:
        """See `Engine.train`."""
        policy = job.make_policy()
        with closing(job.make_rollout(context.warn)) as rollout:
            return run_training(
                job.config,
                rollout,
                policy,
                job.trainable,
                checkpoints=context.checkpoints,
                start=context.start,
                events=context.events,
                control=context.control,
            )

"""The training loop: on-policy, and readable from top to bottom.

`run_training` is the whole algorithm. Everything random in it is a function of the
seed and the iteration, so no random state needs to be saved. A run that is resumed
from a checkpoint ends with the same bytes as one that was never interrupted.
"""

from __future__ import annotations

import copy
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from agentgym.core.config import TrainingConfig
from agentgym.core.control import ADJUSTABLE, Control
from agentgym.core.events import (
    Adjusted,
    BaselineMeasured,
    CheckpointSaved,
    EvaluationDone,
    EventBus,
    IterationDone,
    Paused,
    Resumed,
    RunStopped,
    Warned,
)
from agentgym.core.metrics import TrainingMetrics
from agentgym.core.rewards import assign_advantages
from agentgym.core.task import Split, Task
from agentgym.policies.base import Policy
from agentgym.training.checkpoint import Checkpoint, CheckpointFolder, LoopState
from agentgym.training.evaluation import Evaluation, evaluate, evaluate_free_form
from agentgym.training.rollout import Rollout
from agentgym.training.sampler import Sampler, draw_tasks
from agentgym.training.summary import history_entry, sample, score, training_values

_CHECKPOINT_SECONDS = 30.0
_PAUSE_SECONDS = 0.2
_SMALL_GROUP = 16
"""Siblings of a task to reckon with where few episodes are left: most need no more."""
_TOLERANCE = 0.05
"""How far the newest weights may fall behind the best ones on the validation tasks."""


@dataclass(slots=True)
class LoopResult:
    """The loop's result: the best policy, evaluated with the untrained one."""

    policy: Policy
    metrics: TrainingMetrics
    baseline: TrainingMetrics
    progress: LoopState


def run_training(
    config: TrainingConfig,
    rollout: Rollout,
    policy: Policy,
    trainable: frozenset[str],
    *,
    checkpoints: CheckpointFolder,
    start: Checkpoint | None,
    events: EventBus,
    control: Control,
) -> LoopResult:
    """The loop: sample, compare, update, measure now and then, end with the best.

    Args:
        config: Resolved settings.
        rollout: Plays the scenario.
        policy: Untrained; it is changed.
        trainable: Components that learn; the others keep every bit.
        checkpoints: Where to save.
        start: Checkpoint to resume from; None to begin.
        events: Receives what happens.
        control: Checked between iterations and during evaluations.

    Raises:
        KeyboardInterrupt: The control wants to leave; everything is saved.
        FailureBudgetExceeded: Too many episodes crashed.
        TrainingDiverged: An update wasn't finite.
    """
    scenario = rollout.scenario
    target = config.target_reliability
    if target is None:
        target = scenario.success_criteria().get("tool_reliability", 1.0)

    # Begin with the untrained policy, or resume where the last process stopped.
    session = Session(
        config, rollout, policy, events, control, start.progress if start else None
    )
    best = policy.weights()
    if start is not None:
        best = start.best
        policy.load_state(start.policy)
    progress = session.progress
    settings = progress.settings
    sampler = Sampler(scenario, config.seed, config.revisit)
    if progress.sampler:
        sampler.load_state(progress.sampler)
    saved = time.perf_counter()

    def save() -> None:
        nonlocal saved
        saved = time.perf_counter()
        progress.seconds = saved - session.began
        progress.sampler = sampler.state()
        checkpoints.save(Checkpoint(progress, policy.state(), best))
        events.emit(CheckpointSaved(progress.iteration, checkpoints.path))

    def measure() -> None:
        nonlocal best
        evaluation = session.validate(save)
        # Keep the newest weights unless they fall behind the best by more than
        # `_TOLERANCE`: a few hundred tasks can't show smaller differences. With few
        # tasks, losing one is too much: training tasks recur and get memorized. Weights
        # that don't beat the untrained policy never replace it.
        *before, newest = (score(entry) for entry in progress.history)
        if not before or (newest > before[0] and newest >= max(before) - _TOLERANCE):
            best = copy.deepcopy(policy.weights())
            progress.best_iteration = progress.iteration
            progress.best_decisions = list(evaluation.decisions)
        reached = progress.history[-1]["tool_reliability"] >= target
        if progress.convergence_episode is None and reached:
            progress.convergence_episode = progress.episodes
        save()

    if not progress.history:
        measure()

    while True:
        # Apply commands, only between iterations and during evaluations.
        session.handle_commands(save)

        # Measure now and then. The schedule depends only on the progress, so it is
        # the same after a resume from any checkpoint.
        left = int(settings["episodes"]) - progress.episodes
        # The rest is too small for another batch, but the first one always runs.
        over = left < (config.batch_size if progress.iteration else 1)
        unmeasured = progress.episodes - progress.history[-1]["episodes"]
        if unmeasured >= config.eval_every or (over and unmeasured):
            measure()
            continue  # Commands may have arrived meanwhile.
        if time.perf_counter() - saved > _CHECKPOINT_SECONDS:
            save()
        if over or progress.history[-1]["tool_reliability_interval"][0] > target:
            break

        # Sample siblings on the current weights, with live tools, and reward them.
        # Rates fall during the run; everything is a function of the progress.
        clock = time.perf_counter()
        fraction = progress.episodes / settings["episodes"]
        size = min(config.batch_size, -(-left // min(config.group_size, _SMALL_GROUP)))
        decay = 1.0 - config.exploration_decay * fraction
        plans = sampler.plan(
            size,
            min(config.group_size, max(_SMALL_GROUP, left // size)),
            exploration=settings["exploration"] * decay,
            branch=config.credit == "state",
            max_mistakes=config.max_mistakes,
            baseline_tokens=progress.baseline_tokens,
        )
        policy.prepare([task.messages for task in sampler.ahead(size)])
        groups = rollout.groups(policy, plans)
        episodes = [episode for group in groups for episode in group.trajectories]
        progress.count_broken(episodes, config.failure_budget)
        sampler.note(plans, groups)

        # Compare siblings, and update what may change.
        signal = assign_advantages(groups, config.credit, config.discount_factor)
        # Small batches, as at the end of a run, say little, so they change little.
        rate = settings["learning_rate"] * (1.0 - config.learning_rate_decay * fraction)
        rate *= size / config.batch_size
        stats = policy.learn(
            groups,
            learning_rate=rate,
            entropy=settings["entropy"] * (1.0 - config.entropy_decay * fraction),
            trainable=trainable,
        )
        progress.iteration += 1
        progress.episodes += len(episodes)
        values = training_values(groups, signal, stats)
        values |= policy.stats()
        values["learning_rate"] = rate
        values["episodes_per_second"] = len(episodes) / (time.perf_counter() - clock)
        events.emit(IterationDone(progress.iteration, progress.episodes, values))
        # Steps hold what the policy needs to learn from them, which may be a lot.
        del groups, episodes

    # Take the best weights.
    if progress.iteration and not progress.best_iteration:
        events.emit(
            Warned(
                f"Training did not help on the {len(session.validation)} validation "
                "tasks, so the untrained policy is kept. Train longer, or on more "
                "tasks."
            )
        )
    policy.load_state(best)
    return session.finish()


class Session:
    """A running training: what the loops of all engines share.

    Attributes:
        policy: Made while it is untrained.
        progress: Where the training stands; a new one by default.
        validation: The validation tasks.
        began: By the clock, pauses left out.
    """

    def __init__(
        self,
        config: TrainingConfig,
        rollout: Rollout,
        policy: Policy,
        events: EventBus,
        control: Control,
        progress: LoopState | None = None,
    ) -> None:
        self.config = config
        self.rollout = rollout
        self.policy = policy
        self.events = events
        self.control = control
        self.progress = progress or LoopState(
            {name: getattr(config, name) for name in ADJUSTABLE}
        )
        self.validation = self._tasks("validation", config.eval_tasks)
        self.began = time.perf_counter() - self.progress.seconds
        self._untrained = copy.deepcopy(policy.weights())

    def handle_commands(self, save: Callable[[], None] = lambda: None) -> None:
        """Applies the control's commands; see `apply_commands`."""
        self.began += apply_commands(self.control, self.progress, self.events, save)

    def validate(self, save: Callable[[], None] = lambda: None) -> Evaluation:
        """Measures the policy during training, reports it, adds it to the history.

        The first time the policy is untrained, and its tokens become the baseline.
        """
        progress = self.progress
        evaluation = evaluate(
            self.policy,
            self.rollout,
            self.validation,
            progress.baseline_tokens,
            lambda: self.handle_commands(save),
        )
        metrics = evaluation.metrics(
            episodes_completed=progress.episodes,
            total_training_time=time.perf_counter() - self.began,
            manual_hours=self.config.manual_hours,
        )
        at, shown = (progress.iteration, progress.episodes), sample(evaluation)
        if progress.history:
            told = EvaluationDone(*at, "validation", metrics.to_dict(), shown)
            self.events.emit(told)
        else:
            progress.baseline_tokens = evaluation.tokens_per_task
            self.events.emit(BaselineMeasured(metrics.to_dict(), shown))
        progress.history.append(history_entry(*at, metrics))
        return evaluation

    def finish(self) -> LoopResult:
        """Measures the trained policy, and the untrained one, at the end.

        The held-out tasks are used only here. The same policy loads both states in
        turn: memory may hold a language model once, but not twice.

        Raises:
            KeyboardInterrupt: The control wants to leave; the last checkpoint
                has everything.
        """
        config, rollout, policy = self.config, self.rollout, self.policy
        progress = self.progress
        policy.calibrate(progress.best_decisions)
        progress.seconds = time.perf_counter() - self.began
        heldout = self._tasks("heldout", config.heldout_tasks)
        some = heldout[: config.free_form_tasks]
        limit = progress.baseline_tokens

        def between() -> None:
            apply_commands(self.control, progress, self.events, lambda: None, over=True)

        trained = copy.deepcopy(policy.weights())
        policy.load_state(self._untrained)
        before = evaluate(policy, rollout, heldout, limit, between)
        free_before = evaluate_free_form(policy, rollout, some, limit, between)
        policy.load_state(trained)
        after = evaluate(policy, rollout, heldout, limit, between)
        free_after = evaluate_free_form(policy, rollout, some, limit, between)
        metrics = after.metrics(
            before,
            episodes_completed=progress.episodes,
            total_training_time=progress.seconds,
            convergence_episode=progress.convergence_episode,
            manual_hours=config.manual_hours,
            free_form=free_after,
        )
        baseline = before.metrics(
            manual_hours=config.manual_hours, free_form=free_before
        )
        # Without trajectories: people tune on the held-out tasks that they can read.
        where = progress.iteration, progress.episodes
        self.events.emit(EvaluationDone(*where, "heldout", metrics.to_dict()))
        return LoopResult(policy, metrics, baseline, progress)

    def _tasks(self, split: Split, count: int) -> Sequence[Task]:
        return draw_tasks(self.rollout.scenario, split, self.config.seed, count)


def apply_commands(
    control: Control,
    progress: LoopState,
    events: EventBus,
    save: Callable[[], None],
    *,
    over: bool = False,
) -> float:
    """Applies the control's commands between two updates of a training.

    Changes are saved at once: a run that is killed and resumed must keep them.

    Args:
        control: The commands.
        progress: Its settings are changed.
        events: Receives what was done.
        save: Saves a checkpoint.
        over: No update follows, so nothing can be adjusted or stopped.

    Returns:
        Seconds spent in a pause.

    Raises:
        KeyboardInterrupt: The control wants to leave; everything is saved.
    """
    settings = progress.settings
    paused_at: float | None = None
    while True:
        for complaint in control.poll():
            events.emit(Warned(complaint))
        if changes := control.take_adjustments():
            if over:
                events.emit(Warned("Training has finished, so nothing was adjusted."))
            else:
                settings.update(changes)
                # Before the checkpoint, so that a resume doesn't repeat it.
                events.emit(Adjusted(progress.iteration, changes))
                save()
        if control.interrupted:
            save()
            raise KeyboardInterrupt
        if control.stop_reason is not None:
            if not over and settings["episodes"] != progress.episodes:
                # What was asked for is what has been done.
                settings["episodes"] = progress.episodes
                events.emit(RunStopped(control.stop_reason))
                save()
            break
        if not control.paused:
            break
        if paused_at is None:
            save()
            paused_at = time.perf_counter()
            events.emit(Paused(progress.iteration))
        time.sleep(_PAUSE_SECONDS)
    if paused_at is None:
        return 0.0
    events.emit(Resumed(progress.iteration))
    return time.perf_counter() - paused_at

"""The trainer: an on-policy loop that reads from top to bottom.

`run_training` is the whole algorithm. Everything random in it is a function of the
seed and the iteration, so there is no random state to save, and a run that is resumed
from a checkpoint ends with the same bytes as one that was never interrupted.

`Trainer` is what users hold. It hands the loop to an engine, which knows where to run
it and where to keep what comes out.
"""

from __future__ import annotations

import copy
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache, partial
from pathlib import Path
from typing import Any

import numpy as np

from agentgym.core._loop import (
    draw_tasks,
    history_entry,
    sample,
    score,
    training_values,
)
from agentgym.core.backlog import Backlog
from agentgym.core.checkpoint import Checkpoint, CheckpointFolder, Progress
from agentgym.core.config import TrainingConfig
from agentgym.core.control import ADJUSTABLE, Control, obey
from agentgym.core.errors import ConfigError
from agentgym.core.evaluation import evaluate, evaluate_free_form
from agentgym.core.events import (
    BaselineMeasured,
    CheckpointSaved,
    EvaluationDone,
    Event,
    EventBus,
    IterationDone,
    Listener,
    Warned,
    stream_events,
)
from agentgym.core.pace import Pace
from agentgym.core.result import TrainingMetrics, TrainingResult
from agentgym.core.rewards import assign_advantages
from agentgym.core.rollout import Rollout
from agentgym.core.task import Split
from agentgym.policies.base import Policy, Sampling

_CHECKPOINT_SECONDS = 30.0
_SMALL_GROUP = 16
"""Siblings of a task to reckon with where few episodes are left: most need no more."""
_TOLERANCE = 0.05
"""How far the newest weights may fall behind the best ones on the validation tasks."""


class Trainer:
    """Trains agents.

        result = Trainer().train("customer_support", episodes=5_000)
        result = Trainer(TrainingConfig(scenario="customer_support")).train()

    Args:
        config: Settings; `train` may override them.
        home: Where runs and models are kept; `$AGENTGYM_HOME` or `./.agentgym` if None.
        listeners: Hear every event.
        control: Pauses, stops and adjusts a training from another thread.

    Attributes:
        result: What the latest training of this trainer brought.
    """

    def __init__(
        self,
        config: TrainingConfig | None = None,
        *,
        home: Path | str | None = None,
        listeners: Sequence[Listener] = (),
        control: Control | None = None,
    ) -> None:
        self.config = config
        self.home = None if home is None else Path(home)
        self.listeners = list(listeners)
        self.control = control
        self.result: TrainingResult | None = None

    def train(self, scenario: str | None = None, **settings: Any) -> TrainingResult:
        """Trains, and returns when the model is measured and saved.

        Args:
            scenario: What to train on; by default what the config says.
            **settings: Fields of `TrainingConfig`; they win over the config.

        Raises:
            ConfigError: A setting is wrong, or nothing reads it.
            KeyboardInterrupt: Training was interrupted; `Trainer.resume` goes on.
            AgentGymError: Anything else that ends a training, in one line.
        """
        control = self.control or Control()
        return self._train(scenario, settings, self.listeners, control)

    def stream(self, scenario: str | None = None, **settings: Any) -> Iterator[Event]:
        """Trains in a thread of its own and yields the events.

        Closing the iterator early interrupts the run: it is saved and can be resumed.
        An error that ends the training is raised here, after its `RunFailed`.

        Arguments are those of `train`.
        """
        control = self.control or Control()

        def work(listener: Listener) -> None:
            self._train(scenario, settings, [*self.listeners, listener], control)

        return stream_events(work, control.interrupt)

    @classmethod
    def resume(
        cls,
        run_id: str,
        home: Path | str | None = None,
        listeners: Sequence[Listener] = (),
        control: Control | None = None,
    ) -> TrainingResult:
        """Goes on with a run whose process is gone, and ends it as if never broken off.

        A run that is finished already just gives its result.

        Args:
            run_id: Its id, the beginning of it, or "last".
            home: As for the trainer.
            listeners: As for the trainer.
            control: As for the trainer.

        Raises:
            RunNotFoundError: There is no such run.
            UsageError: The run is still under way somewhere, or its engine cannot go
                on with runs.
            FormatError: Its checkpoints cannot be read.
            KeyboardInterrupt: It was interrupted again.
        """
        from agentgym.engines import engine_of_run

        home = None if home is None else Path(home)
        return engine_of_run(run_id, home).resume(
            run_id,
            home=home,
            listeners=listeners,
            control=control or Control(),
        )

    def evaluate(
        self,
        model: str | Path | None = None,
        *,
        split: Split = "heldout",
        tasks: int | None = None,
        seed: int | None = None,
        scenario: str | None = None,
        agent: str | None = None,
        agent_command: str | None = None,
    ) -> TrainingMetrics:
        """Measures a trained model on tasks of a scenario.

        Args:
            model: Name, version or folder; by default what this trainer trained last.
            split: Which tasks.
            tasks: How many; by default as many as at the end of its training.
            seed: Chooses the tasks; by default those of its training.
            scenario: By default the config's, else the one it was trained on.
            agent: Plays; by default the built-in loop. See `TrainedAgent.evaluate`.
            agent_command: The same as a command line.

        Raises:
            ConfigError: There is nothing to tell which model.
            ModelNotFoundError: There is no such model.
        """
        from agentgym.core.trained_agent import TrainedAgent

        if model is None and self.result is not None:
            model = Path(self.result.trained_model_path)
        if model is None:
            raise ConfigError("Which model? Train one first, or name one.")
        trained = TrainedAgent.load(model, home=self.home)
        if scenario is None and self.config is not None:
            scenario = self.config.scenario
        return trained.evaluate(
            scenario,
            split=split,
            tasks=tasks,
            seed=seed,
            agent=agent,
            agent_command=agent_command,
        )

    def _train(
        self,
        scenario: str | None,
        settings: dict[str, Any],
        listeners: Sequence[Listener],
        control: Control,
    ) -> TrainingResult:
        from agentgym.engines import get_engine

        config = self._merged(scenario, settings)
        self.result = get_engine(config.engine).train(
            config, home=self.home, listeners=listeners, control=control
        )
        return self.result

    def _merged(self, scenario: str | None, settings: dict[str, Any]) -> TrainingConfig:
        given = settings if scenario is None else {**settings, "scenario": scenario}
        if self.config is not None:
            before = self.config
            given = {n: getattr(before, n) for n in before.model_fields_set} | given
        return TrainingConfig.from_dict(given)


@dataclass(slots=True)
class Trained:
    """What the loop brings: the best policy, and it and the untrained one measured."""

    policy: Policy
    metrics: TrainingMetrics
    baseline: TrainingMetrics
    progress: Progress


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
) -> Trained:
    """The loop: sample, compare, update, measure now and then, end with the best.

    Args:
        config: Resolved settings.
        rollout: Plays the scenario.
        policy: Untrained; it is changed.
        trainable: Components that learn; the others keep every bit.
        checkpoints: Where to save.
        start: Where to go on; None to begin.
        events: Hears what happens.
        control: Obeyed between iterations.

    Raises:
        KeyboardInterrupt: The control wants to leave; everything is saved.
        FailureBudgetExceeded: Too many episodes broke.
        TrainingDiverged: An update was not finite.
    """
    scenario = rollout.scenario
    target = config.target_reliability
    if target is None:
        target = scenario.success_criteria().get("tool_reliability", 1.0)
    validation = draw_tasks(scenario, "validation", config.seed, config.eval_tasks)

    # Begin with the untrained policy, or go on where the last process stopped.
    untrained = copy.deepcopy(policy.weights())
    if start is None:
        progress = Progress({name: getattr(config, name) for name in ADJUSTABLE})
        best = policy.weights()
    else:
        progress, best = start.progress, start.best
        policy.load_state(start.policy)
    scenario.baseline_tokens = progress.baseline_tokens
    settings = progress.settings
    # What was drawn ahead is what the next iteration draws: it is drawn only once.
    draw = lru_cache(maxsize=2)(partial(draw_tasks, scenario, "train"))
    backlog = Backlog(progress.unsolved, progress.solved, draw)
    pace = Pace(progress.seen, config.play_on)
    began = time.perf_counter() - progress.seconds
    saved = time.perf_counter()

    def save() -> None:
        nonlocal saved
        saved = time.perf_counter()
        progress.seconds = saved - began
        checkpoints.save(Checkpoint(progress, policy.state(), best))
        events.emit(CheckpointSaved(progress.iteration, str(checkpoints.path)))

    def measure() -> None:
        nonlocal best
        evaluation = evaluate(policy, rollout, validation)
        metrics = evaluation.metrics(
            episodes_completed=progress.episodes,
            total_training_time=time.perf_counter() - began,
            manual_hours=config.manual_hours,
        )
        # The newest weights are the best, unless they fall behind: a few hundred tasks
        # cannot tell more. Of a few tasks none may be lost, since those to train on
        # recur, and are learned by heart. Whoever is not better than the untrained
        # policy does not take its place.
        entry = history_entry(progress.iteration, progress.episodes, metrics)
        before = [score(e) for e in progress.history]
        if not before or (
            score(entry) > before[0] and score(entry) >= max(before) - _TOLERANCE
        ):
            best = copy.deepcopy(policy.weights())
            progress.best_iteration = progress.iteration
            progress.best_decisions = list(evaluation.decisions)
        if progress.convergence_episode is None and metrics.tool_reliability >= target:
            progress.convergence_episode = progress.episodes
        i, n, shown = progress.iteration, progress.episodes, sample(evaluation)
        if progress.history:
            events.emit(EvaluationDone(i, n, "validation", metrics.to_dict(), shown))
        else:
            progress.baseline_tokens = evaluation.tokens_per_task
            scenario.baseline_tokens = progress.baseline_tokens
            events.emit(BaselineMeasured(metrics.to_dict(), shown))
        progress.history.append(entry)
        save()

    if not progress.history:
        measure()

    while True:
        # Obey, between iterations only.
        began += obey(control, progress, events, save)

        # Measure now and then. What is due follows from the progress alone, so that
        # it is the same whichever checkpoint the run was resumed from.
        left = int(settings["episodes"]) - progress.episodes
        # Too few for another batch are left over; but there is always a first one.
        over = left < (config.batch_size if progress.iteration else 1)
        unmeasured = progress.episodes - progress.history[-1]["episodes"]
        if unmeasured >= config.eval_every or (over and unmeasured):
            measure()
        elif time.perf_counter() - saved > _CHECKPOINT_SECONDS:
            save()
        if over or progress.history[-1]["tool_reliability_interval"][0] > target:
            break

        # Sample siblings on the current weights, with live tools, and reward them.
        # Rates fall as the run goes on; everything is a function of the progress.
        clock = time.perf_counter()
        fraction = progress.episodes / settings["episodes"]
        number = config.seed * 1_000_003 + progress.iteration + 1
        size = min(config.batch_size, -(-left // min(config.group_size, _SMALL_GROUP)))
        most = min(config.group_size, max(_SMALL_GROUP, left // size))
        revisits = int(size * config.revisit)
        again = backlog.take(progress.iteration, revisits)
        fresh = draw(number, size - revisits)
        tasks = [*fresh, *(task for _, task in again)]
        entries = [[number, size - revisits, i] for i in range(len(fresh))]
        entries += [entry for entry, _ in again]
        ahead = draw(number + 1, size - revisits)
        policy.prepare([task.messages for task in ahead])
        rng = np.random.default_rng([config.seed, progress.iteration])
        sampling = Sampling(rng, settings["exploration"] * (1.0 - 0.8 * fraction))
        branch = config.credit == "state"
        groups = rollout.groups(
            policy,
            tasks,
            most,
            sampling,
            number,
            branch=branch,
            max_mistakes=config.max_mistakes,
            horizons=pace.horizons(len(tasks), rng),
        )
        pace.note(groups)
        episodes = [episode for group in groups for episode in group.trajectories]
        progress.count_broken(episodes, config.failure_budget)
        for entry, group in zip(entries, groups, strict=True):
            backlog.note(entry, group, progress.iteration)

        # Compare siblings, and update what may change.
        signal = assign_advantages(groups, config.credit, config.discount_factor)
        # Small batches, as at the end of a run, say little: they move little.
        rate = settings["learning_rate"] * (1.0 - 0.9 * fraction)
        rate *= size / config.batch_size
        stats = policy.learn(
            groups,
            learning_rate=rate,
            entropy=settings["entropy"] * (1.0 - fraction),
            trainable=trainable,
        )
        progress.iteration += 1
        progress.episodes += len(episodes)
        values = training_values(groups, signal, stats)
        values |= policy.figures()
        values["learning_rate"] = rate
        values["episodes_per_second"] = len(episodes) / (time.perf_counter() - clock)
        events.emit(IterationDone(progress.iteration, progress.episodes, values))
        # Steps hold what the policy needs to learn from them, which may be a lot.
        del groups, episodes

    # Take the best weights.
    if progress.iteration and not progress.best_iteration:
        events.emit(
            Warned(
                f"Training did not help on the {len(validation)} validation tasks, so "
                "the untrained policy is kept. Train longer, or on more tasks."
            )
        )
    policy.load_state(best)
    policy.calibrate(progress.best_decisions)
    progress.seconds = time.perf_counter() - began
    return conclude(config, rollout, policy, untrained, progress, events)


def conclude(
    config: TrainingConfig,
    rollout: Rollout,
    policy: Policy,
    untrained: Mapping[str, Any],
    progress: Progress,
    events: EventBus,
) -> Trained:
    """Measures a trained policy, and the untrained one, at the end of a training.

    The held-out tasks are touched here and nowhere else. The same policy takes on both
    states in turn: a language model fits into memory once, perhaps, and not twice.

    Args:
        config: Resolved settings.
        rollout: Plays the scenario.
        policy: Trained.
        untrained: Its weights before that.
        progress: Where the training stands.
        events: Hears what was measured.
    """
    scenario = rollout.scenario
    heldout = draw_tasks(scenario, "heldout", config.seed, config.heldout_tasks)
    some = heldout[: config.free_form_tasks]
    trained = copy.deepcopy(policy.weights())
    policy.load_state(untrained)
    before = evaluate(policy, rollout, heldout)
    free_before = evaluate_free_form(policy, rollout, some)
    policy.load_state(trained)
    after = evaluate(policy, rollout, heldout)
    metrics = after.metrics(
        before,
        episodes_completed=progress.episodes,
        total_training_time=progress.seconds,
        convergence_episode=progress.convergence_episode,
        manual_hours=config.manual_hours,
        free_form=evaluate_free_form(policy, rollout, some),
    )
    baseline = before.metrics(
        manual_hours=config.manual_hours,
        free_form=free_before,
    )
    # Without trajectories: what people read of held-out tasks they also tune on.
    where = progress.iteration, progress.episodes
    events.emit(EvaluationDone(*where, "heldout", metrics.to_dict()))
    return Trained(policy, metrics, baseline, progress)

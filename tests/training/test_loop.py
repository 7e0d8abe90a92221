from __future__ import annotations

import itertools
import json
import os
import signal
import threading
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from agentgym import Trainer, TrainingConfig, TrainingResult
from agentgym.core.control import Control
from agentgym.core.events import (
    INTERRUPTED,
    Adjusted,
    CheckpointSaved,
    EvaluationDone,
    Event,
    IterationDone,
    Listener,
    Paused,
    Resumed,
    RunFailed,
    RunFinished,
    RunStarted,
    RunStopped,
    Warned,
)
from agentgym.errors import (
    ConfigError,
    EngineNotFoundError,
    FailureBudgetExceeded,
    FormatError,
    ModelNotFoundError,
    PolicyNotFoundError,
    RunNotFoundError,
    ScenarioError,
    ScenarioNotFoundError,
    UsageError,
)
from agentgym.policies import registry
from agentgym.policies.base import UpdateStats
from agentgym.runs.view import view_of
from agentgym.store import Store
from agentgym.store.artifacts import FolderArtifacts
from agentgym.training.checkpoint import FILE, PREVIOUS, CheckpointFolder

TINY = Path(__file__).parents[1] / "integration"
SCENARIO = "tiny_scenario:Tiny"


@pytest.fixture(autouse=True)
def _tiny(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.syspath_prepend(str(TINY))
    monkeypatch.setitem(registry._CLASSES, "tiny", "tiny_policy:TinyPolicy")


def _train(
    home: Path, *listeners: Listener, control: Control | None = None, **settings: Any
) -> TrainingResult:
    settings = {"policy": "tiny", **settings}
    trainer = Trainer(home=home, listeners=listeners, control=control)
    return trainer.train(SCENARIO, **settings)


def _weights(result: TrainingResult) -> bytes:
    folder = Path(result.trained_model_path)
    return b"".join((folder / name).read_bytes() for name in ("tool.npy", "code.npy"))


def _of(kind: Any, events: list[Event]) -> list[Any]:
    return [event for event in events if isinstance(event, kind)]


def test_it_learns(tmp_path: Path) -> None:
    result = _train(tmp_path)
    assert result.baseline.tool_reliability < 0.5
    assert result.metrics.tool_reliability > 0.9
    assert 188 < result.metrics.episodes_completed < 196
    assert result.metrics.tasks == result.baseline.tasks == 16
    assert result.metrics.cost_reduction is not None
    assert result.metrics.time_savings is not None
    assert result.config["learning_rate"] == 0.5
    assert result.config["sources"]["learning_rate"] == "policy"
    assert result.config["sources"]["group_size"] == "scenario"
    assert result.model == "tiny_v1.0"
    assert TrainingResult.load(Path(result.artifacts["result"])) == result


def test_the_order_of_events(tmp_path: Path) -> None:
    heard: list[Event] = []
    result = _train(tmp_path, heard.append, episodes=64, eval_every=32)
    # How many iterations it takes is up to the rollout.
    kinds = [kind for kind, _ in itertools.groupby(event.kind for event in heard)]
    assert kinds == [
        "run_started",
        "baseline_measured",
        "checkpoint_saved",
        "iteration_done",
        "evaluation_done",
        "checkpoint_saved",
        "iteration_done",
        "evaluation_done",
        "checkpoint_saved",
        "evaluation_done",
        "run_finished",
    ]
    assert heard[0] == RunStarted(result.run_id, result.config, None)
    evaluations = _of(EvaluationDone, heard)
    assert [e.split for e in evaluations] == ["validation", "validation", "heldout"]
    assert heard[-1] == RunFinished(result.to_dict())
    json.dumps([event.to_dict() for event in heard], allow_nan=False)
    assert [entry["episodes"] for entry in result.history] == [
        0,
        *(event.episodes for event in evaluations[:2]),
    ]
    iterations = _of(IterationDone, heard)
    assert [e.iteration for e in iterations] == list(range(1, len(iterations) + 1))
    values = iterations[0].values
    # A batch of four; one place is for what went wrong before, and nothing has yet.
    assert values["groups"] == 3
    assert values["broken"] == values["unrewarded"] == 0
    assert values["episodes_per_second"] > 0


def test_heldout_trajectories_are_shown_to_nobody(tmp_path: Path) -> None:
    heard: list[Event] = []
    _train(tmp_path, heard.append, episodes=16)
    *validation, heldout = _of(EvaluationDone, heard)
    assert heldout.sample == ()
    assert all(event.sample for event in validation)
    with Store(tmp_path) as store:
        run = store.get_run("last")
        shown = store.trajectories(run.id, limit=1000)
    assert shown
    assert all(row.task_id.startswith("validation") for row in shown)


@pytest.mark.parametrize("episodes", [1, 4, 17, 50])
def test_at_most_one_group_too_many_or_a_batch_too_few(
    tmp_path: Path, episodes: int
) -> None:
    result = _train(tmp_path, episodes=episodes)
    completed = result.metrics.episodes_completed
    assert max(1, episodes - 3) <= completed < episodes + 4


def test_the_rate_decays_and_is_lower_for_small_batches(tmp_path: Path) -> None:
    heard: list[Event] = []
    _train(tmp_path, heard.append, episodes=64, learning_rate=1.0)
    before, sizes = 0, set()
    for event in _of(IterationDone, heard):
        size = min(4, -(-(64 - before) // 4))
        expected = (1.0 - 0.9 * before / 64) * size / 4
        assert event.values["learning_rate"] == pytest.approx(expected)
        before = event.episodes
        sizes.add(size)
    assert 4 in sizes and len(sizes) > 1


def test_the_same_seed_gives_the_same_bytes(tmp_path: Path) -> None:
    first, second = _train(tmp_path), _train(tmp_path)
    assert first.model != second.model
    assert _weights(first) == _weights(second)
    assert _weights(first) != _weights(_train(tmp_path, seed=1))


def test_config_and_settings_merge(tmp_path: Path) -> None:
    config = TrainingConfig(scenario=SCENARIO, policy="tiny", episodes=64, seed=3)
    result = Trainer(config, home=tmp_path).train(episodes=16)
    assert result.config["seed"] == 3
    assert result.config["episodes"] == 16
    assert result.config["sources"]["batch_size"] == "scenario"


def test_it_stops_early_at_the_target(tmp_path: Path) -> None:
    heard: list[Event] = []
    settings = {"episodes": 9600, "eval_tasks": 40, "target_reliability": 0.4}
    result = _train(tmp_path, heard.append, **settings)
    assert result.metrics.episodes_completed < 9600
    *before, last = [e["tool_reliability_interval"][0] for e in result.history]
    assert last > 0.4 >= max(before)
    converged = result.metrics.convergence_episode
    assert converged is not None and converged <= result.metrics.episodes_completed
    assert not _of(RunStopped, heard)


def test_the_best_weights_are_kept(tmp_path: Path) -> None:
    """After a rate that is far too high, the end is not the best."""
    heard: list[Event] = []
    result = _train(tmp_path, heard.append, episodes=480, learning_rate=50.0)
    bounds = [entry["tool_reliability_interval"][0] for entry in result.history]
    trainer = Trainer(home=tmp_path)
    metrics = trainer.evaluate(result.model, split="validation", tasks=16)
    assert metrics.tool_reliability_interval.low == max(bounds)


def test_weights_that_do_not_help_are_not_kept(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from tiny_policy import TinyPolicy

    def learn(policy: Any, *given: Any, **named: Any) -> UpdateStats:
        # Other weights, and the same decisions.
        policy.tool *= 2
        return UpdateStats()

    monkeypatch.setattr(TinyPolicy, "learn", learn)
    heard: list[Event] = []
    result = _train(tmp_path, heard.append)
    untrained = registry.create_policy("tiny", 0).state()
    assert np.load(Path(result.trained_model_path) / "tool.npy").tobytes() == (
        untrained["tool"].tobytes()
    )
    (warning,) = _of(Warned, heard)
    assert "did not help on the 16 validation tasks" in warning.text


@pytest.mark.parametrize(
    ("component", "learning"),
    [("tool_selection", "tool"), ("parameter_selection", "code")],
)
def test_frozen_components_keep_every_bit(
    tmp_path: Path, component: str, learning: str
) -> None:
    folder = _interrupted(tmp_path, components=[component])
    checkpoint, _ = CheckpointFolder(FolderArtifacts(folder)).load()
    assert checkpoint is not None
    before = registry.create_policy("tiny", 0).state()
    for name in ("tool", "code"):
        same = checkpoint.policy[name].tobytes() == before[name].tobytes()
        assert same is (name != learning)


# Wrong input: nothing is started, nothing is left behind


@pytest.mark.parametrize(
    ("settings", "error", "text"),
    [
        ({"scenario": "nope"}, ScenarioNotFoundError, "customer_support"),
        ({"policy": "nope"}, PolicyNotFoundError, "planner"),
        ({"engine": "nope"}, EngineNotFoundError, "Available: local"),
        ({"episodes": 0}, ConfigError, "episodes"),
        ({"episodes": "many"}, ConfigError, "episodes"),
        ({"episods": 5}, ConfigError, "Did you mean 'episodes'"),
        ({"components": ["tool_selecton"]}, ConfigError, "tool_selection"),
        ({"name": "a/b"}, ConfigError, "name"),
        ({"name": "mine_v1.2"}, ConfigError, "version"),
        ({"crash": 5}, ConfigError, "crash"),
        ({"scenario": None}, ConfigError, "scenario"),
    ],
)
def test_wrong_settings(
    tmp_path: Path, settings: dict[str, Any], error: type[Exception], text: str
) -> None:
    given = {"scenario": SCENARIO, "policy": "tiny", **settings}
    with pytest.raises(error, match=text):
        Trainer(home=tmp_path).train(given.pop("scenario"), **given)
    with Store(tmp_path) as store:
        assert store.list_runs() == []


def test_a_scenario_that_breaks(tmp_path: Path) -> None:
    heard: list[Event] = []
    with pytest.raises(FailureBudgetExceeded, match="the gate house is on fire"):
        _train(tmp_path, heard.append, crash=True)
    assert "on fire" in _of(RunFailed, heard)[0].error
    with Store(tmp_path) as store:
        run = store.get_run("last")
        assert run.status == "failed"
        assert run.error is not None and "on fire" in run.error
        assert store.list_models() == []


@pytest.mark.parametrize("split", ["train", "validation", "heldout"])
def test_a_scenario_without_tasks(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, split: str
) -> None:
    from tiny_scenario import Tiny

    draw = Tiny.tasks

    def tasks(self: Tiny, wanted: Any, seed: int, count: int) -> list[Any]:
        return [] if wanted == split else draw(self, wanted, seed, count)

    monkeypatch.setattr(Tiny, "tasks", tasks)
    with pytest.raises(ScenarioError, match=f"no tasks in the split '{split}'"):
        _train(tmp_path, episodes=16)


def test_an_unexpected_error_is_reported_and_raised(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from tiny_scenario import Tiny

    def broken(self: Any, trajectory: Any) -> list[float]:
        raise ZeroDivisionError("no steps")

    monkeypatch.setattr(Tiny, "broadcast_rewards", broken)
    heard: list[Event] = []
    with pytest.raises(Exception, match="no steps"):
        _train(tmp_path, heard.append)
    assert len(_of(RunFailed, heard)) == 1


def test_a_broken_listener_costs_nothing(tmp_path: Path) -> None:
    heard: list[Event] = []

    def broken(event: Event) -> None:
        raise OSError("display gone")

    result = _train(tmp_path, broken, heard.append, episodes=16)
    assert result.metrics.episodes_completed > 12
    assert len(_of(Warned, heard)) == 1


# Control


class _At:
    """Does something once, when a certain iteration is done."""

    def __init__(self, iteration: int, action: Any) -> None:
        self.iteration, self.action = iteration, action

    def __call__(self, event: Event) -> None:
        if isinstance(event, IterationDone) and event.iteration == self.iteration:
            self.action()


def test_stopping_keeps_what_was_learned(tmp_path: Path) -> None:
    control, heard = Control(), list[Event]()
    stop = _At(5, lambda: control.stop("enough"))
    result = _train(tmp_path, stop, heard.append, control=control)
    assert len(_of(IterationDone, heard)) == 5
    assert _of(RunStopped, heard) == [RunStopped("enough")]
    assert heard[-1].kind == "run_finished"
    episodes = _of(IterationDone, heard)[-1].episodes
    assert result.history[-1]["episodes"] == episodes
    assert result.metrics.episodes_completed == episodes
    with Store(tmp_path) as store:
        run = store.get_run("last")
        assert run.status == "stopped"
        assert run.model == result.model


def test_stopping_before_the_first_iteration(tmp_path: Path) -> None:
    control = Control()
    control.stop()
    result = _train(tmp_path, control=control)
    assert result.metrics.episodes_completed == 0
    assert result.metrics.tool_reliability == result.baseline.tool_reliability


def test_pausing_and_going_on_changes_nothing(tmp_path: Path) -> None:
    control, heard = Control(), list[Event]()

    def on_pause(event: Event) -> None:
        if isinstance(event, Paused):
            with Store(tmp_path) as store:
                assert store.get_run("last").status == "paused"
            control.resume()

    pause = _At(4, control.request_pause)
    result = _train(tmp_path, pause, on_pause, heard.append, control=control)
    assert _of(Paused, heard) == [Paused(4)]
    assert _of(Resumed, heard) == [Resumed(4)]
    assert not _of(Warned, heard)
    assert _weights(result) == _weights(_train(tmp_path))


def test_orders_from_another_process(tmp_path: Path) -> None:
    heard: list[Event] = []
    with Store(tmp_path) as store:

        def send(*command: Any) -> Any:
            return lambda: store.send_command(store.get_run("last").id, *command)

        result = _train(
            tmp_path,
            _At(2, send("adjust", {"episodes": 64, "exploration": 0.5})),
            _At(3, send("dance")),
            heard.append,
        )
    assert 64 <= result.metrics.episodes_completed < 68
    assert [event.changes for event in _of(Adjusted, heard)] == [
        {"episodes": 64, "exploration": 0.5}
    ]
    assert "dance" in _of(Warned, heard)[0].text


def test_adjusting_survives_an_interruption(tmp_path: Path) -> None:
    def adjusted(home: Path, interrupt: bool) -> TrainingResult:
        control = Control()
        adjust = _At(4, lambda: control.adjust(learning_rate=2.0, episodes=160))
        leave = _At(5, control.interrupt if interrupt else lambda: None)
        return _train(home, adjust, leave, control=control)

    whole = adjusted(tmp_path / "a", False)
    assert 156 < whole.metrics.episodes_completed < 164
    with pytest.raises(KeyboardInterrupt):
        adjusted(tmp_path / "b", True)
    resumed = Trainer.resume("last", home=tmp_path / "b")
    assert _weights(resumed) == _weights(whole)
    assert [e["tool_reliability"] for e in resumed.history] == [
        e["tool_reliability"] for e in whole.history
    ]


# Commands within an evaluation


class _Within:
    """Does something once, in the middle of the evaluation with this number.

    A tiny scenario has all its tasks in one part of an evaluation; here it has two.
    """

    def __init__(
        self, monkeypatch: pytest.MonkeyPatch, number: int, action: Any
    ) -> None:
        from agentgym.training import evaluation
        from agentgym.training.rollout import Rollout

        monkeypatch.setattr(evaluation, "_CHUNK", 8)
        self.parts, self.number, self.action = 0, number, action
        play = Rollout.play

        def counted(rollout: Rollout, *arguments: Any) -> Any:
            self.parts += 1
            if self.parts == 2 * self.number - 1:
                self.action()
            return play(rollout, *arguments)

        monkeypatch.setattr(Rollout, "play", counted)


EVALUATIONS = {"baseline": 1, "validation": 3, "untrained": 6, "trained": 7}


def _whole(tmp_path: Path) -> TrainingResult:
    with pytest.MonkeyPatch.context() as patch:
        counted = _Within(patch, -1, None)
        result = _train(tmp_path / "whole")
    # Five on validation tasks; two on held-out ones at the end.
    assert counted.parts == 2 * EVALUATIONS["trained"]
    return result


@pytest.mark.parametrize("number", EVALUATIONS.values(), ids=EVALUATIONS)
def test_an_interruption_within_an_evaluation(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, number: int
) -> None:
    whole = _whole(tmp_path)
    with monkeypatch.context() as patch:
        within = _Within(patch, number, lambda: os.kill(os.getpid(), signal.SIGINT))
        with pytest.raises(KeyboardInterrupt):
            _train(tmp_path / "a")
    assert within.parts == 2 * number - 1  # The rest of it is not waited for.
    resumed = Trainer.resume("last", tmp_path / "a")
    assert _weights(resumed) == _weights(whole)
    assert [e["tool_reliability"] for e in resumed.history] == [
        e["tool_reliability"] for e in whole.history
    ]
    assert resumed.metrics.tool_reliability == whole.metrics.tool_reliability


@pytest.mark.parametrize("number", EVALUATIONS.values(), ids=EVALUATIONS)
def test_a_pause_within_an_evaluation(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, number: int
) -> None:
    whole = _whole(tmp_path)
    control, heard = Control(), list[Event]()
    within = _Within(monkeypatch, number, control.request_pause)

    def on_pause(event: Event) -> None:
        if isinstance(event, Paused):
            assert within.parts == 2 * number - 1
            control.resume()

    result = _train(tmp_path / "a", on_pause, heard.append, control=control)
    assert len(_of(Paused, heard)) == len(_of(Resumed, heard)) == 1
    assert _weights(result) == _weights(whole)


def test_stopping_within_an_evaluation(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    control, heard = Control(), list[Event]()
    _Within(monkeypatch, 3, lambda: control.stop("enough"))
    result = _train(tmp_path, heard.append, control=control)
    # It is finished, nothing is sampled after it, and it is not made again.
    assert [e.kind for e in heard if e.kind.startswith("run")] == [
        "run_started",
        "run_stopped",
        "run_finished",
    ]
    assert len(result.history) == 3
    assert result.history[-1]["episodes"] == result.metrics.episodes_completed
    assert _of(IterationDone, heard)[-1].episodes == result.metrics.episodes_completed


def test_stopping_once_training_is_over_changes_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    whole = _whole(tmp_path)
    control, heard = Control(), list[Event]()

    def late() -> None:
        control.stop()
        control.adjust(episodes=10_000)

    _Within(monkeypatch, EVALUATIONS["trained"], late)
    result = _train(tmp_path / "a", heard.append, control=control)
    assert _weights(result) == _weights(whole)
    assert not _of(RunStopped, heard) and not _of(Adjusted, heard)
    assert "nothing was adjusted" in _of(Warned, heard)[0].text


def test_adjusting_within_an_evaluation_survives_an_interruption(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def adjusted(home: Path, interrupt: bool) -> TrainingResult:
        control = Control()

        def orders() -> None:
            control.adjust(learning_rate=2.0, episodes=120)
            if interrupt:
                control.interrupt()

        with pytest.MonkeyPatch.context() as patch:
            _Within(patch, 2, orders)
            return _train(home, control=control)

    whole = adjusted(tmp_path / "a", False)
    assert 112 < whole.metrics.episodes_completed < 128
    with pytest.raises(KeyboardInterrupt):
        adjusted(tmp_path / "b", True)
    assert _weights(Trainer.resume("last", tmp_path / "b")) == _weights(whole)


# Interrupting and resuming


@pytest.mark.parametrize("iteration", [1, 3, 5, 9])
def test_interrupting_and_resuming_changes_nothing(
    tmp_path: Path, iteration: int
) -> None:
    whole = _train(tmp_path / "a")
    control, heard = Control(), list[Event]()
    with pytest.raises(KeyboardInterrupt):
        leave = _At(iteration, control.interrupt)
        _train(tmp_path / "b", leave, heard.append, control=control)
    assert heard[-1] == RunStopped(INTERRUPTED)
    with Store(tmp_path / "b") as store:
        assert store.get_run("last").status == "interrupted"
        assert len(view_of(store, "last").points) == iteration
    again: list[Event] = []
    resumed = Trainer.resume("last", tmp_path / "b", [again.append])
    assert again[0] == RunStarted(resumed.run_id, resumed.config, iteration)
    assert _weights(resumed) == _weights(whole)
    assert resumed.config == whole.config
    with Store(tmp_path / "b") as store:
        points = [p.iteration for p in view_of(store, resumed.run_id).points]
        assert points == list(range(1, len(points) + 1))
        assert len(points) > iteration
        assert store.get_run("last").status == "finished"


def test_ctrl_c_saves_the_last_whole_iteration(tmp_path: Path) -> None:
    heard: list[Event] = []
    press = _At(5, lambda: os.kill(os.getpid(), signal.SIGINT))
    with pytest.raises(KeyboardInterrupt):
        _train(tmp_path, press, heard.append)
    assert len(_of(IterationDone, heard)) == 5
    assert _of(CheckpointSaved, heard)[-1].iteration == 5
    assert _weights(Trainer.resume("last", tmp_path)) == _weights(
        _train(tmp_path / "whole")
    )


def test_resuming_a_finished_run_gives_its_result(tmp_path: Path) -> None:
    result = _train(tmp_path, episodes=16)
    heard: list[Event] = []
    assert Trainer.resume(result.run_id, tmp_path, [heard.append]) == result
    assert heard == [RunFinished(result.to_dict())]
    with Store(tmp_path) as store:
        assert len(store.list_models()) == 1


def test_resuming_what_there_is_not(tmp_path: Path) -> None:
    with pytest.raises(RunNotFoundError):
        Trainer.resume("nope", tmp_path)


def test_resuming_a_run_that_is_under_way(tmp_path: Path) -> None:
    problems: list[UsageError] = []

    def meanwhile() -> None:
        try:
            Trainer.resume("last", tmp_path)
        except UsageError as error:
            problems.append(error)

    _train(tmp_path, _At(2, meanwhile), episodes=32)
    assert "is already running in process" in str(problems[0])


def _interrupted(home: Path, **settings: Any) -> Path:
    """Returns the run's folder."""
    control = Control()
    with pytest.raises(KeyboardInterrupt):
        _train(home, _At(5, control.interrupt), control=control, **settings)
    (folder,) = (home / "runs").iterdir()
    return folder


def test_resuming_from_a_truncated_checkpoint(tmp_path: Path) -> None:
    newest = _interrupted(tmp_path) / FILE
    newest.write_bytes(newest.read_bytes()[:-8])
    heard: list[Event] = []
    resumed = Trainer.resume("last", tmp_path, [heard.append])
    assert "resumes from" in _of(Warned, heard)[0].text
    assert _of(RunStarted, heard)[0].resumed_from < 5
    assert _weights(resumed) == _weights(_train(tmp_path / "whole"))


def test_resuming_without_any_checkpoint_that_can_be_read(tmp_path: Path) -> None:
    folder = _interrupted(tmp_path)
    for name in (FILE, PREVIOUS):
        (folder / name).write_bytes(b"")
    with pytest.raises(FormatError, match="start a new one"):
        Trainer.resume("last", tmp_path)
    with Store(tmp_path) as store:
        # Nothing was thrown away.
        assert len(view_of(store, "last").points) == 5


def test_orders_for_the_process_before_are_dropped(tmp_path: Path) -> None:
    _interrupted(tmp_path)
    with Store(tmp_path) as store:
        store.send_command(store.get_run("last").id, "stop")
    assert Trainer.resume("last", tmp_path).metrics.episodes_completed >= 192


# Streaming


def test_stream(tmp_path: Path) -> None:
    trainer = Trainer(home=tmp_path)
    events = list(trainer.stream(SCENARIO, policy="tiny", episodes=16))
    assert isinstance(events[0], RunStarted)
    assert trainer.result is not None
    assert events[-1] == RunFinished(trainer.result.to_dict())


def test_closing_a_stream_leaves_a_run_that_can_be_resumed(
    tmp_path: Path, eventually: Any
) -> None:
    before = threading.active_count()
    stream: Any = Trainer(home=tmp_path).stream(SCENARIO, policy="tiny", episodes=9600)
    for event in stream:
        if isinstance(event, IterationDone) and event.iteration == 3:
            break
    stream.close()
    eventually(lambda: threading.active_count() <= before)
    with Store(tmp_path) as store:
        run = store.get_run("last")
        assert run.status == "interrupted"
        assert store.list_models() == []


def test_a_stream_raises_what_ends_the_training(tmp_path: Path) -> None:
    heard: list[Event] = []
    with pytest.raises(FailureBudgetExceeded):
        for event in Trainer(home=tmp_path).stream(SCENARIO, policy="tiny", crash=True):
            heard.append(event)  # noqa: PERF402 - what came before the error counts
    assert isinstance(heard[-1], RunFailed)


# Evaluating


def test_evaluating_gives_the_figures_of_the_training(tmp_path: Path) -> None:
    trainer = Trainer(home=tmp_path)
    with pytest.raises(ConfigError, match="No model to evaluate"):
        trainer.evaluate()
    result = trainer.train(SCENARIO, policy="tiny")
    for model in (None, "tiny", "tiny_v1.0", Path(result.trained_model_path)):
        metrics = trainer.evaluate(model)
        assert metrics.tool_reliability == result.metrics.tool_reliability
        assert metrics.task_success == result.metrics.task_success
        assert metrics.final_reward == result.metrics.final_reward
    assert trainer.evaluate(split="validation", tasks=5, seed=1).tasks == 5
    with pytest.raises(ModelNotFoundError, match="tiny_v1.0"):
        trainer.evaluate("tiny_v1.7")


def test_weights_are_finite(tmp_path: Path) -> None:
    result = _train(tmp_path)
    assert np.isfinite(np.load(Path(result.trained_model_path) / "tool.npy")).all()

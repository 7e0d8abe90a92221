"""Measured figures, checked by hand and against simulation."""

from __future__ import annotations

import random
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from agentgym.core.metrics import MANUAL_HOURS
from agentgym.core.result import Interval
from agentgym.core.task import Split, Task
from agentgym.core.tools import FailureKind, Tool, ToolCall, ToolResult, ToolRunner
from agentgym.core.trajectory import Group, Step, Trajectory
from agentgym.errors import ScenarioError
from agentgym.policies.base import (
    GREEDY,
    Decision,
    DecisionRequest,
    Policy,
    Sampling,
    UpdateStats,
)
from agentgym.scenarios.base import Scenario
from agentgym.scenarios.environment import RIGHT, Environment, Verdict
from agentgym.training.evaluation import (
    PRICES,
    Evaluation,
    calibration_error,
    evaluate,
    wilson,
)
from agentgym.training.rollout import Rollout

TASK = Task("t", ({"role": "user", "content": "do it"},))


def call_step(
    correct: bool = True,
    result: FailureKind | None = None,
    name: str = "look",
    **values: Any,
) -> Step:
    return Step(
        {},
        calls=(ToolCall(name, {}),),
        results=(ToolResult("{}", result),),
        correct=correct,
        failure=None if correct else FailureKind.WRONG_TOOL,
        **values,
    )


def episode(*steps: Step, success: bool | None = True, **values: Any) -> Trajectory:
    return Trajectory(TASK, list(steps), success=success, **values)


def calls(right: int, wrong: int, success: bool = True) -> Trajectory:
    steps = [call_step()] * right + [call_step(False)] * wrong
    return episode(*steps, success=success)


def missed() -> Step:
    return Step({}, correct=False, failure=FailureKind.NO_CALL)


def test_wilson_by_the_book() -> None:
    interval = wilson(0.5, 10)
    assert interval.low == pytest.approx(0.2366, abs=1e-4)
    assert interval.high == pytest.approx(0.7634, abs=1e-4)
    assert wilson(1.0, 20).low == pytest.approx(0.8389, abs=1e-4)
    assert wilson(0.3, 0) == Interval(0.0, 1.0)


@given(st.floats(0, 1), st.floats(0.1, 1e9))
def test_wilson_holds_the_share_within_bounds(p: float, n: float) -> None:
    interval = wilson(p, n)
    assert 0.0 <= interval.low <= p <= interval.high <= 1.0


@given(st.floats(0, 1), st.floats(1, 1e6))
def test_wilson_narrows_with_more_trials(p: float, n: float) -> None:
    few, many = wilson(p, n), wilson(p, 2 * n)
    assert many.high - many.low <= few.high - few.low + 1e-12


def test_reliability_counts_missed_calls_and_wants_success() -> None:
    evaluation = Evaluation(
        [
            episode(call_step(), missed()),
            episode(call_step(True, FailureKind.TIMEOUT), call_step(False)),
        ]
    )
    # One right call that ran, of three made and one missed.
    assert evaluation.tool_reliability == 1 / 4


def test_a_policy_that_calls_nothing_scores_zero() -> None:
    silent = Evaluation([episode(missed(), success=False)] * 5).metrics()
    assert (silent.tool_reliability, silent.tool_calls) == (0.0, 0)
    assert silent.tool_reliability_interval.low == 0.0
    nothing_due = Evaluation([episode(Step({}, correct=True))]).metrics()
    assert nothing_due.tool_reliability == 0.0
    assert nothing_due.tool_reliability_interval == Interval(0.0, 1.0)


def test_no_tasks_are_no_figures() -> None:
    nothing = Evaluation([]).metrics()
    assert (nothing.tasks, nothing.task_success) == (0, 0.0)
    assert nothing.task_success_interval == Interval(0.0, 1.0)
    assert nothing.calibration_error is nothing.final_reward is None


def test_all_right_counts_tasks_not_calls() -> None:
    some = Evaluation([calls(5, 0)] * 20)
    assert some.tool_reliability_interval() == wilson(1.0, 20)


def test_clustered_failures_widen_the_interval() -> None:
    # The same 90 of 100 calls: spread evenly, or wrong together.
    spread = Evaluation([calls(9, 1)] * 10)
    together = Evaluation([calls(10, 0)] * 9 + [calls(0, 10)])
    assert spread.tool_reliability == together.tool_reliability == 0.9
    assert spread.tool_reliability_interval() == wilson(0.9, 100)
    wide = together.tool_reliability_interval()
    # Ten episodes, each all right or all wrong, are ten trials, less one.
    assert wide.low == pytest.approx(wilson(0.9, 9).low)
    assert wide.high == pytest.approx(wilson(0.9, 9).high)


def test_the_interval_holds_the_truth_as_often_as_it_says() -> None:
    rng = random.Random(0)
    held = 0
    for _ in range(300):
        episodes = []
        for _ in range(60):
            # An episode that is bad is bad throughout.
            p = 0.95 if rng.random() < 0.8 else 0.3
            right = sum(rng.random() < p for _ in range(4))
            episodes.append(calls(right, 4 - right))
        interval = Evaluation(episodes).tool_reliability_interval()
        held += interval.low <= 0.8 * 0.95 + 0.2 * 0.3 <= interval.high
    assert 0.91 <= held / 300 <= 0.99


def test_counts_by_tool_and_failure() -> None:
    found = Evaluation(
        [
            episode(call_step(name="b"), call_step(False, name="a")),
            episode(call_step(True, FailureKind.TIMEOUT, name="b")),
            episode(success=None, failure=FailureKind.AGENT_CRASH),
        ]
    ).metrics()
    assert found.per_tool == {
        "a": {"calls": 1, "correct": 0},
        "b": {"calls": 2, "correct": 1},
    }
    assert list(found.per_tool) == ["a", "b"]
    assert found.failures == {"wrong_tool": 1, "agent_crash": 1}
    assert found.tool_calls == 3
    assert found.tasks == 3
    assert found.task_success == pytest.approx(2 / 3)


def test_cost_is_for_solved_tasks_at_the_stated_prices() -> None:
    assert PRICES.cost(1_000_000, 500_000) == pytest.approx(0.15 + 0.30)

    def spending(prompt: int, solved: bool) -> Trajectory:
        step = call_step(prompt_tokens=prompt, completion_tokens=100)
        return episode(step, success=solved)

    before = Evaluation([spending(1000, False), spending(1000, True)])
    after = Evaluation([spending(500, True), spending(500, True)])
    figures = after.metrics(before)
    assert figures.cost_per_solved_task == pytest.approx(PRICES.cost(500, 100))
    saved = 1 - PRICES.cost(500, 100) / (2 * PRICES.cost(1000, 100))
    assert figures.cost_reduction == pytest.approx(saved)
    assert figures.avg_tokens_used == 600


def test_cost_where_nothing_was_solved() -> None:
    unsolved = Evaluation([episode(call_step(prompt_tokens=1000), success=False)] * 3)
    solved = Evaluation([episode(call_step(prompt_tokens=1000))] * 3)
    # The untrained policy's cost is then a lower bound, and so is the reduction.
    assert unsolved.cost_per_solved_task() == pytest.approx(PRICES.cost(3000, 0))
    assert solved.metrics(unsolved).cost_reduction == pytest.approx(2 / 3)
    assert unsolved.metrics(solved).cost_reduction is None
    assert solved.metrics(Evaluation([])).cost_reduction is None


def test_time_savings_are_against_hours_by_hand() -> None:
    evaluation = Evaluation([calls(1, 0)])
    assert MANUAL_HOURS == 4.0
    assert evaluation.metrics().time_savings is None
    hour = evaluation.metrics(total_training_time=3600.0)
    assert (hour.time_savings, hour.manual_hours) == (0.75, 4.0)
    assert hour.total_training_time == 3600.0
    two = evaluation.metrics(total_training_time=3600.0, manual_hours=2.0)
    assert (two.time_savings, two.manual_hours) == (0.5, 2.0)


def test_response_time_is_that_of_a_task() -> None:
    slow = episode(call_step(latency=0.25), call_step(latency=0.5))
    quick = episode(call_step(latency=0.25))
    assert Evaluation([slow, quick]).metrics().avg_response_time == 0.5


def test_final_reward_leaves_out_what_was_not_judged() -> None:
    judged = episode(call_step(reward=1.0), call_step(reward=2.0))
    unjudged = episode(call_step(reward=None), success=None)
    assert Evaluation([judged, unjudged]).metrics().final_reward == 1.5


def test_calibration_error_by_hand() -> None:
    assert calibration_error([]) is None
    assert calibration_error([(1.0, True), (0.0, False)]) == 0.0
    # Two bins: 0.2 off for the first four, 0.1 for the other.
    five = [(0.7, True), (0.7, True), (0.7, False), (0.7, False), (0.1, False)]
    assert calibration_error(five) == pytest.approx((4 * 0.2 + 0.1) / 5)


@given(st.lists(st.tuples(st.floats(0, 1), st.booleans()), max_size=50))
def test_calibration_error_is_a_share(decisions: list[tuple[float, bool]]) -> None:
    error = calibration_error(decisions)
    assert (error is None) == (not decisions)
    assert error is None or 0.0 <= error <= 1.0


def test_decisions_are_those_that_were_judged() -> None:
    evaluation = Evaluation(
        [episode(call_step(confidence=0.8), Step({}, correct=None, confidence=0.3))]
    )
    assert evaluation.decisions == [(0.8, True)]


class PressScenario(Scenario):
    """Press the button, then stop."""

    name = "press"
    description = "Press the button"
    difficulty = "easy"
    estimated_time = "no time"

    def tasks(self, split: Split, seed: int, count: int) -> list[Task]:
        message = {"role": "user", "content": f"press in {split}"}
        return [
            Task(f"{seed}-{i}", (message,), best_steps=2, split=split)
            for i in range(count)
        ]

    def create_environment(
        self,
        tasks: Sequence[Task] = (),
        *,
        max_steps: int = 10,
        runner: ToolRunner | None = None,
    ) -> Environment:
        return PressEnvironment(tasks, max_steps=max_steps, runner=runner)

    def success_criteria(self) -> dict[str, float]:
        return {"tool_reliability": 0.9}


class PressEnvironment(Environment):
    def tools(self) -> Sequence[Tool]:
        return [Tool("press", "Press the button", function=lambda: "pressed")]

    def make_world(self, task: Task) -> Any:
        if task.id.endswith("-3"):
            raise OSError("no room")
        self.pressed = False
        return object()

    def judge_call(self, call: ToolCall, result: ToolResult) -> Verdict:
        self.pressed = result.ok
        return RIGHT if result.ok else Verdict(False, FailureKind.UNKNOWN_TOOL)

    def judge_message(self, content: str) -> Verdict:
        return RIGHT if self.pressed else Verdict(False, FailureKind.NO_CALL)

    def outcome(self) -> tuple[bool, float]:
        return self.pressed, float(self.pressed)


class PressPolicy(Policy):
    """Presses once; checks that it is asked for its best."""

    name = "press"

    def decide(
        self, requests: Sequence[DecisionRequest], sampling: Sampling = GREEDY
    ) -> list[Decision]:
        assert sampling.rng is None
        decisions = []
        for request in requests:
            if request.messages[-1]["role"] == "tool":
                decisions.append(
                    Decision({"role": "assistant", "content": "Done."}, "finish")
                )
                continue
            call = ToolCall("press", {})
            message = {
                "role": "assistant",
                "content": None,
                "tool_calls": [call.to_openai()],
            }
            decisions.append(
                Decision(
                    message,
                    "call",
                    (call,),
                    confidence=0.75,
                    prompt_tokens=7,
                    completion_tokens=3,
                    trace=object(),
                )
            )
        return decisions

    def learn(self, groups: Sequence[Group], **settings: Any) -> UpdateStats:
        raise AssertionError("an evaluation must not learn")

    def count_tokens(self, text: str) -> int:
        return len(text.split())

    def state(self) -> dict[str, Any]:
        return {}

    def load_state(self, state: Mapping[str, Any]) -> None:
        assert not state

    def save(self, folder: Path) -> None:
        raise NotImplementedError

    @classmethod
    def load(cls, folder: Path) -> Policy:
        raise NotImplementedError


def test_evaluate_plays_every_task_and_survives_broken_ones() -> None:
    scenario = PressScenario()
    rollout = Rollout(scenario, max_steps=5)
    try:
        found = evaluate(PressPolicy(), rollout, scenario.tasks("heldout", 0, 5))
    finally:
        rollout.close()
    assert len(found.trajectories) == 5
    broken = found.trajectories[3]
    assert broken.failure is FailureKind.AGENT_CRASH
    assert all(step.trace is None for t in found.trajectories for step in t.steps)
    figures = found.metrics()
    assert figures.tool_reliability == 1.0
    assert figures.task_success == 0.8
    assert figures.tool_calls == 4
    assert figures.failures == {"agent_crash": 1}
    assert figures.avg_tokens_used == pytest.approx(4 * 10 / 5)
    assert figures.final_reward == pytest.approx(0.05 * (20 + 3 + 5))
    assert figures.calibration_error is not None
    assert figures.measures == {}


class MeasuredScenario(PressScenario):
    """Presses are worth something; one episode in two says nothing of patience."""

    measures = ("presses", "patience")

    def measure(self, trajectory: Trajectory) -> dict[str, tuple[float, float]]:
        number = int(trajectory.task.id.rpartition("-")[2])
        found = {"presses": (float(trajectory.tool_calls), 2.0)}
        return found | ({"patience": (1.0, 1.0)} if number % 2 == 0 else {})


def measured(scenario: Scenario) -> Evaluation:
    rollout = Rollout(scenario, max_steps=5)
    try:
        return evaluate(PressPolicy(), rollout, scenario.tasks("heldout", 0, 5))
    finally:
        rollout.close()


def test_a_scenarios_own_figures_are_shares_of_sums_with_intervals() -> None:
    figures = measured(MeasuredScenario()).metrics().measures
    # The fourth of the five episodes broke off and says nothing.
    assert figures["presses"]["value"] == 0.5
    assert figures["presses"]["tasks"] == 4
    assert figures["patience"]["value"] == 1.0
    assert figures["patience"]["tasks"] == 3
    for figure in figures.values():
        assert 0 <= figure["low"] <= figure["value"] <= figure["high"] <= 1


@pytest.mark.parametrize("figure", [{"joy": (1.0, 1.0)}, {"presses": (2.0, 1.0)}])
def test_figures_that_make_no_sense_are_told(
    figure: dict[str, tuple[float, float]],
) -> None:
    class Senseless(MeasuredScenario):
        def measure(self, trajectory: Trajectory) -> dict[str, tuple[float, float]]:
            return figure

    with pytest.raises(ScenarioError, match="measure of scenario 'press'"):
        measured(Senseless())

"""Episodes: a policy, acting in environments, many at a time."""

from __future__ import annotations

import itertools
import math
from collections.abc import Sequence
from typing import Any

from agentgym.core.task import Task
from agentgym.core.tools import FailureKind, ToolCall, ToolRunner
from agentgym.core.trajectory import Group, Step, Trajectory
from agentgym.errors import AgentGymError, ScenarioError
from agentgym.policies.base import (
    GREEDY,
    Decider,
    Decision,
    DecisionRequest,
    Sampling,
)
from agentgym.scenarios.base import Scenario
from agentgym.scenarios.environment import Environment

FORK_EXPLORATION = 0.8
"""Where an episode branches off a sibling that went wrong, it should try other things.
"""

# Siblings that start from the beginning, where the others branch off.
_ROOTS = 2
# Siblings that branch off together, if there are enough for more than two rounds.
_ROUND = 16


class Rollout:
    """Plays episodes of one scenario in lock-step, so that decisions are batched.

    Environments are kept and used again; at most `at_once` are open at a time.
    """

    def __init__(
        self,
        scenario: Scenario,
        *,
        max_steps: int,
        tool_timeout: float = 10.0,
        at_once: int = 256,
    ) -> None:
        self.scenario = scenario
        self.max_steps = max_steps
        self.at_once = at_once
        self._runner = ToolRunner(tool_timeout)
        self._environments: list[Environment] = []

    def groups(
        self,
        policy: Decider,
        tasks: Sequence[Task],
        group_size: int,
        sampling: Sampling,
        seed: int = 0,
        *,
        branch: bool = True,
        max_mistakes: int | None = None,
        horizons: Sequence[int | None] = (),
    ) -> list[Group]:
        """Samples up to `group_size` siblings of each task and rewards them.

        With `branch`, two siblings start from the beginning. Where none of them
        solves the task, the rest branch off, in two rounds or, if they are many, more:
        they repeat the sibling that got furthest up to its first wrong step, and try
        something else there. So effort goes to the states at which there is something
        to find out, and a group that is solved already stays small.

        An episode ends after `max_mistakes` wrong steps, if its environment would allow
        for more: siblings branch off at the first one, whatever comes of it. Episodes
        of a task with a horizon are left after so many right steps.
        """
        start = min(_ROOTS, group_size) if branch else group_size
        first = self.play(
            policy,
            [t for t in tasks for _ in range(start)],
            sampling,
            seed,
            max_mistakes=max_mistakes,
            horizons=[h for h in horizons for _ in range(start)],
        )
        until = {id(t): h for t, h in zip(tasks, horizons, strict=False)}
        groups = [
            Group(task, first[i * start : (i + 1) * start])
            for i, task in enumerate(tasks)
        ]
        rounds = max(2, group_size // _ROUND)
        size = max(1, (group_size - start + 1) // rounds)
        for round_ in range(rounds):
            forks = [
                fork
                for group in groups
                if len(group.trajectories) + size <= group_size
                and (sibling := _furthest(group)) is not None
                for fork in [(group, sibling, _known(group, sibling))] * size
            ]
            if not forks:
                break
            played = self.play(
                policy,
                [group.task for group, _, _ in forks],
                sampling,
                seed + 7919 * (round_ + 1),
                [sibling for _, sibling, _ in forks],
                max_mistakes=max_mistakes,
                known=[known for _, _, known in forks],
                horizons=[until.get(id(group.task)) for group, _, _ in forks],
            )
            for (group, _, _), trajectory in zip(forks, played, strict=True):
                group.trajectories.append(trajectory)
        for group in groups:
            for trajectory in group.trajectories:
                self.reward(trajectory)
        return groups

    def play(
        self,
        policy: Decider,
        tasks: Sequence[Task],
        sampling: Sampling = GREEDY,
        seed: int = 0,
        siblings: Sequence[Trajectory] = (),
        max_mistakes: int | None = None,
        known: Sequence[ToolCall | None] = (),
        horizons: Sequence[int | None] = (),
    ) -> list[Trajectory]:
        """Plays one episode of each task, in order, and judges it.

        Args:
            policy: Decides.
            tasks: What to do.
            sampling: How decisions are drawn.
            seed: Decides injected faults.
            siblings: For each task, an episode to repeat up to its first wrong step.
            max_mistakes: Wrong steps that end an episode, if its environment would
                allow for more.
            known: For each sibling, what was found to be right where it went wrong.
            horizons: For each task, right steps after which it is left, if any.
        """
        trajectories = []
        for start in range(0, len(tasks), self.at_once):
            some = slice(start, start + self.at_once)
            trajectories += self._play(
                policy,
                tasks[some],
                sampling,
                seed + start,
                siblings[some],
                max_mistakes,
                known[some],
                horizons[some],
            )
        return trajectories

    def reward(self, trajectory: Trajectory) -> None:
        """Lets the scenario reward each step; a broken episode stays unrewarded."""
        if trajectory.failure is not None:
            return
        try:
            rewards = [float(r) for r in self.scenario.broadcast_rewards(trajectory)]
        except Exception as error:
            raise ScenarioError(
                f"broadcast_rewards of scenario '{self.scenario.name}' failed: "
                f"{type(error).__name__}: {error}"
            ) from error
        if len(rewards) != len(trajectory.steps) or not all(
            map(math.isfinite, rewards)
        ):
            raise ScenarioError(
                f"broadcast_rewards of scenario '{self.scenario.name}' must give one "
                f"finite number for each of {len(trajectory.steps)} steps, "
                f"not {rewards}."
            )
        for step, reward in zip(trajectory.steps, rewards, strict=True):
            step.reward = reward

    def close(self) -> None:
        """Closes all environments."""
        for environment in self._environments:
            environment.close()
        self._environments.clear()
        self._runner.close()

    def _play(
        self,
        policy: Decider,
        tasks: Sequence[Task],
        sampling: Sampling,
        seed: int,
        siblings: Sequence[Trajectory],
        max_mistakes: int | None,
        known: Sequence[ToolCall | None],
        horizons: Sequence[int | None],
    ) -> list[Trajectory]:
        while len(self._environments) < len(tasks):
            self._environments.append(
                self.scenario.create_environment(
                    tasks, max_steps=self.max_steps, runner=self._runner
                )
            )
        trajectories = [Trajectory(task) for task in tasks]
        active: list[tuple[Environment, Trajectory]] = []
        found = dict(zip(map(id, trajectories), known, strict=False))
        until = dict(zip(map(id, trajectories), horizons, strict=False))
        for i, (environment, trajectory) in enumerate(
            zip(self._environments, trajectories, strict=False)
        ):
            sibling = siblings[i] if siblings else None
            trajectory.seed = sibling.seed if sibling else seed * 65_537 + i
            if guarded(trajectory, _begin, environment, trajectory, sibling):
                active.append((environment, trajectory))
        while active:
            requests = []
            for environment, trajectory in active:
                request = DecisionRequest(
                    environment.messages, environment.tool_list, environment.state_key
                )
                if siblings and all(step.replayed for step in trajectory.steps):
                    request.exploration = FORK_EXPLORATION
                    request.known = found.get(id(trajectory))
                requests.append(request)
            decisions = policy.decide(requests, sampling)
            still = []
            for (environment, trajectory), request, decision in zip(
                active, requests, decisions, strict=True
            ):
                step = step_of(decision, request.state_key)
                if not guarded(trajectory, act, environment, step):
                    continue
                trajectory.steps.append(step)
                trajectory.cut_short = not environment.done and _far_enough(
                    trajectory, until.get(id(trajectory))
                )
                over = environment.done or _lost(trajectory, max_mistakes)
                if over or trajectory.cut_short:
                    guarded(trajectory, finish, environment, trajectory)
                else:
                    still.append((environment, trajectory))
            active = still
        return trajectories


def _begin(
    environment: Environment, trajectory: Trajectory, sibling: Trajectory | None
) -> None:
    environment.reset_task(trajectory.task, trajectory.seed)
    for step in right_steps(sibling) if sibling else ():
        again = Step(step.message, state_key=environment.state_key, replayed=True)
        again.prompt_tokens = step.prompt_tokens
        again.completion_tokens = step.completion_tokens
        act(environment, again)
        trajectory.steps.append(again)


def step_of(decision: Decision, state_key: str) -> Step:
    """A decision that waits to be acted upon."""
    return Step(
        decision.message,
        state_key=state_key,
        prompt_tokens=decision.prompt_tokens,
        completion_tokens=decision.completion_tokens,
        latency=decision.latency,
        logprob=decision.logprob,
        confidence=decision.confidence,
        sampled=decision.sampled,
        trace=decision.trace,
    )


def right_steps(trajectory: Trajectory) -> list[Step]:
    """The steps before the first wrong one."""
    return list(itertools.takewhile(lambda step: step.correct, trajectory.steps))


def _furthest(group: Group) -> Trajectory | None:
    """The sibling with the longest right beginning, if none solved the task."""
    best, most = None, -1
    for trajectory in group.trajectories:
        if trajectory.unspoiled:
            return None
        if trajectory.failure is None:
            right = len(right_steps(trajectory))
            if most < right < len(trajectory.steps):
                best, most = trajectory, right
    return best


def _known(group: Group, sibling: Trajectory) -> ToolCall | None:
    """What siblings found to be right where one of them went wrong.

    None if nobody had the right tool there, or the judge does not tell which of its
    arguments were wrong.
    """
    at = sibling.steps[len(right_steps(sibling))].state_key
    tool = ""
    right: dict[str, Any] = {}
    for step in (step for t in group.trajectories for step in t.steps):
        told = step.failure is FailureKind.BAD_ARGUMENTS and step.wrong_arguments
        if step.state_key == at and told and len(step.calls) == 1:
            tool, given = step.calls[0].name, step.calls[0].arguments
            right |= {name: given[name] for name in given if name not in told}
    return ToolCall(tool, right) if tool else None


def _lost(trajectory: Trajectory, max_mistakes: int | None) -> bool:
    """Whether as many steps were wrong as may be."""
    if max_mistakes is None or trajectory.steps[-1].correct:
        return False
    return sum(not step.correct for step in trajectory.steps) >= max_mistakes


def _far_enough(trajectory: Trajectory, horizon: int | None) -> bool:
    """Whether nothing went wrong in as many steps as are to be played."""
    return (
        horizon is not None
        and len(trajectory.steps) >= horizon
        and all(step.correct for step in trajectory.steps)
    )


def act(environment: Environment, step: Step) -> None:
    """Lets a decision have its effect, and notes what came of it."""
    outcome = environment.act(step.message)
    step.calls, step.results = outcome.calls, outcome.results
    step.correct, step.failure = outcome.verdict.correct, outcome.verdict.failure
    step.wrong_arguments = outcome.verdict.wrong_arguments
    if step.failure is None:
        step.failure = next((r.failure for r in outcome.results if r.failure), None)
    step.latency += sum(result.latency for result in outcome.results)


def finish(environment: Environment, trajectory: Trajectory) -> None:
    """Judges an episode that is over."""
    trajectory.success, trajectory.outcome = environment.outcome()
    environment.release()


def guarded(trajectory: Trajectory, function: Any, *arguments: Any) -> bool:
    """Runs a scenario's own code; if it raises, this episode breaks off, no other."""
    try:
        function(*arguments)
    except AgentGymError:
        raise
    except Exception as error:
        trajectory.failure = FailureKind.AGENT_CRASH
        trajectory.failure_text = f"{type(error).__name__}: {error}"
        return False
    return True

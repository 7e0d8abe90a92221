"""Episodes: a policy acts in many environments at a time."""

from __future__ import annotations

import itertools
import math
import zlib
from collections import Counter
from collections.abc import Sequence
from typing import Any

import numpy as np

from agentgym.core.task import Task
from agentgym.core.tools import FailureKind, ToolCall, ToolRunner
from agentgym.core.trajectory import EpisodePlan, Group, GroupPlan, Step, Trajectory
from agentgym.errors import AgentGymError, ScenarioError
from agentgym.policies.base import Decider, Decision, DecisionRequest, Policy
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

    Environments are reused; at most `at_once` are open at a time.
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

    def groups(self, policy: Decider, plans: Sequence[GroupPlan]) -> list[Group]:
        """Samples the siblings of each group and rewards them.

        In a group that branches, two siblings start from the beginning. Where none of
        them solves the task, the rest branch off, in two rounds or, if they are many,
        more: they repeat the sibling that got furthest up to its first wrong step, and
        try something else there. So effort goes to the states that still have
        something to find out, and a group that is already solved stays small.

        No group depends on the others. Groups played in another process, with
        weights sent there after `introduce`, are the same.
        """
        self.introduce(policy, plans)
        playing = [_Playing(plan) for plan in plans]
        while rounds := [(one, due) for one in playing if (due := one.due())]:
            played = self._play_all(policy, [due for _, due in rounds])
            for (one, _), trajectories in zip(rounds, played, strict=True):
                one.group.trajectories += trajectories
        for one in playing:
            for trajectory in one.group.trajectories:
                trajectory.baseline_tokens = one.plan.baseline_tokens
                self.reward(trajectory)
        return [one.group for one in playing]

    def introduce(self, policy: Decider, plans: Sequence[GroupPlan]) -> None:
        """Gives a policy the tools of the next groups, in the order of positions."""
        if not (plans and isinstance(policy, Policy)):
            return
        ordered = sorted(plans, key=lambda plan: plan.position)
        (environment,) = self._open([ordered[0].task])
        offered = [environment.tools_of(plan.task) for plan in ordered]
        policy.meet({id(tools): tools for tools in offered}.values())

    def play(
        self, policy: Decider, tasks: Sequence[Task], seed: int = 0
    ) -> list[Trajectory]:
        """Plays one episode of each task with the likeliest decisions, and judges it.

        Args:
            policy: Decides.
            tasks: What to do.
            seed: Draws the injected faults.
        """
        played = self._play_all(
            policy,
            [[EpisodePlan(task, seed * 65_537 + i)] for i, task in enumerate(tasks)],
        )
        return [trajectory for (trajectory,) in played]

    def reward(self, trajectory: Trajectory) -> None:
        """Lets the scenario reward each step; a crashed episode stays unrewarded."""
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
                f"broadcast_rewards of scenario '{self.scenario.name}' must return "
                f"one finite number for each of {len(trajectory.steps)} steps, "
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

    def _play_all(
        self, policy: Decider, groups: Sequence[Sequence[EpisodePlan]]
    ) -> list[list[Trajectory]]:
        """Plays what fits at once; a group is split only if it does not fit alone."""
        played: list[list[Trajectory]] = [[] for _ in groups]
        batch: list[tuple[int, EpisodePlan]] = []

        def flush() -> None:
            if not batch:
                return
            episodes = [episode for _, episode in batch]
            for (at, _), trajectory in zip(
                batch, self._play(policy, episodes), strict=True
            ):
                played[at].append(trajectory)
            batch.clear()

        for at, episodes in enumerate(groups):
            if len(batch) + len(episodes) > self.at_once:
                flush()
            for episode in episodes:
                if len(batch) == self.at_once:
                    flush()
                batch.append((at, episode))
        flush()
        return played

    def _play(
        self, policy: Decider, episodes: Sequence[EpisodePlan]
    ) -> list[Trajectory]:
        active: list[tuple[Environment, Trajectory, EpisodePlan]] = []
        trajectories = [Trajectory(e.task, seed=e.seed) for e in episodes]
        environments = self._open([episode.task for episode in episodes])
        for environment, trajectory, episode in zip(
            environments, trajectories, episodes, strict=True
        ):
            if guarded(trajectory, _begin, environment, trajectory, episode.sibling):
                active.append((environment, trajectory, episode))
        rngs = {id(e): generator(e) for e in episodes}
        while active:
            requests = []
            for environment, trajectory, episode in active:
                request = DecisionRequest(
                    environment.messages,
                    environment.tool_list,
                    environment.state_key,
                    episode.exploration,
                    rng=rngs[id(episode)],
                    untried=episode.untried,
                )
                if episode.sibling and all(s.replayed for s in trajectory.steps):
                    request.exploration = FORK_EXPLORATION
                    request.known = episode.known
                requests.append(request)
            decisions = policy.decide(requests)
            still = []
            for (environment, trajectory, episode), request, decision in zip(
                active, requests, decisions, strict=True
            ):
                step = step_of(decision, request.state_key)
                if not guarded(trajectory, act, environment, step):
                    continue
                trajectory.steps.append(step)
                if environment.done or _lost(trajectory, episode.max_mistakes):
                    guarded(trajectory, finish, environment, trajectory)
                else:
                    still.append((environment, trajectory, episode))
            active = still
        return trajectories

    def _open(self, tasks: Sequence[Task]) -> list[Environment]:
        while len(self._environments) < len(tasks):
            self._environments.append(
                self.scenario.create_environment(
                    tasks, max_steps=self.max_steps, runner=self._runner
                )
            )
        return self._environments[: len(tasks)]


def generator(episode: EpisodePlan) -> np.random.Generator | None:
    """Draws the decisions of an episode; None if the likeliest are taken."""
    if episode.draws is None:
        return None
    return np.random.default_rng([*episode.draws, episode.number])


class _Playing:
    """A group being played, round by round."""

    def __init__(self, plan: GroupPlan) -> None:
        self.plan = plan
        self.group = Group(plan.task, [])
        self._draws = (*plan.seed, plan.position)
        self._rounds = 0
        self._turns: Counter[str] = Counter()
        self._untried: dict[Any, Any] = {}

    def due(self) -> list[EpisodePlan]:
        """The episodes of the next round; none if the group is complete."""
        plan, played = self.plan, len(self.group.trajectories)
        start = min(_ROOTS, plan.size) if plan.branch else plan.size
        if not played:
            return [self._episode(number, "") for number in range(start)]
        rounds = max(2, plan.size // _ROUND)
        size = max(1, (plan.size - start + 1) // rounds)
        self._rounds += 1
        sibling = _furthest(self.group)
        if self._rounds > rounds or played + size > plan.size or sibling is None:
            return []
        wrong = sibling.steps[len(right_steps(sibling))]
        known = _known(self.group, wrong.state_key)
        return [
            self._episode(played + i, wrong.state_key, sibling, known)
            for i in range(size)
        ]

    def _episode(
        self,
        number: int,
        place: str,
        sibling: Trajectory | None = None,
        known: ToolCall | None = None,
    ) -> EpisodePlan:
        self._turns[place] += 1
        name = repr((self._draws, number)).encode()
        return EpisodePlan(
            self.plan.task,
            sibling.seed if sibling else zlib.crc32(name),
            sibling,
            known,
            self._draws,
            number,
            self._turns[place] - 1,
            self.plan.exploration,
            self.plan.max_mistakes,
            self._untried,
        )


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
    """The step of a decision, before it is carried out."""
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
        if trajectory.success:
            return None
        if trajectory.failure is None:
            right = len(right_steps(trajectory))
            if most < right < len(trajectory.steps):
                best, most = trajectory, right
    return best


def _known(group: Group, at: str) -> ToolCall | None:
    """What siblings found to be right at a state.

    None if no sibling chose the right tool there, or the judge does not report which
    arguments were wrong.
    """
    tool = ""
    right: dict[str, Any] = {}
    for step in (step for t in group.trajectories for step in t.steps):
        told = step.failure is FailureKind.BAD_ARGUMENTS and step.wrong_arguments
        if step.state_key == at and told and len(step.calls) == 1:
            tool, given = step.calls[0].name, step.calls[0].arguments
            right |= {name: given[name] for name in given if name not in told}
    return ToolCall(tool, right) if tool else None


def _lost(trajectory: Trajectory, max_mistakes: int | None) -> bool:
    """Whether the limit of wrong steps is reached."""
    if max_mistakes is None or trajectory.steps[-1].correct:
        return False
    return sum(not step.correct for step in trajectory.steps) >= max_mistakes


def act(environment: Environment, step: Step) -> None:
    """Carries out a decision in the environment and records the outcome."""
    outcome = environment.act(step.message)
    step.calls, step.results = outcome.calls, outcome.results
    step.correct, step.failure = outcome.verdict.correct, outcome.verdict.failure
    step.wrong_arguments = outcome.verdict.wrong_arguments
    step.reply = outcome.reply
    if step.failure is None:
        step.failure = next((r.failure for r in outcome.results if r.failure), None)
    step.latency += sum(result.latency for result in outcome.results)


def finish(environment: Environment, trajectory: Trajectory) -> None:
    """Judges an episode that is over."""
    trajectory.success, trajectory.outcome = environment.outcome()
    environment.release()


def guarded(trajectory: Trajectory, function: Any, *arguments: Any) -> bool:
    """Runs a scenario's own code; if it raises, only this episode ends."""
    try:
        function(*arguments)
    except AgentGymError:
        raise
    except Exception as error:
        trajectory.failure = FailureKind.AGENT_CRASH
        trajectory.failure_text = f"{type(error).__name__}: {error}"
        return False
    return True

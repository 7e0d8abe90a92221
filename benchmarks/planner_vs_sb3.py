"""Stable-Baselines3's PPO and the planner, on the same environment, in one run.

    pip install -c constraints.txt -e '.[benchmarks]'
    python benchmarks/planner_vs_sb3.py

Both learn customer_support until the lower bound of the 95% interval of their tool
reliability on the same validation tasks passes 90%, and are then measured once on the
same held-out tasks. Seconds are those of training and its evaluations; loading and the
held-out measurement are left out for both. PPO stops at the latest after `--limit`
times the planner's seconds; if it has not arrived by then, the ratio that is printed is
a lower bound.

PPO needs a flat observation and a fixed number of actions:

- It sees the sentence embeddings of the opening message, of the customer's last reply
  and of the last tool result (field names and categorical values), what was called so
  far with which result (hashed), and which actions are valid.
- An action is a place in a list of candidate decisions: finish, ask for one thing, or
  call one tool with one combination of arguments. Arguments come from the planner's own
  candidate code. Every tool keeps its places in every state, so that a place means the
  same everywhere; a place without a candidate is an invalid call.
- It is rewarded by the environment at every step: +1 for a right decision, and the
  outcome at the end. The environment's -1 for a wrong one is left out, because with it
  PPO learns to give up at once (an episode ends at its first wrong decision).
- Every training task is played eight times, as in the planner's groups, so that its
  text is encoded once for all of them.

The list is shorter than what the planner chooses from, which would be thousands long;
so it is also printed how many tasks can be solved with it at all. Both compute in one
thread. PPO's settings are the best of half a dozen that were tried by hand.
"""

from __future__ import annotations

import sys
import tempfile
import time
from pathlib import Path
from typing import Any

from _common import Row, parser, report, say, share, table

try:
    import torch
    from stable_baselines3 import PPO
    from stable_baselines3.common.callbacks import BaseCallback
    from stable_baselines3.common.vec_env import DummyVecEnv
except ImportError:
    sys.exit("error: needs an extra: pip install -c constraints.txt '.[benchmarks]'")

from _flat import Eyes, FlatEnvironment, Layout, PPOPlayer, Stream

from agentgym import TrainedAgent, Trainer, TrainingConfig
from agentgym.core.events import EvaluationDone, Event, RunStarted
from agentgym.core.task import Message, Split, Task
from agentgym.scenarios.base import Scenario
from agentgym.scenarios.environment import Environment
from agentgym.scenarios.registry import ScenarioRegistry
from agentgym.training.evaluation import Evaluation, evaluate
from agentgym.training.rollout import Rollout

TARGET = 0.90
ENVIRONMENTS = 16
EVALUATION_TASKS, HELDOUT_TASKS = 200, 400


class Course:
    """A fixed set of tasks to measure policies on."""

    def __init__(self, scenario: Scenario, split: Split, seed: int, count: int) -> None:
        self.scenario = scenario
        self.tasks = scenario.tasks(split, seed, count)
        self.rollout = Rollout(scenario, max_steps=10)

    def measure(self, policy: Any) -> Evaluation:
        """Plays every task once, greedily."""
        return evaluate(policy, self.rollout, self.tasks)

    def reachable(self, eyes: Eyes, count: int) -> float:
        """Share of tasks that somebody who always chose right could solve."""
        environment = self.scenario.create_environment()
        solved = [_solve(environment, task, eyes) for task in self.tasks[:count]]
        environment.close()
        return sum(solved) / len(solved)


def _solve(environment: Environment, task: Task, eyes: Eyes) -> bool:
    """Tries decisions until one is judged right, from state to state."""
    course: list[Message] = []
    while True:
        environment.reset_task(task)
        for message in course:
            environment.act(message)
        _, decisions = eyes.look(environment.messages)
        for decision in decisions:
            if decision is None:
                continue
            environment.reset_task(task)
            for message in course:
                environment.act(message)
            outcome = environment.act(decision)
            if outcome.verdict.correct:
                course.append(decision)
                break
        else:
            return False
        if outcome.done:
            return environment.outcome()[0]


class Race(BaseCallback):  # type: ignore[misc]
    """Measures PPO now and then; ends training at the target or the limit."""

    def __init__(self, eyes: Eyes, stream: Stream, course: Course, every: int) -> None:
        super().__init__()
        self.eyes, self.stream, self.course = eyes, stream, course
        self.every = self.next = every
        self.limit = 0.0
        self.outcome: Row = {}

    def start(self, limit: float) -> None:
        """Starts the clock."""
        self.limit = limit
        self.started, self.cpu_started = time.perf_counter(), time.process_time()

    def _on_step(self) -> bool:
        # What is under way now was drawn and is not finished.
        episodes = self.stream.drawn - ENVIRONMENTS
        seconds = time.perf_counter() - self.started
        if episodes < self.next and seconds < self.limit:
            return True
        self.next += self.every
        measured = self.course.measure(PPOPlayer(self.model, self.eyes))
        self.outcome = {
            "reached": measured.tool_reliability_interval().low > TARGET,
            "seconds": time.perf_counter() - self.started,
            "cpu_seconds": time.process_time() - self.cpu_started,
            "episodes": episodes,
            "validation_reliability": measured.tool_reliability,
        }
        _tell("PPO", self.outcome)
        return not self.outcome["reached"] and seconds < self.limit


def _tell(who: str, outcome: Row) -> None:
    say(
        f"{who}: {outcome['episodes']:,} episodes, {outcome['seconds']:.0f} s, "
        f"validation {outcome['validation_reliability']:.1%}"
    )


def race_planner(seed: int, episodes: int, heldout: Course) -> Row:
    """Trains the planner with the ordinary trainer."""
    outcome: Row = {}
    clock: dict[str, float] = {}

    def listen(event: Event) -> None:
        if isinstance(event, RunStarted):
            clock["wall"], clock["cpu"] = time.perf_counter(), time.process_time()
        if isinstance(event, EvaluationDone) and event.split == "validation":
            outcome.update(
                reached=event.metrics["tool_reliability_interval"][0] > TARGET,
                seconds=time.perf_counter() - clock["wall"],
                cpu_seconds=time.process_time() - clock["cpu"],
                episodes=event.episodes,
                validation_reliability=event.metrics["tool_reliability"],
            )
            _tell("planner", outcome)

    config = TrainingConfig(
        scenario="customer_support",
        seed=seed,
        episodes=episodes,
        eval_every=2_500,
        eval_tasks=EVALUATION_TASKS,
        heldout_tasks=1,
        target_reliability=TARGET,
    )
    with tempfile.TemporaryDirectory() as home:
        result = Trainer(config, home=Path(home), listeners=[listen]).train()
        policy = TrainedAgent.load(result.trained_model_path).policy
    return _row("planner", outcome, heldout.measure(policy))


def race_ppo(seed: int, limit: float, scenario: Scenario, heldout: Course) -> Row:
    """Trains PPO for at most so many seconds."""
    torch.set_num_threads(1)
    eyes = Eyes(Layout(scenario.create_environment().tool_list))
    stream = Stream(scenario, seed, eyes)
    course = Course(scenario, "validation", seed, EVALUATION_TASKS)
    race = Race(eyes, stream, course, every=1_280)
    environments = DummyVecEnv(
        [
            lambda: FlatEnvironment(scenario.create_environment(), stream, eyes)
            for _ in range(ENVIRONMENTS)
        ]
    )
    model = PPO(
        "MlpPolicy",
        environments,
        seed=seed,
        n_steps=64,
        batch_size=256,
        learning_rate=1e-3,
        gamma=0.95,
        ent_coef=0.02,
        policy_kwargs={"net_arch": [256, 256]},
        device="cpu",
    )
    race.start(limit)
    model.learn(10**9, callback=race)
    row = _row("SB3 PPO", race.outcome, heldout.measure(PPOPlayer(model, eyes)))
    say("how many validation tasks can PPO's list of actions solve at all? ...")
    row["actions"] = eyes.layout.size
    row["reachable"] = course.reachable(eyes, 50)
    return row


def _row(contestant: str, outcome: Row, heldout: Evaluation) -> Row:
    interval = heldout.tool_reliability_interval()
    return {
        "contestant": contestant,
        **outcome,
        "heldout_reliability": heldout.tool_reliability,
        "heldout_reliability_interval": [interval.low, interval.high],
    }


def main() -> None:
    """Lets both race and prints their rows."""
    options = parser(__doc__)
    options.add_argument("--seed", type=int, default=0)
    options.add_argument(
        "--limit", type=float, help="PPO's seconds over the planner's (default 25)"
    )
    given = options.parse_args()
    episodes, times = (2_560, 2.0) if given.quick else (15_000, 25.0)
    scenario = ScenarioRegistry.load("customer_support")
    heldout = Course(scenario, "heldout", given.seed, HELDOUT_TASKS)
    planner = race_planner(given.seed, episodes, heldout)
    limit = (given.limit or times) * planner["seconds"]
    ppo = race_ppo(given.seed, limit, scenario, heldout)
    ratio = ppo["seconds"] / planner["seconds"] if planner["reached"] else None
    header = ("contestant", "passed 90%", "seconds", "CPU s", "episodes", "held-out")
    lines = [
        [
            row["contestant"],
            "yes" if row["reached"] else "no",
            f"{row['seconds']:.1f}",
            f"{row['cpu_seconds']:.1f}",
            f"{row['episodes']:,}",
            share(row["heldout_reliability"], row["heldout_reliability_interval"]),
        ]
        for row in (planner, ppo)
    ]
    if ratio is None:
        verdict = "the planner did not pass 90% itself, so there is no ratio"
    elif ppo["reached"]:
        verdict = f"the planner needed {ratio:.1f} times fewer seconds"
    else:
        verdict = (
            f"PPO did not pass 90% within its limit: the planner needed at least "
            f"{ratio:.1f} times fewer seconds"
        )
    report(
        given,
        name="planner_vs_sb3",
        rows=[planner, ppo],
        ratio=ratio,
        peer="Stable-Baselines3 PPO, seconds to 90% tool reliability"
        + (" (not reached: a lower bound)" if ratio and not ppo["reached"] else ""),
        text=(
            f"{table(header, lines)}\n\n{verdict}\n"
            f"PPO chooses from {ppo['actions']} places; with them "
            f"{ppo['reachable']:.0%} of validation tasks can be solved"
        ),
    )


if __name__ == "__main__":
    main()

"""What happened: steps, the trajectories they make up, and groups of siblings."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass, field
from typing import Any

from agentgym.core.task import Message, Task, TaskSource
from agentgym.core.tools import FailureKind, ToolCall, ToolResult


@dataclass(frozen=True, slots=True)
class SampledTokens:
    """An answer as its sampler produced it, token by token; never text read again.

    Attributes:
        prompt: Ids that were read; empty if the sampler does not tell.
        completion: Ids that were written.
        logprobs: Of the ids that were written, one for each.
    """

    prompt: tuple[int, ...]
    completion: tuple[int, ...]
    logprobs: tuple[float, ...]


@dataclass(slots=True)
class Step:
    """One decision and its outcome.

    Invariants: `results` has one entry for each call. `reward is None` means "not
    judged yet", never 0. `advantage is None` means "no signal": the step is left out
    of the update, which is not the same as an advantage of 0. `advantage` judges what
    was done (the tool), `parameter_advantage` with which parameters.

    Attributes:
        message: The assistant message as it was decided.
        calls: The tool calls in it; empty for a message to the user.
        results: What the calls returned.
        correct: Whether the decision was right; None if the scenario cannot tell.
        failure: Why it was not.
        reply: What the user said to a message; None if nothing.
        wrong_arguments: Names of parameters that had wrong values; None if that
            is unknown.
        state_key: Names the conversation in which it was taken. Siblings with the
            same key stood at the same state.
        logprob: Of the decision, as the sampler recorded it, exploration included.
        confidence: The policy's own estimate that the decision is right.
        replayed: Repeated from a sibling that this episode branched off from, not
            decided again: nothing is learned from it here.
        sampled: The answer's tokens, where the policy has any.
        trace: What the policy needs to learn from the step; opaque to all others.
    """

    message: Message
    calls: tuple[ToolCall, ...] = ()
    results: tuple[ToolResult, ...] = ()
    correct: bool | None = None
    failure: FailureKind | None = None
    reply: str | None = None
    wrong_arguments: frozenset[str] | None = None
    state_key: str = ""
    prompt_tokens: int = 0
    completion_tokens: int = 0
    latency: float = 0.0
    logprob: float = 0.0
    confidence: float = 0.0
    reward: float | None = None
    advantage: float | None = None
    parameter_advantage: float | None = None
    replayed: bool = False
    sampled: SampledTokens | None = None
    trace: Any = None

    def to_dict(self) -> dict[str, Any]:
        """Everything but the policy's own trace, for the store and for people."""
        return {
            "content": self.message.get("content"),
            "calls": [{"name": c.name, "arguments": c.arguments} for c in self.calls],
            "results": [
                {"content": r.content, "failure": r.failure} for r in self.results
            ],
            "correct": self.correct,
            "failure": self.failure,
            "reply": self.reply,
            "prompt_tokens": self.prompt_tokens,
            "completion_tokens": self.completion_tokens,
            "latency": self.latency,
            "logprob": self.logprob,
            "confidence": self.confidence,
            "reward": self.reward,
            "advantage": self.advantage,
            "parameter_advantage": self.parameter_advantage,
            "replayed": self.replayed,
        }


@dataclass(slots=True)
class Trajectory:
    """One episode.

    Attributes:
        success: Whether the task was solved; None until the episode is judged.
        outcome: How far it got, 0 to 1; None until judged.
        failure: Why the episode as a whole ended early (an agent that crashed).
        failure_text: What was raised then, for people.
        agent_kind: Which kind of agent took part; empty for the built-in loop.
        seed: Decides the injected faults. A branch takes over the seed of the episode
            whose steps it repeats.
        baseline_tokens: Tokens that the untrained policy spends on a task, for rewards
            that compare with it; None if that was not measured.
    """

    task: Task
    steps: list[Step] = field(default_factory=list)
    success: bool | None = None
    outcome: float | None = None
    failure: FailureKind | None = None
    failure_text: str = ""
    agent_kind: str = ""
    seed: int = 0
    baseline_tokens: float | None = None

    @property
    def tool_calls(self) -> int:
        """Calls that were made."""
        return sum(len(step.calls) for step in self.steps)

    @property
    def missed_calls(self) -> int:
        """Times the agent spoke although a call was due."""
        return sum(step.failure is FailureKind.NO_CALL for step in self.steps)

    @property
    def correct_calls(self) -> int:
        """Calls that were right and ran."""
        return sum(
            len(step.calls)
            for step in self.steps
            if step.correct and all(result.ok for result in step.results)
        )

    @property
    def prompt_tokens(self) -> int:
        """Tokens read by all model calls of the episode."""
        return sum(step.prompt_tokens for step in self.steps)

    @property
    def completion_tokens(self) -> int:
        """Tokens written by all model calls of the episode."""
        return sum(step.completion_tokens for step in self.steps)

    @property
    def tokens(self) -> int:
        """Tokens of all model calls, read and written."""
        return self.prompt_tokens + self.completion_tokens

    @property
    def mean_reward(self) -> float | None:
        """Mean reward of the steps; None if any of them is not judged."""
        rewards = [step.reward for step in self.steps]
        if not rewards or any(reward is None for reward in rewards):
            return None
        return sum(r for r in rewards if r is not None) / len(rewards)

    def to_dict(self) -> dict[str, Any]:
        """For the store and for people."""
        return {
            "task_id": self.task.id,
            "tags": list(self.task.tags),
            "opening": list(self.task.messages),
            "success": self.success,
            "outcome": self.outcome,
            "failure": self.failure,
            "failure_text": self.failure_text,
            "agent_kind": self.agent_kind,
            "steps": [step.to_dict() for step in self.steps],
        }


@dataclass(slots=True)
class Group:
    """Sibling episodes of one task, sampled from the same weights."""

    task: Task
    trajectories: list[Trajectory]


@dataclass(frozen=True, slots=True)
class GroupPlan:
    """A group to be played: one task, and how its siblings are drawn.

    Everything random in the group follows from its seed and its position. So groups
    do not depend on each other, and may be played in any order, in any process.

    Attributes:
        size: Siblings, at most.
        seed: Of the iteration.
        position: Among the groups of the iteration.
        version: Number of the weights that play: the updates made before.
        exploration: Share of decisions drawn uniformly from the valid ones.
        branch: Whether siblings branch off those that went wrong.
        max_mistakes: Wrong steps that end an episode, if its environment would allow
            for more.
        baseline_tokens: See `Trajectory`.
        source: How the task was drawn; without it the plan cannot leave the process.
    """

    task: Task
    size: int
    seed: tuple[int, ...] = (0,)
    position: int = 0
    version: int = 0
    exploration: float = 0.0
    branch: bool = True
    max_mistakes: int | None = None
    baseline_tokens: float | None = None
    source: TaskSource | None = None

    def to_dict(self) -> dict[str, Any]:
        """Plain data. The task stays behind: it may hold what cannot travel."""
        if self.source is None:
            raise ValueError("the plan doesn't record how its task was drawn")
        plain = {f: getattr(self, f) for f in self.__slots__ if f != "task"}
        return {**plain, "seed": list(self.seed), "source": asdict(self.source)}

    @classmethod
    def from_dict(
        cls, data: Mapping[str, Any], draw: Callable[[TaskSource], Task]
    ) -> GroupPlan:
        """Reads what `to_dict` wrote, and draws the task again."""
        source = TaskSource(**data["source"])
        given = {**data, "seed": tuple(data["seed"]), "source": source}
        return cls(task=draw(source), **given)


@dataclass(slots=True)
class EpisodePlan:
    """One episode to be played.

    Attributes:
        seed: Decides injected faults.
        sibling: An episode to repeat up to its first wrong step.
        known: What siblings found to be right where that one went wrong.
        draws: What the random draws of its group follow from; None if the most likely
            decisions are taken.
        number: Of the episode in its group.
        turn: Of the episode among the siblings that branch off at the same place.
        exploration: See `GroupPlan`.
        max_mistakes: See `GroupPlan`.
        untried: What siblings have not explored yet, by state; shared by the group.
    """

    task: Task
    seed: int = 0
    sibling: Trajectory | None = None
    known: ToolCall | None = None
    draws: tuple[int, ...] | None = None
    number: int = 0
    turn: int = 0
    exploration: float = 0.0
    max_mistakes: int | None = None
    untried: dict[Any, Any] = field(default_factory=dict)

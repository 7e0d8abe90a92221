"""What happened: steps, the trajectories they make up, and groups of siblings."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from agentgym.core.task import Message, Task
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
    """One decision and what came of it.

    Invariants: `results` has one entry for each call. `reward is None` means "not
    judged yet", never 0. `advantage is None` means "no signal": the step is left out
    of the update, which is not the same as an advantage of 0. `advantage` judges what
    was done (the tool), `parameter_advantage` with which parameters.

    Attributes:
        message: The assistant message as it was decided.
        calls: The tool calls in it; empty for a message to the user.
        results: What the calls brought back.
        correct: Whether the decision was right; None if the scenario cannot tell.
        failure: Why it was not.
        wrong_arguments: Names of parameters that had wrong values; None if nobody
            told.
        state_key: Names the conversation in which it was taken. Siblings with the
            same key stood at the same state.
        logprob: Of the decision, as the sampler recorded it, exploration included.
        confidence: The policy's own estimate that the decision is right.
        replayed: Repeated from a sibling that this episode branched off from, not
            decided anew: nothing is learned from it here.
        sampled: The answer's tokens, where the policy has any.
        trace: What the policy needs to learn from the step; opaque to all others.
    """

    message: Message
    calls: tuple[ToolCall, ...] = ()
    results: tuple[ToolResult, ...] = ()
    correct: bool | None = None
    failure: FailureKind | None = None
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
        failure: Why the episode as a whole broke off (an agent that crashed).
        failure_text: What was raised then, for people.
        agent: Which kind of agent took part; empty for the built-in loop.
    """

    task: Task
    steps: list[Step] = field(default_factory=list)
    success: bool | None = None
    outcome: float | None = None
    failure: FailureKind | None = None
    failure_text: str = ""
    agent: str = ""
    cut_short: bool = False
    """Training left it with nothing wrong so far, to spend its time elsewhere. So
    nobody knows whether it would have solved its task."""
    seed: int = 0
    """Decided the injected faults; a branch takes it over with the steps it repeats."""

    @property
    def unspoiled(self) -> bool:
        """Whether it solved its task, or was on the way to when training left it."""
        return self.success is True or self.cut_short

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
            "steps": [step.to_dict() for step in self.steps],
        }


@dataclass(slots=True)
class Group:
    """Sibling episodes of one task, sampled from the same weights."""

    task: Task
    trajectories: list[Trajectory]

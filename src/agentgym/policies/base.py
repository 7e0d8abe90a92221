"""The policy contract: decide on messages and tools, learn from judged groups."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar, Literal, Protocol, Self, TypedDict

import numpy as np

from agentgym.core.options import PolicyOptions
from agentgym.core.task import Message
from agentgym.core.tools import Tool, ToolCall
from agentgym.core.trajectory import Group, SampledTokens
from agentgym.errors import UsageError

if TYPE_CHECKING:
    from agentgym.utils.assets import Asset, DownloadProgress


@dataclass(frozen=True, slots=True)
class Turn:
    """Whose turn it is, where siblings explore the same state.

    With it, what a sibling tries doesn't depend on which came first: it is the same as
    if they came in the order of their numbers.

    Attributes:
        order: Seed of what siblings share; the same for all of them.
        number: Which of the siblings asks.
    """

    order: tuple[int, ...]
    number: int


@dataclass(slots=True)
class Sampling:
    """How decisions are drawn. Without an `rng` the most likely one is taken.

    Attributes:
        exploration: Share of decisions drawn uniformly from the valid ones.
        turn: See `Turn`; without it, siblings explore what earlier ones didn't try.
        untried: What is still untried, by state; the policy that draws keeps it here.
    """

    rng: np.random.Generator | None = None
    exploration: float = 0.0
    turn: Turn | None = None
    untried: dict[Any, Any] = field(default_factory=dict)


GREEDY = Sampling()


@dataclass(slots=True)
class DecisionRequest:
    """One chat completion with tools.

    Attributes:
        state_key: Requests with the same non-empty key hold the same conversation
            and tools, so a policy may compute them once.
        exploration: Share of uniform draws for this request alone, where it differs
            from the sampling's.
        known: What siblings found to be right here, while they explore: the tool, and
            those of its arguments that were not wrong. A policy may explore the other
            arguments alone.
        must_call: A tool must be called. A policy that has none to call with valid
            arguments may still answer otherwise; the caller has to check.
        rng: Used for this request alone, instead of the sampling's: its draws don't
            depend on other requests, or on when they are made.
        turn: See `Sampling`.
        untried: See `Sampling`; None takes the sampling's.
    """

    messages: Sequence[Message]
    tools: Sequence[Tool]
    state_key: str = ""
    exploration: float | None = None
    known: ToolCall | None = None
    must_call: bool = False
    rng: np.random.Generator | None = None
    turn: Turn | None = None
    untried: dict[Any, Any] | None = None

    def asked(self) -> DecisionRequest:
        """What was asked, for keeping: the messages may be a list that grows."""
        return DecisionRequest(tuple(self.messages), self.tools, self.state_key)

    def sampling(self, common: Sampling) -> Sampling:
        """How this request is drawn, given the sampling of its batch."""
        rng = self.rng or common.rng
        if rng is None:
            return common
        share = common.exploration if self.exploration is None else self.exploration
        untried = self.untried
        if untried is None and common.rng is not None:
            untried = common.untried
        if untried is None or not self.state_key:  # Siblings never share this state.
            return Sampling(rng, share, self.turn)
        own = untried.setdefault(self.state_key, {})
        return Sampling(rng, share, self.turn, own)


@dataclass(slots=True)
class Decision:
    """The assistant's answer to a request.

    Attributes:
        kind: A tool call, a question to the user, or the closing answer.
        logprob: Log-probability with which the sampler drew it.
        confidence: Calibrated estimate that the decision is right, 0 to 1.
        sampled: The answer's tokens, where the policy has any.
        trace: What `learn` needs; opaque to all other code.
    """

    message: Message
    kind: Literal["call", "ask", "finish"]
    calls: tuple[ToolCall, ...] = ()
    logprob: float = 0.0
    confidence: float = 0.0
    prompt_tokens: int = 0
    completion_tokens: int = 0
    latency: float = 0.0
    sampled: SampledTokens | None = None
    trace: Any = None

    @classmethod
    def calling(cls, call: ToolCall) -> Self:
        """A decision to make one call without a message."""
        calls = [call.to_openai()]
        message = {"role": "assistant", "content": None, "tool_calls": calls}
        return cls(message, "call", (call,))


@dataclass(slots=True)
class UpdateStats:
    """What one update did."""

    loss: float = 0.0
    entropy: float = 0.0
    gradient_norm: float = 0.0
    clipped: bool = False
    steps_learned: int = 0
    gradient_norms: dict[str, float] = field(default_factory=dict)
    """By component; exactly 0.0 for a frozen one."""


class UpdateSettings(TypedDict):
    """How one update is taken; see `Policy.learn`."""

    learning_rate: float
    entropy: float
    trainable: frozenset[str]


class Decider(Protocol):
    """Answers requests: a policy, or its free form."""

    def decide(
        self, requests: Sequence[DecisionRequest], sampling: Sampling = GREEDY
    ) -> list[Decision]:
        """Answers all requests, in one batch."""
        ...


class Policy(ABC):
    """Makes decisions, and learns from their outcome.

    A policy holds no random state: callers that want samples pass the generator, so
    a run is a function of its seed.

    Everything that others need to know about a kind of policy is on its class.
    """

    name: ClassVar[str]
    training_defaults: ClassVar[Mapping[str, Any]] = {}
    """Tuned settings, used if neither user nor scenario sets one."""
    policy_options: ClassVar[type[PolicyOptions]] = PolicyOptions
    """The settings that only this policy reads. A field that `TrainingConfig` has as
    well, such as `model`, says that this policy reads it."""
    assets: ClassVar[Sequence[Asset]] = ()
    """What must be downloaded before it can decide, for any options."""
    language_model: ClassVar[bool] = False
    """Whether it is a causal language model: it learns from far fewer episodes than a
    small policy, each of which costs far more, so scenarios bring other defaults."""
    export_formats: ClassVar[Sequence[str]] = ()
    """What `export` can write."""
    context_length: ClassVar[int] = 16_384
    """Tokens of a conversation with its tools that it reads; it never cuts any off."""

    @classmethod
    def create(cls, seed: int, options: Any) -> Self:
        """Makes an untrained policy.

        Args:
            seed: Of its first weights, if they are random.
            options: A `policy_options`.
        """
        return cls()

    @classmethod
    def fetch(cls, options: Any, progress: DownloadProgress | None = None) -> None:
        """Downloads everything that a policy with these options needs.

        Args:
            options: A `policy_options`.
            progress: Called for each download.

        Raises:
            AssetError: A download failed.
        """
        from agentgym.utils.assets import fetch

        for asset in cls.assets:
            fetch(asset, progress)

    @abstractmethod
    def decide(
        self, requests: Sequence[DecisionRequest], sampling: Sampling = GREEDY
    ) -> list[Decision]:
        """Answers all requests in one batch.

        Draw each answer as `request.sampling(sampling)` says: most requests bring
        their own generator, so no answer depends on the others in the batch.
        """

    def meet(self, tools: Iterable[Sequence[Tool]]) -> None:  # noqa: B027
        """Receives the tools of the next groups before any of them is played.

        A policy that keeps weights for each tool makes room for them here, in this
        order. So its weights don't depend on which group is played first.
        """

    def small_trace(self, trace: Any) -> Any:
        """A decision's trace as plain data that can go to another process.

        In mappings, `messages` and `tools` may hold messages and `Tool`s: many traces
        share them, and they are sent once. By default the trace itself.
        """
        return trace

    def rebuild(self, traces: Sequence[Any]) -> list[Any]:
        """Traces that `learn` takes, from what `small_trace` gave for the same weights.

        Learning from them gives the same weights, bit for bit, as learning from the
        original traces.
        """
        return list(traces)

    def prepare(self, conversations: Sequence[Sequence[Message]]) -> None:  # noqa: B027
        """May start to read, in the background, what will be asked about soon.

        Changes only the time that `decide` takes.
        """

    @abstractmethod
    def learn(
        self,
        groups: Sequence[Group],
        *,
        learning_rate: float,
        entropy: float,
        trainable: frozenset[str],
    ) -> UpdateStats:
        """Takes one update from steps with an advantage, sampled by this policy.

        Args:
            groups: Judged siblings, with their traces.
            learning_rate: Of this update.
            entropy: Weight of the entropy bonus in this update.
            trainable: Components that may change; the others keep every bit.
        """

    def free_form(self) -> Decider | None:
        """The same policy without its constraint, for measuring; None if it has none.

        A language model that is good only under AgentGym's constraint fails when it is
        served elsewhere.
        """
        return None

    def stats(self) -> dict[str, float]:
        """Counts for the live view: tokens read, cache hits, memory, ..."""
        return {}

    def calibrate(self, decisions: Sequence[tuple[float, bool]]) -> None:  # noqa: B027
        """Fits `confidence` on validation pairs of (raw confidence, was right)."""

    @abstractmethod
    def count_tokens(self, text: str) -> int:
        """Tokens of a text as this policy's tokenizer counts them."""

    @abstractmethod
    def state(self) -> dict[str, Any]:
        """All that learning changes, optimiser included: arrays and plain JSON."""

    def weights(self) -> dict[str, Any]:
        """The part of `state` that decisions need, without what only learning needs."""
        return self.state()

    @abstractmethod
    def load_state(self, state: Mapping[str, Any]) -> None:
        """Restores what `state` or `weights` returned."""

    @abstractmethod
    def save(self, folder: Path) -> None:
        """Writes what is needed to decide (no optimiser) into an existing folder."""

    @classmethod
    @abstractmethod
    def load(cls, folder: Path) -> Policy:
        """Reads what `save` wrote."""

    def export(self, folder: Path, format: str) -> None:
        """Writes the policy for other runtimes, into a new folder.

        Args:
            folder: Will be created.
            format: One of `export_formats`.

        Raises:
            UsageError: It can't be exported in this format.
        """
        known = ", ".join(self.export_formats) or "none"
        raise UsageError(
            f"Policy '{self.name}' can't be exported as '{format}'. Available: {known}."
        )

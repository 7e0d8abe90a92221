"""The language model's update: a group-relative policy gradient on decision tokens.

A decision is a path through the trie of a state's options (see `trie`). It has two
kinds of edges: those that choose the tool, and those that choose the arguments. Each
is credited separately, with the advantage that it has among its siblings, and is
trained only if its component is. For a part with the advantage A, whose choice had the
probability p_old when it was drawn, and now has p:

    loss = - A clip(p / p_old, 1, 1 + clip) log p  (no gradient through the ratio)
         - entropy bonus * H                      (where the tool is chosen, and
                                                   wherever something is pushed)
         + a (- log mass) + b (1 - mass)          (on every token of what did well)

- Only what did better than its siblings is pushed (A > 0), and nothing that was judged
  wrong: the softmax takes from all else. In nearly every group, some sibling finds the
  right choice, and blaming the wrong ones as well gained nothing measurable.
- Where the judge tells which arguments of a call were wrong, those before the first
  wrong one are pushed: the siblings that got furthest are learned from, even if none
  of them had all arguments right.
- The ratio's bound is on its value, not on the gradient: PPO's own would stop a choice
  of small probability, found by exploration, as soon as it had become a little
  likelier. Nor does it fall below 1, so that choices which other tasks of the same
  update made less likely aren't given up. All states count the same.
- *mass* is the share of the whole vocabulary's probability that falls on tokens which
  continue some option. Under the constraint it is 1 by construction; without it the
  model must have learned it. It needs no label, and makes the trained model good in a
  runtime without the constraint. Each state is learned from in this way in only one
  of the passes, because going through the vocabulary takes time.
- Training repeats the samples `passes` times, a few tasks a step: a small model needs
  many steps. Only its upper layers are run again, from the last few tokens of a prompt
  on. All before keeps the keys and values with which the samples were drawn, and no
  gradient flows through them: learning from whole conversations takes several times
  as many tokens, and was no better where both were tried.
- In each pass, a newly drawn share of a conversation's tokens is hidden where the
  tool is chosen. That choice then depends on no single word, and each pass teaches
  something else. What is copied from the conversation stays visible.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

import numpy as np
import torch

from agentgym.core.tools import FailureKind
from agentgym.core.trajectory import Group, Step
from agentgym.errors import TrainingDiverged
from agentgym.policies.base import UpdateStats
from agentgym.policies.llm.engine import Branch, Engine
from agentgym.policies.llm.hardware import Workers, in_chunks
from agentgym.policies.llm.lora import Adam, lora_layers
from agentgym.policies.llm.models import DEFAULTS, LlmOptions
from agentgym.policies.llm.state import State, Trace
from agentgym.policies.llm.trie import TOOL, VALUE

COMPONENTS = {TOOL: "tool_selection", VALUE: "parameter_selection"}
"""The component of an agent that each kind of edge is part of."""

_SETTLED = -0.03
"""Log-probability above which a choice that went well has nothing to teach."""
_SURPRISE, _WRONG = 0.3, 1.5
"""Weights of the format loss of a token, relative to the policy gradient. The first is
of - log mass: at first its gradient is the longer one by far, and would drown that of
the choice. The other is of 1 - mass, the chance to write what is not allowed, whose
gradient is bounded."""
_MAX_GRADIENT = 1.0
_CHUNK = 384
"""Tokens in one backward pass, which bounds memory; larger states stand alone."""


@dataclass(slots=True, eq=False)
class _Push:
    """One part of a decision that did well, and how strongly to make it likelier."""

    kind: int
    edges: list[int]
    weight: float
    before: float
    """Log-probability when it was drawn; NaN if that is what it is now."""
    right: float = math.inf
    """Arguments up to the first wrong one."""
    now: float = math.nan
    """Log-probability when it was last learned from."""


@dataclass(eq=False)
class _Sampled:
    """A state, and what is to be learned from what siblings drew there.

    Attributes:
        task: Number of the group that it is from.
        turn: Pass in which what did well is also learned to be written.
        written: An option that did well; -1 if none did.
        places: Of the trie, at which a choice is pushed or the tool is chosen: what
            must be read again.
    """

    state: State
    task: int = 0
    turn: int = 0
    written: int = -1
    pushes: list[_Push] = field(default_factory=list)
    places: list[int] = field(default_factory=list)

    @property
    def settled(self) -> bool:
        """Whether all that did well is nearly certain by now."""
        return all(push.now > _SETTLED for push in self.pushes)

    @cached_property
    def answer(self) -> Branch:
        """The completion of what did well, behind the prompt."""
        tokens = self.state.completions[self.written][:-1]
        parents = range(-1, len(tokens) - 1)
        return Branch(self.state.segment, tokens, parents, read=False)

    def continuations(self) -> list[set[int]]:
        """For each token written, those that continue some option there."""
        chosen = self.state.completions[self.written]
        following: list[set[int]] = [set() for _ in chosen]
        for other in self.state.completions:
            for i, (a, b) in enumerate(zip(other, chosen, strict=False)):
                following[i].add(a)
                if a != b:
                    break
        return following


class Learner:
    """Updates LoRA's matrices from judged groups. See the module's docstring."""

    def __init__(
        self, engine: Engine, workers: Workers, options: LlmOptions = DEFAULTS
    ) -> None:
        self._engine = engine
        self._options = options
        self._workers = workers
        self._adam = Adam(
            {
                f"{name}.{part}": getattr(lora, part)
                for name, lora in lora_layers(engine.model)
                for part in ("down", "up")
            }
        )

    def update(
        self,
        groups: Sequence[Group],
        *,
        learning_rate: float,
        entropy: float,
        trainable: frozenset[str],
    ) -> UpdateStats:
        """Takes all passes over the samples, a step of Adam for every few tasks."""
        kinds = [kind for kind, name in COMPONENTS.items() if name in trainable]
        sampled, states, steps = _collect(groups, kinds)
        for i, one in enumerate(sampled):
            one.turn = i % self._options.passes
        stats = UpdateStats(steps_learned=steps)
        stats.gradient_norms = dict.fromkeys(COMPONENTS.values(), 0.0)
        # Adam takes full steps however small a gradient is, so that an update from few
        # states must be slowed down by hand.
        told = sum(bool(one.pushes) for one in sampled)
        rate = learning_rate * min(1.0, max(0.25, 2.0 * told / max(1, states)))
        self._read_lower(sampled)
        for number in range(self._options.passes):
            # States that the first pass found settled have nothing more to teach.
            left = [
                one
                for one in sampled
                if one.turn == number or not (number and one.settled)
            ]
            for some in self._portions(left):
                gradients = self._gradients(some, entropy, number, stats)
                self._step(rate, gradients, stats)
        self._engine.version += 1
        return stats

    def _portions(self, sampled: Sequence[_Sampled]) -> list[list[_Sampled]]:
        """What each step learns from: some of the tasks, drawn at random."""
        tasks = sorted({one.task for one in sampled})
        np.random.default_rng(self._adam.steps).shuffle(tasks)
        count = -(-len(tasks) // self._options.tasks_per_step)
        chosen = [set(tasks[i::count]) for i in range(count)]
        return [[one for one in sampled if one.task in some] for some in chosen]

    # The loss --------------------------------------------------------------------

    def _gradients(
        self,
        sampled: Sequence[_Sampled],
        entropy: float,
        number: int,
        stats: UpdateStats,
    ) -> dict[str, torch.Tensor]:
        """Of the mean loss; parts of it are computed in parallel."""
        parameters = list(self._adam.parameters.values())
        total = [torch.zeros_like(p) for p in parameters]
        stats.loss = stats.entropy = 0.0

        def work(numbered: tuple[int, Sequence[_Sampled]]) -> tuple[UpdateStats, Any]:
            at, chunk = numbered
            rng = np.random.default_rng([self._adam.steps, at])
            own = UpdateStats()
            written = [one for one in chunk if one.turn == number]
            loss = self._loss(chunk, written, entropy, len(sampled), own, rng)
            return own, torch.autograd.grad(loss, parameters, allow_unused=True)

        parts = list(enumerate(_parts(sampled)))
        for own, gradients in self._workers.map(work, parts):
            stats.loss += own.loss
            stats.entropy += own.entropy
            for t, gradient in zip(total, gradients, strict=True):
                if gradient is not None:
                    t += gradient
        return dict(zip(self._adam.parameters, total, strict=True))

    def _loss(
        self,
        chunk: Sequence[_Sampled],
        written: Sequence[_Sampled],
        entropy: float,
        states: int,
        stats: UpdateStats,
        rng: np.random.Generator,
    ) -> torch.Tensor:
        """The loss of some states, all of them read in one forest."""
        branches, nodes = [], []
        for sampled in chunk:
            trie = sampled.state.trie
            branch, numbers = sampled.state.branch(sampled.places, read=True)
            choosing = set(trie.to_read(trie.places(kind=TOOL)))
            branch.loose = [i for i, node in enumerate(numbers) if node in choosing]
            branches.append(branch)
            nodes.append(numbers)
            known = sampled.state.hidden
            if numbers:
                branch.hidden = torch.stack([known[node] for node in numbers])
        forest = [*branches, *(sampled.answer for sampled in written)]
        rows = self._engine.learn(forest, forget=self._options.token_dropout, rng=rng)
        loss = torch.zeros((), device=self._engine.device)
        for sampled, numbers, hidden in zip(chunk, nodes, rows, strict=False):
            edges = self._edges(sampled, numbers, hidden)
            loss = loss - self._gain(sampled, edges, entropy, stats) / states
        if written:
            off = self._off_format(written, rows[len(chunk) :])
            loss = loss + off / states
        stats.loss += float(loss.detach())
        return loss

    def _read_lower(self, sampled: Sequence[_Sampled]) -> None:
        """Finds what the frozen layers say of answers, and of nodes not read before.

        The result holds for all passes, and is computed for all states at once: large
        products take less time than many small ones.
        """
        unread: list[tuple[_Sampled, list[int], Branch]] = []
        for one in sampled:
            branch, numbers = one.state.branch(one.places, read=False)
            if not one.state.hidden.keys() >= set(numbers):
                unread.append((one, numbers, branch))
            unread.append((one, [], one.answer))
        chunks = in_chunks(unread, lambda item: len(item[2].tokens), _CHUNK)
        for _ in self._workers.map(
            lambda chunk: self._engine.read_lower([branch for *_, branch in chunk]),
            chunks,
        ):
            pass
        for one, numbers, branch in unread:
            assert branch.hidden is not None
            one.state.hidden.update(zip(numbers, branch.hidden, strict=False))

    def _edges(
        self, sampled: _Sampled, nodes: list[int], hidden: torch.Tensor
    ) -> dict[int, torch.Tensor]:
        """Log-probability of each edge at the places that matter, differentiable."""
        trie = sampled.state.trie
        where = {-1: 0} | {n: 1 + i for i, n in enumerate(nodes)}
        result: dict[int, torch.Tensor] = {}
        for place in sampled.places:
            edges = trie.edges_at(place)
            row = hidden[where[int(trie.rows[edges[0]])]]
            labels = torch.from_numpy(trie.labels[edges]).to(row.device)
            logprobs = torch.log_softmax(self._engine.edge_logits(row, labels), -1)
            result.update(zip(edges.tolist(), logprobs, strict=True))
        return result

    def _gain(
        self,
        sampled: _Sampled,
        edges: Mapping[int, torch.Tensor],
        entropy: float,
        stats: UpdateStats,
    ) -> torch.Tensor:
        """What the loss falls by: the pushes and the entropy bonus of one state."""
        gain = torch.zeros((), device=self._engine.device)
        for push in sampled.pushes:
            now = torch.stack([edges[e] for e in push.edges]).sum()
            before = now.detach() if np.isnan(push.before) else push.before
            push.now = float(now.detach())
            ratio = torch.exp(now.detach() - before).clamp(1.0, 1 + self._options.clip)
            gain = gain + push.weight * ratio * now
        for place in sampled.places:
            own = sampled.state.trie.edges_at(place)
            logprobs = torch.stack([edges[e] for e in own.tolist()])
            spread = -(logprobs.exp() * logprobs).sum()
            stats.entropy += float(spread.detach())
            gain = gain + entropy * spread
        return gain

    def _off_format(
        self, sampled: Sequence[_Sampled], rows: Sequence[torch.Tensor]
    ) -> torch.Tensor:
        """The format loss, over all tokens of what was written."""
        following = [allowed for one in sampled for allowed in one.continuations()]
        # In one product: going through the vocabulary takes time.
        logits = self._engine.all_logits(torch.cat(list(rows)))
        widest = max(map(len, following))
        # Short lists are filled up with a token that is there already, at no weight.
        tokens = torch.tensor([[*t, *[min(t)] * (widest - len(t))] for t in following])
        lengths = torch.tensor([[len(t)] for t in following])
        filling = torch.arange(widest) >= lengths
        allowed = logits.gather(1, tokens.to(logits.device))
        allowed = allowed.masked_fill(filling.to(logits.device), -torch.inf)
        off = torch.logsumexp(logits, -1) - torch.logsumexp(allowed, -1)
        lost = _SURPRISE * off + _WRONG * (1.0 - torch.exp(-off))
        return self._options.format_weight * lost.sum()

    # The step --------------------------------------------------------------------

    def _step(
        self,
        rate: float,
        gradients: Mapping[str, torch.Tensor],
        stats: UpdateStats,
    ) -> None:
        """Moves the weights by Adam; a gradient that is too long is shrunk."""
        norm = float(torch.stack([g.norm() for g in gradients.values()]).norm())
        stats.gradient_norm = norm
        if not np.isfinite(norm):
            raise TrainingDiverged(
                "The update isn't finite. Lower the learning rate, and resume the run "
                "from its last checkpoint."
            )
        stats.clipped = norm > _MAX_GRADIENT
        shrink = min(1.0, _MAX_GRADIENT / (norm + 1e-12))
        self._adam.step({name: g * shrink for name, g in gradients.items()}, rate)

    # -----------------------------------------------------------------------------

    def state(self) -> dict[str, Any]:
        """Adam's moments and the number of its steps."""
        return self._adam.state()

    def load_state(self, state: Mapping[str, Any]) -> None:
        """Restores what `state` returned."""
        self._adam.load_state(state)


def _collect(
    groups: Sequence[Group], kinds: Sequence[int]
) -> tuple[list[_Sampled], int, int]:
    """What can be learned, and the numbers of states and steps examined."""
    found: dict[Any, _Sampled] = {}
    steps = 0
    for task, group in enumerate(groups):
        for trajectory in group.trajectories:
            for step in trajectory.steps:
                both = step.advantage, step.parameter_advantage
                if both == (None, None) or not isinstance(step.trace, Trace):
                    continue
                steps += 1
                state = step.trace.state
                key = (task, step.trace.request.state_key or steps)
                sampled = found.setdefault(key, _Sampled(state, task))
                for kind in kinds:
                    push = _push(step, step.trace, kind, both[kind])
                    if push is not None:
                        sampled.pushes.append(push)
                        if step.correct or sampled.written < 0:
                            sampled.written = step.trace.option
    for sampled in found.values():
        trie = sampled.state.trie
        furthest = max((p.right for p in sampled.pushes if p.kind == VALUE), default=0)
        sampled.pushes = [
            p for p in sampled.pushes if p.kind != VALUE or p.right == furthest
        ]
        if all(push.before > _SETTLED for push in sampled.pushes):
            # Nearly certain already: it would cost as much as the others.
            sampled.pushes.clear()
            continue
        _balance(sampled.pushes)
        pushed = {int(trie.nodes[e]) for p in sampled.pushes for e in p.edges}
        tools = trie.places(kind=TOOL) if TOOL in kinds else []
        sampled.places = sorted({*pushed, *tools})
    # Where all siblings went wrong alike there is nothing to learn.
    return [one for one in found.values() if one.pushes], len(found), steps


def _balance(pushes: Sequence[_Push]) -> None:
    """Gives the tool of every state the same weight, and its arguments as much.

    Otherwise a state at which one of many siblings found the right choice, of which
    there is most to learn, would hardly count; nor would the arguments, which are only
    drawn by siblings with the right tool.
    """
    for kind in COMPONENTS:
        own = [push for push in pushes if push.kind == kind]
        total = sum(push.weight for push in own)
        for push in own:
            push.weight /= total


def _push(step: Step, trace: Trace, kind: int, advantage: float | None) -> _Push | None:
    if step.correct is False and step.failure is not FailureKind.BAD_ARGUMENTS:
        # The least wrong of wrong tools, or arguments of one.
        return None
    if kind == VALUE and step.wrong_arguments is not None:
        return _push_arguments(step, trace)
    if not advantage or advantage < 0:
        return None
    trie = trace.state.trie
    path = trie.paths[trace.option]
    edges = [int(e) for e in path[trie.kinds[path] == kind]]
    return _Push(kind, edges, advantage, trace.logprobs[kind]) if edges else None


def _push_arguments(step: Step, trace: Trace) -> _Push | None:
    """Where the judge tells wrong arguments: those before the first wrong one."""
    state = trace.state
    trie = state.trie
    path = trie.paths[trace.option]
    edges = [int(e) for e in path[trie.kinds[path] == VALUE]]
    right = math.inf
    if step.wrong_arguments:
        names = state.parameters(trace.option)
        wrong = [name in step.wrong_arguments for name in names]
        edges = edges[: wrong.index(True) if True in wrong else 0]
        right = len(set(names[: len(edges)]))
    before = float(state.edges[edges].sum())
    return _Push(VALUE, edges, 1.0, before, right) if edges else None


def _parts(sampled: Sequence[_Sampled]) -> list[list[_Sampled]]:
    """What is computed in parallel: at least two parts, of about the same size."""
    sizes = [
        len(one.state.segment.tokens)
        + len(one.state.trie.to_read(one.places))
        + len(one.answer.tokens)
        for one in sampled
    ]
    count = min(len(sampled), max(2, -(-sum(sizes) // _CHUNK)))
    parts: list[list[_Sampled]] = [[] for _ in range(count)]
    filled = [0] * count
    for one, size in sorted(
        zip(sampled, sizes, strict=True), key=lambda pair: -pair[1]
    ):
        least = filled.index(min(filled))
        parts[least].append(one)
        filled[least] += size
    return parts

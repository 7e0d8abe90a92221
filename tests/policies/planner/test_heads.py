"""The heads: gradients against finite differences, slots that grow, Adam's state."""

from __future__ import annotations

import dataclasses
from typing import Any

import numpy as np
import pytest

from agentgym.policies.planner import heads as module
from agentgym.policies.planner.heads import (
    FLAGS,
    Block,
    Case,
    ChoiceHead,
    Clauses,
    Options,
    PointerHead,
    Stack,
    log_softmax,
)
from agentgym.policies.planner.learner import Adam

WIDTH = 6


@pytest.fixture(autouse=True)
def _narrow(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "WIDTH", WIDTH)
    monkeypatch.setattr(module, "HIDDEN", 5)
    monkeypatch.setattr(module, "HISTORY", 7)


def _double(head: ChoiceHead | PointerHead, rng: np.random.Generator) -> None:
    """Random weights in float64, in which finite differences are exact enough."""
    arrays: dict[str, Any] = head.parameters.arrays
    for name, array in arrays.items():
        arrays[name] = rng.normal(size=array.shape)
    head.parameters.version += 1


def _numeric(head: ChoiceHead | PointerHead, loss: Any) -> dict[str, Any]:
    step = 1e-6
    result = {}
    for name, array in head.parameters.arrays.items():
        slope = np.zeros(array.shape)
        for index in np.ndindex(array.shape):
            kept = array[index]
            ends = []
            for moved in (kept + step, kept - step):
                array[index] = moved
                head.parameters.version += 1
                ends.append(loss())
            array[index] = kept
            slope[index] = (ends[0] - ends[1]) / (2 * step)
        result[name] = slope
    head.parameters.version += 1
    return result


def _block(rng: np.random.Generator, clauses: int, starts: list[int]) -> Block:
    tokens = rng.normal(size=(starts[-1] + 2, WIDTH))
    return Block(
        f"of {clauses}", rng.normal(size=(clauses, WIDTH)), tokens, np.array(starts)
    )


def _choice_head(rng: np.random.Generator, habits: bool = True) -> ChoiceHead:
    head = ChoiceHead((0.5, -0.5), 1.5, seed=3, habits=habits)
    head.parameters.grow(4)
    _double(head, rng)
    return head


def _options(
    rng: np.random.Generator, sizes: Any, slots: list[int], shared_rows: bool
) -> Options:
    sentences = [rng.normal(size=(n, WIDTH)) for n in sizes]
    made = Options((str(sizes),), sentences, shared_rows)
    made.slots[:] = slots
    return made


def _cases(rng: np.random.Generator, detached: int = 0) -> list[Case]:
    """Two states of one conversation, and one of another with options of a kind."""
    some, other = (
        _options(rng, sizes, slots, shared_rows)
        for sizes, slots, shared_rows in (
            ((2, 1, 3), [3, 0, 2], False),
            ((1, 2, 1), [1, 2, 2], True),
        )
    )
    first, second = _block(rng, 2, [0, 2]), _block(rng, 3, [0, 1, 4])

    def case(options: Options, blocks: list[Block], history: list[int]) -> Case:
        rows = sum(len(block.means) for block in blocks)
        return Case(
            options,
            Clauses(blocks, rng.normal(size=(rows, FLAGS))),
            np.array(history),
            rng.normal(size=(len(options.slots), 2)),
            detached=detached,
            gated=options.shared_rows and detached > 0,
        )

    return [
        case(some, [first], [1, 4]),
        case(some, [first, second], [1, 6]),
        case(other, [second], [0]),
    ]


@pytest.mark.parametrize("habits", [False, True])
@pytest.mark.parametrize("detached", [0, 1])
def test_choice_head_gradient(detached: int, habits: bool) -> None:
    rng = np.random.default_rng(detached)
    head = _choice_head(rng, habits)
    stack = Stack(_cases(rng, detached))
    upstreams = [rng.normal(size=len(case.options.slots)) for case in stack.cases]

    def loss() -> float:
        logits, _ = head.scores(stack)
        return float(sum(u @ x for u, x in zip(upstreams, logits, strict=True)))

    gradient = head.parameters.zeros()
    head.backward(gradient, stack, head.scores(stack)[1], upstreams)
    for name, expected in _numeric(head, loss).items():
        np.testing.assert_allclose(gradient[name], expected, rtol=1e-5, atol=1e-7)
        assert expected.size == 0 or np.abs(expected).max() > 0, name


def test_a_case_scores_the_same_alone_and_among_others() -> None:
    rng = np.random.default_rng(5)
    head = _choice_head(rng)
    cases = _cases(rng)
    together, _ = head.scores(Stack(cases))
    for case, logits in zip(cases, together, strict=True):
        np.testing.assert_allclose(head.logits(case), logits, rtol=1e-12)


def test_what_was_read_of_a_message_is_read_again_with_new_weights() -> None:
    rng = np.random.default_rng(6)
    head = _choice_head(rng)
    case = _cases(rng)[0]
    before = head.logits(case)
    head.parameters.arrays["token"] += 1.0
    head.parameters.version += 1
    assert not np.allclose(head.logits(case), before)


def test_options_that_are_closed_cannot_be_chosen() -> None:
    rng = np.random.default_rng(7)
    head = _choice_head(rng)
    case = _cases(rng)[0]
    closed = dataclasses.replace(case, open=np.array([True, False, True]))
    assert head.logits(closed)[1] == -np.inf
    assert np.isfinite(head.logits(closed)[[0, 2]]).all()


def test_pointer_head_gradient() -> None:
    rng = np.random.default_rng(8)
    head = PointerHead(2, 2 * WIDTH + 3, (1.0, 0.5))
    head.parameters.grow(2)
    _double(head, rng)
    query, upstreams = rng.normal(size=WIDTH), rng.normal(size=(2, 4))
    values = rng.normal(size=(4, head.features))
    gradient = head.parameters.zeros()
    head.backward(gradient, [(1, query, values)] * 2, upstreams)

    def loss() -> float:
        return float((upstreams @ head.scores(1, query, values)).sum())

    for name, expected in _numeric(head, loss).items():
        np.testing.assert_allclose(gradient[name], expected, rtol=1e-5, atol=1e-7)
    assert not gradient["slot"][0].any()


def test_growth_keeps_rows_and_adds_zeros() -> None:
    head = ChoiceHead((1.0, 2.0), 1.0, seed=0)
    head.parameters.grow(2)
    head.parameters.arrays["slot"][:] = 7
    fixed = head.parameters.arrays["clause"].copy()
    head.parameters.grow(5)
    slot = head.parameters.arrays["slot"]
    assert slot.shape[0] == 5 and (slot[:2] == 7).all() and not slot[2:].any()
    head.parameters.grow(3)
    assert len(head.parameters.arrays["slot"]) == 5
    assert (head.parameters.arrays["clause"] == fixed).all()


def test_adam_goes_on_from_its_state_with_the_same_bits() -> None:
    rng = np.random.default_rng(0)
    gradients = rng.normal(size=(6, 3, 2)).astype(np.float32)
    whole, array = Adam(), np.ones((3, 2), np.float32)
    for gradient in gradients[:3]:
        whole.step("a", array, gradient, 0.1)
    half, copy = Adam(), array.copy()
    half.load_state(whole.state())
    for gradient in gradients[3:]:
        whole.step("a", array, gradient, 0.1)
        half.step("a", copy, gradient, 0.1)
    assert array.tobytes() == copy.tobytes()
    assert half.steps == {"a": 6}


def test_adam_keeps_the_moments_of_old_rows() -> None:
    adam = Adam()
    adam.step("a", np.ones((2, 2), np.float32), np.ones((2, 2), np.float32), 0.1)
    first = adam.first["a"].copy()
    adam.step("a", np.ones((3, 2), np.float32), np.zeros((3, 2), np.float32), 0.1)
    np.testing.assert_allclose(adam.first["a"][:2], 0.9 * first, rtol=1e-6)
    assert not adam.first["a"][2].any()


def test_log_softmax_leaves_out_what_is_closed() -> None:
    logprobs = log_softmax(np.array([1000.0, -np.inf, 1000.0], np.float32))
    np.testing.assert_allclose(np.exp(logprobs), [0.5, 0, 0.5], rtol=1e-6)


def test_what_is_learned_of_words_does_not_tell_whether_any_stranger_is_right() -> None:
    rng = np.random.default_rng(8)
    head = _choice_head(rng)
    gated = _cases(rng, detached=1)[-1]
    free = dataclasses.replace(gated, gated=False)

    def odds(case: Case) -> Any:
        return np.exp(log_softmax(head.logits(case)))

    before = [odds(case) for case in (gated, free)]
    head.parameters.arrays["described"] *= 3.0
    # The detached option itself is scored by the hidden layer as ever.
    gated.options.embeddings[0] = free.options.embeddings[0] = 0.0
    head.parameters.version += 1
    after = [odds(case) for case in (gated, free)]
    assert after[0][1:] / after[0][1:].sum() != pytest.approx(
        before[0][1:] / before[0][1:].sum()
    )
    head.parameters.arrays["described"] *= -1.0
    head.parameters.version += 1
    again = [odds(case) for case in (gated, free)]
    assert again[0][0] == pytest.approx(after[0][0])
    assert again[1][0] != pytest.approx(after[1][0])

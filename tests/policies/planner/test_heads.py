"""The heads: gradients against finite differences, slots that grow, Adam's state."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from agentgym.policies.planner import heads as module
from agentgym.policies.planner.heads import (
    FLAGS,
    Adam,
    ChoiceHead,
    Clauses,
    Options,
    PointerHead,
    log_softmax,
)

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


def _choice_case(rng: np.random.Generator) -> tuple[Any, ...]:
    head = ChoiceHead((0.5, -0.5), 1.5, seed=3)
    head.parameters.grow(4)
    _double(head, rng)
    options = Options(
        [rng.normal(size=(n, WIDTH)) for n in (2, 1, 3)], np.array([3, 0, 2])
    )
    clauses = Clauses(
        rng.normal(size=(3, WIDTH)),
        rng.normal(size=(6, WIDTH)),
        np.array([0, 2, 5]),
        rng.normal(size=(3, FLAGS)),
    )
    return head, options, clauses, np.array([1, 4]), rng.normal(size=(3, 2))


@pytest.mark.parametrize("detached", [0, 1])
def test_choice_head_gradient(detached: int) -> None:
    rng = np.random.default_rng(detached)
    head, options, clauses, history, facts = _choice_case(rng)
    upstream = rng.normal(size=3)

    def loss() -> float:
        logits, _ = head.scores(options, clauses, history, facts, detached)
        return float(upstream @ logits)

    gradient = head.parameters.zeros()
    waiting: dict[int, Any] = {}
    _, way = head.scores(options, clauses, history, facts, detached)
    head.backward(gradient, waiting, options, clauses, history, facts, way, upstream)
    head.finish(gradient, waiting)
    for name, expected in _numeric(head, loss).items():
        np.testing.assert_allclose(gradient[name], expected, rtol=1e-5, atol=1e-7)
        assert np.abs(expected).max() > 0, name


def test_choice_head_finish_adds_up_all_states_of_the_same_options() -> None:
    rng = np.random.default_rng(5)
    head, options, clauses, history, facts = _choice_case(rng)
    _, way = head.scores(options, clauses, history, facts)
    pushes = rng.normal(size=(2, 3))
    together, apart = head.parameters.zeros(), head.parameters.zeros()
    waiting: dict[int, Any] = {}
    for push in pushes:
        args = (options, clauses, history, facts, way, push)
        head.backward(together, waiting, *args)
        alone: dict[int, Any] = {}
        head.backward(apart, alone, *args)
        head.finish(apart, alone)
    assert len(waiting) == 1
    assert not together["slot"].any() and not together["described"].any()
    head.finish(together, waiting)
    for name in together:
        np.testing.assert_allclose(together[name], apart[name], rtol=1e-9, atol=1e-12)


def test_pointer_head_gradient() -> None:
    rng = np.random.default_rng(8)
    head = PointerHead(2, 2 * WIDTH + 3, (1.0, 0.5))
    head.parameters.grow(2)
    _double(head, rng)
    query, upstreams = rng.normal(size=WIDTH), rng.normal(size=(2, 4))
    values = rng.normal(size=(4, head.features))
    gradient = head.parameters.zeros()
    waiting: dict[int, Any] = {}
    for upstream in upstreams:
        head.backward(gradient, waiting, 1, query, values, upstream)
    assert not gradient["match"].any()
    head.finish(gradient, waiting)

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

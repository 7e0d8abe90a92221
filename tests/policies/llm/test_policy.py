"""Deciding, learning, saving and going on, with tiny models and a tiny scenario."""

from __future__ import annotations

import json
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from agentgym.core.rewards import assign_advantages
from agentgym.core.task import Task
from agentgym.core.tools import FailureKind, Tool, ToolCall
from agentgym.core.trajectory import Group, GroupPlan, Trajectory
from agentgym.errors import AssetError, ContextExceeded, FormatError, OutOfMemory
from agentgym.policies.base import DecisionRequest, Sampling
from agentgym.policies.llm.hardware import Workers
from agentgym.policies.llm.learner import _collect
from agentgym.policies.llm.lora import lora_layers
from agentgym.policies.llm.models import LlmOptions
from agentgym.policies.llm.policy import LlmPolicy
from agentgym.policies.llm.trie import TOOL, VALUE
from agentgym.scenarios.registry import ScenarioRegistry
from agentgym.training.checkpoint import pack, unpack
from agentgym.training.evaluation import evaluate
from agentgym.training.rollout import Rollout, step_of
from agentgym.training.travel import pack_groups, unpack_groups

sys.path.insert(0, str(Path(__file__).parents[2] / "integration"))

BOTH = frozenset({"tool_selection", "parameter_selection"})


@pytest.fixture
def rollout() -> Any:
    scenario = ScenarioRegistry.load("tiny_scenario:Tiny")
    made = Rollout(scenario, max_steps=4)
    yield made
    made.close()


def iterate(
    policy: LlmPolicy,
    rollout: Rollout,
    number: int,
    trainable: frozenset[str] = BOTH,
    tasks: Any = None,
    rate: float = 0.003,
) -> Any:
    tasks = tasks or rollout.scenario.tasks("train", number, 4)
    plans = [
        GroupPlan(t, 8, (0, number), i, exploration=0.2) for i, t in enumerate(tasks)
    ]
    groups = rollout.groups(policy, plans)
    assign_advantages(groups, "state", 0.95)
    return policy.learn(groups, learning_rate=rate, entropy=0.01, trainable=trainable)


def weights(policy: LlmPolicy) -> dict[str, Any]:
    """All that learning changes, as bytes."""

    def flat(value: Any) -> Any:
        if isinstance(value, dict):
            return {key: flat(inner) for key, inner in value.items()}
        return value.tobytes() if isinstance(value, np.ndarray) else value

    return flat(policy.state())


def test_a_random_model_overfits_ten_tasks(
    families: dict[str, Path], rollout: Rollout
) -> None:
    """Of another family than the embedded one: nothing here is made for one model."""
    policy = LlmPolicy(str(families["qwen2"]), seed=1)
    tasks = rollout.scenario.tasks("train", 5, 10)
    before = evaluate(policy, rollout, tasks).tool_reliability
    after = before
    for number in range(60):
        iterate(policy, rollout, number, tasks=tasks)
        if number % 5 == 4:
            after = evaluate(policy, rollout, tasks).tool_reliability
            if after == 1.0:
                break
    assert before < 0.8
    assert after == 1.0


def test_same_seed_same_bytes(families: dict[str, Path], rollout: Rollout) -> None:
    """However many workers share the work."""
    made = []
    for workers in (1, 3):
        policy = LlmPolicy(str(families["qwen3"]), seed=3)
        policy._workers = policy.learner._workers = Workers(workers)
        for number in range(2):
            iterate(policy, rollout, number)
        made.append(weights(policy))
    assert made[0] == made[1]
    other = LlmPolicy(str(families["qwen3"]), seed=4)
    assert weights(other) != weights(LlmPolicy(str(families["qwen3"]), seed=3))


def test_going_on_from_a_checkpoint(
    families: dict[str, Path], rollout: Rollout
) -> None:
    policy = LlmPolicy(str(families["llama"]))
    iterate(policy, rollout, 0)
    saved = pack(policy.state())
    # Measuring in between leaves no trace.
    evaluate(policy, rollout, rollout.scenario.tasks("validation", 0, 8))
    iterate(policy, rollout, 1)
    again = LlmPolicy(str(families["llama"]))
    again.load_state(unpack(saved, "checkpoint"))
    iterate(again, rollout, 1)
    assert weights(again) == weights(policy)


def test_weights_decide_without_the_optimizer(
    families: dict[str, Path], rollout: Rollout
) -> None:
    """They are kept of the best policy, and are a third of the whole."""
    policy = LlmPolicy(str(families["llama"]))
    iterate(policy, rollout, 0)
    best = unpack(pack(policy.weights()), "checkpoint")
    assert 2.5 * len(pack(best)) < len(pack(policy.state()))
    again = LlmPolicy(str(families["llama"]), seed=1)
    iterate(again, rollout, 1)
    again.load_state(best)
    assert weights(again)["lora"] == weights(policy)["lora"]
    assert again.calibration == policy.calibration
    # The optimizer begins afresh: its moments belong to other weights.
    assert policy.state()["optimizer"]["steps"] > 0
    assert again.state()["optimizer"]["steps"] == 0


def test_the_format_loss_teaches_to_write_an_answer(
    families: dict[str, Path], rollout: Rollout
) -> None:
    """Without the constraint, which learning the choice alone does not do."""
    tools = rollout.scenario.create_environment().tool_list
    messages = [{"role": "user", "content": "Open A12"}]

    def mean_logprob(weight: float) -> float:
        options = LlmOptions(format_weight=weight)
        policy = LlmPolicy(str(families["llama"]), options=options)
        (state,) = policy._read([DecisionRequest(messages, tools)])
        for number in range(4):
            iterate(policy, rollout, number)
        answer = state.completions[-1]
        ids = torch.tensor([[*state.prompt, *answer[:-1]]])
        with torch.no_grad():
            logits = policy.engine.model(ids).logits[0, len(state.prompt) - 1 :]
        return float(logits.log_softmax(-1)[range(len(answer)), answer].mean())

    assert mean_logprob(1.0) > mean_logprob(0.0) + 1.0


@pytest.mark.parametrize(
    "option",
    [
        {"passes": 1},
        {"clip": 0.001},
        {"tasks_per_step": 1},
        {"token_dropout": 0.5},
        {"format_weight": 0.0},
    ],
)
def test_options_change_what_is_learned(
    families: dict[str, Path], rollout: Rollout, option: dict[str, Any]
) -> None:
    def learned(**options: Any) -> dict[str, bytes]:
        made = LlmOptions(model=str(families["llama"]), **options)
        policy = LlmPolicy.create(0, made)
        iterate(policy, rollout, 0)
        return weights(policy)

    assert learned(**option) != learned()


def test_frozen_components_get_no_gradient(
    families: dict[str, Path], rollout: Rollout
) -> None:
    policy = LlmPolicy(str(families["llama"]))
    before = weights(policy)
    stats = iterate(policy, rollout, 0, frozenset({"output_generation"}))
    assert stats.gradient_norm == 0.0
    assert weights(policy) == before
    # Tokens of the arguments alone: the choice of the tool is not even looked at.
    plans = [
        GroupPlan(t, 8, position=i, exploration=0.5)
        for i, t in enumerate(rollout.scenario.tasks("train", 0, 6))
    ]
    groups = rollout.groups(policy, plans)
    assign_advantages(groups, "state", 0.95)
    for group in groups:
        for trajectory in group.trajectories:
            for step in trajectory.steps:
                step.parameter_advantage = None
    stats = policy.learn(
        groups,
        learning_rate=0.1,
        entropy=0.1,
        trainable=frozenset({"parameter_selection"}),
    )
    assert stats.gradient_norm == 0.0
    assert weights(policy) == before


SETTER = Tool(
    "open_gate",
    "Opens a gate",
    {
        "type": "object",
        "properties": {
            "name": {"type": "string", "enum": ["open", "close", "report"]},
            "state": {"type": "string", "enum": ["open", "closed"]},
            "value": {"type": "string", "enum": ["Night", "Cars"]},
        },
        "required": ["name", "state", "value"],
    },
)


def asked(known: ToolCall | None = None) -> DecisionRequest:
    return DecisionRequest(
        [{"role": "user", "content": "Please"}], [SETTER], "start", known=known
    )


def test_what_siblings_know_is_not_explored(families: dict[str, Path]) -> None:
    policy = LlmPolicy(str(families["llama"]))
    known = ToolCall("open_gate", {"name": "close", "value": "Cars"})
    sampling = Sampling(np.random.default_rng(0), 1.0)
    drawn = policy.decide([asked(known)] * 2, sampling)
    # What is left is tried in turn; that it was drawn uniformly is on record.
    states = {decision.calls[0].arguments["state"] for decision in drawn}
    assert states == {"open", "closed"}
    for decision in drawn:
        assert decision.calls[0].arguments | known.arguments == (
            decision.calls[0].arguments
        )
        assert decision.logprob == pytest.approx(np.log(1 / 2))
    # What cannot be is no help, and without exploration nobody needs any.
    for wrong in ({"name": "nothing"}, {"gate": "A1"}):
        (other,) = policy.decide([asked(ToolCall("open_gate", wrong))], sampling)
        assert other.calls or other.kind != "call"
    assert policy.decide([asked(known)])[0].calls == policy.decide([asked()])[0].calls


def test_arguments_are_learned_up_to_the_first_wrong_one(
    families: dict[str, Path],
) -> None:
    policy = LlmPolicy(str(families["llama"]))
    right = {"name": "report", "state": "closed", "value": "Cars"}

    def learned(names: Sequence[str]) -> tuple[set[str], set[str]]:
        """What is pushed if the best of all siblings have these arguments right."""
        sampling = Sampling(np.random.default_rng(0), 1.0)
        task = Task("one", ({"role": "user", "content": "Please"},))
        group = Group(task, [])
        for decision in policy.decide(
            [asked(ToolCall(SETTER.name, {}))] * 12, sampling
        ):
            step = step_of(decision, "start")
            step.calls = decision.calls
            given = step.calls[0].arguments
            wrong = frozenset(n for n in right if given[n] != right[n])
            if wrong >= right.keys() - set(names):
                step.correct, step.wrong_arguments = not wrong, wrong
                step.reward = float(not wrong)
                step.failure = FailureKind.BAD_ARGUMENTS if wrong else None
                group.trajectories.append(Trajectory(task, [step], False, 0.0))
        assign_advantages([group], "state", 0.95)
        sampled, *_ = _collect([group], [TOOL, VALUE])
        parameters, values = set(), set()
        for push in sampled[0].pushes if sampled else ():
            if push.kind == VALUE:
                state = sampled[0].state
                (option, *_) = [
                    i
                    for i, path in enumerate(state.trie.paths)
                    if set(push.edges) <= set(path.tolist())
                ]
                told = state.parameters(option)[: len(push.edges)]
                parameters |= set(told)
                values |= {
                    str((state.options[option].arguments or {})[n]) for n in told
                }
        policy._forget()
        return parameters, values

    assert learned(["name", "state", "value"]) == (set(right), set(right.values()))
    assert learned(["name", "state"]) == ({"name", "state"}, {"report", "closed"})
    # Behind a wrong argument, none is taken.
    assert learned(["name", "value"]) == ({"name"}, {"report"})
    assert learned(["value"]) == (set(), set())


def test_saving_and_loading(
    families: dict[str, Path], rollout: Rollout, tmp_path: Path
) -> None:
    policy = LlmPolicy(str(families["llama"]), seed=2)
    iterate(policy, rollout, 0)
    policy.calibrate([(0.9, True), (0.6, False), (0.8, True)])
    policy.save(tmp_path)
    assert {p.name for p in tmp_path.iterdir()} == {"adapter.safetensors", "llm.json"}
    again = LlmPolicy.load(tmp_path)
    tasks = rollout.scenario.tasks("heldout", 0, 6)
    one, other = (evaluate(p, rollout, tasks) for p in (policy, again))
    assert one.decisions == other.decisions
    again.save(tmp_path / "..")
    assert (tmp_path / ".." / "adapter.safetensors").read_bytes() == (
        tmp_path / "adapter.safetensors"
    ).read_bytes()


def test_merged_model_is_the_same(
    families: dict[str, Path], rollout: Rollout, tmp_path: Path
) -> None:
    from transformers import AutoModelForCausalLM, AutoTokenizer

    for family in ("llama", "qwen2"):
        policy = LlmPolicy(str(families[family]), half=False)
        iterate(policy, rollout, 0)
        folder = tmp_path / family
        policy.export(folder)
        plain = AutoModelForCausalLM.from_pretrained(folder)
        assert AutoTokenizer.from_pretrained(folder).chat_template
        assert not list(lora_layers(plain))
        ids = torch.arange(40)[None]
        with torch.no_grad():
            gap = plain(ids).logits - policy.engine.model(ids).logits
        assert gap.abs().max() < 1e-4
        # And it can be trained on.
        assert LlmPolicy(str(folder)).format.native is policy.format.native


def test_free_form_is_plain_generation(
    families: dict[str, Path], rollout: Rollout
) -> None:
    """Batched, padded and with a kept opening: the same text as one plain call."""
    policy = LlmPolicy(str(families["llama"]))
    tools = rollout.scenario.create_environment().tool_list
    requests = [
        DecisionRequest([{"role": "user", "content": text}], tools)
        for text in ("Open A12", "Please close gate B07 now, it is late")
    ]
    decisions = policy.free_form().decide(requests)
    for request, decision in zip(requests, decisions, strict=True):
        text = policy.format.render(request.messages, tools)
        ids = policy.tokenizer(text, return_tensors="pt", add_special_tokens=False)
        with torch.no_grad():
            out = policy.engine.model.generate(
                **ids, do_sample=False, max_new_tokens=96, eos_token_id=1
            )
        new = out[0, ids["input_ids"].shape[1] :]
        expected = policy.tokenizer.decode(new, skip_special_tokens=True).strip()
        assert decision.message["content"] == expected
        assert decision.completion_tokens == len(new)


def test_too_long_a_conversation_is_refused(families: dict[str, Path]) -> None:
    policy = LlmPolicy(str(families["llama"]))
    tool = Tool("look", "Looks.")
    messages = [{"role": "user", "content": "x" * 5000}]
    with pytest.raises(ContextExceeded, match=r"5,\d+ tokens, but the context.*4,096"):
        policy.decide([DecisionRequest(messages, [tool])])


def test_too_little_memory_is_said(
    families: dict[str, Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    policy = LlmPolicy(str(families["llama"]))
    request = DecisionRequest([{"role": "user", "content": "Hello"}], ())
    monkeypatch.setattr(policy.engine, "read", lambda _: torch.empty(1 << 60))
    with pytest.raises(OutOfMemory, match="Lower batch_size or group_size"):
        policy.decide([request])
    monkeypatch.setattr(policy.engine, "read", lambda _: torch.ones(2) @ torch.ones(3))
    with pytest.raises(RuntimeError, match="size"):
        policy.decide([request])


def test_the_cache_is_bounded(families: dict[str, Path]) -> None:
    policy = LlmPolicy(str(families["llama"]))
    policy._cache.limit = 3 << 20
    tool = Tool("look", "Looks.")
    for n in range(40):
        messages = [{"role": "user", "content": f"{n} " + "words " * 30}]
        policy.decide([DecisionRequest(messages, [tool])])
    kept = sum(s.nbytes for s in policy._cache._known.values())
    assert kept == policy._cache._bytes <= 3 << 20


def test_a_folder_that_is_no_policy(families: dict[str, Path], tmp_path: Path) -> None:
    with pytest.raises(FormatError, match="Cannot read the language-model policy"):
        LlmPolicy.load(tmp_path)
    policy = LlmPolicy(str(families["llama"]))
    policy.save(tmp_path)
    whole = (tmp_path / "adapter.safetensors").read_bytes()
    (tmp_path / "adapter.safetensors").write_bytes(whole[: len(whole) // 2])
    with pytest.raises(FormatError, match="Restore its files, or train it again"):
        LlmPolicy.load(tmp_path)
    (tmp_path / "adapter.safetensors").write_bytes(whole)
    about = json.loads((tmp_path / "llm.json").read_text())
    (tmp_path / "llm.json").write_text(json.dumps({**about, "version": 99}))
    with pytest.raises(FormatError, match="Train it again with this version"):
        LlmPolicy.load(tmp_path)
    (tmp_path / "llm.json").write_text(json.dumps({**about, "model": "./gone"}))
    with pytest.raises(AssetError, match="Model './gone' not found"):
        LlmPolicy.load(tmp_path)
    other = {**about, "model": str(families["qwen3"])}
    (tmp_path / "llm.json").write_text(json.dumps(other))
    with pytest.raises(FormatError, match="trained on another version of model"):
        LlmPolicy.load(tmp_path)


def test_groups_that_travelled_teach_the_same(
    families: dict[str, Path], rollout: Rollout
) -> None:
    def after(travel: Any, times: int = 3) -> Any:
        policy = LlmPolicy(str(families["qwen3"]), seed=3)
        for number in range(times):
            plans = [
                GroupPlan(t, 8, (0, number), i, exploration=0.3)
                for i, t in enumerate(rollout.scenario.tasks("train", number, 4))
            ]
            groups = travel(policy, plans)
            assign_advantages(groups, "state", 0.95)
            policy.learn(groups, learning_rate=0.003, entropy=0.01, trainable=BOTH)
        return weights(policy)

    def here(policy: LlmPolicy, plans: Sequence[GroupPlan]) -> list[Group]:
        return rollout.groups(policy, plans)

    def there_and_back(policy: LlmPolicy, plans: Sequence[GroupPlan]) -> list[Group]:
        data = pack_groups(rollout.groups(policy, plans), policy)
        return unpack_groups(data, plans, policy)

    other = LlmPolicy(str(families["qwen3"]), seed=9)

    def elsewhere(
        policy: LlmPolicy, plans: Sequence[GroupPlan], order: int = 1
    ) -> list[Group]:
        other.load_state(policy.weights())
        packed = {
            plan.position: pack_groups(rollout.groups(other, [plan]), other)
            for plan in plans[::order]
        }
        groups: list[Group] = []
        for plan in plans:
            groups += unpack_groups(packed[plan.position], [plan], policy)
        return groups

    assert after(here) == after(there_and_back)
    # What another policy has read is read again, for each group alone.
    assert after(elsewhere) == after(lambda *a: elsewhere(*a, order=-1))
    one, two = (after(play, 1)["lora"] for play in (here, elsewhere))
    for name in one:
        gap = np.frombuffer(one[name], "f4") - np.frombuffer(two[name], "f4")
        assert np.abs(gap).mean() < 1e-5


def test_groups_do_not_depend_on_each_other(
    families: dict[str, Path], rollout: Rollout
) -> None:
    policy = LlmPolicy(str(families["llama"]))
    plans = [
        GroupPlan(t, 8, (0, 1), i, exploration=0.5)
        for i, t in enumerate(rollout.scenario.tasks("train", 2, 4))
    ]

    def told(groups: Sequence[Group]) -> list[Any]:
        return [[[s.message for s in t.steps] for t in g.trajectories] for g in groups]

    together = told(rollout.groups(policy, plans))
    assert told(rollout.groups(policy, plans[::-1]))[::-1] == together
    # What was explored before, here or in an evaluation, is no matter.
    evaluate(policy, rollout, [plan.task for plan in plans])
    assert [told(rollout.groups(policy, [plan]))[0] for plan in plans] == together

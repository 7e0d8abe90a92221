"""The planner as a policy: valid, deterministic, frozen where told, saved whole."""

from __future__ import annotations

import json
import re
import zlib
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from agentgym.core.task import Task
from agentgym.core.tools import Tool
from agentgym.core.trajectory import Group, Step, Trajectory
from agentgym.errors import FormatError
from agentgym.policies.base import Decision, DecisionRequest, Sampling
from agentgym.policies.built_in import Calibration
from agentgym.policies.planner import learner
from agentgym.policies.planner import policy as module
from agentgym.policies.planner.encoder import WIDTH, EncodedText, SentenceEncoder
from agentgym.policies.planner.learner import PlannerOptions
from agentgym.policies.planner.policy import PlannerPolicy
from agentgym.policies.planner.vectors import TextCache

ALL = frozenset({"tool_selection", "parameter_selection"})


class WordEncoder:
    """Gives each word a random vector of its own; needs no weights."""

    def count_tokens(self, text: str) -> int:
        return len(text.split())

    def encode(self, texts: Sequence[str]) -> list[EncodedText]:
        return [self._encode(text) for text in texts]

    def _encode(self, text: str) -> EncodedText:
        words = list(re.finditer(r"\w+", text))
        rows = [
            np.random.default_rng(zlib.crc32(w.group().lower().encode())).normal(
                size=WIDTH
            )
            for w in words
        ]
        hidden = np.array(rows, np.float32).reshape(-1, WIDTH)
        spans = [w.span() for w in words]
        offsets = np.array(spans, np.int32).reshape(-1, 2)
        pooled = hidden.sum(axis=0) + np.float32(1e-3)
        pooled /= np.sqrt((pooled * pooled).sum())
        return EncodedText(text, hidden, offsets, pooled)


@pytest.fixture(autouse=True)
def encoder(monkeypatch: pytest.MonkeyPatch) -> WordEncoder:
    fake = WordEncoder()
    monkeypatch.setattr(SentenceEncoder, "load", lambda layers: fake)
    return fake


def _tool(
    name: str, about: str, required: Sequence[str] = (), **properties: Any
) -> Tool:
    schema = {
        "type": "object",
        "properties": properties,
        "required": list(required),
        "additionalProperties": False,
    }
    return Tool(name, about, schema)


ORDER = {"type": "string", "pattern": "^A-\\d+$", "description": "order number"}
TOOLS = (
    _tool("find_order", "Find an order.", ["order_id"], order_id=ORDER),
    _tool(
        "refund",
        "Refund money for an order.",
        ["order_id", "reason"],
        order_id=ORDER,
        reason={"type": "string", "enum": ["late", "broken"]},
        amount={"type": "number", "minimum": 0.5, "maximum": 90},
        on={"type": "string", "format": "date"},
        urgent={"type": "boolean"},
    ),
    _tool("ping", "Check that the shop is open."),
)
TEXTS = (
    "Refund order A-12, it came broken on 2024-02-31. I paid 12.50.",
    "Where is A-7?",
    "Is the shop open?",
    "¿?",
    "A-1 or A-2 are late, 400 euros, refund both",
)


def _request(
    text: str, tools: Sequence[Tool] = TOOLS, key: str = ""
) -> DecisionRequest:
    return DecisionRequest([{"role": "user", "content": text}], tools, key)


def _sample(policy: PlannerPolicy, seed: int, explore: float = 0.3) -> list[Decision]:
    requests = [_request(t, key=t) for t in TEXTS for _ in range(8)]
    return policy.decide(requests, Sampling(np.random.default_rng(seed), explore))


def _groups(policy: PlannerPolicy, seed: int) -> list[Group]:
    """Rewards refunds that give "broken" as the reason."""
    steps = []
    for decision in _sample(policy, seed):
        good = decision.calls and decision.calls[0].name == "refund"
        right = good and decision.calls[0].arguments["reason"] == "broken"
        steps.append(
            Step(
                decision.message,
                advantage=1.0 if good else -0.5,
                parameter_advantage=1.0 if right else -0.5,
                trace=decision.trace,
            )
        )
    task = Task.__new__(Task)
    return [Group(task, [Trajectory(task, steps)])]


def _learn(policy: PlannerPolicy, seed: int, trainable: frozenset[str] = ALL) -> Any:
    return policy.learn(
        _groups(policy, seed), learning_rate=0.01, entropy=0.02, trainable=trainable
    )


def _bytes(policy: PlannerPolicy, *heads: str) -> dict[str, bytes]:
    return {
        f"{name}.{key}": array.tobytes()
        for name in heads or policy.heads.by_name
        for key, array in policy.heads.by_name[name].parameters.arrays.items()
    }


def _said(decisions: Sequence[Decision]) -> list[Any]:
    return [(d.message, d.kind, d.logprob, d.confidence) for d in decisions]


def test_calls_are_valid_and_confidences_are_shares() -> None:
    policy = PlannerPolicy()
    by_name = {tool.name: tool for tool in TOOLS}
    called = set()
    for decision in _sample(policy, 0, explore=0.9):
        assert 0 <= decision.confidence <= 1 and decision.logprob <= 1e-6
        for call in decision.calls:
            called.add(call.name)
            assert by_name[call.name].check_arguments(call.arguments) is None, call
    assert called == set(by_name)


def test_equal_states_decide_alike_and_greedy_is_deterministic() -> None:
    policy = PlannerPolicy()
    requests = [_request(t) for t in TEXTS]
    first = _said(policy.decide(requests))
    assert _said(policy.decide(requests[::-1]))[::-1] == first
    keyed = [_request(t, key=t) for t in TEXTS for _ in range(2)]
    assert (
        _said(policy.decide(keyed))[::2] == first == _said(policy.decide(keyed))[1::2]
    )
    assert _said(PlannerPolicy().decide(requests)) == first
    prepared = PlannerPolicy()
    prepared.prepare([r.messages for r in requests])
    assert _said(prepared.decide(requests)) == first


def test_siblings_that_explore_try_every_option_before_one_twice() -> None:
    policy = PlannerPolicy()
    text = TEXTS[0]
    requests = [
        DecisionRequest(
            [{"role": "user", "content": text}], TOOLS, text, exploration=0.999
        )
    ] * 60
    rng = np.random.default_rng(0)
    decisions = policy.decide(requests, Sampling(rng, 0.0))
    explored = [
        d.trace.choices[0].chosen for d in decisions if d.trace.choices[0].explored
    ]
    count = 2 + len(TOOLS)
    assert len(explored) > 3 * count
    for start in range(0, len(explored) - count, count):
        assert set(explored[start : start + count]) == set(range(count))


def test_the_probability_of_a_draw_is_the_samplers_own() -> None:
    policy = PlannerPolicy()
    share = 0.4
    for trial in range(20):
        policy._states.clear()
        rng = np.random.default_rng(trial)
        request = DecisionRequest(
            [{"role": "user", "content": TEXTS[4]}], TOOLS, "s", exploration=share
        )
        trace = policy.decide([request], Sampling(rng, 0.0))[0].trace
        first = trace.choices[0]
        odds = np.exp(first.logprobs)
        curious = np.sqrt(odds) / np.sqrt(odds).sum()
        part = module._EXPLORE_OPTION * share
        expected = (1 - part) * odds + part * curious
        assert np.exp(trace.drawn[0]) == pytest.approx(expected[first.chosen], 1e-4)


def test_it_learns_the_same_from_the_same_seed() -> None:
    one, two = PlannerPolicy(), PlannerPolicy()
    for seed in range(4):
        stats = _learn(one, seed)
        _learn(two, seed)
    assert _bytes(one) == _bytes(two)
    assert stats.steps_learned == 8 * len(TEXTS)
    (decision,) = one.decide([_request(TEXTS[0])])
    assert decision.calls[0].name == "refund"


@pytest.mark.parametrize("option", [{"passes": 1}, {"clip": 0.001}, {"blame": 0.0}])
def test_options_change_what_is_learned(option: dict[str, Any]) -> None:
    def learned(options: PlannerOptions) -> dict[str, bytes]:
        policy = PlannerPolicy.create(0, options)
        for seed in range(2):
            _learn(policy, seed)
        return _bytes(policy)

    usual = learned(PlannerOptions())
    assert learned(PlannerOptions(passes=4, clip=0.3, blame=0.5)) == usual
    assert learned(PlannerOptions(**option)) != usual


@pytest.mark.parametrize(
    ("trainable", "frozen", "heads"),
    [
        ("tool_selection", "parameter_selection", ["value", "pointer"]),
        ("parameter_selection", "tool_selection", ["tool"]),
    ],
)
def test_a_frozen_component_keeps_every_bit(
    trainable: str, frozen: str, heads: list[str]
) -> None:
    policy = PlannerPolicy()
    policy.meet([TOOLS])
    frozen_before, all_before = _bytes(policy, *heads), _bytes(policy)
    stats = _learn(policy, 0, frozenset({trainable}))
    assert stats.gradient_norms[frozen] == 0.0 < stats.gradient_norms[trainable]
    assert _bytes(policy, *heads) == frozen_before
    assert _bytes(policy) != all_before
    moments = policy.state()["optimizer"]["first"]
    assert not any(name.split(".")[0] in heads for name in moments)


def test_each_parameter_is_learned_by_itself_where_the_judge_tells() -> None:
    """Every call is wrong in something; yet "late" and A-2 are found."""
    policy = PlannerPolicy()
    request = _request("Refund A-1 or A-2.", TOOLS[1:2], "same")

    def odds() -> tuple[float, float]:
        """Of the reason "late", and of the order A-1, among sampled calls."""
        sampling = Sampling(np.random.default_rng(5), 0.0)
        drawn = [
            d.calls[0].arguments
            for d in policy.decide([request] * 400, sampling)
            if d.calls
        ]
        late = sum(a["reason"] == "late" for a in drawn) / len(drawn)
        return late, sum(a["order_id"] == "A-1" for a in drawn) / len(drawn)

    before = odds()
    for seed in range(6):
        sampling = Sampling(np.random.default_rng(seed), 0.3)
        steps = []
        for decision in policy.decide([request] * 16, sampling):
            step = Step(decision.message, reward=-1.0, trace=decision.trace)
            if decision.calls:
                given = decision.calls[0].arguments
                wanted = {"reason": "late", "order_id": "A-2"}
                step.wrong_arguments = frozenset(
                    name for name, value in wanted.items() if given[name] != value
                )
            steps.append(step)
        task = Task.__new__(Task)
        policy.learn(
            [Group(task, [Trajectory(task, steps)])],
            learning_rate=0.01,
            entropy=0.0,
            trainable=ALL,
        )
    after = odds()
    assert after[0] > before[0] + 0.1
    assert after[1] < before[1] - 0.1


def test_nothing_to_learn_from_changes_nothing() -> None:
    policy = PlannerPolicy()
    before = _bytes(policy)
    stats = policy.learn([], learning_rate=0.1, entropy=0.1, trainable=ALL)
    assert stats.steps_learned == 0 and _bytes(policy) == before


def test_what_goes_well_nearly_surely_moves_nothing(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(learner, "_SETTLED", -np.inf)
    policy = PlannerPolicy()
    (group,) = _groups(policy, 0)
    steps = group.trajectories[0].steps
    for step in steps:
        step.advantage = step.parameter_advantage = 1.0
    rates: Any = {"learning_rate": 0.01, "entropy": 0.02, "trainable": ALL}
    assert policy.learn([group], **rates).gradient_norm == 0.0
    steps[0].advantage = -0.5
    assert policy.learn([group], **rates).gradient_norm > 0.0


def test_saved_and_loaded_it_decides_the_same(tmp_path: Path) -> None:
    policy = PlannerPolicy()
    _learn(policy, 0)
    policy.calibrate([(0.9, True), (0.8, False), (0.4, True)])
    policy.save(tmp_path)
    loaded = PlannerPolicy.load(tmp_path)
    requests = [_request(t) for t in TEXTS]
    assert _said(loaded.decide(requests)) == _said(policy.decide(requests))


def test_training_goes_on_from_a_state_with_the_same_bits() -> None:
    policy = PlannerPolicy()
    _learn(policy, 0)
    resumed = PlannerPolicy()
    state = policy.state()
    copied = {k: np.copy(a) for k, a in state["weights"]["tool"].items()}
    state = {**state, "weights": {**state["weights"], "tool": copied}}
    resumed.load_state(state)
    for seed in (1, 2):
        _learn(policy, seed)
        _learn(resumed, seed)
    assert _bytes(policy) == _bytes(resumed)


def test_weights_decide_without_the_optimizer() -> None:
    policy, other = PlannerPolicy(), PlannerPolicy()
    _learn(policy, 0)
    _learn(other, 1)
    assert policy.weights().keys() == policy.state().keys() - {"optimizer"}
    other.load_state(policy.weights())
    requests = [_request(t) for t in TEXTS]
    assert _said(other.decide(requests)) == _said(policy.decide(requests))
    assert _bytes(other) == _bytes(policy)
    # The optimizer begins afresh: its moments belong to other weights.
    assert policy.state()["optimizer"]["steps"]
    assert not other.state()["optimizer"]["steps"]


@pytest.mark.parametrize(
    "damage", ["foreign", "version", "cut", "json", "gone", "shape"]
)
def test_files_that_cannot_be_read(tmp_path: Path, damage: str) -> None:
    policy = PlannerPolicy()
    policy.decide([_request(TEXTS[0])])
    policy.save(tmp_path)
    about, weights = tmp_path / "planner.json", tmp_path / "planner.safetensors"
    known = json.loads(about.read_text())
    if damage == "foreign":
        about.write_text('{"format": "other"}')
    elif damage == "version":
        about.write_text(json.dumps({**known, "version": 99}))
    elif damage == "cut":
        weights.write_bytes(weights.read_bytes()[:-100])
    elif damage == "json":
        about.write_text("[1")
    elif damage == "gone":
        weights.unlink()
    else:
        from safetensors.numpy import load_file, save_file

        arrays = load_file(weights)
        arrays["tool.bias"] = np.zeros(3, np.float32)
        save_file(arrays, weights)
    with pytest.raises(FormatError):
        PlannerPolicy.load(tmp_path)


def test_calibration_improves_the_brier_score() -> None:
    rng = np.random.default_rng(0)
    raw = rng.uniform(0.5, 0.999, 2000)
    right = rng.random(2000) < 0.3 + 0.4 * raw
    policy = PlannerPolicy()
    policy.calibrate(list(zip(raw.tolist(), right.tolist(), strict=True)))
    better = np.array([policy.calibration.confidence(p) for p in raw])
    assert ((better - right) ** 2).mean() < ((raw - right) ** 2).mean() - 0.01
    assert ((better >= 0) & (better <= 1)).all()
    sure = Calibration().refitted([(0.9, True)] * 50)
    assert 0.9 < sure.confidence(0.9) < 1
    assert Calibration(2.0, 1.0).refitted([]) == Calibration(2.0, 1.0)


def _decided(tools: Sequence[Tool], text: str) -> list[Decision]:
    requests = [_request(text, tools)] * 60
    return PlannerPolicy().decide(requests, Sampling(np.random.default_rng(0), 0.9))


def test_a_value_is_chosen_by_its_description() -> None:
    described = {"k7": "Broken.", "k8": "Late."}
    listed = [{"const": v, "description": d} for v, d in described.items()]
    tool = _tool("report", "Report a parcel.", ["code"], code={"oneOf": listed})
    for text, code in [("report it: broken", "k7"), ("report it: late", "k8")]:
        (decision,) = PlannerPolicy().decide([_request(text, [tool])])
        assert decision.calls[0].arguments == {"code": code}


def test_a_name_that_was_said_is_meant_unless_descriptions_tell_otherwise() -> None:
    told = {"lost": "Nobody knows where.", "late": "It has not come yet."}
    told |= {word: f"It is {word}." for word in ("wet", "open", "torn", "bent")}
    listed = [{"const": v, "description": d} for v, d in told.items()]
    plain = _tool("report", "Report it.", ["state"], state={"enum": list(told)})
    described = _tool("report", "Report it.", ["state"], state={"oneOf": listed})
    text = "It has not come yet. Could it be that it lost its way in some other town?"
    (decision,) = PlannerPolicy().decide([_request(text, [plain])])
    assert decision.calls[0].arguments == {"state": "lost"}
    assert decision.confidence > 0.95
    (decision,) = PlannerPolicy().decide([_request(text, [described])])
    assert decision.calls[0].arguments == {"state": "late"}


def test_tools_never_seen_can_be_called() -> None:
    policy = PlannerPolicy()
    _learn(policy, 0)
    new = _tool("sing_song", "Sing a song about the sea.")
    (decision,) = policy.decide([_request("Sing a song about the sea", (*TOOLS, new))])
    assert decision.calls[0].name == "sing_song" and decision.calls[0].arguments == {}


@pytest.mark.parametrize(
    "schema", [ORDER, {"enum": []}, {"type": "string", "enum": [1]}, False]
)
def test_a_tool_without_a_value_for_a_parameter_is_not_called(schema: Any) -> None:
    tool = _tool("find", "Find it.", ["x"], x=schema)
    assert not any(d.calls for d in _decided([tool], "hello"))


def test_parameters_that_are_only_required_are_given() -> None:
    tool = Tool("note", "Note it.", {"type": "object", "required": ["x"]})
    calls = [c for d in _decided([tool], "hello there") for c in d.calls]
    assert calls and all(tool.check_arguments(c.arguments) is None for c in calls)


def test_asking_names_what_is_missing() -> None:
    asked = [d for d in _decided(TOOLS[:1], "hello") if d.kind == "ask"]
    assert asked
    assert {d.message["content"] for d in asked} == {
        "Could you please tell me the order number?"
    }
    assert not any(d.kind == "ask" for d in _decided(TOOLS[2:], "hello"))


def test_no_tools_and_no_words() -> None:
    (decision,) = PlannerPolicy().decide([DecisionRequest([], [])])
    assert decision.kind == "finish"


def test_caches_are_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    for limit in ("_max_states", "_max_toolsets"):
        monkeypatch.setattr(PlannerPolicy, limit, 4)
    monkeypatch.setattr(module, "_MAX_COUNTED", 4)
    policy = PlannerPolicy()
    for i in range(30):
        tool = _tool("ping", "Check.")
        policy.decide([_request(t, TOOLS, t) for t in (f"text {i}", f"more {i}")])
        policy.decide([_request("x", [tool])])
    assert len(policy._states) <= 8 and len(policy._tokens) <= 8
    assert len(policy._toolsets) <= 5


def test_equal_tools_are_compiled_once(encoder: Any) -> None:
    policy = PlannerPolicy()
    encoded: list[str] = []
    policy.encoder.encode = lambda texts: (  # type: ignore[method-assign]
        encoded.extend(texts) or WordEncoder.encode(encoder, texts)
    )
    first = _said(policy.decide([_request(TEXTS[0])]))
    encoded.clear()
    for _ in range(3):
        again = [Tool.from_openai(json.loads(json.dumps(t.to_openai()))) for t in TOOLS]
        assert _said(policy.decide([_request(TEXTS[0], again)])) == first
    assert encoded == [] and len(policy._compiled) == 1
    policy.decide([_request(TEXTS[0], TOOLS[::-1])])
    assert len(policy._compiled) == 2


def test_compiled_tools_are_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "_TOOLSET_BYTES", 100_000)
    policy = PlannerPolicy()
    for i in range(40):
        # Known states must survive, whatever else is forgotten in their batch.
        new = _tool(f"ping{i}", "Check. " * 5)
        policy.decide([_request("x", TOOLS, "x"), _request("x", [new])])
        assert policy._compiled_bytes < 200_000


def test_a_loaded_planner_does_not_grow_with_tools_it_never_learned(
    tmp_path: Path,
) -> None:
    policy = PlannerPolicy()
    _learn(policy, 0)
    policy.save(tmp_path)
    loaded = PlannerPolicy.load(tmp_path)
    before = {n: dict(rows) for n, rows in loaded.slots.items()}
    sizes = {name: len(data) for name, data in _bytes(loaded).items()}
    song = _tool("sing_song", "Sing a song.", ["what"], what={"enum": ["la", "li"]})
    for i in range(20):
        tools = (*TOOLS, song, _tool(f"x{i}", "Do.", ["y"], y={"type": "string"}))
        mine = loaded.decide([_request(t, tools) for t in TEXTS])
        assert _said(mine) == _said(policy.decide([_request(t, tools) for t in TEXTS]))
    assert loaded.slots == before
    assert {name: len(data) for name, data in _bytes(loaded).items()} == sizes
    (tmp_path / "again").mkdir()
    loaded.save(tmp_path / "again")
    saved = (tmp_path / "planner.safetensors").read_bytes()
    assert (tmp_path / "again" / "planner.safetensors").read_bytes() == saved


def test_where_tools_come_and_go_none_gets_a_row_of_its_own(tmp_path: Path) -> None:
    policy = PlannerPolicy()
    for start in range(0, 200, 5):
        some = [
            _tool(f"do{i}", f"Do {i}.", ["x"], x={"enum": ["a", "b"]}, y={})
            for i in range(start, start + 5)
        ]
        policy.meet([some])
    assert "<tool>" in policy.slots["tool"]
    assert all(len(rows) < 3 * 64 for rows in policy.slots.values())
    before = {n: dict(rows) for n, rows in policy.slots.items()}
    new = [_tool(f"new{i}", "New.", ["x"], x={"enum": ["a", "c"]}) for i in range(9)]
    policy.meet([new])
    assert policy.slots == before
    _learn(policy, 0)
    assert policy.heads.tool.parameters.arrays["shared_rows"].any()
    policy.save(tmp_path)
    loaded = PlannerPolicy.load(tmp_path)
    for tools in (new, TOOLS):
        requests = [_request(text, tools) for text in TEXTS]
        assert _said(loaded.decide(requests)) == _said(policy.decide(requests))


def test_a_loaded_planner_can_learn_new_tools(tmp_path: Path) -> None:
    policy = PlannerPolicy()
    _learn(policy, 0)
    policy.save(tmp_path)
    loaded = PlannerPolicy.load(tmp_path)
    song = _tool("sing_song", "Sing a song.")
    request = _request("hello", (*TOOLS, song))
    sampling = Sampling(np.random.default_rng(0))
    before = {n: dict(rows) for n, rows in loaded.slots.items()}
    (decision,) = loaded.decide([request], sampling)
    # Serving others must not make it grow; learning may, also what nobody announced.
    assert loaded.slots == before
    step = Step(decision.message, advantage=1.0, trace=decision.trace)
    group = Group(Task("one", ()), [Trajectory(Task("one", ()), [step])])
    loaded.learn([group], learning_rate=0.01, entropy=0.0, trainable=ALL)
    assert "sing_song" in loaded.slots["tool"]
    loaded.meet([[_tool("dance", "Dance.")]])
    assert "dance" in loaded.slots["tool"]
    _learn(loaded, 1)


def test_where_a_call_must_be_made_one_is_made() -> None:
    policy = PlannerPolicy()
    tools = (*TOOLS[:1], _tool("ping", "Check that the shop is open."))
    free, bound = policy.decide(
        [
            _request("Thank you, nothing else", tools, "key"),
            DecisionRequest(
                _request("Thank you, nothing else").messages,
                tools,
                "key",
                must_call=True,
            ),
        ]
    )
    assert not free.calls
    assert [c.name for c in bound.calls] == ["ping"]
    # Nothing in the conversation is an order number, so there is nothing to call.
    request = DecisionRequest(_request("hello").messages, TOOLS[:1], must_call=True)
    assert not policy.decide([request])[0].calls
    assert not policy.decide([DecisionRequest([], [], must_call=True)])[0].calls
    sampled = policy.decide(
        [DecisionRequest(_request("A-1").messages, TOOLS, "k", 0.9, must_call=True)]
        * 40,
        Sampling(np.random.default_rng(0)),
    )
    assert all(d.calls for d in sampled)
    task = Task.__new__(Task)
    steps = [Step(d.message, advantage=1.0, trace=d.trace) for d in sampled]
    stats = policy.learn(
        [Group(task, [Trajectory(task, steps)])],
        learning_rate=0.01,
        entropy=0.02,
        trainable=ALL,
    )
    assert np.isfinite(stats.loss) and np.isfinite(stats.gradient_norm)


def test_long_texts_are_not_all_remembered(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "_COUNTED_CHARACTERS", 1_000)
    policy = PlannerPolicy()
    for i in range(50):
        assert policy.count_tokens(f"{i} " * 100) == 100
        assert sum(map(len, policy._tokens)) < 1_500


def test_a_known_state_survives_a_full_cache(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(PlannerPolicy, "_max_states", 4)
    policy = PlannerPolicy()
    for i in range(10):
        texts = ["known", f"text {i}", f"more {i}"]
        assert len(policy.decide([_request(t, key=t) for t in texts])) == 3


def test_the_text_cache_is_bounded(encoder: Any) -> None:
    cache = TextCache(encoder, limit=50_000)
    for i in range(40):
        text = f"some words {i}"
        assert cache.get([text, "kept"])[text].text == text
        assert cache.size <= 50_000
    assert "kept" in cache._texts and len(cache._texts) < 10
    for i in range(40):
        cache.prefetch([f"ahead {i}"])
        for future in list(cache._ahead.values()):
            future.result()
    assert cache.size <= 50_000 and len(cache._ahead) <= 2
    assert cache.get(["ahead 39"])["ahead 39"].text == "ahead 39"

"""Settings: what is allowed, who wins, and what a wrong file is told."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest
from hypothesis import example, given
from hypothesis import strategies as st
from pydantic import Field, ValidationError

from agentgym.core.config import TrainingConfig
from agentgym.core.options import PolicyOptions, checked_options, config_error
from agentgym.errors import ConfigError

OPTIONS = {"patience": 2, "rate": 0.5, "strict": True, "label": "a", "free": None}


def config(**settings: Any) -> TrainingConfig:
    return TrainingConfig(scenario="shop", **settings)


def test_defaults() -> None:
    made = config()
    assert (made.framework, made.policy, made.engine) == (None, "planner", "local")
    assert (made.episodes, made.gpu_provider) == (10_000, "auto")
    assert (made.learning_rate, made.discount_factor) == (3e-4, 0.95)
    assert (made.group_size, made.batch_size, made.credit) == (8, 16, "state")
    assert (made.exploration, made.entropy, made.seed) == (0.1, 0.02, 0)
    assert (made.eval_every, made.eval_tasks, made.heldout_tasks) == (1280, 200, 400)
    assert (made.failure_budget, made.max_steps, made.tool_timeout) == (0.1, 10, 10.0)
    assert (made.target_reliability, made.components, made.name) == (None, None, None)


def test_every_field_is_described() -> None:
    for name, field in TrainingConfig.model_fields.items():
        assert field.description, name


@pytest.mark.parametrize(
    "wrong",
    [
        {"episodes": 0},
        {"episodes": -5},
        {"episodes": "many"},
        {"episodes": 1.5},
        {"episodes": True},
        {"episodes": None},
        {"learning_rate": 0},
        {"learning_rate": float("nan")},
        {"discount_factor": 0},
        {"discount_factor": 1},
        {"group_size": 1},
        {"batch_size": 0},
        {"credit": "fair"},
        {"exploration": 1},
        {"exploration": -0.1},
        {"entropy": -1},
        {"entropy": float("inf")},
        {"seed": -1},
        {"seed": 2**32},
        {"eval_every": 0},
        {"eval_tasks": 0},
        {"heldout_tasks": 0},
        {"target_reliability": 0},
        {"target_reliability": 1.01},
        {"failure_budget": 1.1},
        {"max_steps": 0},
        {"tool_timeout": 0},
        {"components": []},
        {"components": ["everything"]},
        {"components": "tool_selection"},
        {"name": "../up"},
        {"name": ""},
        {"framework": "nothing"},
        {"gpu_provider": "moon"},
        {"policy": ""},
        {"manual_hours": 0},
    ],
)
def test_wrong_values_are_refused_in_one_line(wrong: dict[str, Any]) -> None:
    with pytest.raises(ValidationError) as caught:
        config(**wrong)
    text = str(config_error(caught.value, "file.yaml"))
    assert text.startswith(f"file.yaml: {next(iter(wrong))}: should ")
    assert "\n" not in text
    assert "Input" not in text


def test_the_scenario_is_required() -> None:
    with pytest.raises(ConfigError, match=r"^scenario: is required\.$"):
        TrainingConfig.from_dict({})


def test_assignment_is_checked_and_counts_as_the_users() -> None:
    made = config().resolve({}, {"episodes": 7}, {})
    with pytest.raises(ValidationError):
        made.episodes = 0
    assert (made.episodes, made.sources["episodes"]) == (7, "policy")
    made.episodes = 9
    assert (made.episodes, made.sources["episodes"]) == (9, "user")


def test_resolve_precedence() -> None:
    resolved = config(seed=3, entropy=0.02).resolve(
        {"seed": 1, "entropy": 0.5, "batch_size": 4},
        {"seed": 2, "batch_size": 5, "learning_rate": 0.02},
        {},
    )
    assert (resolved.seed, resolved.sources["seed"]) == (3, "user")
    # Set by the user to what happens to be the default: still the user's.
    assert (resolved.entropy, resolved.sources["entropy"]) == (0.02, "user")
    assert (resolved.batch_size, resolved.sources["batch_size"]) == (4, "scenario")
    assert (resolved.learning_rate, resolved.sources["learning_rate"]) == (
        0.02,
        "policy",
    )
    assert (resolved.episodes, resolved.sources["episodes"]) == (10_000, "default")
    assert set(resolved.sources) == set(TrainingConfig.model_fields)


def test_resolve_hands_options_to_the_scenario() -> None:
    resolved = config(patience="3").resolve({}, {}, OPTIONS)
    assert resolved.options_of(OPTIONS) == {
        **{n: v for n, v in OPTIONS.items() if v is not None},
        "patience": 3,
    }
    assert resolved.sources["patience"] == "user"
    assert resolved.sources["rate"] == "default"


def test_resolve_names_every_unknown_setting() -> None:
    with pytest.raises(ConfigError) as caught:
        config(episode=5, patienc=3, zzz=1).resolve({}, {}, OPTIONS)
    text = str(caught.value)
    assert "'episode'. Did you mean 'episodes'?" in text
    assert "'patienc'. Did you mean 'patience'?" in text
    assert "Unknown setting 'zzz'." in text
    assert "\n" not in text


class Options(PolicyOptions):
    """Those of a policy that takes a language model."""

    model: str = "tiny-lm"
    passes: int = Field(4, ge=1, description="Passes over a batch.")


def test_resolve_hands_options_to_the_policy() -> None:
    resolved = config(passes="2").resolve({}, {}, OPTIONS, policy_options=Options)
    known = Options.model_fields
    assert resolved.options_of(known) == {"model": "tiny-lm", "passes": 2}
    assert (resolved.model, resolved.sources["model"]) == ("tiny-lm", "policy")
    assert resolved.sources["passes"] == "user"
    assert TrainingConfig.from_dict(resolved.to_dict()) == resolved
    resolved = config(model="big-lm").resolve({}, {}, {}, policy_options=Options)
    assert resolved.options_of(known) == {"model": "big-lm", "passes": 4}
    assert resolved.sources["model"] == "user"


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({"passes": 0}, "passes: should be greater than or equal to 1, got 0"),
        ({"pases": 2}, "Unknown setting 'pases'. Did you mean 'passes'?"),
        ({"free_form_tasks": 3}, "Policy 'planner' doesn't use 'free_form_tasks'"),
    ],
)
def test_options_of_policies_are_checked(given: dict[str, Any], message: str) -> None:
    with pytest.raises(ConfigError, match=re.escape(message)):
        config(**given).resolve({}, {}, OPTIONS, policy_options=Options)


def test_scenario_and_policy_may_not_share_an_option() -> None:
    with pytest.raises(ConfigError, match="have an option 'passes'"):
        config().resolve({}, {}, {"passes": 3}, policy_options=Options)


def test_resolve_checks_the_defaults_too() -> None:
    with pytest.raises(
        ConfigError, match="Unknown training default of the policy 'lr'"
    ):
        config().resolve({}, {"lr": 1}, {})
    with pytest.raises(ConfigError, match="training defaults: episodes: should"):
        config().resolve({"episodes": -1}, {}, {})


def test_resolve_refuses_a_gpu_that_the_engine_cannot_use() -> None:
    with pytest.raises(ConfigError, match="can't use GPUs of 'runpod'"):
        config(gpu_provider="runpod").resolve({}, {}, {})
    assert config(gpu_provider="local").resolve({}, {}, {}).gpu_provider == "local"


@pytest.mark.parametrize(
    ("given_options", "message"),
    [
        ({"patience": "soon"}, "patience: should be a whole number, got 'soon'"),
        ({"patience": True}, "patience: should be a whole number, got True"),
        ({"rate": "fast"}, "rate: should be a number"),
        ({"strict": 1}, "strict: should be true or false"),
        ({"label": 5}, "label: should be text"),
        ({"patients": 5}, "Did you mean 'patience'"),
    ],
)
def test_options_have_the_type_of_their_default(
    given_options: dict[str, Any], message: str
) -> None:
    with pytest.raises(ConfigError, match=message):
        checked_options(OPTIONS, given_options)


def test_options_are_made_fit() -> None:
    values = {"patience": "4", "rate": 1, "strict": False, "label": "b", "free": [1]}
    result = checked_options(OPTIONS, values)
    assert result == {**values, "patience": 4, "rate": 1.0}
    assert isinstance(result["rate"], float)


settings = st.fixed_dictionaries(
    {},
    optional={
        "episodes": st.integers(1, 10**9),
        "learning_rate": st.floats(1e-12, 1e3),
        "discount_factor": st.floats(0.001, 0.999),
        "credit": st.sampled_from(["state", "broadcast"]),
        "seed": st.integers(0, 2**32 - 1),
        "target_reliability": st.none() | st.floats(0.001, 1.0),
        "components": st.none()
        | st.lists(
            st.sampled_from(["tool_selection", "parameter_selection"]), min_size=1
        ),
        "name": st.none() | st.from_regex(r"\A[A-Za-z0-9][A-Za-z0-9_.-]{0,20}\Z"),
        "engine": st.text(min_size=1, max_size=20),
        "patience": st.integers(1, 9),
    },
)


@given(settings)
def test_dict_round_trip(values: dict[str, Any]) -> None:
    policy = {"learning_rate": 0.02, "batch_size": 3}
    resolved = config(**values).resolve({"entropy": 0.1}, policy, OPTIONS)
    again = TrainingConfig.from_dict(resolved.to_dict())
    assert again == resolved
    assert again.sources == resolved.sources
    assert again.resolve({"entropy": 0.1}, policy, OPTIONS) == resolved


@given(values=settings)
@example(values={"engine": "a\x85b"})
def test_yaml_round_trip(
    tmp_path_factory: pytest.TempPathFactory, values: dict[str, Any]
) -> None:
    path = tmp_path_factory.getbasetemp() / "round_trip.yaml"
    resolved = config(**values).resolve({}, {"learning_rate": 0.02}, OPTIONS)
    resolved.to_yaml(path)
    again = TrainingConfig.from_yaml(path)
    assert again.model_dump() == resolved.model_dump()
    # Whoever hands on the file has set everything in it.
    assert set(again.sources.values()) == {"user"}


def test_yaml_says_who_set_what(tmp_path: Path) -> None:
    path = tmp_path / "c.yaml"
    config(episodes=5).resolve({}, {"learning_rate": 0.02}, {}).to_yaml(path)
    lines = path.read_text().splitlines()
    assert "episodes: 5" in lines
    assert "learning_rate: 0.02  # policy" in lines
    assert "batch_size: 16  # default" in lines


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("scenario: [", "isn't valid YAML: line 1"),
        ("scenario: x\n  episodes: 3", "isn't valid YAML: line 2"),
        ("- scenario", "'name: value' per line, not list"),
        ("just words", "'name: value' per line, not text"),
        ("", "scenario: is required"),
        ("scenario: x\nepisodes: many", "episodes: should be a whole number"),
        ("scenario: x\nepisodes: 0", "episodes: should be greater than 0, got 0"),
        ("scenario: x\nepisodes: yes", "episodes: should be a value"),
        ("scenario: x\nseed: 1\nseed: 2", "line 3, column 1: 'seed' is set twice"),
        ("scenario: x\ncredit: fair", "credit: should be 'state' or 'broadcast'"),
        ("1: 2", "setting 1 should be a name"),
        ("? [a]\n: b", "isn't valid YAML"),
        ("scenario: !!python/name:os.system", "isn't valid YAML"),
        ("scenario: 2026-99-99", "isn't valid YAML"),
        ("scenario: x\nsources: 3", "sources should be a mapping"),
        ("[" * 1500, "isn't valid YAML"),
        ("\x00", "isn't valid YAML"),
    ],
)
def test_wrong_yaml_is_told_in_one_line(
    tmp_path: Path, text: str, message: str
) -> None:
    path = tmp_path / "wrong.yaml"
    path.write_text(text)
    with pytest.raises(ConfigError) as caught:
        TrainingConfig.from_yaml(path)
    assert message in str(caught.value)
    assert str(path) in str(caught.value)
    assert "\n" not in str(caught.value)


def test_yaml_numbers_may_be_written_as_people_do(tmp_path: Path) -> None:
    path = tmp_path / "c.yaml"
    path.write_text("scenario: x\nlearning_rate: 3e-4\n")
    assert TrainingConfig.from_yaml(path).learning_rate == 3e-4


def test_files_that_cannot_be_read_or_written(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="cannot be read"):
        TrainingConfig.from_yaml(tmp_path / "none.yaml")
    with pytest.raises(ConfigError, match="cannot be read"):
        TrainingConfig.from_yaml(tmp_path)
    latin = tmp_path / "latin.yaml"
    latin.write_bytes(b"scenario: caf\xe9")
    with pytest.raises(ConfigError, match="UTF-8"):
        TrainingConfig.from_yaml(latin)
    with pytest.raises(ConfigError, match="cannot be written"):
        config().to_yaml(tmp_path / "no" / "folder.yaml")


def test_who_plays_in_the_place_of_the_built_in_loop() -> None:
    assert config().agent_count == 0
    assert config(framework="crewai").agent_count == 1
    several = config(agent="a:b, c:d", agent_command="run", framework="langchain")
    assert several.agent_names == ["a:b", "c:d"]
    assert several.agent_count == 4


def test_every_field_says_what_its_option_looks_like() -> None:
    for name, field in TrainingConfig.model_fields.items():
        extra = field.json_schema_extra
        assert isinstance(extra, dict), name
        assert extra["metavar"], name
        assert set(extra) <= {"metavar", "flag", "tuned"}, name

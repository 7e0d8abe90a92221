"""Policies by name, and what they say of themselves."""

from __future__ import annotations

import ast
import contextlib
from importlib.metadata import EntryPoint
from pathlib import Path
from typing import Any

import pytest

import agentgym
from agentgym.core.config import TrainingConfig
from agentgym.engines import ENGINES, get_engine
from agentgym.engines.base import Engine
from agentgym.errors import (
    ConfigError,
    MissingExtraError,
    PolicyNotFoundError,
    UsageError,
)
from agentgym.policies import registry
from agentgym.policies.base import Policy
from agentgym.policies.planner.policy import PlannerPolicy
from agentgym.policies.saved import SavedAgent
from agentgym.scenarios.registry import BUILTIN, ScenarioRegistry

SOURCE = Path(agentgym.__file__).parent
TINY = Path(__file__).parents[1] / "integration"
DOCS = Path(__file__).parents[2] / "docs"


@pytest.fixture
def offered(monkeypatch: pytest.MonkeyPatch) -> None:
    """Policies and engines of installed packages."""
    monkeypatch.syspath_prepend(str(TINY))
    policies = [
        EntryPoint("tiny", "tiny_policy:TinyPolicy", "agentgym.policies"),
        EntryPoint("small", "tiny_policy:TinyPolicy", "agentgym.policies"),
        EntryPoint("path", "pathlib:Path", "agentgym.policies"),
        EntryPoint("planner", "tiny_policy:TinyPolicy", "agentgym.policies"),
    ]
    engines = [
        EntryPoint("here", "agentgym.engines.local:LocalEngine", "agentgym.engines"),
        EntryPoint("path", "pathlib:Path", "agentgym.engines"),
    ]
    known = {"agentgym.policies": policies, "agentgym.engines": engines}
    monkeypatch.setattr("importlib.metadata.entry_points", lambda group: known[group])


@pytest.mark.usefixtures("offered")
def test_policies_of_packages() -> None:
    assert registry.policy_class("tiny").name == "tiny"
    assert registry.create_policy("tiny", 3).state()["tool"].any()
    # A package cannot take a built-in name.
    assert registry.policy_class("planner") is PlannerPolicy
    with pytest.raises(UsageError, match="Policy 'path' isn't a subclass of Policy"):
        registry.policy_class("path")
    with pytest.raises(UsageError, match="'small' calls itself 'tiny'"):
        registry.policy_class("small")
    with pytest.raises(PolicyNotFoundError, match="llm, path, planner, small, tiny"):
        registry.policy_class("nobody")


@pytest.mark.usefixtures("offered")
def test_engines_of_packages() -> None:
    assert isinstance(get_engine("here"), Engine)
    assert ENGINES.names() == ["here", "local", "path", "trl"]
    with pytest.raises(UsageError, match="Engine 'path' isn't a subclass of Engine"):
        get_engine("path")


def test_no_other_room_knows_policies_by_name() -> None:
    """But for the default setting, and for the extra that one of them needs."""
    found = set()
    for path in SOURCE.rglob("*.py"):
        place = path.relative_to(SOURCE).as_posix()
        if place.startswith("policies/"):
            continue
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            if isinstance(node, ast.Constant) and node.value in registry._CLASSES:
                found.add(f"{place}: {node.value}")
    assert found <= {"core/config.py: planner", "cli/doctor.py: llm"}


def classes() -> list[type[Policy]]:
    """Those that can be imported here."""
    found: list[type[Policy]] = []
    for name in registry.POLICIES.builtin:
        with contextlib.suppress(MissingExtraError):
            found.append(registry.policy_class(name))
    return found


def _with(name: str, value: Any) -> TrainingConfig:
    return TrainingConfig.from_dict({"scenario": "shop", name: value})


def test_options_are_described() -> None:
    for policy in classes():
        for name, field in policy.policy_options.model_fields.items():
            known = TrainingConfig.model_fields.get(name)
            if known is None:
                assert field.description, name
            else:  # It must be one that the trainer leaves to policies.
                with pytest.raises(ConfigError, match="doesn't use"):
                    _with(name, known.default or "x").resolve({}, {}, {})


def test_options_are_documented() -> None:
    for policy in classes():
        page = DOCS / f"{policy.name}.md"
        for name, field in policy.policy_options.model_fields.items():
            if name not in TrainingConfig.model_fields:
                assert f"| `{name}` | {field.default} |" in page.read_text()


def test_whatever_has_tuned_defaults_is_marked() -> None:
    """So that the command line does not show a default that rarely holds."""
    extras = {n: f.json_schema_extra for n, f in TrainingConfig.model_fields.items()}
    tuned = {n for n, e in extras.items() if isinstance(e, dict) and "tuned" in e}
    defaults: set[str] = set()
    for policy in classes():
        defaults |= set(policy.training_defaults)
    for name in ENGINES.builtin:
        defaults |= set(get_engine(name).training_defaults)
    for name in BUILTIN:
        cls = ScenarioRegistry.find(name)
        scenario = cls.__new__(cls)  # Some can't be made without options.
        defaults |= set(scenario.training_defaults())
        defaults |= set(scenario.language_model_defaults())
    assert defaults <= tuned


def test_weights_are_fetched_for_what_was_saved(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked: list[Any] = []

    def fetch(cls: Any, options: Any, progress: Any = None) -> None:
        asked.append((options, progress))

    monkeypatch.setattr(PlannerPolicy, "fetch", classmethod(fetch))
    about = {"config": {"passes": 2, "clip": 0.1, "blame": 0.5}}
    SavedAgent(PlannerPolicy(), [], about).save(tmp_path / "new")
    SavedAgent(PlannerPolicy(), [], {}).save(tmp_path / "old")
    SavedAgent.fetch(tmp_path / "new", print)  # type: ignore[arg-type]
    SavedAgent.fetch(tmp_path / "old")
    options = PlannerPolicy.policy_options
    assert asked == [(options(passes=2, clip=0.1), print), (options(), None)]

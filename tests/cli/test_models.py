"""`agentgym models` and `agentgym evaluate`."""

from __future__ import annotations

import json
import shutil
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from agentgym.store import Store


@pytest.fixture
def trained(cli: Any, trained_home: Path) -> Callable[..., Any]:
    """The command line, in a home with the models tiny_v1.0 and tiny_v1.1."""
    return lambda *arguments: cli(*arguments, "--home", str(trained_home))


@pytest.fixture
def own_copy(cli: Any, home: Path, trained_home: Path) -> Path:
    """The same home, to be changed."""
    shutil.copytree(trained_home, home)
    return home


def test_list(trained: Any) -> None:
    done = trained("models", "list")
    assert done.code == 0, done.err
    _, first, second = done.out.rstrip("\n").split("\n")
    assert first.startswith("tiny_v1.0  tiny_scenario:Tiny  planner  ")
    assert second.startswith("tiny_v1.1")
    models = trained("models", "list", "--json").json["models"]
    assert [m["model"] for m in models] == ["tiny_v1.0", "tiny_v1.1"]
    assert models[0]["metrics"]["tasks"] == 16


def test_an_empty_home_says_how_to_begin(cli: Any) -> None:
    assert "agentgym train" in cli("models", "list").err
    assert cli("models", "list", "--json").json == {"models": []}


def test_show(trained: Any, trained_home: Path) -> None:
    done = trained("models", "show", "tiny")
    assert done.code == 0, done.err
    assert "tiny_v1.1: tiny_scenario:Tiny, policy planner" in done.out
    assert str(trained_home / "models" / "tiny_v1.1") in done.out
    assert "seed 1" in done.out
    assert "with agentgym" in done.out
    assert "tool reliability" in done.out
    assert "against 4 h" in done.out
    facts = trained("models", "show", "tiny:v1.0", "--json").json
    assert facts["version"] == "v1.0"
    assert facts["metadata"]["config"]["seed"] == 0


def test_compare(trained: Any) -> None:
    done = trained("models", "compare", "tiny_v1.0", "tiny_v1.1")
    assert done.code == 0, done.err
    assert done.out.split("\n")[0].split()[-2:] == ["tiny_v1.0", "tiny_v1.1"]
    assert "tool reliability" in done.out
    # Another seed draws other tasks.
    assert "different tasks" in done.err
    assert "evaluate" in done.err
    same = trained("models", "compare", "tiny_v1.0", "tiny_v1.0", "--json").json
    assert same["same_tasks"] is True
    assert len(same["models"]) == 2


def test_compare_needs_two(trained: Any) -> None:
    done = trained("models", "compare", "tiny_v1.0")
    assert done.code == 2
    assert "at least two models" in done.error


@pytest.mark.parametrize(
    "arguments",
    [
        ("models", "show", "tinny"),
        ("models", "compare", "tiny", "tinny"),
        ("models", "delete", "tinny", "--yes"),
        ("evaluate", "tinny"),
    ],
)
def test_an_unknown_model_is_explained(trained: Any, arguments: tuple[str]) -> None:
    done = trained(*arguments)
    assert done.code == 2
    assert "Model 'tinny' not found" in done.error
    assert "tiny_v1.0" in done.error


def test_delete_wants_to_know_which_and_whether(own_copy: Path, cli: Any) -> None:
    assert "newest is tiny_v1.1" in cli("models", "delete", "tiny", "--yes").error
    assert "--yes" in cli("models", "delete", "tiny_v1.0").error
    done = cli("models", "delete", "tiny_v1.0", "--yes")
    assert done.out == "Deleted tiny_v1.0.\n"
    with Store(own_copy) as store:
        assert [m.full_name for m in store.list_models()] == ["tiny_v1.1"]
    done = cli("models", "delete", "tiny_v1.1", "--yes", "--json")
    assert done.json == {"deleted": "tiny_v1.1"}


@pytest.mark.parametrize(("answer", "left"), [("y", 1), ("n", 2)])
def test_delete_asks_on_a_terminal(
    own_copy: Path, cli: Any, monkeypatch: pytest.MonkeyPatch, answer: str, left: int
) -> None:
    monkeypatch.setattr("sys.stdin.isatty", lambda: True, raising=False)
    monkeypatch.setattr("typer._click.termui.visible_prompt_func", lambda _: answer)
    done = cli("models", "delete", "tiny_v1.0")
    assert done.code == (0 if answer == "y" else 1)
    with Store(own_copy) as store:
        assert len(store.list_models()) == left


def test_evaluate_measures_again(trained: Any) -> None:
    done = trained("evaluate", "tiny_v1.0", "--seed", "5", "--count", "7")
    assert done.code == 0, done.err
    assert "tiny_v1.0 on 7 held-out tasks of tiny_scenario:Tiny" in done.out
    assert "tool reliability" in done.out
    again = trained("evaluate", "tiny_v1.0", "--seed", "5", "--count", "7", "--json")
    called = again.json["metrics"]["per_tool"]
    assert called and all(tool in done.out for tool in called)


def test_evaluate_on_its_own_tasks_gives_the_figures_of_its_training(
    trained: Any,
) -> None:
    trained_on = trained("models", "show", "tiny_v1.0", "--json").json["metrics"]
    done = trained("evaluate", "tiny_v1.0", "--json").json
    assert set(done) == {"model", "metrics", "tasks"}
    assert done["model"] == "tiny_v1.0"
    assert done["tasks"] == 16
    for name in ("tool_reliability", "task_success", "per_tool", "failures"):
        assert done["metrics"][name] == trained_on[name]


@pytest.mark.parametrize("kind", ["agent", "agent-command"])
def test_evaluate_with_an_agent(
    trained: Any, monkeypatch: pytest.MonkeyPatch, kind: str
) -> None:
    examples = Path(__file__).parents[2] / "examples"
    monkeypatch.syspath_prepend(str(examples))
    agents = {
        "agent": "tool_loop_agent:agent",
        "agent-command": f"{sys.executable} -S {examples / 'command_agent.py'}",
    }
    arguments = ("evaluate", "tiny_v1.0", "--count", "7", "--json")
    built_in = trained(*arguments).json["metrics"]
    played = trained(*arguments, f"--{kind}", agents[kind])
    assert played.code == 0, played.err
    # It decides the same, whoever does it.
    for name in ("tool_reliability", "tool_calls", "per_tool"):
        assert played.json["metrics"][name] == built_in[name]
    # But others did it: what they cannot do fails.
    broken = trained(*arguments, f"--{kind}", "nowhere:x")
    assert broken.code == 2 and "nowhere" in broken.error


def test_evaluate_takes_a_folder(trained: Any, trained_home: Path) -> None:
    folder = trained_home / "models" / "tiny_v1.0"
    done = trained("evaluate", str(folder), "--count", "3", "--json")
    assert done.json["tasks"] == 3
    shutil.copytree(folder, "copied")
    assert trained("evaluate", "copied", "--count", "3").code == 0


@pytest.mark.parametrize(
    ("spoil", "part"),
    [
        (lambda folder: (folder / "agent.json").unlink(), "agent.json is missing"),
        (lambda folder: (folder / "agent.json").write_text('{"a'), "truncated"),
        (lambda folder: (folder / "agent.json").write_text("{}"), "an AgentGym model"),
        (
            lambda folder: (folder / "agent.json").write_text(
                json.dumps({"format": "agentgym-model", "version": 99})
            ),
            "Update AgentGym",
        ),
        (
            lambda folder: (folder / "planner.safetensors").write_bytes(b"x" * 9),
            "spoilt",
        ),
        (lambda folder: (folder / "planner.safetensors").unlink(), "spoilt"),
    ],
)
def test_a_model_that_cannot_be_read_is_explained(
    trained: Any, trained_home: Path, spoil: Callable[[Path], Any], part: str
) -> None:
    shutil.copytree(trained_home / "models" / "tiny_v1.0", "spoilt")
    spoil(Path("spoilt"))
    done = trained("evaluate", "spoilt")
    assert done.code == 1
    assert part in done.error


def test_no_such_folder(trained: Any) -> None:
    done = trained("evaluate", "no/such/folder")
    assert done.code == 2
    assert "no/such/folder" in done.error


def test_pull(cli: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from agentgym.policies.llm import models

    monkeypatch.setattr(models, "find_model", lambda name, progress: tmp_path / name)
    assert cli("models", "pull", "smollm2-135m", "--json").json == {
        "model": "smollm2-135m",
        "path": str(tmp_path / "smollm2-135m"),
    }
    assert "smollm2-135m is in" in cli("models", "pull", "smollm2-135m").out

"""`agentgym train`: what it prints, what it leaves, and how it refuses."""

from __future__ import annotations

import inspect
import json
import os
import re
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from pydantic import Field

from agentgym.cli.train import read_config
from agentgym.core.config import TrainingConfig
from agentgym.core.result import TrainingResult
from agentgym.engines import ENGINES, get_engine
from agentgym.errors import MissingExtraError, UsageError
from agentgym.policies.registry import POLICIES, policy_class
from agentgym.scenarios.registry import BUILTIN, ScenarioRegistry
from agentgym.store import Store

TINY = "tiny_scenario:Tiny"
SMALL = ("--episodes", "32", "--eval-every", "16", "--group-size", "4")
"""Said in full: the scenario's own defaults are none of these tests' business."""
Spawn = Callable[..., subprocess.Popen[str]]


def test_a_training_ends_with_a_table_and_what_to_do_next(home: Path, cli: Any) -> None:
    done = cli("train", TINY, *SMALL, "--seed", "3")
    assert done.code == 0, done.err
    assert "untrained" in done.out
    assert re.search(r"tool reliability +\S+% \[\S+, \S+\] +\S+% \[", done.out)
    for row in ("task success", "tokens per task", "cost per solved", "response"):
        assert row in done.out
    assert "against 4 h of tuning prompts by hand" in done.out
    after = done.out.partition("Next:\n")[2].strip().split("\n")
    assert len(after) == 3
    assert "agentgym evaluate tiny_v1.0" in after[0]
    assert done.err.count("episodes  reliability") >= 3
    with Store(home) as store:
        assert store.get_run("last").status == "finished"
        assert store.get_run("last").seed == 3


def test_json_is_one_object_that_a_result_can_be_read_from(spawn: Spawn) -> None:
    child = spawn(
        *("train", "--scenario", TINY, *SMALL, "--name", "mine", "--json"),
        PYTHONWARNINGS="always",
    )
    out, err = child.communicate(timeout=60)
    assert child.returncode == 0, err
    result = TrainingResult.from_dict(json.loads(out))
    assert result.model == "mine_v1.0"
    assert result.config["sources"]["name"] == "user"
    assert Path(result.trained_model_path).is_dir()
    assert result.metrics.episodes_completed > 28
    assert "tool reliability" in err


def test_what_a_scenario_or_its_tools_print_is_no_result(cli: Any) -> None:
    Path("loud.py").write_text(
        "from tiny_scenario import Gates, Tiny\n"
        "print('imported')\n"
        "class LoudGates(Gates):\n"
        "    def make_world(self, task):\n"
        "        print('opened')\n"
        "        return super().make_world(task)\n"
        "class Loud(Tiny):\n"
        "    def create_environment(self, tasks=(), **options):\n"
        "        return LoudGates(tasks, **options)\n"
    )
    done = cli("train", "loud:Loud", *SMALL, "--json")
    model = done.json["model"]
    assert "imported" in done.err and "opened" in done.err
    assert cli("evaluate", model, "--count", "2", "--json").json["model"] == model


def test_quiet_prints_the_model_and_nothing_else(cli: Any) -> None:
    done = cli("train", TINY, "--episodes", "16", "--quiet")
    assert done.out == "tiny_v1.0\n"
    assert done.err == ""


def test_the_command_line_wins_over_the_file(tmp_path: Path) -> None:
    path = tmp_path / "settings.yaml"
    path.write_text("episodes: 77\nseed: 4\ntool_failure_rate: 0.1\n")
    config = read_config(
        "customer_support", None, str(path), ["discount-factor=0.5"], {"seed": "9"}
    )
    assert isinstance(config, TrainingConfig)
    assert (config.episodes, config.seed, config.discount_factor) == (77, 9, 0.5)
    assert config.scenario == "customer_support"
    assert config.model_extra == {"tool_failure_rate": 0.1}
    assert config.sources["episodes"] == "user"
    assert config.sources["max_steps"] == "default"


def test_the_file_may_name_the_scenario(tmp_path: Path) -> None:
    path = tmp_path / "settings.yaml"
    path.write_text("scenario: customer_support\n")
    assert read_config(None, None, str(path), [], {}).scenario == "customer_support"
    assert read_config("other", None, str(path), [], {}).scenario == "other"


def test_settings_are_read_as_yaml() -> None:
    given = ["a=1", "b=yes", "c=[x, y]", "d=text", "e=a: b: c", "f="]
    config = read_config("s", None, None, given, {})
    assert config.model_extra == {
        "a": 1,
        "b": True,
        "c": ["x", "y"],
        "d": "text",
        "e": "a: b: c",
        "f": None,
    }


def test_two_scenarios_are_one_too_many() -> None:
    assert read_config("a", "a", None, [], {}).scenario == "a"
    with pytest.raises(UsageError, match="Name only one"):
        read_config("a", "b", None, [], {})


def _options(cli: Any) -> dict[str, str]:
    """What `--help` says of each option, by its flag."""
    found: dict[str, str] = {}
    for line in cli("train", "--help").out.split("\n"):
        if match := re.match(r"  (?:-\w, )?(--[a-z-]+)(.*)", line):
            flag, found[match[1]] = match[1], match[2]
        elif found and line.startswith("   "):
            found[flag] += line
    return {flag: " ".join(text.split()) for flag, text in found.items()}


_OWN = {"--scenario", "--tasks", "--config", "--set", "--home", "--json", "--quiet"}


def test_options_are_the_fields_of_the_config_and_fields_are_options(cli: Any) -> None:
    fields = {
        str(about.get("flag") or f"--{name.replace('_', '-')}"): field
        for name, field in TrainingConfig.model_fields.items()
        if (about := field.json_schema_extra) is not None and name != "scenario"
    }
    options = _options(cli)
    assert options.keys() == fields.keys() | _OWN | {"--help"}
    for flag, field in fields.items():
        assert " ".join((field.description or "").split()) in options[flag]


def test_a_new_field_is_an_option_at_once(cli: Any) -> None:
    from agentgym.cli.train import _with_settings

    class More(TrainingConfig):
        patience: int = Field(
            3, description="Wait.", json_schema_extra={"metavar": "N"}
        )

    def command(**given: str | None) -> None: ...

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("agentgym.cli.train.TrainingConfig", More)
        made = _with_settings(command)
    assert "patience" in inspect.signature(made).parameters


def test_defaults_that_policies_or_scenarios_replace_are_not_shown(cli: Any) -> None:
    tuned = set()
    for name in POLICIES.builtin:
        try:
            policy = policy_class(name)
        except MissingExtraError:
            continue
        tuned |= policy.training_defaults.keys()
    for name in ENGINES.builtin:
        tuned |= get_engine(name).training_defaults.keys()
    for name in BUILTIN:
        scenario = ScenarioRegistry.load(name)
        tuned |= scenario.training_defaults().keys()
        tuned |= scenario.language_model_defaults().keys()
    options = _options(cli)
    shown = set(
        re.findall(
            r"(--[a-z-]+)",
            " ".join(flag for flag, text in options.items() if "Default:" in text),
        )
    )
    assert not shown & {f"--{name.replace('_', '-')}" for name in tuned}
    assert {"--seed", "--engine", "--credit", "--failure-budget"} <= shown


@pytest.mark.parametrize(
    ("arguments", "code", "parts"),
    [
        ([], 2, ["Name a scenario", "customer_support"]),
        (
            ["suport"],
            2,
            ["Scenario 'suport' not found", "Available: code_review, customer_supp"],
        ),
        (["no_such_module:X"], 1, ["no_such_module", "cannot be imported"]),
        (["tiny_scenario:Tinny"], 1, ["Did you mean 'Tiny'?"]),
        ([TINY, "--policy", "nobody"], 2, ["Policy 'nobody' not found", "planner"]),
        ([TINY, "--engine", "no"], 2, ["Engine 'no' not found", "local, trl"]),
        ([TINY, "--episodes", "0"], 2, ["episodes", "greater than 0"]),
        ([TINY, "--episodes", "-5"], 2, ["episodes", "greater than 0"]),
        ([TINY, "--episodes", "many"], 2, ["episodes", "whole number", "many"]),
        ([TINY, "--seed", "-1"], 2, ["seed", "greater than or equal to 0"]),
        ([TINY, "--learning-rate", "nan"], 2, ["learning_rate", "finite"]),
        ([TINY, "--credit", "both"], 2, ["credit", "'state'"]),
        ([TINY, "--framework", "mine"], 2, ["framework", "langchain"]),
        ([TINY, "--components", "tools"], 2, ["components", "tool_selection"]),
        ([TINY, "--gpu", "runpod"], 2, ["gpu_provider", "local"]),
        ([TINY, "--name", "a/b"], 2, ["name", "letters"]),
        ([TINY, "--name", "a_v1.2"], 2, ["name", "version"]),
        ([TINY, "--set", "episods=3"], 2, ["'episods'", "Did you mean 'episodes'?"]),
        ([TINY, "--set", "episodes"], 2, ["Use --set NAME=VALUE"]),
        ([TINY, "--config", "nowhere.yaml"], 2, ["nowhere.yaml", "cannot be read"]),
    ],
)
def test_bad_settings_are_refused_before_anything_starts(
    home: Path, cli: Any, arguments: list[str], code: int, parts: list[str]
) -> None:
    done = cli("train", *arguments)
    assert done.code == code
    for part in parts:
        assert part in done.error
    assert done.out == ""
    assert not home.exists()


@pytest.mark.parametrize(
    ("text", "part"),
    [
        ("episodes: [1", "isn't valid YAML"),
        ("- a\n- b\n", "list"),
        ("episodes: lots\n", "episodes: should be a whole number"),
        ("episodes: 1\nepisodes: 2\n", "set twice"),
        ("\ttabs: 1\n", "isn't valid YAML: line 1"),
    ],
)
def test_a_broken_file_is_named(cli: Any, text: str, part: str) -> None:
    Path("bad.yaml").write_text(text)
    done = cli("train", TINY, "--config", "bad.yaml")
    assert done.code == 2
    assert "bad.yaml" in done.error
    assert part in done.error


def test_a_home_that_cannot_be_used_is_explained(tmp_path: Path, cli: Any) -> None:
    blocked = tmp_path / "file"
    blocked.touch()
    done = cli("train", TINY, *SMALL, "--home", str(blocked))
    assert done.code == 1
    assert "AGENTGYM_HOME" in done.error
    with Path(tmp_path / "database").open("wb") as file:
        file.write(b"no database" * 1000)
    (tmp_path / "other").mkdir()
    shutil.copy(tmp_path / "database", tmp_path / "other" / "agentgym.db")
    done = cli("train", TINY, *SMALL, "--home", str(tmp_path / "other"))
    assert done.code == 1
    assert "not an SQLite database" in done.error


def test_a_full_disk_is_explained_and_leaves_nothing_half(
    home: Path, cli: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    import errno

    def full(path: object, data: object = None) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr("os.replace", full)
    done = cli("train", TINY, *SMALL)
    assert done.code == 1
    assert "space" in done.error
    with Store(home) as store:
        assert store.get_run("last").status == "failed"
        assert store.list_models() == []


def test_ctrl_c_saves_and_says_how_to_resume(
    home: Path, cli: Any, spawn: Spawn
) -> None:
    arguments = "--episodes 80 --group-size 4 --batch-size 4".split()
    child = spawn("train", TINY, *arguments, TINY_DELAY="0.5")
    assert child.stderr is not None
    while "0 episodes" not in (line := child.stderr.readline()):
        assert line, "ended before it began"
    time.sleep(0.2)
    child.send_signal(signal.SIGINT)
    out, err = child.communicate(timeout=60)
    assert child.returncode == 130
    assert out == ""
    assert "Traceback" not in err
    last = err.strip().split("\n")[-1]
    assert last.startswith("Interrupted after ")
    with Store(home) as store:
        run = store.get_run("last")
    assert run.status == "interrupted"
    assert last.endswith(f"Resume with: agentgym runs resume {run.id}")
    done = cli("runs", "resume", run.id, "--json")
    assert done.code == 0, done.err
    assert done.json["run_id"] == run.id
    assert done.json["metrics"]["episodes_completed"] > 76


def test_a_scenario_that_breaks_is_explained(cli: Any) -> None:
    done = cli("train", TINY, *SMALL, "--set", "crash=true")
    assert done.code == 1
    assert "the gate house is on fire" in done.error


def test_the_live_view_on_a_terminal(home: Path, spawn: Spawn) -> None:
    script = shutil.which("script")
    if script is None:
        pytest.skip("needs script(1) for a terminal")
    command = f"{sys.executable} -m agentgym train {TINY} {' '.join(SMALL)}"
    done = subprocess.run(
        [script, "-qec", command, "/dev/null"],
        capture_output=True,
        stdin=subprocess.DEVNULL,
        env={
            **os.environ,
            "TERM": "xterm-256color",
            "COLUMNS": "100",
            "LINES": "40",
            "PYTHONPATH": os.pathsep.join(sys.path),
        },
        timeout=60,
    )
    text = done.stdout.decode()
    assert done.returncode == 0, text
    assert re.search(r"\b(29|3\d) / 32 episodes", text)
    assert "░ 95% interval" in text
    assert "measuring the untrained policy" in text
    assert "groups without variance" in text
    assert "Next:" in text

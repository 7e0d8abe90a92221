"""`agentgym runs`: looking at runs and steering them."""

from __future__ import annotations

import os
import re
import shutil
import socket
import subprocess
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from agentgym import Trainer
from agentgym.errors import UsageError
from agentgym.runs.view import view_of
from agentgym.store import Store

TINY = "tiny_scenario:Tiny"
Spawn = Callable[..., subprocess.Popen[str]]


@pytest.fixture
def trained(cli: Any, trained_home: Path) -> Callable[..., Any]:
    """The command line, in a home with two finished runs."""
    return lambda *arguments: cli(*arguments, "--home", str(trained_home))


def wait_for(home: Path, *statuses: str, points: int = 0) -> str:
    """Waits until the newest run is in one of the states; returns its id."""
    deadline = time.monotonic() + 60
    while time.monotonic() < deadline:
        if (home / "agentgym.db").exists():
            with Store(home) as store:
                runs = store.list_runs(1)
                if (
                    runs
                    and runs[0].status in statuses
                    and len(view_of(store, runs[0].id).points) >= points
                ):
                    return runs[0].id
        time.sleep(0.05)
    raise AssertionError(f"no run became {statuses}")


def test_lists_are_newest_first(trained: Any) -> None:
    done = trained("runs", "list")
    assert done.code == 0, done.err
    head, first, second = done.out.rstrip("\n").split("\n")
    assert head.split()[:1] == ["run"]
    assert "tiny_v1.1" in first
    assert "tiny_v1.0" in second
    assert "finished" in first
    runs = trained("runs", "list", "--json").json["runs"]
    assert [run["model"] for run in runs] == ["tiny_v1.1", "tiny_v1.0"]
    assert trained("runs", "list", "--limit", "1").out.count("finished") == 1


def test_an_empty_home_says_how_to_begin(cli: Any) -> None:
    done = cli("runs", "list")
    assert done.code == 0
    assert done.out == ""
    assert "agentgym train" in done.err
    assert cli("runs", "list", "--json").json == {"runs": []}


def test_show_draws_the_curve_and_the_table_again(trained: Any) -> None:
    done = trained("runs", "show")
    assert done.code == 0, done.err
    assert "100% ┤" in done.out
    assert " of 48 episodes" in done.out
    assert "░ 95% interval" in done.out
    assert "held-out tasks" in done.out
    assert "against 4 h" in done.out
    assert re.search(r"^  seed +1  \(user\)$", done.out, re.MULTILINE)
    assert "(policy)" in done.out or "(scenario)" in done.out


def test_show_as_json_has_every_point(trained: Any) -> None:
    run = trained("runs", "list", "--json").json["runs"][1]
    facts = trained("runs", "show", run["id"], "--json").json
    assert facts["id"] == run["id"]
    assert [p["iteration"] for p in facts["points"]][:3] == [1, 2, 3]
    assert facts["points"][-1]["episodes"] == facts["episodes"]
    assert facts["episodes"] == facts["result"]["metrics"]["episodes_completed"]
    assert {e["split"] for e in facts["evaluations"]} == {"validation", "heldout"}
    assert facts["result"]["model"] == "tiny_v1.0"
    assert "trajectories" not in facts


def test_single_episodes_show_calls_results_and_rewards(trained: Any) -> None:
    solved = trained("runs", "show", "--trajectories", "--solved", "--limit", "2")
    assert solved.code == 0, solved.err
    assert solved.out.count("  solved  (") == 2
    assert "_gate(gate=" in solved.out
    assert '-> {"gate"' in solved.out
    assert "reward +" in solved.out
    failed = trained("runs", "show", "last", "--trajectories", "--json").json
    assert all(not t["success"] for t in failed["trajectories"])


def test_no_episodes_is_said(home: Path, cli: Any) -> None:
    with Store(home) as store:
        store.create_run(
            "bare", scenario="gone:Away", policy="p", engine="e", seed=0, config={}
        )
        store.update_run("bare", status="failed", error="It broke.")
    assert "No failed episodes" in cli("runs", "show", "--trajectories").err
    done = cli("runs", "show")
    assert done.code == 0
    assert "error: It broke." in done.out


@pytest.mark.parametrize(
    ("command", "rest"),
    [
        *((name, ()) for name in ("show", "watch", "pause", "resume", "stop")),
        ("adjust", ("entropy=0.1",)),
        ("delete", ("--yes",)),
    ],
)
def test_an_unknown_run_is_explained(
    trained: Any, command: str, rest: tuple[str, ...]
) -> None:
    done = trained("runs", command, "nope", *rest)
    assert done.code == 2
    assert "Run 'nope' not found" in done.error


@pytest.mark.parametrize(
    ("command", "part"),
    [
        (("pause",), "can't be paused: it is finished."),
        (("stop",), "can't be stopped: it is finished."),
        (("adjust", "last", "entropy=0.1"), "can't be adjusted: it is finished."),
    ],
)
def test_what_cannot_be_done_to_a_finished_run(
    trained: Any, command: tuple[str, ...], part: str
) -> None:
    done = trained("runs", *command)
    assert done.code == 2
    assert part in done.error


def test_a_finished_run_that_is_resumed_gives_its_result_again(
    trained: Any, trained_home: Path
) -> None:
    done = trained("runs", "resume")
    assert done.code == 0, done.err
    assert re.search(r"Run \w+ is already finished\.", done.err)
    assert "Trained tiny_v1.1" in done.out and "tool reliability" in done.out
    assert trained("runs", "resume", "--quiet").out == "tiny_v1.1\n"
    # As from Python.
    result = Trainer.resume("last", home=trained_home).to_dict()
    assert trained("runs", "resume", "--json").json == result


def test_a_finished_run_can_be_watched_for_its_lines(trained: Any) -> None:
    done = trained("runs", "watch")
    assert done.code == 0
    assert done.err.count("episodes  reliability") >= 3
    assert "finished" in done.err


@pytest.mark.parametrize(
    ("arguments", "part"),
    [
        (("runs", "list"), "tiny_v1.1"),
        (("runs", "show"), "95% interval"),
        (("runs", "show", "--trajectories", "--solved"), "reward +"),
        (("runs", "watch"), " / 48 episodes"),
        (("models", "list"), "tiny_v1.0"),
    ],
)
def test_on_a_terminal_all_is_drawn_in_colours(
    trained: Any,
    monkeypatch: pytest.MonkeyPatch,
    arguments: tuple[str, ...],
    part: str,
) -> None:
    monkeypatch.setenv("TTY_COMPATIBLE", "1")
    monkeypatch.setenv("FORCE_COLOR", "1")
    monkeypatch.setenv("TERM", "xterm-256color")
    monkeypatch.setenv("COLUMNS", "120")
    monkeypatch.setattr("sys.stdout.isatty", lambda: True)
    done = trained(*arguments)
    assert done.code == 0, done.err
    assert "\x1b[" in done.out + done.err
    assert part in re.sub(r"\x1b\[[0-9;?]*[A-Za-z]", "", done.out + done.err)


def test_pause_watch_resume_and_stop_from_another_process(
    home: Path, cli: Any, spawn: Spawn
) -> None:
    child = spawn("train", TINY, "--episodes", "4000", TINY_DELAY="0.05")
    run = wait_for(home, "running", points=1)
    again = cli("runs", "resume")
    assert again.code == 2
    assert again.error == (
        f"Run {run} is already running in process {child.pid} on"
        f" {socket.gethostname()}. Watch it with: agentgym runs watch {run}"
    )
    with pytest.raises(UsageError, match=re.escape(again.error)):
        Trainer.resume("last", home=home)
    assert f"Stop it with: agentgym runs stop {run}" in (
        cli("runs", "delete", run, "--yes").error
    )

    paused = cli("runs", "pause")
    assert paused.code == 0, paused.err
    assert paused.out == f"Run {run} is paused.\n"
    assert f"Run {run} is already paused." in cli("runs", "pause").error
    resumed = cli("runs", "resume", "--json")
    assert resumed.json["status"] == "running"

    watching = spawn("runs", "watch")
    stopped = cli("runs", "stop", run[:4])
    assert stopped.code == 0, stopped.err
    assert stopped.out == f"Run {run} is stopped; its model is tiny_v1.0.\n"
    out, err = child.communicate(timeout=60)
    assert child.returncode == 0, err
    assert "stopped" in err
    assert "Trained tiny_v1.0" in out
    _, seen = watching.communicate(timeout=60)
    assert watching.returncode == 0
    assert "episodes  reliability" in seen
    assert f"Run {run} stopped" in seen


def test_a_killed_run_is_resumed_here_unless_its_checkpoints_are_damaged(
    home: Path, tmp_path: Path, cli: Any, spawn: Spawn
) -> None:
    child = spawn("train", TINY, "--episodes", "120", TINY_DELAY="0.1")
    run = wait_for(home, "running", points=2)
    child.kill()
    child.communicate()
    assert "can't be paused: it is interrupted" in cli("runs", "pause").error
    assert "agentgym runs resume" in cli("runs", "stop").error

    damaged = tmp_path / "damaged"
    shutil.copytree(home, damaged)
    for path in (damaged / "runs" / run).glob("checkpoint*"):
        os.truncate(path, 100)
    refused = cli("runs", "resume", "--home", str(damaged))
    assert refused.code == 1
    assert "checkpoint" in refused.error

    done = cli("runs", "resume", "--quiet", "--home", str(home))
    assert done.code == 0, done.err
    assert done.out == "tiny_v1.0\n"
    with Store(home) as store:
        assert store.get_run(run).status == "finished"
        points = view_of(store, run).points
    assert [p.iteration for p in points] == list(range(1, len(points) + 1))


def test_leaving_a_watch_leaves_the_run_alone(
    home: Path, cli: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    with Store(home) as store:
        store.create_run(
            "live", scenario=TINY, policy="p", engine="e", seed=0, config={}
        )

    def interrupted(_: float) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr("agentgym.cli.runs.time.sleep", interrupted)
    done = cli("runs", "watch")
    assert done.code == 130
    assert "Run live continues" in done.err
    with Store(home) as store:
        assert store.get_run("live").status == "running"


def test_a_run_that_does_not_obey_at_once_was_told(
    home: Path, cli: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    with Store(home) as store:
        store.create_run(
            "slow", scenario=TINY, policy="p", engine="e", seed=0, config={}
        )
    monkeypatch.setattr("agentgym.cli.runs._CONFIRM_SECONDS", 0.0)
    done = cli("runs", "pause")
    assert done.code == 0
    assert done.out == (
        "Pause requested. Run slow will be paused after its current iteration.\n"
    )
    with Store(home) as store:
        assert store.take_commands("slow") == [("pause", {})]


def test_adjusting_says_what_will_happen(home: Path, cli: Any, spawn: Spawn) -> None:
    child = spawn("train", TINY, "--episodes", "4000", TINY_DELAY="0.05")
    run = wait_for(home, "running", points=1)
    for wrong, part in (
        (("seed=3",), "'seed' can't be changed"),
        (("learning_rate=-1",), "learning_rate must be above 0"),
        (("entropy=much",), "Invalid setting 'entropy=much'. Use NAME=NUMBER."),
        ((), "Missing argument"),
    ):
        done = cli("runs", "adjust", run, *wrong)
        assert done.code == 2
        assert part in done.error
    done = cli("runs", "adjust", "last", "learning-rate=2e-2", "episodes=8")
    assert done.code == 0, done.err
    assert done.out == (
        f"Adjustment requested. Run {run} will use learning_rate=0.02, episodes=8 from"
        " its next iteration on.\n"
    )
    _, err = child.communicate(timeout=60)
    assert child.returncode == 0, err
    assert "adjusted: learning_rate=0.02, episodes=8" in err
    assert "learning_rate=0.02, episodes=8" in cli("runs", "show").out


def test_deleting_a_run_leaves_its_model(
    cli: Any, home: Path, trained_home: Path
) -> None:
    shutil.copytree(trained_home, home)
    with Store(home) as store:
        newest, oldest = (run.id for run in store.list_runs())
    assert "Add --yes to delete" in cli("runs", "delete", newest).error
    assert cli("runs", "delete", newest, "--yes").out == f"Deleted run {newest}.\n"
    assert not (home / "runs" / newest).exists()
    done = cli("runs", "delete", oldest, "--yes", "--json")
    assert done.json == {"deleted": oldest}
    with Store(home) as store:
        assert store.list_runs() == []
        assert store.events(oldest) == store.trajectories(oldest) == []
        assert len(store.list_models()) == 2

"""How the command line starts and how it ends."""

from __future__ import annotations

import json
import os
import resource
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

import agentgym
from agentgym.cli import app, common

HEAVY = ("pydantic", "numpy", "gymnasium", "sqlalchemy", "rich", "yaml")


def without_coverage() -> dict[str, str]:
    """The environment in which children measure no coverage, nor import it."""
    return {k: v for k, v in os.environ.items() if "COVERAGE" not in k}


def imported_by(*arguments: str) -> set[str]:
    """Top-level packages that are loaded when the command has answered."""
    code = (
        "import atexit, json, sys\n"
        "from agentgym.cli.main import main\n"
        "atexit.register(lambda: print(json.dumps(sorted({m.partition('.')[0]"
        " for m in sys.modules})), file=sys.stderr))\n"
        f"sys.argv = ['agentgym', *{list(arguments)!r}]\n"
        "main()"
    )
    done = subprocess.run(
        [sys.executable, "-c", code],
        capture_output=True,
        text=True,
        env=without_coverage(),
    )
    assert done.returncode == 0, done.stderr
    return set(json.loads(done.stderr.strip().split("\n")[-1]))


def cpu_seconds(code: str, *arguments: str, repeat: int = 5) -> float:
    """The least CPU time of some tries: the others were disturbed."""
    # Measuring coverage would take longer than what is measured.
    environment = without_coverage()
    tries = []
    for _ in range(repeat):
        before = resource.getrusage(resource.RUSAGE_CHILDREN)
        subprocess.run(
            [sys.executable, "-c", code, *arguments],
            check=True,
            env=environment,
            stdout=subprocess.DEVNULL,
        )
        after = resource.getrusage(resource.RUSAGE_CHILDREN)
        tries.append(
            after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime
        )
    return min(tries)


def test_version(capfd: pytest.CaptureFixture[str]) -> None:
    done = subprocess.run(
        [sys.executable, "-m", "agentgym", "--version"], capture_output=True, text=True
    )
    assert done.stdout == f"agentgym {agentgym.__version__}\n"
    assert done.returncode == 0
    assert app.run(["--version"]) == 0
    assert capfd.readouterr().out == done.stdout


def test_version_imports_nothing_that_it_does_not_need() -> None:
    assert not imported_by("--version") & {"typer", "typing", *HEAVY}


@pytest.mark.parametrize(
    "arguments", [("--help",), ("scenarios", "list"), ("scenarios", "list", "--json")]
)
def test_help_and_lists_start_without_heavy_imports(arguments: tuple[str, ...]) -> None:
    assert not imported_by(*arguments) & set(HEAVY)


def test_version_takes_less_than_twice_the_time_of_python() -> None:
    main = "from agentgym.cli.main import main; main()"
    ratio = cpu_seconds(main, "--version", repeat=9) / cpu_seconds("pass", repeat=9)
    assert ratio < 2.0


def test_scenarios_list_loads_less_than_twice_the_modules_of_typer() -> None:
    # Counted, not timed: `benchmarks/startup.py` has the milliseconds.
    def modules(code: str, *arguments: str) -> int:
        count = "import atexit, sys; atexit.register(lambda: print(len(sys.modules)));"
        done = subprocess.run(
            [sys.executable, "-c", f"{count} {code}", *arguments],
            check=True,
            capture_output=True,
            text=True,
            env=without_coverage(),
        )
        return int(done.stdout.split()[-1])

    main = "from agentgym.cli.main import main; main()"
    assert modules(main, "scenarios", "list") < 2 * modules("import typer")


def test_every_listed_command_exists_and_explains_itself(
    capfd: pytest.CaptureFixture[str],
) -> None:
    for name in app.COMMANDS:
        assert app.run([name, "--help"]) == 0
        assert f"Usage: agentgym {name}" in capfd.readouterr().out


def test_the_list_says_what_the_commands_say_themselves(
    capfd: pytest.CaptureFixture[str],
) -> None:
    app.run([])
    listed = capfd.readouterr().out
    for name, text in app.COMMANDS.items():
        assert f"  {name:<9}  {text}" in listed


@pytest.mark.parametrize("name", ["scenarios", "runs", "models"])
def test_a_group_alone_shows_its_help(
    name: str, capfd: pytest.CaptureFixture[str]
) -> None:
    assert app.run([name]) == 0
    assert "Commands:" in capfd.readouterr().out


@pytest.mark.parametrize(
    ("arguments", "part"),
    [
        (["trian"], "Did you mean 'train'? Try 'agentgym --help'."),
        (["--nope"], "No such option: --nope. Try 'agentgym --help'."),
        (["runs", "shwo"], "Did you mean 'show'?"),
        (["train", "--episodes"], "requires an argument"),
        (["train", "a", "b"], "Try 'agentgym train --help'."),
        (["models", "show"], "Missing argument 'MODEL'"),
        (["runs", "list", "--limit", "0"], "greater than or equal to 1"),
        (["evaluate", "x", "--seed", "abc"], "--seed"),
    ],
)
def test_wrong_usage_is_one_line_and_code_2(
    cli: Any, arguments: list[str], part: str
) -> None:
    done = cli(*arguments)
    assert part in done.error
    assert done.code == 2
    assert done.out == ""


def test_an_unexpected_error_is_one_line_and_its_traceback_is_in_the_log(
    home: Path, cli: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    def broken() -> None:
        raise ValueError("two\nlines")

    monkeypatch.setattr("agentgym.scenarios.registry.ScenarioRegistry.list", broken)
    done = cli("scenarios", "list")
    assert done.code == 1
    assert done.error.startswith("ValueError: two lines. This is a bug")
    log = home / "crash.log"
    assert str(log) in done.error
    assert "Traceback" in log.read_text()


def test_without_a_home_the_traceback_is_among_temporary_files(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    blocked = tmp_path / "file"
    blocked.touch()
    monkeypatch.setenv("AGENTGYM_HOME", str(blocked))
    monkeypatch.setattr("tempfile.gettempdir", lambda: str(tmp_path))
    path = common.write_crash_log(ValueError("x"))
    assert path == tmp_path / "agentgym-crash.log"
    monkeypatch.setattr("tempfile.gettempdir", lambda: str(blocked))
    assert (
        common.write_crash_log(ValueError("x"))
        == "no file, because none can be written"
    )


def test_ctrl_c_in_any_command_ends_with_130(
    cli: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    def interrupted() -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(
        "agentgym.scenarios.registry.ScenarioRegistry.list", interrupted
    )
    assert cli("scenarios", "list").code == 130


def test_a_closed_pipe_is_no_error() -> None:
    reader, writer = os.pipe()
    os.close(reader)
    done = subprocess.run(
        [sys.executable, "-m", "agentgym", "scenarios", "list"],
        stdout=writer,
        stderr=subprocess.PIPE,
        text=True,
    )
    os.close(writer)
    assert "Traceback" not in done.stderr


def test_completion_script_and_completions() -> None:
    done = subprocess.run(
        [sys.executable, "-m", "agentgym"],
        env={
            **os.environ,
            "_AGENTGYM_COMPLETE": "complete_bash",
            "COMP_WORDS": "agentgym runs re",
            "COMP_CWORD": "2",
        },
        capture_output=True,
        text=True,
    )
    assert done.stdout.split() == ["resume"], done.stderr


def test_one_blas_thread_unless_told_otherwise() -> None:
    code = (
        "import os, sys; from agentgym.cli.main import main\n"
        "sys.argv = ['agentgym', 'scenarios', 'list']\n"
        "try: main()\n"
        "except SystemExit: print(os.environ['OPENBLAS_NUM_THREADS'])"
    )
    for given, wanted in (({}, "1"), ({"OPENBLAS_NUM_THREADS": "2"}, "2")):
        environment = {
            k: v for k, v in os.environ.items() if k != "OPENBLAS_NUM_THREADS"
        }
        done = subprocess.run(
            [sys.executable, "-c", code],
            env=environment | given,
            capture_output=True,
            text=True,
        )
        assert done.stdout.split()[-1] == wanted


def test_a_terminal_without_unicode_gets_plain_characters(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    from agentgym.ui.charts import ASCII, UNICODE

    class Stream:
        encoding = "latin-1"

    monkeypatch.setattr(sys, "stdout", Stream())
    assert common.glyphs() is ASCII
    Stream.encoding = "utf-8"
    assert common.glyphs() is UNICODE

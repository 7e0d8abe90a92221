"""`agentgym tasks`, and `--tasks` of the other commands."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

SMALL = "--episodes 64 --eval-every 64 --group-size 4 --batch-size 8".split()


def _line(number: int, **fields: Any) -> dict[str, Any]:
    name = f"paint_{number % 9}"
    room = {"type": "string", "enum": ["hall", "attic"]}
    schema = {"type": "object", "properties": {"room": room}, "required": ["room"]}
    function = {"name": name, "description": "Paints.", "parameters": schema}
    return {
        "id": str(number),
        "messages": [{"role": "user", "content": f"Please {name} the hall."}],
        "tools": [{"type": "function", "function": function}],
        "expected": [{"name": name, "arguments": {"room": "hall"}}],
        **fields,
    }


def _write(*lines: Any, name: str = "tasks.jsonl") -> str:
    texts = [one if isinstance(one, str) else json.dumps(one) for one in lines]
    Path(name).write_text("\n".join(texts))
    return name


def test_a_file_without_mistakes(cli: Any) -> None:
    file = _write(*map(_line, range(45)))
    done = cli("tasks", "check", file)
    assert done.code == 0
    assert done.out == (
        "45 tasks with 9 tools: train 25, validation 10, heldout 10, easy 45.\n"
    )
    report = cli("tasks", "check", file, "--json").json
    assert report["ok"] and report["heldout_tools_unseen"] and report["tasks"] == 45


def test_mistakes_have_lines_and_code_1(cli: Any) -> None:
    file = _write(_line(0), "{", _line(1, splt="train"), "", _line(0))
    done = cli("tasks", "check", file)
    assert done.code == 1 and not done.err
    assert done.out.splitlines() == [
        "tasks.jsonl:2: invalid JSON: Expecting property name enclosed in double "
        "quotes at column 2",
        "tasks.jsonl:3: unknown field 'splt'. Did you mean 'split'?",
        "tasks.jsonl:5: same id as line 1; ids must be unique",
        "",
        "3 mistakes.",
    ]
    report = cli("tasks", "check", file, "--json")
    assert report.code == 1 and not report.json["ok"]
    assert [mistake["line"] for mistake in report.json["mistakes"]] == [2, 3, 5]
    few = cli("tasks", "check", file, "--most", "1")
    assert "1 mistake. The rest of the file was not checked." in few.out


def test_notes_about_shared_tools_and_code(cli: Any) -> None:
    lines = [_line(0, id=str(i), tools=_line(0)["tools"]) for i in range(9)]
    lines[4] = _line(0, id="4", live={"paint_0": "os:getcwd"})
    done = cli("tasks", "check", _write(*lines))
    assert done.code == 0
    assert "Splits share tools" in done.out
    assert "Line 5 runs Python code (os:getcwd)" in done.out


@pytest.mark.parametrize("file", ["gone.jsonl", "."])
def test_files_that_are_none(cli: Any, file: str) -> None:
    assert cli("tasks", "check", file).code == 2
    assert cli("train", "--tasks", file).error


def test_train_evaluate_show_and_check(cli: Any) -> None:
    file = _write(*map(_line, range(45)))
    result = cli("train", "--tasks", file, *SMALL, "--json").json
    assert result["config"]["scenario"] == "task_file"
    assert result["config"]["tasks"] == str(Path(file).absolute())
    assert result["metrics"]["tasks"] == result["baseline"]["tasks"] == 10
    again = cli("evaluate", "task_file", "--json").json
    assert again["metrics"]["task_success"] == result["metrics"]["task_success"]
    other = _write(*map(_line, range(18)), name="other.jsonl")
    assert cli("evaluate", "task_file", "--tasks", other, "--json").json["tasks"] == 4
    shown = cli("scenarios", "show", "task_file", "--tasks", file)
    assert shown.code == 0 and "paint_" in shown.out
    assert cli("scenarios", "check", "task_file", "--tasks", file).code == 0


def test_train_refuses_before_it_starts(cli: Any) -> None:
    assert "line 1: " in cli("train", "--tasks", _write("{}")).error
    assert "Unknown setting 'tasks'" in (
        cli("train", "customer_support", "--tasks", _write("{}")).error
    )
    live = {"paint_0": "os:getcwd"}
    file = _write(*(_line(0, id=str(i), live=live) for i in range(5)))
    assert "--set allow_code=true" in cli("train", "--tasks", file).error
    assert "--tasks FILE" in cli("scenarios", "show", "task_file").error


def test_import_bfcl(cli: Any) -> None:
    function = {
        "name": "math.add",
        "description": "Adds.",
        "parameters": {"type": "dict", "properties": {"x": {"type": "float"}}},
    }
    questions = [
        {
            "id": f"simple_{i}",
            "question": [[{"role": "user", "content": f"Add {i}."}]],
            "function": [function],
        }
        for i in range(5)
    ]
    answers = [
        {"id": f"simple_{i}", "ground_truth": [{"math.add": {"x": [i]}}]}
        for i in range(4)
    ]
    given = (_write(*questions, name="q.json"), "-o", "tasks.jsonl")
    done = cli("tasks", "import", "bfcl", *given)
    assert done.out == "5 tasks written to tasks.jsonl, 0 skipped.\n"
    with_answers = ("--answers", _write(*answers, name="a.json"))
    done = cli("tasks", "import", "bfcl", *given, *with_answers)
    assert done.code == 0 and "4 tasks written" in done.out
    assert done.err == "skipped: question 5 (simple_4): has no answer\n"
    assert cli("tasks", "check", "tasks.jsonl").code == 0
    report = cli("tasks", "import", "bfcl", *given, *with_answers, "--json").json
    assert report["tasks"] == 4 and len(report["left_out"]) == 1
    assert cli("tasks", "import", "bfcl", "gone.json", "-o", "x").error
    assert cli("tasks", "import", "bfcl", "q.json").code == 2

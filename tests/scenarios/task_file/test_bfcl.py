"""Import of the Berkeley Function Calling Leaderboard's format."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from task_lines import Write

from agentgym.core.tools import ToolCall
from agentgym.errors import FormatError
from agentgym.scenarios.task_file.bfcl import import_bfcl, read_bfcl
from agentgym.scenarios.task_file.expected import CallProgress
from agentgym.scenarios.task_file.line import TaskLine, read_task

FUNCTIONS = [
    {
        "name": "hotel.find",
        "description": "Finds a hotel",
        "parameters": {
            "type": "dict",
            "properties": {
                "city": {"type": "string"},
                "stars": {"type": "float"},
                "point": {"type": "tuple", "items": {"type": "integer"}},
                "guest": {
                    "type": "dict",
                    "properties": {"age": {"type": "integer"}, "name": {"type": "any"}},
                },
                "smoking": {"type": "Boolean", "required": False},
            },
            "required": ["city"],
        },
    },
    {"name": "taxi", "description": "Calls a taxi", "parameters": {"type": "dict"}},
]


def question(number: int = 0, **fields: Any) -> dict[str, Any]:
    return {
        "id": f"simple_{number}",
        "question": [[{"role": "user", "content": "A hotel in New York, NY"}]],
        "function": FUNCTIONS,
        **fields,
    }


def answer(number: int = 0, *calls: dict[str, Any]) -> dict[str, Any]:
    return {"id": f"simple_{number}", "ground_truth": list(calls)}


HOTEL = {
    "hotel.find": {
        "city": ["New York, NY", "NYC"],
        "stars": [4.0, ""],
        "point": [[3, 2], ""],
        "guest": [{"age": [33], "name": ["Bo", ""]}, ""],
        "smoking": [False, ""],
    }
}


def read(questions: Path, answers: Path | None = None) -> list[TaskLine]:
    lines = []
    for line, reason in read_bfcl(questions, answers):
        assert line is not None, reason
        read_back, problems = read_task(json.loads(json.dumps(line)))
        assert read_back is not None, problems
        lines.append(read_back)
    return lines


def right(line: TaskLine, *calls: tuple[str, dict[str, Any]]) -> bool:
    assert line.courses is not None
    progress = CallProgress(line.courses, {tool.name: tool for tool in line.tools})
    taken = all(progress.take(ToolCall(name, given)) for name, given in calls)
    return taken and progress.finished


def test_questions_and_answers(write: Write) -> None:
    line = read(
        write(question(), name="q.json"), write(answer(0, HOTEL), name="a.json")
    )[0]
    assert line.id == "simple_0"
    hotel, taxi = line.tools
    assert (hotel.name, taxi.name) == ("hotel_find", "taxi")
    kinds = {name: schema.get("type") for name, schema in hotel.properties.items()}
    assert kinds == {
        "city": "string",
        "stars": "number",
        "point": "array",
        "guest": "object",
        "smoking": "boolean",
    }
    assert right(line, ("hotel_find", {"city": "new york NY"}))
    assert right(line, ("hotel_find", {"city": "NYC", "stars": 4, "point": [3, 2]}))
    assert right(line, ("hotel_find", {"city": "NYC", "guest": {"age": 33}}))
    assert not right(line, ("hotel_find", {"city": "NYC", "guest": {"age": 34}}))
    assert not right(line, ("hotel_find", {"city": "NYC", "stars": 5}))
    assert not right(line, ("hotel_find", {"city": "Boston"}))
    assert not right(line, ("taxi", {}))
    assert not right(line)


def test_several_calls_belong_together_in_any_order(write: Write) -> None:
    truth = answer(0, {"taxi": {}}, {"hotel.find": {"city": ["NYC"]}})
    line = read(write(question(), name="q.json"), write(truth, name="a.json"))[0]
    assert right(line, ("hotel_find", {"city": "NYC"}), ("taxi", {}))
    assert right(line, ("taxi", {}), ("hotel_find", {"city": "NYC"}))
    assert not right(line, ("taxi", {}))


def test_without_answers_no_call_is_right(write: Write) -> None:
    line = read(write(question()))[0]
    assert right(line) and not right(line, ("taxi", {}))


def test_arrays_and_lines_are_the_same(write: Write) -> None:
    questions = [question(i) for i in range(3)]
    as_lines = write(*questions, name="lines.json")
    as_array = write(json.dumps(questions, indent=1), name="array.json")
    assert list(read_bfcl(as_lines)) == list(read_bfcl(as_array))


@pytest.mark.parametrize(
    ("fields", "says"),
    [
        ({"question": [[{"role": "user", "content": "a"}], []]}, "several turns"),
        ({"question": None}, "no question"),
        ({"function": "x"}, "no list of functions"),
        ({"function": [{"description": "x"}]}, "missing field 'name'"),
        ({"function": [3]}, "question 1"),
    ],
)
def test_what_cannot_be_read_is_left_out(
    write: Write, fields: dict[str, Any], says: str
) -> None:
    ((line, reason),) = read_bfcl(write(question(**fields)))
    assert line is None and says in reason


@pytest.mark.parametrize(
    ("truth", "says"),
    [
        (answer(0, {"hotel.fnd": {"city": ["NYC"]}}), "unknown tool"),
        (answer(0, {"hotel.find": {"city": [3]}}), "violates the schema"),
        (answer(0, {"a": {}, "b": {}}), "its answer isn't a list"),
        (answer(1, {"taxi": {}}), "has no answer"),
    ],
)
def test_answers_that_do_not_fit_are_left_out(
    write: Write, truth: dict[str, Any], says: str
) -> None:
    ((line, reason),) = read_bfcl(
        write(question(), name="q.json"), write(truth, name="a.json")
    )
    assert line is None and says in reason


def test_all_or_nothing(write: Write, tmp_path: Path) -> None:
    output = tmp_path / "tasks.jsonl"
    good = write(question(0), "[]", question(1), name="q.json")
    count, left_out = import_bfcl(good, None, output)
    assert count == 2 and left_out == ["question 2: should be an object"]
    before = output.read_bytes()
    with pytest.raises(FormatError, match="contains no valid question"):
        import_bfcl(write("{}", name="none.json"), None, output)
    for broken in ('{"id": ', "[1, 2", '\ufeff{"id": 1}\n{'):
        with pytest.raises(FormatError, match=r"invalid JSON|isn't valid JSON"):
            import_bfcl(write(broken, name="broken.json"), None, output)
    with pytest.raises(FormatError, match="Can't read"):
        import_bfcl(tmp_path / "gone.json", None, output)
    with pytest.raises(FormatError, match="Can't write"):
        import_bfcl(good, None, tmp_path / "no" / "folder.jsonl")
    with pytest.raises(FormatError, match="isn't a file of answers"):
        import_bfcl(good, good, output)
    assert output.read_bytes() == before
    assert {p.name for p in tmp_path.iterdir()} == {
        "tasks.jsonl",
        "q.json",
        "none.json",
        "broken.json",
    }

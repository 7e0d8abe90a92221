"""Whole files: every kind of mistake with its line, splits, bounded memory."""

from __future__ import annotations

import json
import tracemalloc
from collections import Counter
from pathlib import Path
from typing import Any

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st
from task_lines import Write, task, tool

from agentgym.core.task import SPLITS
from agentgym.errors import ConfigError, FormatError
from agentgym.scenarios.task_file.file import check_file, open_tasks
from agentgym.scenarios.task_file.line import MAX_LINE, read_line

CITY = {"type": "string", "minLength": 2}
DAYS = {"type": "integer", "minimum": 1}
FORECAST = tool("forecast", city=CITY, days=DAYS)


def expect(name: str = "forecast", **arguments: Any) -> list[dict[str, Any]]:
    return [{"name": name, "arguments": arguments}]


MISTAKES: list[tuple[Any, str]] = [
    ('{"id": "a", ', "invalid JSON: Expecting property name"),
    ('{"id": NaN}', "NaN isn't a JSON number"),
    ("[1, 2]", "should be an object"),
    ('"text"', "should be an object"),
    ("[" * 100_000, "nested too deeply"),
    (r'{"id": "\ud800"}', "contains half a character"),
    (task(expectd=[]), "unknown field 'expectd'. Did you mean 'expected'?"),
    (task(id=None), "id should be text"),
    (task(id=7), "id should be text"),
    (task(id="x" * 201), "id should be text"),
    (task(messages=None), "messages should be a list"),
    (task(messages=[]), "messages should be a list"),
    (task(messages=[{"role": "boss", "content": "x"}]), "messages[0] should have a"),
    (task(messages=[{"role": "user", "content": 3}]), "messages[0].content"),
    (task(messages=[{"role": "user", "content": " "}]), "end with a user message"),
    (task(messages=[{"role": "assistant", "content": "x"}]), "end with a user message"),
    (task(messages=["hello"]), "messages[0] should have a role"),
    (task(tools={}), "tools should be a list"),
    (task(tools=[3]), "tools[0] should be a tool definition"),
    (task(tools=[{}]), "tools[0]: A tool definition must have a function with a name"),
    (task(tools=[tool("a b")], expected=[]), "tools[0]: the name 'a b' should be"),
    (task(tools=[FORECAST, FORECAST], expected=[]), "tools[1]: two tools are named"),
    (
        task(tools=[tool("t", x={"type": "strnig"})], expected=[]),
        "invalid JSON schema",
    ),
    (task(tools=[tool("t", x={"$ref": "#/$defs/y"})], expected=[]), "invalid schema"),
    (task(tools=[tool("t", x={})] * 300, expected=[]), "more than 256"),
    (task(expected=None), "either expected or check"),
    (task(check="a:b"), "either expected or check"),
    (task(expected=None, check="import os"), "check should be module:function"),
    (task(expected="weather"), "expected should be a list of calls"),
    (task(expected={"any_of": []}), "expected.any_of should be a list"),
    (task(expected=[[]]), "expected[0] should not be empty"),
    (task(expected=["weather"]), "expected[0] should be a call"),
    (task(expected=[{"name": "weather", "arguments": []}]), "should be an object"),
    (
        task(expected=[{"name": "weather", "args": {"city": "Oslo"}}]),
        "unknown field 'args'",
    ),
    (
        task(expected=expect("wether", city="Oslo")),
        "expected[0]: unknown tool 'wether'. Did you mean 'weather'?",
    ),
    (task(tools=[]), "unknown tool 'weather'"),
    (
        task(expected=[[*expect("weather", city="Oslo"), *expect("nothing")]]),
        "expected[0][1]: unknown tool 'nothing'",
    ),
    (
        task(expected={"any_of": [[], expect("weather")]}),
        "expected.any_of[1][0].arguments: 'weather' requires 'city'",
    ),
    (task(expected=expect("weather", city="Oslo") * 65), "more than 64 calls"),
    (
        task(tools=[FORECAST], expected=expect(city="Oslo")),
        "'forecast' requires 'days'",
    ),
    (
        task(tools=[FORECAST], expected=expect(city="Oslo", days=0)),
        "arguments.days violates the schema: 0 is less than",
    ),
    (
        task(tools=[FORECAST], expected=expect(city="Oslo", days="3")),
        "arguments.days violates the schema: '3' is not of type",
    ),
    (
        task(tools=[FORECAST], expected=expect(city={"one_of": ["Rome", "x"]}, days=1)),
        "arguments.city violates the schema: 'x' is too short",
    ),
    (
        task(tools=[FORECAST], expected=expect(city={"regex": "("}, days=1)),
        "arguments.city: invalid regex",
    ),
    (
        task(tools=[FORECAST], expected=expect(city="Oslo", day=1, days=1)),
        "'forecast' has no parameter 'day'. Did you mean 'days'?",
    ),
    (task(responses=3), "responses should map tools to answers"),
    (task(responses={"wether": 1}), "responses.wether: unknown tool 'wether'"),
    (task(responses=[{"name": "weather"}]), "responses[0] should be"),
    (task(live=[]), "live should map tools"),
    (task(answers=["Oslo"]), "answers should map words of a question"),
    (task(answers={"city": 3}), "answers should map words of a question"),
    (task(answers={" ": "Oslo"}), "answers should map words of a question"),
    (
        task(live={"weather": "os.system('x')"}),
        "live.weather should be module:function",
    ),
    (task(live={"wind": "a:b"}), "live: unknown tool 'wind'"),
    (
        task(live={"weather": "a:b"}, responses={"weather": 1}),
        "is in both live and responses",
    ),
    (task(difficulty="hardest"), "difficulty should be one of easy, medium, hard"),
    (task(split="test"), "split should be one of train, validation, heldout"),
    (task(split=["train"]), "split should be one of"),
]


@pytest.mark.parametrize(("line", "says"), MISTAKES, ids=[m[1] for m in MISTAKES])
def test_every_mistake_is_found_at_its_line(write: Write, line: Any, says: str) -> None:
    path = write(task(id="first"), "", line, task(id="last"))
    report = check_file(path)
    assert {m.line for m in report.mistakes} == {3}
    assert any(says in m.text for m in report.mistakes), report.mistakes
    with pytest.raises(FormatError, match=r"tasks.jsonl, line 3: .*tasks check"):
        open_tasks(path)


def test_all_mistakes_at_once(write: Write) -> None:
    report = check_file(write(*(line for line, _ in MISTAKES)), most=10_000)
    assert {m.line for m in report.mistakes} == set(range(1, len(MISTAKES) + 1))
    assert not report.stopped and not report.tasks


def test_it_stops_after_so_many(write: Write) -> None:
    report = check_file(write(*["{}"] * 50), most=5)
    assert len(report.mistakes) == 5 and report.stopped


def test_ids_that_recur(write: Write) -> None:
    path = write(task(id="a"), task(id="b"), "", task(id="a"), task(id="a"))
    assert [str(m) for m in check_file(path).mistakes] == [
        "line 4: same id as line 1; ids must be unique",
        "line 5: same id as line 4; ids must be unique",
    ]


@pytest.mark.parametrize("content", [b"", b"\n\n \n", b"\xef\xbb\xbf"])
def test_empty_files(tmp_path: Path, content: bytes) -> None:
    path = tmp_path / "empty.jsonl"
    path.write_bytes(content)
    assert [str(m) for m in check_file(path).mistakes] == [
        "line 1: the file contains no task"
    ]


def test_bytes_that_are_no_text(tmp_path: Path) -> None:
    path = tmp_path / "tasks.jsonl"
    path.write_bytes(b'{"id": "\xff"}\n\x00\x01\x02\n')
    assert [m.line for m in check_file(path).mistakes] == [1, 2]


def test_files_that_cannot_be_read(tmp_path: Path) -> None:
    for path in (tmp_path, tmp_path / "gone", Path("/dev/null"), Path("a\0b")):
        with pytest.raises(ConfigError):
            check_file(path)
        with pytest.raises((ConfigError, FormatError)):
            open_tasks(path)


def test_line_ends_and_marks_of_windows(tmp_path: Path) -> None:
    path = tmp_path / "tasks.jsonl"
    lines = [json.dumps(task(id=str(i))).encode() for i in range(3)]
    path.write_bytes(b"\xef\xbb\xbf" + b"\r\n".join(lines))
    assert check_file(path).tasks == 3
    index, _ = open_tasks(path)
    ids = {index.read(split, [0])[0].id for split in SPLITS}
    assert ids == {"0", "1", "2"}


def test_a_line_without_end(tmp_path: Path) -> None:
    """A gigabyte without a line end, which takes no room on the disk."""
    path = tmp_path / "huge.jsonl"
    with path.open("wb") as file:
        file.write(json.dumps(task()).encode() + b"\n")
        file.truncate(1 << 30)
    tracemalloc.start()
    try:
        report = check_file(path)
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert [str(m) for m in report.mistakes] == [
        "line 2: too long; a line may have at most 4 MiB"
    ]
    assert peak < 5 * MAX_LINE


def test_memory_does_not_grow_with_the_file(tmp_path: Path) -> None:
    peaks = []
    for count in (300, 2_000):
        path = tmp_path / f"{count}.jsonl"
        with path.open("w") as file:
            for i in range(count):
                text = f"Weather in Oslo? {'x' * 2_000}"
                line = task(id=str(i), messages=[{"role": "user", "content": text}])
                file.write(f"{json.dumps(line)}\n")
        tracemalloc.start()
        try:
            assert check_file(path).tasks == count
            peaks.append(tracemalloc.get_traced_memory()[1])
        finally:
            tracemalloc.stop()
        size = path.stat().st_size
    assert peaks[1] - peaks[0] < size / 10


def _file(tmp_path: Path, sets: list[list[int]], **fields: Any) -> Path:
    path = tmp_path / "sets.jsonl"
    with path.open("w") as file:
        for i, names in enumerate(sets):
            tools = [tool(f"t{n}", x={}) for n in sorted(set(names))]
            line = task(id=str(i), tools=tools, expected=[], **fields)
            file.write(f"{json.dumps(line)}\n")
    return path


def _by_split(path: Path) -> dict[str, list[set[str]]]:
    index, _ = open_tasks(path)
    return {
        split: [
            {t.name for t in line.tools}
            for line in index.read(split, range(index.count(split)))
        ]
        for split in SPLITS
    }


@settings(max_examples=60)
@example([[0], [0], [1], [1], [2]])
@given(st.lists(st.lists(st.integers(0, 30), min_size=1, max_size=3), min_size=3))
def test_splits_share_no_tool(
    tmp_path_factory: pytest.TempPathFactory, sets: list[list[int]]
) -> None:
    path = _file(tmp_path_factory.mktemp("sets"), sets)
    report = check_file(path)
    found = _by_split(path)
    assert sum(map(len, found.values())) == len(sets)
    assert all(found.values())
    names = [frozenset().union(*found[split]) for split in SPLITS]
    apart = not any(names[i] & names[j] for i, j in ((0, 1), (0, 2), (1, 2)))
    assert report.unseen == apart
    # Wherever there are three sets that share no tool, none is in two splits.
    if len(_components(sets)) >= len(SPLITS):
        assert apart


def _components(sets: list[list[int]]) -> list[set[int]]:
    parts: list[set[int]] = []
    for names in sets:
        joined = [p for p in parts if p & set(names)]
        parts = [p for p in parts if p not in joined]
        parts.append(set(names).union(*joined))
    return parts


def test_splits_are_of_the_right_size(tmp_path: Path) -> None:
    found = _by_split(_file(tmp_path, [[i % 100] for i in range(500)]))
    assert {split: len(some) for split, some in found.items()} == {
        "train": 300,
        "validation": 100,
        "heldout": 100,
    }


def test_tools_of_tasks_whose_split_is_given_stay_there(write: Write) -> None:
    def line(name: str, tools: str, split: str | None) -> dict[str, Any]:
        return task(
            id=name, tools=[tool(t, x={}) for t in tools], expected=[], split=split
        )

    path = write(
        line("1", "ab", "heldout"),
        line("2", "bc", None),
        line("3", "cd", None),
        line("4", "e", "train"),
        line("5", "f", "validation"),
    )
    index, report = open_tasks(path)
    assert {x.id for x in index.read("heldout", range(3))} == {"1", "2", "3"}
    assert report.unseen


def test_a_split_that_is_missing(write: Write) -> None:
    path = write(task(id="1", split="train"), task(id="2", split="heldout"))
    with pytest.raises(FormatError, match="no task in split 'validation'"):
        open_tasks(path)
    with pytest.raises(FormatError, match="no task in split"):
        open_tasks(write(task(), name="one.jsonl"))


def test_a_file_that_changes_underneath(write: Write) -> None:
    path = write(*(task(id=str(i)) for i in range(9)))
    index, _ = open_tasks(path)
    path.write_text("{}\n" * 2000)
    with pytest.raises(FormatError, match="has changed"):
        index.read("train", [0])
    path.unlink()
    with pytest.raises(FormatError, match="Can't read"):
        index.read("train", [0])


def test_difficulty_from_the_task(write: Write) -> None:
    many = [tool(f"t{i}", **{f"p{j}": {} for j in range(6)}) for i in range(9)]
    call = {"name": "t0", "arguments": {f"p{j}": 1 for j in range(6)}}
    lines = [
        task(id="1"),
        task(id="2", tools=many[:5], expected=[call]),
        task(id="3", tools=many, expected=[call, call, call]),
        task(id="4", difficulty="hard"),
    ]
    levels = [read_line(json.dumps(one).encode())[0] for one in lines]
    assert [one.difficulty for one in levels if one] == [
        "easy",
        "medium",
        "hard",
        "hard",
    ]
    counts = Counter(check_file(write(*lines)).counts)
    assert (counts["easy"], counts["medium"], counts["hard"]) == (1, 1, 2)


@settings(max_examples=80)
@given(st.binary(max_size=60) | st.text(max_size=60).map(str.encode))
def test_no_bytes_crash_the_reader(raw: bytes) -> None:
    line, problems = read_line(raw)
    assert (line is None) == bool(problems)


_JUNK = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(max_size=4),
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.dictionaries(
            st.sampled_from(
                ["name", "arguments", "any_of", "role", "type", "function"]
            ),
            inner,
            max_size=3,
        )
    ),
    max_leaves=8,
)


@settings(max_examples=100)
@given(
    st.dictionaries(
        st.sampled_from(
            "messages tools expected check responses live difficulty split".split()
        ),
        _JUNK,
        max_size=3,
    )
)
def test_no_junk_crashes_the_reader(fields: dict[str, Any]) -> None:
    line, problems = read_line(json.dumps({**task(), **fields}).encode())
    assert (line is None) == bool(problems)

"""The scenario of a tasks file: what is offered, answered, judged and checked."""

from __future__ import annotations

import importlib.util
import json
import sys
from pathlib import Path
from typing import Any

import pytest
from task_lines import Write, task, tool

from agentgym import ScenarioRegistry
from agentgym.core.task import Task
from agentgym.core.tools import FailureKind, ToolCall
from agentgym.errors import ConfigError, FormatError, ScenarioError
from agentgym.scenarios.checker import check_scenario
from agentgym.scenarios.environment import ActOutcome, Environment
from agentgym.scenarios.task_file.scenario import TaskFile

ROOT = Path(__file__).parents[3]
CODE = """
from agentgym.core.tools import ToolError

def deposit(world, amount):
    world["balance"] = world.get("balance", 0) + amount
    return {"balance": world["balance"]}

def refuse(amount):
    raise ToolError("closed")

def rich(state):
    assert state["id"] and state["messages"] and state["calls"] is not None
    return state["world"].get("balance", 0) >= 10

def half(state):
    return 0.5

def strange(state):
    return "yes"

value = 3
"""


def load(write: Write, *lines: dict[str, Any], **options: Any) -> TaskFile:
    """A scenario in which each of the lines is in every split."""
    copies = [
        {**line, "id": f"{split}-{line['id']}", "split": split}
        for line in lines
        for split in ("train", "validation", "heldout")
    ]
    scenario = ScenarioRegistry.load("task_file", tasks=str(write(*copies)), **options)
    assert isinstance(scenario, TaskFile)
    return scenario


def start(write: Write, **fields: Any) -> Environment:
    options = {"allow_code": True} if {"check", "live"} & fields.keys() else {}
    scenario = load(write, task(**fields), **options)
    environment = scenario.create_environment()
    environment.reset_task(scenario.tasks("train", 0, 1)[0])
    return environment


def act(environment: Environment, *calls: tuple[str, dict[str, Any]]) -> ActOutcome:
    """Makes calls in one turn; none of them is a closing answer."""
    if not calls:
        return environment.act({"content": "Done."})
    made = [ToolCall(name, given, f"c{i}") for i, (name, given) in enumerate(calls)]
    return environment.act(
        {"content": None, "tool_calls": [call.to_openai() for call in made]}
    )


OSLO = ("weather", {"city": "Oslo"})
ROME = ("weather", {"city": "Rome"})


def expected(*calls: tuple[str, dict[str, Any]]) -> list[dict[str, Any]]:
    return [{"name": name, "arguments": given} for name, given in calls]


def test_the_right_call_and_a_closing_answer(write: Write) -> None:
    environment = start(write, responses={"weather": {"degrees": 3}})
    done = act(environment, OSLO)
    assert done.verdict.correct and json.loads(done.results[0].content) == {
        "degrees": 3
    }
    assert act(environment).verdict.correct
    assert environment.outcome() == (True, 1.0)


@pytest.mark.parametrize(
    ("calls", "failure"),
    [
        ([ROME], FailureKind.BAD_ARGUMENTS),
        ([("weather", {"city": 3})], FailureKind.BAD_ARGUMENTS),
        ([("wind", {})], FailureKind.UNKNOWN_TOOL),
        ([("tides", {})], FailureKind.WRONG_TOOL),
        ([OSLO, OSLO], FailureKind.NEEDLESS_CALL),
        ([OSLO, ("tides", {})], FailureKind.NEEDLESS_CALL),
    ],
)
def test_what_is_wrong_has_a_kind(
    write: Write, calls: list[Any], failure: FailureKind
) -> None:
    tools = [tool("weather", city={"type": "string"}), tool("tides")]
    environment = start(write, tools=tools)
    for call in calls[:-1]:
        assert act(environment, call).verdict.correct
    last = act(environment, calls[-1])
    assert (last.verdict.correct, last.verdict.failure) == (False, failure)
    assert last.done and environment.outcome()[0] is False


def test_to_speak_too_early(write: Write) -> None:
    environment = start(write, expected=expected(OSLO, ROME))
    assert act(environment, OSLO).verdict.correct
    assert act(environment).verdict.failure is FailureKind.NO_CALL
    assert environment.outcome() == (False, 0.25)


def test_no_call_is_right(write: Write) -> None:
    environment = start(write, expected=[])
    assert act(environment).verdict.correct and environment.outcome() == (True, 1.0)
    environment = start(write, expected=[])
    assert act(environment, OSLO).verdict.failure is FailureKind.WRONG_TOOL
    assert environment.outcome()[0] is False


def test_parallel_calls_in_one_turn_or_in_several(write: Write) -> None:
    both = [expected(OSLO, ROME)]
    environment = start(write, expected=both)
    assert act(environment, ROME, OSLO).verdict.correct
    assert act(environment).verdict.correct and environment.outcome()[0]
    environment = start(write, expected=both)
    assert act(environment, ROME).verdict.correct
    assert act(environment, OSLO).verdict.correct
    assert act(environment).verdict.correct and environment.outcome()[0]
    environment = start(write, expected=both)
    assert not act(environment, ROME, ROME).verdict.correct


def test_answers_depend_on_the_call(write: Write) -> None:
    environment = start(
        write,
        expected=[expected(OSLO, ROME)],
        responses=[
            {"name": "weather", "arguments": {"city": "Oslo"}, "answer": "cold"},
            {"name": "weather", "answer": ["warm"]},
        ],
    )
    results = act(environment, ROME, OSLO).results
    assert [json.loads(result.content) for result in results] == [["warm"], "cold"]


def test_the_user_answers_what_is_asked_for(write: Write) -> None:
    environment = start(
        write, expected=expected(OSLO), answers={"city": "Oslo.", "day": "Monday."}
    )
    assert environment.task is not None and environment.task.best_steps == 4
    asked = environment.act({"content": "Could you please tell me the City?"})
    assert asked.verdict.correct and not asked.done
    assert environment.messages[-1] == {"role": "user", "content": "Oslo."}
    assert act(environment, OSLO).verdict.correct
    # Nobody is asked twice.
    again = environment.act({"content": "Which city?"})
    assert again.done and environment.outcome()[0]


@pytest.mark.parametrize("said", ["Which colour?", "I need the city.", "Done."])
def test_what_the_user_has_no_answer_to(write: Write, said: str) -> None:
    environment = start(write, expected=expected(OSLO), answers={"city": "Oslo."})
    outcome = environment.act({"content": said})
    assert outcome.verdict.failure is FailureKind.NO_CALL and outcome.done
    assert not environment.outcome()[0]


def test_wrong_arguments_are_named(write: Write) -> None:
    outcome = act(start(write, expected=expected(OSLO)), ROME)
    assert outcome.verdict.failure is FailureKind.BAD_ARGUMENTS
    assert outcome.verdict.wrong_arguments == {"city"}


def test_names_of_arguments_are_free(write: Write) -> None:
    given = {"self": 1, "world": 2, "call": 3, "line": 4}
    environment = start(
        write,
        tools=[tool("odd", **{name: {} for name in given})],
        expected=expected(("odd", given)),
    )
    assert act(environment, ("odd", given)).results[0].ok


@pytest.fixture
def code(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    """Name of a module in the current folder."""
    name = f"own_{tmp_path.name.replace('-', '_')}"
    (tmp_path / f"{name}.py").write_text(CODE)
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", list(sys.path))
    return name


BANK = [tool("deposit", amount={"type": "number"})]


def test_live_tools_and_a_check_of_the_final_state(write: Write, code: str) -> None:
    fields = {
        "tools": BANK,
        "live": {"deposit": f"{code}:deposit"},
        "expected": None,
        "check": f"{code}:rich",
    }
    environment = start(write, **fields)
    results = act(environment, ("deposit", {"amount": 4})).results
    assert json.loads(results[0].content) == {"balance": 4}
    assert act(environment, ("deposit", {"amount": 6})).verdict.correct
    assert act(environment).verdict.correct and environment.outcome() == (True, 1.0)
    environment = start(write, **fields)
    act(environment, ("deposit", {"amount": 4}))
    assert act(environment).verdict.failure is FailureKind.NO_CALL
    assert environment.outcome() == (False, 0.0)


def test_a_check_may_give_a_share(write: Write, code: str) -> None:
    environment = start(write, expected=None, check=f"{code}:half")
    assert not act(environment).verdict.correct
    assert environment.outcome() == (False, 0.25)


def test_a_live_tool_that_refuses(write: Write, code: str) -> None:
    call = ("deposit", {"amount": 4})
    environment = start(
        write,
        tools=BANK,
        live={"deposit": f"{code}:refuse"},
        expected=expected(call),
    )
    done = act(environment, call)
    # Right, though it did not run: trying again is then the right move.
    assert done.verdict.correct and done.results[0].failure is FailureKind.TOOL_ERROR
    assert not act(environment).verdict.correct


@pytest.mark.parametrize("name", ["gone", "value", "Nothing.at.all"])
def test_functions_that_are_not_there(write: Write, code: str, name: str) -> None:
    with pytest.raises(ScenarioError, match=name):
        start(write, tools=BANK, live={"deposit": f"{code}:{name}"}, expected=[])


def test_a_check_that_says_neither_yes_nor_no(write: Write, code: str) -> None:
    environment = start(write, expected=None, check=f"{code}:strange")
    with pytest.raises(ScenarioError, match="'yes'"):
        act(environment)


def test_code_runs_only_if_it_is_allowed(
    write: Write, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "evil.py").write_text("open('ran', 'w').close()\ndef f(x): ...\n")
    line = task(expected=None, check="evil:f", live={"weather": "evil:f"})
    with pytest.raises(ConfigError, match=r"line 1 names Python .*allow_code=true"):
        load(write, line)
    assert not (tmp_path / "ran").exists()


def test_without_a_file() -> None:
    scenario = ScenarioRegistry.load("task_file")
    with pytest.raises(ConfigError, match="--tasks FILE"):
        scenario.tasks("train", 0, 1)
    with pytest.raises(ConfigError, match="Can't read"):
        ScenarioRegistry.load("task_file", tasks="gone.jsonl")


def test_mistakes_are_told_before_training(write: Write) -> None:
    with pytest.raises(FormatError, match="line 1: unknown field 'x'"):
        ScenarioRegistry.load("task_file", tasks=str(write(task(x=1))))


def test_drawing(write: Write) -> None:
    scenario = load(write, *(task(id=str(i)) for i in range(5)))

    def ids(split: Any, seed: int, count: int) -> list[str]:
        return [drawn.id for drawn in scenario.tasks(split, seed, count)]

    assert ids("train", 1, 12) == ids("train", 1, 12) != ids("train", 2, 12)
    assert len(ids("train", 1, 12)) == 12 and len(set(ids("train", 1, 5))) == 5
    # What is measured is measured once.
    assert sorted(ids("heldout", 1, 12)) == [f"heldout-{i}" for i in range(5)]
    assert len(ids("validation", 1, 3)) == 3
    again = {t.id: t for t in scenario.tasks("train", 1, 5)}
    assert all(again[t.id] is t for t in scenario.tasks("train", 2, 5))


def test_tasks_have_difficulty_tags_and_their_best_course(write: Write) -> None:
    scenario = load(
        write,
        task(id="one"),
        task(id="none", expected=[]),
        task(id="two", expected=[expected(OSLO, ROME)]),
        task(id="either", expected={"any_of": [expected(OSLO, ROME), expected(OSLO)]}),
    )
    found: dict[str, Task] = {t.id: t for t in scenario.tasks("heldout", 0, 9)}
    about = {
        name.removeprefix("heldout-"): (t.tags, t.best_steps, t.difficulty)
        for name, t in found.items()
    }
    assert about == {
        "one": (("call",), 2, "easy"),
        "none": (("abstain",), 1, "easy"),
        "two": (("parallel",), 3, "easy"),
        "either": (("call",), 2, "easy"),
    }


def generated(path: Path, seed: int) -> list[dict[str, Any]]:
    """The benchmark's file."""
    source = ROOT / "benchmarks" / "_function_calls.py"
    spec = importlib.util.spec_from_file_location("_function_calls", source)
    assert spec and spec.loader
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module
    spec.loader.exec_module(module)
    module.write_tasks(path, seed)
    lines = module.make_tasks(seed)
    assert lines == [json.loads(line) for line in path.read_text().splitlines()]
    return lines


def test_the_file_of_the_benchmark(tmp_path: Path) -> None:
    path = tmp_path / "tasks.jsonl"
    lines = generated(path, 3)
    names: dict[str, set[str]] = {}
    for line in lines:
        mine = names.setdefault(line["split"], set())
        mine.update(t["function"]["name"] for t in line["tools"])
    assert len(lines) == 400 and len(set.union(*names.values())) == 300
    assert sum(map(len, names.values())) == 300, "a tool is in two splits"
    scenario = ScenarioRegistry.load("task_file", tasks=str(path))
    broken = [r for r in check_scenario(scenario) if not r.ok]
    assert not broken, broken

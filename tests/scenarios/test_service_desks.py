"""The service desks: their data, and that every task can be solved as it says."""

from __future__ import annotations

import json
import random
import re
from typing import Any

import pytest

from agentgym.core.task import SPLITS, Task
from agentgym.core.tools import FailureKind, ToolCall
from agentgym.core.trajectory import Step, Trajectory
from agentgym.scenarios.checker import check_scenario
from agentgym.scenarios.environment import Environment
from agentgym.scenarios.service_desks.desk import Desk, desk_names, load_desk
from agentgym.scenarios.service_desks.scenario import ServiceDesks
from agentgym.scenarios.service_desks.tasks import Values, make_line
from agentgym.scenarios.task_file.line import TaskLine, read_task
from agentgym.scenarios.task_file.scenario import make_task

NAMES = {split: desk_names(split) for split in SPLITS}
ALL = sorted(name for names in NAMES.values() for name in names)
SLOT = re.compile(r"\{([a-z_]+)\}")


def test_there_is_as_much_as_its_page_says() -> None:
    tools = [tool["name"] for name in ALL for tool in load_desk(name).tools]
    assert len(ALL) == 32 and 380 <= len(tools) < 390
    intents = [intent for name in ALL for intent in load_desk(name).intents]
    requests = sum(len(intent.requests) + len(intent.vague) for intent in intents)
    assert 7_600 <= requests < 7_700
    longer = [i for i in intents if any(len(course) > 1 for course in i.courses)]
    assert len(longer) > len(intents) / 3


def test_no_desk_of_one_split_is_in_another() -> None:
    assert len({*ALL}) == len(ALL)
    unseen = {t["name"] for name in NAMES["train"] for t in load_desk(name).tools}
    for split in ("validation", "heldout"):
        for name in NAMES[split]:
            assert not unseen & {tool["name"] for tool in load_desk(name).tools}


@pytest.mark.parametrize("name", ALL)
def test_requests_say_all_that_their_calls_need(name: str) -> None:
    desk = load_desk(name)
    for intent in desk.intents:
        assert len(intent.requests) >= 14
        assert all(set(SLOT.findall(r)) <= desk.values.keys() for r in intent.requests)
        for course in intent.courses:
            found: set[str] = set()
            for due in course:
                needed = set(SLOT.findall(str(due.arguments))) - found
                found |= set(SLOT.findall(str(due.result)))
                for request in intent.requests:
                    assert needed <= set(SLOT.findall(request)), request
                for request in intent.vague:
                    said = set(SLOT.findall(request))
                    assert intent.asks not in said, request
                    assert needed <= said | {intent.asks}, request
        for reply in intent.replies:
            assert intent.asks in SLOT.findall(reply)


def drawn(desk: Desk, count: int) -> list[Task]:
    tasks = []
    for i in range(count):
        written = make_line(desk, "train", random.Random(i), f"task {i}")
        line, problems = read_task(written)
        assert line is not None, problems
        tasks.append(make_task(line, "train"))
    return tasks


def sample(wanted: Any) -> Any:
    """A value that will do."""
    if isinstance(wanted, dict):
        return re.sub(r"\\(.)", r"\1", wanted["regex"].removeprefix("(?is).*")[:-2])
    return wanted


def play(environment: Environment, task: Task) -> None:
    """Does what the first of the right courses says."""
    line: TaskLine = task.goal
    environment.reset_task(task)
    for about, answer in line.answers.items():
        asked = environment.act({"content": f"Could you please tell me {about}?"})
        assert asked.verdict.correct and not asked.done
        assert environment.messages[-1] == {"role": "user", "content": answer}
    assert line.courses is not None
    for step in line.courses[0]:
        for due in step:
            arguments = {name: sample(value) for name, value in due.arguments.items()}
            call = ToolCall(due.name, arguments, "call")
            outcome = environment.act({"tool_calls": [call.to_openai()]})
            assert outcome.verdict.correct, environment.messages
            assert json.loads(outcome.results[0].content) != {"error": "not found"}
    assert environment.act({"content": "It is done."}).verdict.correct
    assert environment.outcome() == (True, 1.0)


@pytest.mark.parametrize("name", ALL)
def test_tasks_are_solved_by_what_they_expect(name: str) -> None:
    tasks = drawn(load_desk(name), 80)
    environment = ServiceDesks().create_environment(tasks)
    for task in tasks:
        play(environment, task)
        # One decision for each, and the closing answer.
        spoken = [m for m in environment.messages if m["role"] == "assistant"]
        assert len(spoken) == task.best_steps
    kinds = {(len(t.goal.courses) > 1, bool(t.goal.answers)) for t in tasks}
    assert kinds == {(False, False), (True, False), (False, True)}


def test_another_number_is_not_found() -> None:
    task = next(t for t in drawn(load_desk("hotel"), 80) if cancels(t))
    environment = ServiceDesks().create_environment([task])
    environment.reset_task(task)
    due = task.goal.courses[0][0][0]
    (name, number), *_ = due.arguments.items()
    other = Values("train", random.Random(0)).near(number)
    call = ToolCall(due.name, {name: other}, "call")
    outcome = environment.act({"tool_calls": [call.to_openai()]})
    assert json.loads(outcome.results[0].content) == {"error": "not found"}
    assert outcome.verdict.failure is FailureKind.BAD_ARGUMENTS
    assert outcome.verdict.wrong_arguments == {name} and outcome.done


def cancels(task: Task) -> bool:
    first = [step[0].name for step in task.goal.courses[0]][:1]
    return first == ["give_up_room"] and not task.goal.answers


def test_asking_is_measured_where_something_is_missing() -> None:
    tasks = drawn(load_desk("hotel"), 80)
    lacking = next(task for task in tasks if task.goal.answers)
    whole = next(task for task in tasks if not task.goal.answers)
    asks = Step({"content": "Which one?"}, correct=True)
    closes = Step({"content": "Done."}, correct=False)
    guesses = Step({}, (ToolCall("give_up_room", {}, "call"),), correct=False)
    measure = ServiceDesks().measure
    assert measure(Trajectory(lacking, [asks, closes])) == {"asking": (1.0, 1.0)}
    for first in (closes, guesses):
        assert measure(Trajectory(lacking, [first])) == {"asking": (0.0, 1.0)}
    assert measure(Trajectory(whole, [closes])) == {}
    assert measure(Trajectory(lacking)) == {}


def test_every_desk_is_met_in_a_round_of_iterations() -> None:
    scenario = ServiceDesks()
    rounds = [
        [
            load_system(task)
            for seed in turn
            for task in scenario.tasks("train", seed, 8)
        ]
        for turn in (range(7), range(7, 14))
    ]
    systems = {load_desk(name).system for name in NAMES["train"]}
    assert all(set(met) == systems for met in rounds)
    assert rounds[0] != rounds[1]


def load_system(task: Task) -> str:
    return str(task.messages[0]["content"])


def test_all_rules_of_a_scenario_are_kept() -> None:
    results = check_scenario(ServiceDesks())
    assert [result for result in results if not result.ok] == []

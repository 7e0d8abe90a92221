"""The reviewer's tools against known answers, its judge, its submissions and bounds."""

from __future__ import annotations

import ast
import itertools
import json
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any, get_args

import pytest
from gymnasium.utils.env_checker import check_env

from agentgym import Trainer
from agentgym.core.metrics import AtMost
from agentgym.core.task import DIFFICULTIES, SPLITS, Split, Task
from agentgym.core.tools import FailureKind, ToolCall, ToolError, ToolRunner, tool_map
from agentgym.core.trajectory import Trajectory
from agentgym.errors import MissingExtraError
from agentgym.scenarios import planned
from agentgym.scenarios.checker import check_scenario
from agentgym.scenarios.checker.bench import play
from agentgym.scenarios.code_review import tools
from agentgym.scenarios.code_review.analysis import Analysis, analyse, analyses
from agentgym.scenarios.code_review.environment import CodeReviewEnvironment
from agentgym.scenarios.code_review.guide import (
    CATEGORIES,
    HOUSE_TOPICS,
    PROBLEMS,
    Category,
    Severity,
    page_of,
    search,
)
from agentgym.scenarios.code_review.plan import CHECKS, Comment
from agentgym.scenarios.code_review.scenario import CodeReview
from agentgym.scenarios.code_review.submissions import (
    SUBMISSIONS,
    pieces,
    submissions,
    unmarked,
)
from agentgym.scenarios.code_review.tools import TOOLS, World
from agentgym.scenarios.planned import Milestone

CODE = """\
import hashlib
import os
import fractions

TABLE = "users"
PASSWORD = "hunter2"


def find(cursor, name, seen=[]):
    cursor.execute(f"SELECT * FROM users WHERE name = '{name}'")
    cursor.execute(f"SELECT count(*) FROM {TABLE}")
    return cursor.fetchall(), seen == None


def names(cursor, ids):
    text = ""
    for one in ids:
        cursor.execute("SELECT name FROM users WHERE id = ?", (one,))
        text += cursor.fetchone()[0]
    print(text)
    return text


def etag(body):
    return hashlib.md5(body).hexdigest()


def token_of(secret):
    return hashlib.md5(secret).hexdigest(), undefined


def clean(path):
    os.system("rm -r " + path)
    os.system("sync")
"""
TESTS = """\
import pytest


def test_login(client):
    assert client.login(password="letmein")


def test_order():
    with pytest.raises(TypeError):
        1 < "a"
    assert (1 == 2, "never fails")
"""
FILE, TEST_FILE = "users_0001.py", "test_users_0001.py"


@pytest.fixture(scope="module")
def found() -> dict[str, Analysis]:
    return analyse([{FILE: CODE, TEST_FILE: TESTS}])


@pytest.fixture
def world(found: dict[str, Analysis]) -> World:
    house: dict[str, Any] = dict.fromkeys(HOUSE_TOPICS, "refused")
    return World(found, [FILE, TEST_FILE], house | {"print-call": "accepted"})


def listed(found: Analysis, category: Category) -> list[tuple[int, str, str]]:
    return [(f.line, f.rule, f.place) for f in found.of(category)]


def findings_of(files: dict[str, str], category: Category) -> list[tuple[int, str]]:
    return [
        (f.line, f.problem)
        for one in analyse([files]).values()
        for f in one.of(category)
    ]


# Tools against known answers --------------------------------------------------------


def test_detect_bugs(found: dict[str, Analysis]) -> None:
    assert listed(found[FILE], "bug") == [
        (9, "B006", "live_code"),
        (29, "F821", "live_code"),
    ]
    assert listed(found[TEST_FILE], "bug") == [
        (10, "B015", "expected_error"),
        (11, "F631", "test_code"),
    ]


def test_check_security(found: dict[str, Analysis]) -> None:
    assert listed(found[FILE], "security") == [
        (6, "B105", "live_code"),
        (10, "B608", "live_code"),
        (11, "B608", "constants_only"),
        (25, "B324", "no_secret"),
        (29, "B324", "live_code"),
        (33, "B605", "live_code"),
        (34, "B605", "constants_only"),
    ]
    places = {place for _, _, place in listed(found[TEST_FILE], "security")}
    assert places == {"test_code"}


def test_check_best_practices(found: dict[str, Analysis]) -> None:
    assert listed(found[FILE], "performance") == [
        (18, "A201", "live_code"),
        (19, "A204", "live_code"),
    ]


def test_run_linter(found: dict[str, Analysis]) -> None:
    assert listed(found[FILE], "style") == [
        (3, "F401", "live_code"),
        (12, "E711", "live_code"),
        (20, "T201", "house_rules"),
    ]


def test_a_check_shows_the_first_finding_of_each_place(world: World) -> None:
    result = tools.check_security(world, FILE)
    json.dumps(result, allow_nan=False)
    assert result["live_code"] == {
        "line": 6,
        "rule": "B105",
        "problem": "hardcoded-password",
        "severity": "high",
    }
    assert result["constants_only"]["line"] == 11
    assert result["no_secret"]["line"] == 25
    assert result["other_files"] == "unchecked"
    assert tools.check_security(world, TEST_FILE)["other_files"] == "checked"
    assert world.cost == 6.0


def test_analyze_code(world: World) -> None:
    result = tools.analyze_code(world, FILE)
    assert result["size"].startswith("34 lines, 5 functions, 0 classes")
    assert (result["risky_code"], result["loops"], result["tests"]) == (
        True,
        True,
        False,
    )
    assert tools.analyze_code(world, TEST_FILE)["tests"] is True
    plain = analyse([{"a_0001.py": "def double(x):\n    return 2 * x\n"}])
    facts = plain["a_0001.py"].facts
    assert (facts.risky_code, facts.loops, facts.longest_function) == (False, False, 2)


def test_comment_shows_the_next_finding(world: World) -> None:
    tools.detect_bugs(world, FILE)
    result = tools.comment(world, 9, "bug", "medium", "B006")
    assert result["commented"] == {"line": 9, "category": "bug", "severity": "medium"}
    assert result["live_code"]["line"] == 29
    result = tools.comment(world, 29, "bug", "high", "F821")
    assert result["live_code"] == "nothing"
    assert world.comments[0] == Comment(FILE, 9, "bug", "medium", "B006")
    # The same line may have problems of other categories.
    tools.check_security(world, FILE)
    tools.comment(world, 6, "security", "high", "B105")
    assert (
        tools.comment(world, 10, "security", "high", "B608")["live_code"]["line"] == 29
    )


@pytest.mark.parametrize("ruling", ["accepted", "refused"])
def test_search_documentation_tells_what_the_house_rules(
    world: World, ruling: Any
) -> None:
    world.house = {**world.house, "print-call": ruling}
    shown = tools.run_linter(world, FILE)["house_rules"]
    assert shown["see"] == "style/print-call"
    tools.comment(world, 3, "style", "low", "F401")
    tools.comment(world, 12, "style", "medium", "E711")
    result = tools.search_documentation(world, shown["see"])
    assert (result["ruling"], result["page"]) == (ruling, "style/print-call")
    assert "house_rules" not in result
    if ruling == "accepted":
        assert result["live_code"] == "nothing"
    else:
        assert result["live_code"]["line"] == 20


def test_the_guide_is_searched_by_words() -> None:
    for problem in PROBLEMS:
        assert search(page_of(problem)) == problem
    assert search("default argument that is mutable") == "mutable-default"
    assert search("sha-1 hash") == "weak-hash"
    assert search("zebra") is None


def test_suggest_improvements(world: World) -> None:
    tools.run_linter(world, FILE)
    result = tools.suggest_improvements(world, 12)
    assert result["code"] == "return cursor.fetchall(), seen == None"
    assert "`is`" in result["advice"]
    assert result["instead"] == "seen is None"
    with pytest.raises(ToolError, match="found nothing at line 1 "):
        tools.suggest_improvements(world, 1)


def test_verdicts_close_the_review(world: World) -> None:
    assert tools.approve(world) == {"verdict": "approved"}
    for call in (
        lambda: tools.detect_bugs(world, FILE),
        lambda: tools.comment(world, 9, "bug", "low", "B006"),
        lambda: tools.search_documentation(world, "style/long-line"),
        lambda: tools.request_changes(world),
    ):
        with pytest.raises(ToolError, match="closed"):
            call()
    assert world.verdict == "approve"


def test_calls_that_make_no_sense_are_refused(world: World) -> None:
    with pytest.raises(ToolError, match="nothing was checked"):
        tools.comment(world, 1, "bug", "low", "B006")
    tools.detect_bugs(world, FILE)
    for line in (0, -1, 35, 10**9):
        with pytest.raises(ToolError, match="has lines 1 to 34"):
            tools.comment(world, line, "bug", "low", "B006")
    assert world.comments == []


# Checks of our own ------------------------------------------------------------------


@pytest.mark.parametrize(
    ("body", "problem"),
    [
        ("for i in range(len(xs) + 1):\n        print(xs[i])", "index-past-end"),
        ("return xs[len(xs)]", "index-past-end"),
        ("for i in range(len(xs)):\n        print(xs[i])", ""),
        ("for i in range(len(xs) + 1):\n        print(ys[i])", ""),
        ("return xs[len(ys)]", ""),
    ],
)
def test_indices_past_the_end(body: str, problem: str) -> None:
    found = findings_of({"a_0001.py": f"def f(xs, ys):\n    {body}\n"}, "bug")
    assert [p for _, p in found] == [problem] * bool(problem)


@pytest.mark.parametrize(
    ("line", "problem"),
    [
        ("db.execute('SELECT 1')", "query-in-loop"),
        ("ys = sorted(xs)", "sort-in-loop"),
        ("xs.sort()", "sort-in-loop"),
        ("done = x in known", "list-membership"),
        ("text += x", "string-concat"),
        ("xs.pop(0)", "pop-front"),
        ("xs.insert(0, x)", "pop-front"),
        ("p = re.compile(x)", "regex-in-loop"),
        ("xs.pop()", ""),
        ("total += x", ""),
        ("done = x in names", ""),
    ],
)
def test_slow_loops(line: str, problem: str) -> None:
    code = (
        "import re\ndef f(xs, db, names):\n    known, text, total = [], '', 0\n"
        "    known = list(names)\n    text = ''\n    for x in xs:\n        {}\n"
        "    {}\n    return known, text, total\n"
    )
    inside = findings_of({"a_0001.py": code.format(line, "pass")}, "performance")
    assert inside == [(7, problem)] * bool(problem)
    outside = findings_of(
        {"a_0001.py": code.format("pass", f"x = 1; {line}")}, "performance"
    )
    assert outside == []


@pytest.mark.parametrize(
    ("call", "fits"),
    [
        ("f(1, 2)", True),
        ("f(1, b=2)", True),
        ("f(1, 2, c=3)", True),
        ("f(*xs)", True),
        ("f(**xs)", True),
        ("f(1)", False),
        ("f(1, 2, 3)", False),
        ("f(1, 2, d=3)", False),
    ],
)
def test_calls_across_files(call: str, fits: bool) -> None:
    files = {
        "lib_0001.py": "def f(a, b, *, c=0):\n    return a, b, c\n",
        "app_0001.py": f"from lib_0001 import f\nxs = []\ny = {call}\n",
    }
    assert findings_of(files, "bug") == ([] if fits else [(3, "wrong-arguments")])


def test_imports_across_files() -> None:
    files = {
        "lib_0001.py": "import json\nLIMIT = 3\nclass Store:\n    pass\n",
        "app_0001.py": "from lib_0001 import LIMIT, Store, json, Shop\n"
        "print(LIMIT, Store, json, Shop)\n",
    }
    assert findings_of(files, "bug") == [(1, "missing-name")]


# Nothing is executed, nothing else is opened ----------------------------------------

PATHS = [
    "../../etc/passwd",
    "/etc/passwd",
    "users_0001.py/../../secret",
    "file:///etc/passwd",
    "users_*.py",
    "users_0001.py\x00.txt",
    "users_9999.py",
    "__import__('os').system('id')",
    "",
]


@pytest.mark.parametrize("path", PATHS)
@pytest.mark.parametrize("tool", ["analyze_code", *CHECKS])
def test_only_files_at_hand_are_opened(world: World, tool: str, path: str) -> None:
    call = ToolCall(tool, {"file": path})
    result = ToolRunner().run(tool_map(TOOLS), call, world)
    assert result.failure in (FailureKind.BAD_ARGUMENTS, FailureKind.TOOL_ERROR)
    with pytest.raises(ToolError, match="no file"):
        getattr(tools, tool)(world, path)
    assert world.checked is None and world.cost == 0.0


def test_a_comment_lists_the_categories_and_severities_of_the_guide() -> None:
    comment = tool_map(TOOLS)["comment"]
    for name, known in (("category", CATEGORIES), ("severity", get_args(Severity))):
        listed = comment.properties[name]["oneOf"]
        assert [value["const"] for value in listed] == list(known)
        assert all(value["description"] for value in listed)
        assert {getattr(problem, name) for problem in PROBLEMS.values()} == {*known}


@pytest.mark.parametrize(
    ("tool", "arguments"),
    [
        ("comment", {"line": "1; import os", "rule": "B006"}),
        ("comment", {"line": 1, "rule": "B006'); DROP TABLE x; --"}),
        ("comment", {"line": 1, "rule": "B006", "category": "exec('1')"}),
        ("comment", {"line": 1, "rule": "B006", "file": "/etc/passwd"}),
        ("suggest_improvements", {"line": "__import__('os')"}),
        ("search_documentation", {"page": "../../etc/passwd"}),
        ("search_documentation", {"page": "style/../../x"}),
        ("approve", {"because": "eval('1')"}),
    ],
)
def test_code_and_paths_in_parameters_are_refused(
    world: World, tool: str, arguments: dict[str, Any]
) -> None:
    tools.detect_bugs(world, FILE)
    given = {"category": "bug", "severity": "low"} if tool == "comment" else {}
    call = ToolCall(tool, {**given, **arguments})
    result = ToolRunner().run(tool_map(TOOLS), call, world)
    assert result.failure is FailureKind.BAD_ARGUMENTS
    assert world.comments == [] and world.verdict is None


def test_code_under_review_is_never_run(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A submission that would leave a file, and others that break at import."""
    trace = tmp_path / "trace"
    write = f"open({str(trace)!r}, 'w').write('ran')\n"
    files = {
        "evil_0001.py": f"{write}def f():\n    {write}    return eval('1')\n",
        "conftest_0001.py": f"{write}raise SystemExit(3)\n",
        "test_evil_0001.py": f"from evil_0001 import f\n{write}\nassert f()\n",
    }
    before = set(sys.modules)
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    found = analyse([files])
    house: dict[str, Any] = dict.fromkeys(HOUSE_TOPICS, "refused")
    world = World(found, list(files), house)
    for name in files:
        tools.analyze_code(world, name)
        for tool in CHECKS:
            getattr(tools, tool)(world, name)
    assert "eval-call" in [f.problem for f in found["evil_0001.py"].findings]
    assert list(tmp_path.iterdir()) == []
    new = set(sys.modules) - before
    assert not [name for name in new if name.removesuffix(".py") in files]


# Submissions ------------------------------------------------------------------------


def test_there_are_enough_submissions_and_a_third_is_clean() -> None:
    everything = [one for split in SPLITS for one in submissions(split)]
    assert len(everything) >= 200
    assert len({text for one in everything for text in one.files.values()}) >= 400
    clean = sum(one.is_clean for one in everything) / len(everything)
    assert 0.30 <= clean <= 0.40
    assert sum(len(one.files) == 2 for one in everything) >= 100
    several = [
        one
        for one in everything
        if sum(m.kind == "!" for marks in one.marks.values() for m in marks) > 1
    ]
    assert len(several) >= 80
    for split in SPLITS:
        assert len(submissions(split)) == SUBMISSIONS[split] + len(
            pieces(split)["whole",]
        )


@pytest.mark.parametrize("split", SPLITS)
def test_families_decoys_and_issues_across_files(split: Split) -> None:
    marks = [
        mark
        for one in submissions(split)
        for some in one.marks.values()
        for mark in some
    ]
    for category in CATEGORIES:
        families = {m.problem for m in marks if (m.kind, m.category) == ("!", category)}
        assert len(families) >= 5, category
    assert {m.problem for m in marks if m.kind == "~"} == set(HOUSE_TOPICS)
    assert len({m.problem for m in marks if m.kind == "?"}) >= 6
    real = {m.problem for m in marks if m.kind == "!"}
    assert {"wrong-arguments", "missing-name"} <= real


@pytest.mark.parametrize("split", SPLITS)
def test_tools_find_what_the_pieces_say_and_nothing_else(split: Split) -> None:
    """Truth comes from the pieces; here the tools are measured by it."""
    known = analyses(split)
    for one in submissions(split):
        for name, marks in one.marks.items():
            found = {(f.line, f.problem): f for f in known[name].findings}
            assert set(found) == {(m.line, m.problem) for m in marks}, (name, marks)
            for mark in marks:
                place = found[mark.line, mark.problem].place
                if mark.kind == "~":
                    assert place == "house_rules"
                elif mark.kind == "!":
                    tested = mark.category == "bug" and place == "test_code"
                    assert place == "live_code" or tested, (name, mark)
                else:
                    tested = mark.category == "bug" and place == "test_code"
                    assert place != "live_code" and not tested, (name, mark)
            issues = [(m.line, m.category) for m in marks if m.kind == "!"]
            assert len(set(issues)) == len(issues), "two issues that look the same"


def test_a_full_review_checks_all_that_it_should_find() -> None:
    for split in SPLITS:
        for one in submissions(split):
            for name, marks in one.marks.items():
                facts = analyses(split)[name].facts
                real = {m.category for m in marks if m.kind == "!"}
                assert facts.risky_code or "security" not in real
                assert facts.loops or "performance" not in real


def test_marks_are_taken_off() -> None:
    text, marks = unmarked(
        "x = 1  #! bad-name  #? assert-check\n# TODO  #~ todo-comment\n"
    )
    assert text == "x = 1\n# TODO\n"
    assert [(m.line, m.kind, m.problem) for m in marks] == [
        (1, "!", "bad-name"),
        (1, "?", "assert-check"),
        (2, "~", "todo-comment"),
    ]
    for split in SPLITS:
        for one in submissions(split):
            for code in one.files.values():
                assert not any(f"#{mark} " in code for mark in "!?~")
                ast.parse(code)


def identifiers(code: str) -> set[str]:
    """Functions and classes that a file defines."""
    kinds = (ast.FunctionDef, ast.ClassDef)
    return {n.name for n in ast.walk(ast.parse(code)) if isinstance(n, kinds)}


def test_splits_share_no_code_file_or_definition() -> None:
    seen: dict[Split, tuple[set[str], set[str]]] = {}
    for split in SPLITS:
        files = [item for one in submissions(split) for item in one.files.items()]
        names = {name for name, _ in files}
        assert len(names) == len(files)
        defined = set().union(*(identifiers(code) for _, code in files))
        seen[split] = names, {d for d in defined if not d.startswith("__")}
    methods = {"open", "add", "run", "since", "render", "test_order", "step", "search"}
    for a, b in itertools.combinations(SPLITS, 2):
        assert not seen[a][0] & seen[b][0]
        assert not (seen[a][1] & seen[b][1]) - methods
        mine, yours = (
            {piece for some in pieces(split).values() for piece in some}
            for split in (a, b)
        )
        assert not mine & yours


# Tasks and the judge ----------------------------------------------------------------


@pytest.fixture(scope="module")
def scenario() -> CodeReview:
    return CodeReview()


def message(step: Milestone) -> dict[str, Any]:
    call = ToolCall(step.tool, dict(step.arguments)).to_openai()
    return {"role": "assistant", "content": None, "tool_calls": [call]}


CLOSING = {"role": "assistant", "content": "Done."}


def played(
    scenario: CodeReview, task: Task, course: list[Milestone], *, closing: bool = True
) -> Trajectory:
    environment = scenario.create_environment([task])
    end = [CLOSING] if closing else []
    trajectory = play(environment, task, [*map(message, course), *end])
    environment.close()
    return trajectory


def task_with(scenario: CodeReview, wanted: Any) -> Task:
    return next(t for t in scenario.tasks("train", 0, 800) if wanted(t))


@pytest.mark.parametrize("split", SPLITS)
def test_the_plan_of_every_task_solves_it(scenario: CodeReview, split: Split) -> None:
    for task in scenario.tasks(split, 0, 120):
        trajectory = played(scenario, task, list(task.goal.plan))
        assert (trajectory.success, trajectory.outcome) == (True, 1.0), task
        assert all(step.correct for step in trajectory.steps)
        assert len(trajectory.steps) == task.best_steps <= 12
        figures = scenario.measure(trajectory)
        assert figures.pop("false_positive_rate", (0, 1))[0] == 0
        assert all(reached == possible for reached, possible in figures.values())
        assert ("issue_detection" in figures) is bool(task.goal.issues)


@pytest.mark.parametrize("split", SPLITS)
def test_tasks_have_all_kinds_and_difficulties(
    scenario: CodeReview, split: Split
) -> None:
    tasks = scenario.tasks(split, 0, 400)
    assert {task.tags[0] for task in tasks} == {"full", *CATEGORIES}
    assert {task.tags[1] for task in tasks} == {"one file", "two files"}
    assert {task.difficulty for task in tasks} == set(DIFFICULTIES)
    assert {task.goal.verdict for task in tasks} == {"approve", "request_changes"}
    used = {step.tool for task in tasks for step in task.goal.plan}
    assert used == {tool.name for tool in TOOLS}
    for task in tasks:
        assert (task.difficulty == "hard") == (len(task.goal.plan) >= 6)


def test_a_comment_on_a_decoy_is_a_false_positive(scenario: CodeReview) -> None:
    def has_decoy(task: Task) -> bool:
        check = task.goal.plan[0]
        if check.tool != "check_security" or task.goal.issues:
            return False
        found = task.world.analyses()[check.arguments["file"]].of("security")
        return bool(found)

    task = task_with(scenario, has_decoy)
    check = task.goal.plan[0]
    decoy = task.world.analyses()[check.arguments["file"]].of("security")[0]
    given = {"line": decoy.line, "category": "security", "severity": "high"}
    course = [
        check,
        Milestone("comment", {**given, "rule": decoy.rule}),
        *task.goal.plan[1:],
    ]
    trajectory = played(scenario, task, course)
    assert trajectory.steps[1].failure is FailureKind.WRONG_TOOL
    assert trajectory.success is False
    assert scenario.measure(trajectory)["false_positive_rate"] == (1, 1)
    right = played(scenario, task, list(task.goal.plan))
    assert (right.outcome or 0) > (trajectory.outcome or 0)
    assert sum(scenario.broadcast_rewards(right)) > sum(
        scenario.broadcast_rewards(trajectory)
    )


def commented(task: Task) -> bool:
    tools = [step.tool for step in task.goal.plan]
    return tools[1:2] == ["comment"] and tools.count("comment") == 1 and len(tools) == 3


def test_the_judge_tells_what_a_comment_names_wrongly(scenario: CodeReview) -> None:
    task = task_with(scenario, commented)
    check, comment, verdict = task.goal.plan
    other = "style" if comment.arguments["category"] != "style" else "bug"
    for changed, wrong in (
        ({"rule": "X999"}, {"rule"}),
        ({"category": other}, {"category"}),
        ({"line": 1, "rule": "X999"}, {"line", "rule"}),
    ):
        environment = scenario.create_environment([task])
        environment.reset_task(task)
        environment.act(message(check))
        given = Milestone("comment", {**comment.arguments, **changed})
        told = environment.act(message(given)).verdict
        assert (told.failure, told.wrong_arguments) == (
            FailureKind.BAD_ARGUMENTS,
            frozenset(wrong),
        )
        environment.close()
    misnamed = Milestone("comment", {**comment.arguments, "rule": "X999"})
    trajectory = played(scenario, task, [check, misnamed, verdict])
    assert trajectory.success
    assert trajectory.outcome == pytest.approx(1 - 0.25 / 3)
    figures = scenario.measure(trajectory)
    assert figures["issue_detection"] == (1, 1)
    assert figures["explanation_quality"] == (2, 3)


def test_needless_checks_cost(scenario: CodeReview) -> None:
    task = task_with(
        scenario,
        lambda t: (
            [s.tool for s in t.goal.plan][:1] == ["run_linter"]
            and len(t.goal.plan) == 2
        ),
    )
    check, verdict = task.goal.plan
    needless = Milestone("check_security", check.arguments)
    trajectory = played(scenario, task, [check, needless, verdict])
    assert trajectory.success
    assert trajectory.steps[1].failure is FailureKind.NEEDLESS_CALL
    assert scenario.measure(trajectory)["cost_efficiency"] == (0.25, 1.0)
    assert trajectory.outcome == pytest.approx(1 - 0.25 * 0.75)


def test_a_wrong_verdict_ends_it(scenario: CodeReview) -> None:
    task = task_with(scenario, commented)
    for course in (
        [task.goal.plan[0], Milestone("approve")],
        [Milestone("request_changes")],
        [
            *task.goal.plan[:2],
            Milestone(
                "approve" if task.goal.verdict != "approve" else "request_changes"
            ),
        ],
    ):
        trajectory = played(scenario, task, [*course, *task.goal.plan])
        assert trajectory.success is False
        assert len(trajectory.steps) == len(course)
        said = course[-1].tool == task.goal.verdict
        assert scenario.measure(trajectory)["verdict_accuracy"] == (float(said), 1.0)


def test_house_rules_are_looked_up_before_comment_and_verdict(
    scenario: CodeReview,
) -> None:
    task = task_with(
        scenario,
        lambda t: (
            [s.tool for s in t.goal.plan]
            == ["run_linter", "search_documentation", "comment", "approve"]
        ),
    )
    check, search_, comment, verdict = task.goal.plan
    hasty = played(scenario, task, [check, comment, search_, verdict])
    assert hasty.steps[1].failure is FailureKind.WRONG_TOOL
    assert played(scenario, task, [check, verdict]).success is False


def test_checks_may_come_in_any_order_after_the_analysis(scenario: CodeReview) -> None:
    task = task_with(
        scenario,
        lambda t: t.tags[0] == "full" and not t.goal.issues and len(t.goal.checks) == 4,
    )
    first, *rest, verdict = task.goal.plan
    assert played(scenario, task, [first, *reversed(rest), verdict]).outcome == 1.0
    early = played(scenario, task, [rest[0], first, *rest[1:], verdict])
    assert early.steps[0].correct is False


def test_the_contract_is_kept(scenario: CodeReview) -> None:
    environment: CodeReviewEnvironment = scenario.create_environment()
    check_env(environment, skip_render_check=True)
    environment.close()
    assert [c for c in check_scenario(scenario) if not c.ok] == []
    criteria = scenario.success_criteria()
    assert isinstance(criteria["false_positive_rate"], AtMost)


def test_the_same_seed_is_the_same_in_another_process(scenario: CodeReview) -> None:
    program = (
        "from agentgym.scenarios.code_review.scenario import CodeReview\n"
        "print([(t.messages, t.goal) for t in CodeReview().tasks('heldout', 5, 20)])"
    )
    done = subprocess.run(
        [sys.executable, "-c", program],
        capture_output=True,
        text=True,
        env={"PYTHONPATH": ":".join(sys.path), "PYTHONHASHSEED": "7"},
        check=True,
    )
    here = [(t.messages, t.goal) for t in scenario.tasks("heldout", 5, 20)]
    assert done.stdout.strip() == str(here)


def test_what_is_missing_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(planned, "find_spec", lambda name: None)
    with pytest.raises(MissingExtraError, match=r"agentgym\[review\]"):
        CodeReview()


# Bounds -----------------------------------------------------------------------------


def test_worlds_are_made_at_once_and_analyses_stay_bounded(
    scenario: CodeReview,
) -> None:
    tasks = scenario.tasks("train", 1, 200)
    environment = scenario.create_environment(tasks)
    start = time.process_time()
    for task in tasks:
        environment.reset_task(task)
    assert (time.process_time() - start) / len(tasks) < 0.02
    environment.close()
    info = analyses.cache_info()
    assert info.currsize <= (info.maxsize or 0) == len(SPLITS)


@pytest.mark.slow
def test_a_planner_learns_to_review(tmp_path: Path) -> None:
    trainer = Trainer(home=tmp_path)
    result = trainer.train("code_review", episodes=1_500, seed=1, heldout_tasks=80)
    before, after = result.baseline, result.metrics
    assert after.tool_reliability > before.tool_reliability + 0.15
    found, found_before = (m.measures["issue_detection"] for m in (after, before))
    assert found["value"] > found_before["value"] + 0.15

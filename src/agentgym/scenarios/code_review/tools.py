"""The reviewer's tools. They report what analyses found; they never run the code.

What a model sees of them is in `data/tools.json`.

A file is named, never opened by its name: only files of the task can be had. What a
check found stands on the *sheet*, which every result shows: of each kind of place the
first finding that has no comment yet. So an agent sees one finding at a time.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from agentgym.core.tools import ToolError
from agentgym.scenarios.code_review.analysis import Analysis, Finding
from agentgym.scenarios.code_review.guide import (
    HOUSE_TOPICS,
    PROBLEMS,
    Category,
    Ruling,
    page_of,
    search,
)
from agentgym.scenarios.code_review.plan import CHECKS, COSTS, Comment, Conclusion
from agentgym.scenarios.code_review.surroundings import Place
from agentgym.scenarios.planned import read_tools

NOTHING = "nothing"
"""What stands for live code without an open finding."""


@dataclass(slots=True)
class World:
    """One review.

    Attributes:
        files: Analyses by name of the file.
        submitted: The files that are under review; others may be at hand as well.
        house: What the project rules about matters that are its own, by topic.
        checked: File and category of the last check; None before the first.
        looked_up: Topics that were looked up.
    """

    files: Mapping[str, Analysis]
    submitted: Sequence[str]
    house: Mapping[str, Ruling]
    checked: tuple[str, Category] | None = None
    checks: set[tuple[str, Category]] = field(default_factory=set)
    comments: list[Comment] = field(default_factory=list)
    looked_up: set[str] = field(default_factory=set)
    verdict: Conclusion | None = None
    cost: float = 0.0

    def opened(self, file: str) -> Analysis:
        """The analysis of a file.

        Raises:
            ToolError: There is no such file.
        """
        self.still_open()
        found = self.files.get(file)
        if found is None:
            raise ToolError(f"no file '{file}'; files: {', '.join(sorted(self.files))}")
        return found

    def still_open(self) -> None:
        """Refuses to go on after the verdict.

        Raises:
            ToolError: The review has its verdict.
        """
        if self.verdict is not None:
            raise ToolError("the review is closed")

    def current(self) -> tuple[str, Category]:
        """File and category of the last check.

        Raises:
            ToolError: None was made, or the review is closed.
        """
        self.still_open()
        if self.checked is None:
            raise ToolError("nothing was checked yet; check a file first")
        return self.checked

    def findings(self) -> list[tuple[Place, Finding]]:
        """What the last check found and nobody has commented on, with its place.

        What the house accepts is no finding, what it refuses is one like any other.
        """
        if self.checked is None:
            return []
        file, category = self.checked
        made = {c.line for c in self.comments if (c.file, c.category) == self.checked}
        found = []
        for finding in self.files[file].of(category):
            place = finding.place
            if place == "house_rules" and finding.problem in self.looked_up:
                if self.house[finding.problem] == "accepted":
                    continue
                place = "live_code"
            if finding.line not in made:
                found.append((place, finding))
        return found

    def sheet(self) -> dict[str, Any]:
        """The first open finding of each kind of place, and whether files are left."""
        if self.checked is None:
            return {}
        category = self.checked[1]
        left = any((file, category) not in self.checks for file in self.submitted)
        shown: dict[str, Any] = {
            "checked_for": category,
            "other_files": "unchecked" if left else "checked",
            "live_code": NOTHING,
        }
        for place, finding in self.findings():
            if shown.get(place, NOTHING) == NOTHING:
                shown[place] = _told(finding)
                if place == "house_rules":
                    shown[place]["see"] = page_of(finding.problem)
        return shown


def _told(finding: Finding) -> dict[str, Any]:
    known = PROBLEMS.get(finding.problem)
    return {
        "line": finding.line,
        "rule": finding.rule,
        "problem": finding.problem,
        "severity": known.severity if known else "low",
    }


# The tools -------------------------------------------------------------------------


def analyze_code(world: World, file: str) -> dict[str, Any]:
    """Tells what a file is made of."""
    facts = world.opened(file).facts
    world.cost += COSTS["analyze_code"]
    return {
        "file": file,
        # As text: no number that is a line.
        "size": f"{facts.lines} lines, {facts.functions} functions, "
        f"{facts.classes} classes, longest function {facts.longest_function} lines",
        "risky_code": facts.risky_code,
        "loops": facts.loops,
        "tests": facts.tests,
    }


def _check(tool: str) -> Callable[[World, str], dict[str, Any]]:
    category = CHECKS[tool]

    def check(world: World, file: str) -> dict[str, Any]:
        world.opened(file)
        world.cost += COSTS[tool]
        world.checked = file, category
        world.checks.add(world.checked)
        return {"file": file, **world.sheet()}

    return check


detect_bugs = _check("detect_bugs")
check_security = _check("check_security")
check_best_practices = _check("check_best_practices")
run_linter = _check("run_linter")


def search_documentation(world: World, page: str) -> dict[str, Any]:
    """Looks a problem up in the guide, with what the project rules about it."""
    world.still_open()
    problem = search(page)
    world.cost += COSTS["search_documentation"]
    if problem is None:
        raise ToolError(f"the guide says nothing about '{page}'")
    told: dict[str, Any] = {
        "page": page_of(problem),
        "advice": PROBLEMS[problem].advice,
    }
    if problem in HOUSE_TOPICS:
        world.looked_up.add(problem)
        told["ruling"] = world.house[problem]
    return {**told, **world.sheet()}


def suggest_improvements(world: World, line: int) -> dict[str, Any]:
    """What to write instead at a line that the last check found fault with."""
    file, category = world.current()
    here = [f for f in world.files[file].of(category) if f.line == line]
    if not here:
        raise ToolError(f"the last check found nothing at line {line} of '{file}'")
    world.cost += COSTS["suggest_improvements"]
    finding = here[0]
    advice = PROBLEMS[finding.problem].advice if finding.problem in PROBLEMS else ""
    code = world.files[file].text.splitlines()[line - 1].strip()
    told = {"suggested": True, "code": code, "advice": advice}
    if finding.fix.strip():
        told["instead"] = finding.fix.strip()
    return {**told, **world.sheet()}


def comment(
    world: World, line: int, category: str, severity: str, rule: str
) -> dict[str, Any]:
    """Comments on a line of the file that was checked last."""
    file, _ = world.current()
    lines = world.files[file].text.count("\n")
    if not 1 <= line <= lines:
        raise ToolError(f"'{file}' has lines 1 to {lines}, not {line}")
    world.comments.append(Comment(file, line, category, severity, rule))
    told = {"line": line, "category": category, "severity": severity}
    return {"commented": told, **world.sheet()}


def approve(world: World) -> dict[str, Any]:
    """Ends the review in favour."""
    world.still_open()
    world.verdict = "approve"
    return {"verdict": "approved"}


def request_changes(world: World) -> dict[str, Any]:
    """Ends the review against."""
    world.still_open()
    world.verdict = "request_changes"
    return {"verdict": "changes-requested"}


TOOLS = read_tools("agentgym.scenarios.code_review", globals())

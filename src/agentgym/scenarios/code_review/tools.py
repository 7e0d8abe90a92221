"""The reviewer's tools. They report the findings of analyses; they never run the code.

Their definitions, as a model sees them, are in `data/tools.json`.

Tools accept only names of the task's files and never open a path. Every result shows
the *sheet* of the last check: for each kind of place, the first finding without a
comment. So an agent sees one finding of a kind at a time.
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
"""The sheet's entry for live code without an open finding."""


@dataclass(slots=True)
class World:
    """The state of one review.

    Attributes:
        files: The analyses, by file name.
        submitted: The files under review; `files` may contain others.
        house: The project's house rules, by topic.
        checked: File and category of the last check; None before the first.
        looked_up: The topics that were looked up.
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
        """Returns the analysis of a file.

        Raises:
            ToolError: The file doesn't exist.
        """
        self.still_open()
        found = self.files.get(file)
        if found is None:
            raise ToolError(f"no file '{file}'; files: {', '.join(sorted(self.files))}")
        return found

    def still_open(self) -> None:
        """Checks that the review has no verdict yet.

        Raises:
            ToolError: The review has a verdict.
        """
        if self.verdict is not None:
            raise ToolError("the review is closed")

    def current(self) -> tuple[str, Category]:
        """Returns file and category of the last check.

        Raises:
            ToolError: There was no check yet, or the review is closed.
        """
        self.still_open()
        if self.checked is None:
            raise ToolError("nothing was checked yet; check a file first")
        return self.checked

    def findings(self) -> list[tuple[Place, Finding]]:
        """The last check's findings without a comment, with their places.

        Leaves out findings that the house rules accept; those that they forbid count
        as normal findings.
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
        """The first open finding of each kind of place, and whether files remain."""
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
    """Returns facts about a file."""
    facts = world.opened(file).facts
    world.cost += COSTS["analyze_code"]
    return {
        "file": file,
        # As text, so that no policy takes these numbers for a line.
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
    """Looks up a problem in the guide, with the project's house rule."""
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
    """Suggests a fix for a line with a finding of the last check."""
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
    """Comments on a line of the last checked file."""
    file, _ = world.current()
    lines = world.files[file].text.count("\n")
    if not 1 <= line <= lines:
        raise ToolError(f"'{file}' has lines 1 to {lines}, not {line}")
    world.comments.append(Comment(file, line, category, severity, rule))
    told = {"line": line, "category": category, "severity": severity}
    return {"commented": told, **world.sheet()}


def approve(world: World) -> dict[str, Any]:
    """Ends the review with an approval."""
    world.still_open()
    world.verdict = "approve"
    return {"verdict": "approved"}


def request_changes(world: World) -> dict[str, Any]:
    """Ends the review with a request for changes."""
    world.still_open()
    world.verdict = "request_changes"
    return {"verdict": "changes-requested"}


TOOLS = read_tools("agentgym.scenarios.code_review", globals())

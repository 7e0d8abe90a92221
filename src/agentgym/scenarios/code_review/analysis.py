"""Analyses of submissions with ruff, bandit and our own checks.

Code under review is read, but never imported or run. All submissions of a split are
analysed together when the first one is needed: starting ruff for each file would take
longer than everything else.
"""

from __future__ import annotations

import ast
import json
import logging
import subprocess
import sys
import tempfile
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path

from agentgym.core.task import SPLITS, Split
from agentgym.scenarios.code_review.guide import PROBLEM_OF, Category
from agentgym.scenarios.code_review.own_checks import Report, across_files, in_file
from agentgym.scenarios.code_review.submissions import submissions
from agentgym.scenarios.code_review.surroundings import Facts, Place, Surroundings

_RUFF: dict[Category, tuple[str, ...]] = {
    "style": ("E", "W", "N", "T201", "FIX002", "F401", "F403", "F405", "F841"),
    "performance": ("PERF",),
    "bug": ("B", "F"),
}
"""Ruff's rules by category; the first match counts."""
_UNHEEDED = ("B4", "B603", "B607")
"""Bandit's rules against any import or use of subprocess and similar modules."""
_SECONDS = 60


@dataclass(frozen=True, slots=True, order=True)
class Finding:
    """A tool's finding.

    Attributes:
        rule: The tool's code of the rule.
        problem: The problem's name in the guide, or the tool's name for it.
        place: The kind of place where it is.
        fix: Ruff's fix; "" if it has none.
    """

    line: int
    rule: str
    category: Category
    problem: str
    place: Place
    fix: str = ""


@dataclass(frozen=True, slots=True)
class Analysis:
    """All tools' findings in one file."""

    text: str
    facts: Facts
    findings: tuple[Finding, ...]

    def of(self, category: Category) -> list[Finding]:
        """The findings of a category, by line."""
        return [f for f in self.findings if f.category == category]


@lru_cache(maxsize=len(SPLITS))
def analyses(split: Split) -> Mapping[str, Analysis]:
    """The analyses of all files of a split, by name."""
    return analyse([submission.files for submission in submissions(split)])


def analyse(groups: Iterable[Mapping[str, str]]) -> dict[str, Analysis]:
    """Analyses files.

    Args:
        groups: One mapping of names to texts per submission; files of one submission
            may import each other, and names must be unique over all submissions.
    """
    groups = list(groups)
    reports: dict[str, list[Report]] = {name: [] for g in groups for name in g}
    with tempfile.TemporaryDirectory(prefix="agentgym-review-") as folder:
        for group in groups:
            for name, text in group.items():
                (Path(folder) / name).write_text(text, encoding="utf-8")
        for name, report in (*_ruff(Path(folder)), *_bandit(Path(folder), reports)):
            reports[name].append(report)
    found = {}
    for group in groups:
        trees = {name: ast.parse(text) for name, text in group.items()}
        for name, tree in trees.items():
            around = Surroundings(name, tree)
            all_reports = (*reports[name], *in_file(tree), *across_files(name, trees))
            findings = sorted({_finding(report, around) for report in all_reports})
            found[name] = Analysis(group[name], around.facts, tuple(findings))
    return found


def _finding(report: Report, around: Surroundings) -> Finding:
    problem = PROBLEM_OF.get((report.category, report.rule), report.name)
    place = around.place(report.line, problem)
    return Finding(
        report.line, report.rule, report.category, problem, place, report.fix
    )


def _ruff(folder: Path) -> Iterator[tuple[str, Report]]:
    rules = [rule for some in _RUFF.values() for rule in some]
    options = ["--isolated", "--no-cache", "--output-format=json", "--exit-zero"]
    options += ["--line-length=88", "--target-version=py311"]
    options += [f"--select={','.join(rules)}"]
    done = subprocess.run(
        [sys.executable, "-m", "ruff", "check", *options, str(folder)],
        capture_output=True,
        text=True,
        check=True,
        timeout=_SECONDS,
    )
    for found in json.loads(done.stdout):
        code = found["code"] or ""
        category = next(
            category for category, some in _RUFF.items() if code.startswith(some)
        )
        name = str(found["url"] or code).rpartition("/")[2]
        edits = (found["fix"] or {}).get("edits") or [{}]
        report = Report(
            found["location"]["row"], code, category, name, edits[0].get("content", "")
        )
        yield Path(found["filename"]).name, report


def _bandit(folder: Path, names: Iterable[str]) -> Iterator[tuple[str, Report]]:
    # Bandit logs a line for every file.
    logging.getLogger("bandit").setLevel(logging.CRITICAL)
    from bandit.core.config import BanditConfig
    from bandit.core.manager import BanditManager

    manager = BanditManager(BanditConfig(), "file")
    manager.discover_files([str(folder / name) for name in names])
    manager.run_tests()
    for found in manager.results:
        if not found.test_id.startswith(_UNHEEDED):
            report = Report(found.lineno, found.test_id, "security", found.test)
            yield Path(found.fname).name, report

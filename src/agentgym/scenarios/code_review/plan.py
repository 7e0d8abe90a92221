"""The right result of a review, and how a review is judged."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Literal

from agentgym.scenarios.code_review.guide import PROBLEMS, Category, Severity
from agentgym.scenarios.planned import Milestone

SYSTEM_PROMPT = (
    "You review Python code. Run the checks that the request asks for; for a full "
    "review analyze the code first, then detect bugs, check security if the code is "
    "risky and best practices if it has loops. Comment on every real problem of a "
    "check before the next one, and on nothing else. Look house rules up. Request "
    "changes if a problem is of medium or high severity, otherwise approve; then close."
)

Conclusion = Literal["approve", "request_changes"]
"""The tools that end a review."""

CHECKS: dict[str, Category] = {
    "detect_bugs": "bug",
    "check_best_practices": "performance",
    "check_security": "security",
    "run_linter": "style",
}
"""The tools that find problems, with their category."""
COSTS = {
    "analyze_code": 1.0,
    "detect_bugs": 2.0,
    "check_best_practices": 2.0,
    "check_security": 3.0,
    "run_linter": 1.0,
    "search_documentation": 0.5,
    "suggest_improvements": 0.5,
}
"""The cost of a call; comments and verdicts are free."""


@dataclass(frozen=True, slots=True)
class Issue:
    """A problem that needs a comment."""

    file: str
    line: int
    problem: str

    @property
    def category(self) -> Category:
        """Of the problem."""
        return PROBLEMS[self.problem].category

    @property
    def severity(self) -> Severity:
        """Of the problem."""
        return PROBLEMS[self.problem].severity

    def misnamed(self, comment: Comment) -> frozenset[str]:
        """The wrong parameters of a comment on its line: category, severity, rule."""
        right = {
            "category": comment.category == self.category,
            "severity": comment.severity == self.severity,
            "rule": comment.rule in PROBLEMS[self.problem].rules,
        }
        return frozenset(name for name, is_right in right.items() if not is_right)


@dataclass(frozen=True, slots=True)
class Comment:
    """A comment in a review."""

    file: str
    line: int
    category: str
    severity: str
    rule: str


@dataclass(frozen=True, slots=True)
class Score:
    """The quality of a review's comments.

    Attributes:
        detected: Issues with a comment of their category on their line.
        false: Comments that refer to no issue.
        named: Number of right categories, severities and rules in comments on issues,
            out of `nameable`.
    """

    detected: int
    false: int
    named: int
    nameable: int

    @property
    def explanation(self) -> float:
        """Share of right details in comments; 1 without comments."""
        return self.named / self.nameable if self.nameable else 1.0


@dataclass(frozen=True, slots=True)
class Goal:
    """How a task is judged.

    Attributes:
        checks: (tool, file) of all checks that the request and the code need;
            `analyze_code` comes first if included.
        issues: The issues that need a comment.
        topics: House rules to look up, by file.
        suggests: Whether the user wants an improvement and one is possible.
        verdict: The right verdict.
        plan: One right course, including the verdict.
        cost: The cost of that course; no right course costs less.
    """

    checks: tuple[tuple[str, str], ...]
    issues: tuple[Issue, ...]
    topics: Mapping[str, tuple[str, ...]]
    suggests: bool
    verdict: Conclusion
    plan: tuple[Milestone, ...]
    cost: float

    def issue_of(self, comment: Comment) -> Issue | None:
        """The issue that a comment refers to; its category decides between several."""
        here = [
            i for i in self.issues if (i.file, i.line) == (comment.file, comment.line)
        ]
        here.sort(key=lambda issue: issue.category != comment.category)
        return here[0] if here else None

    def score(self, comments: Sequence[Comment]) -> Score:
        """Judges comments; a second one on the same issue is false."""
        detected: set[Issue] = set()
        false = named = nameable = 0
        for comment in comments:
            issue = self.issue_of(comment)
            if issue is None or issue in detected:
                false += 1
                continue
            misnamed = issue.misnamed(comment)
            named, nameable = named + 3 - len(misnamed), nameable + 3
            if "category" in misnamed:
                false += 1
            else:
                detected.add(issue)
        return Score(len(detected), false, named, nameable)


def verdict_on(issues: Iterable[Issue]) -> Conclusion:
    """The right verdict: problems of low severity don't prevent approval."""
    if any(issue.severity != "low" for issue in issues):
        return "request_changes"
    return "approve"


def cost_of(tools: Iterable[str]) -> float:
    """The total cost of calls of these tools."""
    return sum(COSTS.get(tool, 0.0) for tool in tools)

"""What a review should come to, and how one is judged by it."""

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
"""What a review ends with."""

CHECKS: dict[str, Category] = {
    "detect_bugs": "bug",
    "check_best_practices": "performance",
    "check_security": "security",
    "run_linter": "style",
}
"""The tools that find problems, and of which category."""
COSTS = {
    "analyze_code": 1.0,
    "detect_bugs": 2.0,
    "check_best_practices": 2.0,
    "check_security": 3.0,
    "run_linter": 1.0,
    "search_documentation": 0.5,
    "suggest_improvements": 0.5,
}
"""What a use of a tool costs; comments and verdicts cost nothing."""


@dataclass(frozen=True, slots=True)
class Issue:
    """A problem that the review has to comment on."""

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
        """What a comment on its line names wrongly: category, severity, rule."""
        right = {
            "category": comment.category == self.category,
            "severity": comment.severity == self.severity,
            "rule": comment.rule in PROBLEMS[self.problem].rules,
        }
        return frozenset(name for name, is_right in right.items() if not is_right)


@dataclass(frozen=True, slots=True)
class Comment:
    """A comment that was made."""

    file: str
    line: int
    category: str
    severity: str
    rule: str


@dataclass(frozen=True, slots=True)
class Score:
    """How good the comments of a review are.

    Attributes:
        detected: Issues on whose line stands a comment of their category.
        false: Comments that stand for no issue.
        named: What comments on issues name rightly, out of `nameable`: the category,
            the severity and the rule of each.
    """

    detected: int
    false: int
    named: int
    nameable: int

    @property
    def explanation(self) -> float:
        """Share of what comments name that is right; 1 without any."""
        return self.named / self.nameable if self.nameable else 1.0


@dataclass(frozen=True, slots=True)
class Goal:
    """How a task is judged.

    Attributes:
        checks: (tool, file) of all checks that the request and the code call for;
            `analyze_code` comes first if it is among them.
        issues: To be commented on.
        topics: House rules that have to be looked up, by file.
        suggests: Whether an improvement is wanted, and there is something to improve.
        verdict: What the review ends with.
        plan: One right course, verdict included.
        cost: Of that course; no right course costs less.
    """

    checks: tuple[tuple[str, str], ...]
    issues: tuple[Issue, ...]
    topics: Mapping[str, tuple[str, ...]]
    suggests: bool
    verdict: Conclusion
    plan: tuple[Milestone, ...]
    cost: float

    def issue_of(self, comment: Comment) -> Issue | None:
        """The issue for which a comment stands; its category decides among several."""
        here = [
            i for i in self.issues if (i.file, i.line) == (comment.file, comment.line)
        ]
        here.sort(key=lambda issue: issue.category != comment.category)
        return here[0] if here else None

    def score(self, comments: Sequence[Comment]) -> Score:
        """Judges comments; one more on the same issue is a false one."""
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
    """Problems of low severity are commented on, and approved."""
    if any(issue.severity != "low" for issue in issues):
        return "request_changes"
    return "approve"


def cost_of(tools: Iterable[str]) -> float:
    """What calls of these tools cost."""
    return sum(COSTS.get(tool, 0.0) for tool in tools)

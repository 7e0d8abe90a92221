"""The reviewer's guide: all problems, their severity, and advice.

They are in `data/guide.txt`: `search_documentation` searches this corpus, and comments
are judged by it. The tools know which rule finds a problem; the guide explains what it
means.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Literal, cast, get_args

from agentgym.scenarios.wording import sections

Category = Literal["bug", "performance", "security", "style"]
CATEGORIES: tuple[Category, ...] = get_args(Category)
Severity = Literal["low", "medium", "high"]
Ruling = Literal["accepted", "refused"]


@dataclass(frozen=True, slots=True)
class Problem:
    """A kind of problem.

    Attributes:
        rules: The tools' codes for it: from ruff, from bandit, and with an A from our
            own checks.
        advice: What the problem is, and what to do instead.
        house: Whether each project decides for itself if this is a problem.
    """

    category: Category
    severity: Severity
    rules: tuple[str, ...]
    advice: str
    house: bool = False


def _problem(kind: str, advice: str) -> Problem:
    category, severity, *rules = kind.split()
    house = rules[-1] == "house"
    return Problem(
        cast(Category, category),
        cast(Severity, severity),
        tuple(rules[:-1] if house else rules),
        advice,
        house,
    )


PROBLEMS = {
    name: _problem(*lines)
    for name, *lines in sections("agentgym.scenarios.code_review", "guide.txt")
}
"""All problems by name. Names contain no digits and no spaces."""

HOUSE_TOPICS = tuple(name for name, problem in PROBLEMS.items() if problem.house)
PROBLEM_OF = {
    (problem.category, rule): name
    for name, problem in PROBLEMS.items()
    for rule in problem.rules
}
"""The name of a problem, by category and rule."""


def page_of(problem: str) -> str:
    """The guide's page about a problem."""
    return f"{PROBLEMS[problem].category}/{problem}"


def search(query: str) -> str | None:
    """The problem whose page shares the most words with a query; None without any."""
    wanted = _words(query)
    best, most = None, 0.0
    for name, problem in PROBLEMS.items():
        # Words in the title count more than words in the text.
        title = len(wanted & _words(page_of(name)))
        score = title + 0.1 * len(wanted & _words(problem.advice))
        if score > most:
            best, most = name, score
    return best


def _words(text: str) -> set[str]:
    return set(re.findall(r"[a-z]+", text.lower()))

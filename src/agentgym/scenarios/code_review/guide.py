"""The reviewer's guide: what problems there are, how they weigh, what to do about them.

`data/guide.txt` is the corpus that `search_documentation` searches, and by which
comments are judged. Which rule finds a problem is the tools' affair; what it means is
said there.
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
        rules: Codes under which the tools report it: those of ruff and bandit, and
            those with an A of our own checks.
        advice: What it is, and what to do instead.
        house: Whether each project rules for itself if it is one.
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
"""All problems by name. A name has no digit and no space."""

HOUSE_TOPICS = tuple(name for name, problem in PROBLEMS.items() if problem.house)
PROBLEM_OF = {
    (problem.category, rule): name
    for name, problem in PROBLEMS.items()
    for rule in problem.rules
}
"""Name of a problem by category and rule."""


def page_of(problem: str) -> str:
    """The page of the guide on which a problem stands."""
    return f"{PROBLEMS[problem].category}/{problem}"


def search(query: str) -> str | None:
    """The problem whose page has most words of the query; None if none has any."""
    wanted = _words(query)
    best, most = None, 0.0
    for name, problem in PROBLEMS.items():
        # A word of the title says more than one of the text.
        title = len(wanted & _words(page_of(name)))
        score = title + 0.1 * len(wanted & _words(problem.advice))
        if score > most:
            best, most = name, score
    return best


def _words(text: str) -> set[str]:
    return set(re.findall(r"[a-z]+", text.lower()))

"""The reviewer's guide: all problems, their severity, and advice.

`search_documentation` searches this corpus, and comments are judged by it. The tools
know which rule finds a problem; the guide explains what it means.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Literal, get_args

Category = Literal["bug", "performance", "security", "style"]
CATEGORIES: tuple[Category, ...] = get_args(Category)
Severity = Literal["low", "medium", "high"]
SEVERITIES: tuple[Severity, ...] = get_args(Severity)
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


PROBLEMS: dict[str, Problem] = {
    # Bugs
    "mutable-default": Problem(
        "bug",
        "medium",
        ("B006",),
        "All calls share a default that can change. Default to None and make it anew.",
    ),
    "undefined-name": Problem(
        "bug",
        "high",
        ("F821",),
        "Nothing has that name: the line raises NameError. Look for a misspelling.",
    ),
    "is-literal": Problem(
        "bug",
        "medium",
        ("F632",),
        "`is` compares identities, which literals do not promise. Compare with ==.",
    ),
    "return-in-finally": Problem(
        "bug",
        "high",
        ("B012",),
        "A return in finally swallows the exception. Return after the try statement.",
    ),
    "assert-on-tuple": Problem(
        "bug",
        "high",
        ("F631",),
        "A tuple is always true, so nothing is tested. Take the parentheses away.",
    ),
    "repeated-key": Problem(
        "bug",
        "medium",
        ("F601",),
        "The later value wins without a word. Remove one of the keys.",
    ),
    "late-closure": Problem(
        "bug",
        "medium",
        ("B023",),
        "The function sees the loop's last value. Bind it as a default argument.",
    ),
    "index-past-end": Problem(
        "bug",
        "high",
        ("A101",),
        "The last index is the length less one. Iterate over the items themselves.",
    ),
    "wrong-arguments": Problem(
        "bug",
        "high",
        ("A102",),
        "The other file's function takes other arguments. Adapt the call.",
    ),
    "missing-name": Problem(
        "bug",
        "high",
        ("A103",),
        "The other file has no such name: the import fails. Import what is there.",
    ),
    "useless-expression": Problem(
        "bug",
        "low",
        ("B015", "B018"),
        "The result is not used. Fine where a test expects the line to raise.",
    ),
    # Performance
    "query-in-loop": Problem(
        "performance",
        "high",
        ("A201",),
        "One query for each row. Ask once with IN or a join. Fine for a few constants.",
    ),
    "sort-in-loop": Problem(
        "performance",
        "medium",
        ("A202",),
        "Sorts again in every round. Sort once. Fine for a few constants.",
    ),
    "list-membership": Problem(
        "performance",
        "medium",
        ("A203",),
        "Searches a list in every round. Make it a set before the loop.",
    ),
    "string-concat": Problem(
        "performance",
        "low",
        ("A204",),
        "Copies the text in every round. Join the pieces. Fine for a few constants.",
    ),
    "pop-front": Problem(
        "performance",
        "medium",
        ("A205",),
        "Moves the whole list in every round. Use collections.deque.",
    ),
    "regex-in-loop": Problem(
        "performance",
        "low",
        ("A206",),
        "Compiles the same pattern in every round. Compile it once.",
    ),
    # Security
    "sql-injection": Problem(
        "security",
        "high",
        ("B608",),
        "Values in the text of a query can change it. Bind them. Fine for constants.",
    ),
    "shell-injection": Problem(
        "security",
        "high",
        ("B602", "B605"),
        "A shell runs whatever the text says. Pass a list. Fine for constants.",
    ),
    "hardcoded-password": Problem(
        "security",
        "high",
        ("B105", "B106", "B107"),
        "Whoever reads the code has the password. Read it from outside. Fine in tests.",
    ),
    "weak-hash": Problem(
        "security",
        "medium",
        ("B324",),
        "MD5 and SHA-1 are broken. Use SHA-256. Fine where no secret depends on it.",
    ),
    "unsafe-pickle": Problem(
        "security",
        "high",
        ("B301",),
        "Reading a pickle can run any code. Use JSON for what comes from outside.",
    ),
    "eval-call": Problem(
        "security",
        "high",
        ("B307",),
        "Runs whatever the text says. Use ast.literal_eval or a parser.",
    ),
    "insecure-random": Problem(
        "security",
        "medium",
        ("B311",),
        "Can be predicted. Use the module secrets. Fine where nothing is secret.",
    ),
    "no-tls-check": Problem(
        "security",
        "medium",
        ("B501",),
        "Anybody can answer for the server. Leave verify at its default.",
    ),
    "assert-check": Problem(
        "security",
        "low",
        ("B101",),
        "Asserts vanish with -O. Raise instead. Fine in tests.",
    ),
    # Style
    "unused-import": Problem(
        "style", "low", ("F401",), "Nothing uses the import. Remove it."
    ),
    "bad-name": Problem(
        "style",
        "low",
        ("N802", "N803", "N806"),
        "Functions and variables are in snake_case.",
    ),
    "none-comparison": Problem(
        "style", "medium", ("E711",), "Compare with None by `is`: == can be overridden."
    ),
    "bare-except": Problem(
        "style",
        "medium",
        ("E722",),
        "Catches even KeyboardInterrupt. Name the exceptions that are expected.",
    ),
    "lambda-assignment": Problem(
        "style", "low", ("E731",), "A def gives the function its name."
    ),
    "ambiguous-name": Problem(
        "style", "low", ("E741",), "l, O and I look like digits. Use a word."
    ),
    "crowded-line": Problem(
        "style", "low", ("E701", "E702"), "One statement a line is easier to read."
    ),
    "print-call": Problem(
        "style", "low", ("T201",), "Programs print, libraries log.", house=True
    ),
    "long-line": Problem(
        "style", "low", ("E501",), "Lines of more than 88 characters.", house=True
    ),
    "todo-comment": Problem(
        "style", "low", ("FIX002",), "Work that is left for later.", house=True
    ),
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

"""Generates tasks: a submission, a request, and the right result of the review."""

from __future__ import annotations

import random
from collections.abc import Mapping
from dataclasses import dataclass

from agentgym.core.task import Difficulty, Split, Task
from agentgym.scenarios.code_review.analysis import Analysis, analyses
from agentgym.scenarios.code_review.guide import (
    CATEGORIES,
    HOUSE_TOPICS,
    PROBLEMS,
    Category,
    Ruling,
    page_of,
)
from agentgym.scenarios.code_review.plan import (
    CHECKS,
    SYSTEM_PROMPT,
    Goal,
    Issue,
    cost_of,
    verdict_on,
)
from agentgym.scenarios.code_review.submissions import Submission, submissions
from agentgym.scenarios.planned import Milestone, opening
from agentgym.scenarios.wording import Phrasebook

_FULL, _BOTH, _DECOY, _SUGGEST, _OPENER = 0.35, 0.8, 0.2, 0.25, 0.3
_FOCUS = (0.6, 0.2, 0.2)
"""How often a request is about real problems, decoys, or any category."""
_TOOL_OF = {category: tool for tool, category in CHECKS.items()}


@dataclass(frozen=True, slots=True)
class ReviewSpec:
    """The specification of a task's world.

    Attributes:
        files: The available files.
        submitted: The files under review.
        house: The project's house rules.
    """

    split: Split
    files: tuple[str, ...]
    submitted: tuple[str, ...]
    house: Mapping[str, Ruling]

    def analyses(self) -> dict[str, Analysis]:
        """The analyses of its files."""
        known = analyses(self.split)
        return {name: known[name] for name in self.files}


def make_task(split: Split, rng: random.Random, id: str) -> Task:
    """Generates a task of a split."""
    submission = rng.choice(submissions(split))
    house: dict[str, Ruling] = {
        topic: rng.choice(("accepted", "refused")) for topic in HOUSE_TOPICS
    }
    names = list(submission.files)
    rng.shuffle(names)
    files = names if rng.random() < _BOTH else names[:1]
    others = [name for name in names if name not in files]
    decoy = bool(others) or rng.random() < _DECOY
    if decoy and not others:
        unrelated = rng.choice(submissions(split))
        others = [n for n in unrelated.files if n not in names][:1]
    full = len(files) == 1 and rng.random() < _FULL
    focus = _focus(submission, files, rng)

    kind = "full" if full else focus
    suggest = rng.random() < _SUGGEST
    phrases = Phrasebook("agentgym.scenarios.code_review", "requests", split, rng)
    what = [phrases.say(kind)]
    if suggest:
        what.append(phrases.say("suggest"))
    where = [_naming(phrases, files)]
    if others:
        where.append(phrases.say("decoy", other=others[0]))
    request = phrases.request(where, what, _OPENER)

    spec = ReviewSpec(
        split, tuple(sorted({*names, *others})), tuple(sorted(files)), house
    )
    goal = _goal(spec, submission, files, None if full else focus, suggest)
    return Task(
        id=id,
        messages=opening(SYSTEM_PROMPT, request),
        world=spec,
        goal=goal,
        best_steps=len(goal.plan) + 1,
        difficulty=_difficulty(len(goal.plan), bool(others)),
        split=split,
        tags=(kind, "two files" if len(files) > 1 else "one file"),
    )


def _difficulty(calls: int, decoy: bool) -> Difficulty:
    """Based on the length of the plan and whether the message mentions another file."""
    if calls >= 6:
        return "hard"
    return "medium" if calls >= 4 or decoy else "easy"


def _focus(submission: Submission, files: list[str], rng: random.Random) -> Category:
    """A category, often one with a problem or a decoy."""
    marks = [mark for name in files for mark in submission.marks[name]]
    wanted = rng.choices(("!~", "?", ""), _FOCUS)[0]
    found = {mark.category for mark in marks if mark.kind in wanted}
    return rng.choice(sorted(found) or CATEGORIES)


def _naming(phrases: Phrasebook, files: list[str]) -> str:
    if len(files) == 1:
        return phrases.say("file", file=files[0])
    return phrases.say("files", file=files[0], file2=files[1])


def _goal(
    spec: ReviewSpec,
    submission: Submission,
    files: list[str],
    focus: Category | None,
    suggest: bool,
) -> Goal:
    """The right result; without a focus, of a full review of one file."""
    checks = _checks(spec, files, focus)
    issues: list[Issue] = []
    topics: dict[str, tuple[str, ...]] = {}
    plan: list[Milestone] = []
    known: set[str] = set()
    for tool, file in checks:
        plan.append(Milestone(tool, {"file": file}))
        mine = [m for m in submission.marks[file] if m.category == CHECKS.get(tool)]
        house = tuple(dict.fromkeys(m.problem for m in mine if m.kind == "~"))
        if house:
            topics[file] = house
        for topic in house:
            if topic not in known:
                plan.append(Milestone("search_documentation", {"page": page_of(topic)}))
                known.add(topic)
        for mark in mine:
            real = mark.kind == "!" or (
                mark.kind == "~" and spec.house[mark.problem] == "refused"
            )
            if not real:
                continue
            issue = Issue(file, mark.line, mark.problem)
            plan.append(_commenting(issue, spec))
            if suggest and not issues:
                plan.append(Milestone("suggest_improvements", {"line": issue.line}))
            issues.append(issue)
    verdict = verdict_on(issues)
    plan.append(Milestone(verdict))
    return Goal(
        checks=tuple(checks),
        issues=tuple(issues),
        topics=topics,
        suggests=suggest and bool(issues),
        verdict=verdict,
        plan=tuple(plan),
        cost=cost_of(step.tool for step in plan),
    )


def _checks(
    spec: ReviewSpec, files: list[str], focus: Category | None
) -> list[tuple[str, str]]:
    if focus is not None:
        return [(_TOOL_OF[focus], file) for file in files]
    (file,) = files
    facts = spec.analyses()[file].facts
    wanted = ["analyze_code", "detect_bugs"]
    wanted += ["check_security"] if facts.risky_code else []
    wanted += ["check_best_practices"] if facts.loops else []
    return [(tool, file) for tool in wanted]


def _commenting(issue: Issue, spec: ReviewSpec) -> Milestone:
    # The rule that found the problem, if several could.
    rules = PROBLEMS[issue.problem].rules
    found = [
        f.rule
        for f in spec.analyses()[issue.file].of(issue.category)
        if f.line == issue.line and f.rule in rules
    ]
    return Milestone(
        "comment",
        {
            "line": issue.line,
            "category": issue.category,
            "severity": issue.severity,
            "rule": found[0] if found else rules[0],
        },
    )

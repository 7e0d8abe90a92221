"""Submissions, assembled from labelled pieces of code.

Each split has its own file in `data/`. A line `## key` starts a piece; the keys are:

    ## PROBLEM            code with a problem
    ## decoy PROBLEM      code that looks like it, but is right
    ## clean [loop|risky] nothing to find
    ## test PROBLEM|decoy|clean   the same for test files
    ## pair PROBLEM|clean two files, separated by a line `---`
    ## whole              one or two hand-written files, separated by `---`

A line that ends with `#! PROBLEM` has that problem, one with `#? PROBLEM` looks like
it, and one with `#~ TOPIC` depends on the project's house rules. The marks are removed
before a tool sees the code. So what is right depends on the pieces, not on the tools.
Imports may be anywhere in a piece and move to the top of the file. `${noun}` and
similar slots are filled with words that belong to one split.
"""

from __future__ import annotations

import random
import re
from dataclasses import dataclass, field
from functools import cache
from string import Template

from agentgym.core.task import Split
from agentgym.scenarios.code_review.guide import PROBLEMS, Category
from agentgym.scenarios.wording import read_data, split_of, word_lists

SUBMISSIONS: dict[Split, int] = {"train": 240, "validation": 80, "heldout": 100}
"""Number of assembled submissions per split; hand-written ones come on top."""
_NUMBERS: dict[Split, int] = {"train": 1000, "validation": 4000, "heldout": 7000}

_MARK = re.compile(r"\s\s#([!?~]) ([a-z-]+)(?=\s\s#|$)")
_APART = "\n---\n"
_IMPORT = re.compile(r"(?:import|from) ")

_WORDS = word_lists("agentgym.scenarios.code_review", "words.txt")
_Bank = dict[tuple[str, ...], list[str]]
"""Pieces, by the words of their key."""


@dataclass(frozen=True, slots=True)
class Mark:
    """A line's label: a real problem, a decoy, or a matter of house rules."""

    line: int
    kind: str
    problem: str

    @property
    def category(self) -> Category:
        """Of the problem."""
        return PROBLEMS[self.problem].category


@dataclass(frozen=True, slots=True)
class Submission:
    """One or two files to review.

    Attributes:
        files: Their texts by name.
        marks: Their labels, by file name.
    """

    files: dict[str, str]
    marks: dict[str, tuple[Mark, ...]]

    @property
    def is_clean(self) -> bool:
        """Whether it has no problem, apart from matters of house rules."""
        return not any(m.kind == "!" for marks in self.marks.values() for m in marks)


@dataclass(slots=True)
class _File:
    """A file under construction."""

    name: str
    imports: list[str] = field(default_factory=list)
    bodies: list[str] = field(default_factory=list)

    def add(self, text: str) -> None:
        body = []
        for line in text.splitlines():
            if _IMPORT.match(line):
                if line not in self.imports:
                    self.imports.append(line)
            else:
                body.append(line)
        self.bodies.append("\n".join(body).strip("\n"))

    def finished(self) -> tuple[str, tuple[Mark, ...]]:
        """Its text and its labels."""
        top = "\n".join(sorted(self.imports))
        marked = "\n\n\n".join(part for part in (top, *self.bodies) if part)
        return unmarked(marked + "\n")


def unmarked(text: str) -> tuple[str, tuple[Mark, ...]]:
    """Separates a text from its marks."""
    lines, marks = [], []
    for number, line in enumerate(text.splitlines(), 1):
        for kind, problem in _MARK.findall(line):
            marks.append(Mark(number, kind, problem))
        lines.append(_MARK.sub("", line))
    return "\n".join(lines) + "\n", tuple(marks)


@cache
def pieces(split: Split) -> _Bank:
    """The pieces of a split, by key."""
    text = read_data("agentgym.scenarios.code_review", f"code_{split}.txt")
    found: _Bank = {}
    for section in re.split(r"^## ", text, flags=re.MULTILINE)[1:]:
        head, _, body = section.partition("\n")
        key = tuple(head.split())
        found.setdefault(key, []).append(body.strip("\n"))
    return found


@cache
def submissions(split: Split) -> tuple[Submission, ...]:
    """All submissions of a split."""
    by_hand = pieces(split)["whole",]
    made = [_written(split, i, piece) for i, piece in enumerate(by_hand)]
    count = len(made)
    return (
        *made,
        *(_put_together(split, count + i) for i in range(SUBMISSIONS[split])),
    )


class _Words:
    """Draws words of a split, without repeating nouns."""

    def __init__(self, split: Split, rng: random.Random) -> None:
        self._rng = rng
        self._nouns = split_of(_WORDS["nouns"], split)
        self._verbs = split_of(_WORDS["verbs"], split)
        rng.shuffle(self._nouns)

    def noun(self) -> str:
        return self._nouns.pop()

    def filled(self, text: str, module: str = "") -> str:
        noun, item = self.noun(), self.noun()
        return Template(text).substitute(
            noun=noun,
            Noun=noun.capitalize(),
            NOUN=noun.upper(),
            item=item,
            verb=self._rng.choice(self._verbs),
            module=module,
        )


def _put_together(split: Split, number: int) -> Submission:
    rng = random.Random(f"{split} {number}")
    words = _Words(split, rng)
    bank = pieces(split)
    # A third is clean.
    problems = 0 if number % 3 == 0 else rng.choice((1, 1, 2, 2, 3))
    code = _NUMBERS[split] + number
    files = [_File(f"{words.noun()}_{code}.py")]
    form = rng.choices(("one", "pair", "tested"), (6, 2, 2))[0]
    if form == "pair":
        files.append(_File(f"{words.noun()}_{code}.py"))
        problems -= _join(files, bank, words, rng, problems > 0)
    elif form == "tested":
        files.append(_File(f"test_{files[0].name}"))
        problems -= _test(files[1], bank, words, rng, problems > 0)
    chosen = _turns([k for k in bank if k[0] in PROBLEMS], problems, number, rng)
    harmless = [key for key in bank if key[0] in ("clean", "decoy")]
    while len(chosen) < 2 or (rng.random() < 0.4 and len(chosen) < 4):
        chosen.append(rng.choice(harmless))
    rng.shuffle(chosen)
    for i, key in enumerate(chosen):
        target = files[i % 2] if form == "pair" else files[0]
        target.add(words.filled(rng.choice(bank[key])))
    return _submission(files)


def _join(
    files: list[_File], bank: _Bank, words: _Words, rng: random.Random, may_fail: bool
) -> bool:
    """Makes one file use the other; returns whether that is a problem."""
    fails = may_fail and rng.random() < 0.75
    keys = [k for k in bank if k[0] == "pair" and (k[1] != "clean") is fails]
    text = rng.choice(bank[rng.choice(keys)])
    filled = words.filled(text, files[0].name.removesuffix(".py"))
    for file, half in zip(files, filled.split(_APART), strict=True):
        file.add(half)
    return fails


def _test(
    file: _File, bank: _Bank, words: _Words, rng: random.Random, may_fail: bool
) -> bool:
    """Fills a test file; returns whether it has a problem."""
    fails = may_fail and rng.random() < 0.5
    harmless: list[tuple[str, ...]] = [("test", "decoy"), ("test", "clean")]
    picked = rng.sample(harmless, 2) if rng.random() < 0.6 else harmless[1:]
    if fails:
        keys = [k for k in bank if k[0] == "test" and k not in harmless]
        picked.append(rng.choice(keys))
    for key in picked:
        file.add(words.filled(rng.choice(bank[key])))
    return fails


def _turns(
    keys: list[tuple[str, ...]], count: int, number: int, rng: random.Random
) -> list[tuple[str, ...]]:
    """This many problems of random categories, taking turns within a category."""
    by_category: dict[Category, list[tuple[str, ...]]] = {}
    for key in keys:
        by_category.setdefault(PROBLEMS[key[0]].category, []).append(key)
    categories = rng.choices(list(by_category), k=max(0, count))
    return [
        by_category[category][(number + i) % len(by_category[category])]
        for i, category in enumerate(categories)
    ]


def _written(split: Split, number: int, piece: str) -> Submission:
    """A hand-written submission; its first lines name its files."""
    files = []
    for half in piece.split(_APART):
        name, _, text = half.partition("\n")
        stem = name.removeprefix("# ").removesuffix(".py")
        one = _File(f"{stem}_{_NUMBERS[split] + number}.py")
        one.bodies.append(text)
        files.append(one)
    return _submission(files)


def _submission(files: list[_File]) -> Submission:
    finished = {one.name: one.finished() for one in files}
    return Submission(
        {name: text for name, (text, _) in finished.items()},
        {name: marks for name, (_, marks) in finished.items()},
    )

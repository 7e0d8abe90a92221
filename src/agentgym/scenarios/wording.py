"""Helpers to word tasks: data files, templates, typos and splits.

A template is a sentence with two kinds of variation:

- slots in braces, filled from the task: `{order}`, `{file}`;
- alternatives in square brackets, one of which is chosen: `[Can|Could] you help?`. An
  alternative may be empty, as in `[Please |]cancel {order}.`; brackets don't nest.

Each split has its own file of templates in `data`: a line `## key` starts a kind of
sentence, each following line is one template. Every expansion is a message that a user
could send, with a clear intent.

A hash decided each template's split, except that near duplicates (sharing 60% of the
content words of their first alternatives, slots aside, or 75% of any) all went into
training. Tests check both. Add a template to one split only.
"""

from __future__ import annotations

import hashlib
import json
import random
import re
from collections.abc import Sequence
from functools import cache
from importlib import resources
from typing import Any, TypeVar

from agentgym.core.task import Split

_T = TypeVar("_T")

_WORD = re.compile(r"(?<![{\w'])[A-Za-z]{4,}(?![}\w'])")
_ALTERNATION = re.compile(r"\[([^\[\]]*)\]")


def split_of(items: Sequence[_T], split: Split) -> list[_T]:
    """The items of a split: 60% train, 20% validation, 20% held out.

    A hash of each item decides its split.
    """
    ranked = sorted(items, key=lambda x: hashlib.sha256(repr(x).encode()).digest())
    a, b = round(0.6 * len(ranked)), round(0.8 * len(ranked))
    return {"train": ranked[:a], "validation": ranked[a:b], "heldout": ranked[b:]}[
        split
    ]


def read_data(package: str, name: str) -> str:
    """The text of a file in a package's `data` folder."""
    return (resources.files(package) / "data" / name).read_text(encoding="utf-8")


def read_json(package: str, name: str) -> Any:
    """The value of a JSON file in a package's `data` folder."""
    return json.loads(read_data(package, name))


def sections(package: str, name: str) -> list[list[str]]:
    """Reads a data file: one list per `## key`, with the key and then its lines."""
    found: list[list[str]] = []
    for line in read_data(package, name).splitlines():
        if line.startswith("## "):
            found.append([line[3:]])
        elif line and not line.startswith("#"):
            found[-1].append(line)
    return found


def word_lists(package: str, name: str) -> dict[str, list[str]]:
    """Reads a data file of lists: by key, items with commas between them."""
    found = sections(package, name)
    return {key: " ".join(lines).split(", ") for key, *lines in found}


@cache
def templates(package: str, stem: str, split: Split) -> dict[str, list[str]]:
    """The templates of a split, in `data/STEM_SPLIT.txt`, by kind of sentence."""
    found = sections(package, f"{stem}_{split}.txt")
    return {key: lines for key, *lines in found}


class Phrasebook:
    """Words a task from the templates of its split; see `templates`."""

    def __init__(
        self, package: str, stem: str, split: Split, rng: random.Random
    ) -> None:
        self._templates = templates(package, stem, split)
        self._rng = rng

    def say(self, key: str, /, **slots: str) -> str:
        """A phrasing of a kind of sentence, with its slots filled and a full stop."""
        text = chosen(self._rng.choice(self._templates[key]), self._rng)
        text = text.format(**slots)
        return text if text.endswith((".", "?", "!", ",", ")")) else f"{text}."

    def request(self, where: Sequence[str], what: Sequence[str], opener: float) -> str:
        """Joins the sentences about files and about the work, in either order.

        Args:
            where: Sentences that name files.
            what: Sentences that say what is wanted.
            opener: Share of requests that begin with an opener.
        """
        parts = [*where, *what] if self._rng.random() < 0.5 else [*what, *where]
        if self._rng.random() < opener:
            parts.insert(0, self.say("opener"))
        return " ".join(parts)


def chosen(template: str, rng: random.Random) -> str:
    """The template with one alternative of each `[this|that]`."""
    return _ALTERNATION.sub(lambda m: rng.choice(m.group(1).split("|")), template)


def misspelt(template: str, rng: random.Random) -> str:
    """The template with a typo in one of its longer words."""
    words = list(_WORD.finditer(template))
    if not words:
        return template
    word = rng.choice(words)
    letters = list(word.group())
    i = rng.randrange(1, len(letters) - 1)
    kind = rng.randrange(3)
    if kind == 0:
        letters[i], letters[i + 1] = letters[i + 1], letters[i]
    elif kind == 1:
        del letters[i]
    else:
        letters.insert(i, letters[i])
    return template[: word.start()] + "".join(letters) + template[word.end() :]


def closed(text: str) -> str:
    """Adds a full stop to a sentence, unless it ends with punctuation."""
    text = text.rstrip()
    return text if text[-1:] in ".!?" else f"{text}."

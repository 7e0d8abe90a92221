"""Helpers to word tasks: data files, alternatives, typos and splits."""

from __future__ import annotations

import hashlib
import json
import random
import re
from collections.abc import Sequence
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

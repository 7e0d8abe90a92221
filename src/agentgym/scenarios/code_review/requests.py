"""The users' requests: templates by kind of sentence.

A template has slots in braces and alternatives in square brackets, as in
``[See|Open] {file}.``; brackets don't nest. Each split has its own file in ``data/``: a
line ``## key`` starts a kind of sentence, each following line is one template. Add a
template to one split only; tests look for near duplicates.
"""

from __future__ import annotations

import random
from functools import cache

from agentgym.core.task import Split
from agentgym.scenarios.wording import chosen, sections


@cache
def templates(split: Split) -> dict[str, list[str]]:
    """The templates of a split, by kind of sentence."""
    found = sections("agentgym.scenarios.code_review", f"requests_{split}.txt")
    return {key: lines for key, *lines in found}


def say(split: Split, rng: random.Random, key: str, **slots: str) -> str:
    """A phrasing of a kind of sentence, with its slots filled."""
    return chosen(rng.choice(templates(split)[key]), rng).format(**slots)

"""How people ask for a review: templates by kind of sentence.

A template has slots in braces and alternatives in square brackets, as in
``[See|Open] {file}.``; brackets do not nest. Each split has a file of its own in
``data/``: a line ``## key`` starts a kind of sentence, each further line is one
template. Add a template to one split only; tests look for near twins.
"""

from __future__ import annotations

import random
from functools import cache

from agentgym.core.task import Split
from agentgym.scenarios.wording import chosen, sections


@cache
def templates(split: Split) -> dict[str, list[str]]:
    """Templates of a split by kind of sentence."""
    found = sections("agentgym.scenarios.code_review", f"requests_{split}.txt")
    return {key: lines for key, *lines in found}


def say(split: Split, rng: random.Random, key: str, **slots: str) -> str:
    """One wording of a kind of sentence, with its slots filled."""
    return chosen(rng.choice(templates(split)[key]), rng).format(**slots)

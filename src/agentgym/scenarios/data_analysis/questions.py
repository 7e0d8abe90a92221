"""The users' questions: templates by kind of sentence, and technical terms.

A template has slots in braces, filled from the task, and alternatives in square
brackets, as in ``[Find|Look up] the {stat} {num}.``; brackets don't nest. Each split
has its own file in ``data/``: a line ``## key`` starts a kind of sentence, each
following line is one template.

Column names are in Title Case, so the words before and after their slots must be in
lower case: otherwise they would look like a part of the name.

A hash decided each template's split, except that near duplicates (sharing 60% of the
content words of their first alternatives, or 75% of any) all went into training. Tests
check both. Add a template to one split only. The words for statistics and directions
below are technical terms that all splits use.
"""

from __future__ import annotations

import random
from collections.abc import Mapping
from functools import cache

from agentgym.core.task import Split
from agentgym.scenarios.wording import chosen, sections

WORDS: dict[str, dict[str, tuple[str, ...]]] = {
    "stat": {
        "mean": ("average", "mean", "arithmetic mean of"),
        "median": ("median", "median of"),
        "sum": ("total", "sum of", "overall sum of"),
        "minimum": ("minimum", "lowest", "smallest"),
        "maximum": ("maximum", "highest", "largest"),
        "standard_deviation": ("standard deviation of", "standard deviation in"),
    },
    "agg": {
        "sum": ("total", "summed", "overall"),
        "mean": ("average", "mean"),
        "maximum": ("maximum", "peak"),
    },
    "dir": {
        "highest": ("highest", "largest", "greatest"),
        "lowest": ("lowest", "smallest", "least"),
    },
    "corr": {
        "pearson": ("correlation", "linear correlation", "Pearson coefficient"),
        "spearman": ("rank correlation", "Spearman coefficient"),
    },
    "rule": {
        "iqr": ("the interquartile rule", "the IQR rule", "the boxplot rule"),
        "zscore": ("the z-score rule", "z-scores", "the three-sigma rule"),
    },
}
"""Words for a tool's enum values, by slot."""


@cache
def templates(split: Split) -> dict[str, list[str]]:
    """The templates of a split, by kind of sentence."""
    name = f"questions_{split}.txt"
    found = sections("agentgym.scenarios.data_analysis", name)
    return {key: lines for key, *lines in found}


def say(split: Split, rng: random.Random, key: str, slots: Mapping[str, str]) -> str:
    """A phrasing of a kind of sentence, with its slots filled and a full stop."""
    text = chosen(rng.choice(templates(split)[key]), rng)
    text = text.format(**slots)
    return text if text.endswith((".", "?", "!", ",")) else f"{text}."


def word(rng: random.Random, slot: str, value: str) -> str:
    """A word for an enum value."""
    return rng.choice(WORDS[slot][value])

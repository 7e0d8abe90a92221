"""How people ask: templates by kind of sentence, and the words of the trade.

A template has slots in braces, filled from the task, and alternatives in square
brackets, as in ``[Find|Look up] the {stat} {num}.``; brackets do not nest. Each split
has a file of its own in ``data/``: a line ``## key`` starts a kind of sentence, each
further line is one template.

A name of a column is in Title Case, so the word before and after its slot is in lower
case: otherwise it could be taken for a part of the name.

Templates were put into splits by a hash, after near twins (sharing 60% of the content
words of their first alternatives, or 75% of any) had been put together into training.
Tests hold both. Add a template to one split only. The words for statistics and
directions below are the trade's own, and all splits use them.
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
"""Words for a tool's listed values, by slot."""


@cache
def templates(split: Split) -> dict[str, list[str]]:
    """Templates of a split by kind of sentence."""
    name = f"questions_{split}.txt"
    found = sections("agentgym.scenarios.data_analysis", name)
    return {key: lines for key, *lines in found}


def say(split: Split, rng: random.Random, key: str, slots: Mapping[str, str]) -> str:
    """One wording of a kind of sentence, with its slots filled and a full stop."""
    text = chosen(rng.choice(templates(split)[key]), rng)
    text = text.format(**slots)
    return text if text.endswith((".", "?", "!", ",")) else f"{text}."


def word(rng: random.Random, slot: str, value: str) -> str:
    """A word for a listed value."""
    return rng.choice(WORDS[slot][value])

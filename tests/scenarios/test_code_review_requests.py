"""Requests for reviews keep their promises: slots, and splits without near twins."""

from __future__ import annotations

import itertools
import re
from collections.abc import Iterator

import pytest

from agentgym.core.task import SPLITS, Split
from agentgym.scenarios.code_review.guide import CATEGORIES
from agentgym.scenarios.code_review.requests import templates

SLOTS: dict[str, set[str]] = {
    **{category: set() for category in CATEGORIES},
    "full": set(),
    "file": {"file"},
    "files": {"file", "file2"},
    "decoy": {"other"},
    "suggest": set(),
    "opener": set(),
}

_GROUP = re.compile(r"\[([^\[\]]*)\]")
_SLOT = re.compile(r"\{([^{}]*)\}")
_STOP = frozenset(
    "a an and are as by do for how i in is it many me my of on please that the to what "
    "which with you your".split()
)


def expansions(template: str) -> list[str]:
    """All ways to choose the alternatives of a template."""
    parts = _GROUP.split(template)
    choices = [p.split("|") if i % 2 else [p] for i, p in enumerate(parts)]
    return ["".join(chosen) for chosen in itertools.product(*choices)]


def all_templates(split: Split) -> Iterator[tuple[str, str]]:
    for key, texts in templates(split).items():
        for text in texts:
            yield key, text


@pytest.mark.parametrize("split", SPLITS)
def test_every_split_has_every_kind_of_sentence(split: Split) -> None:
    bank = templates(split)
    assert set(bank) == set(SLOTS)
    fewest = {"train": 9, "validation": 3, "heldout": 3}[split]
    assert min(map(len, bank.values())) >= fewest


@pytest.mark.parametrize("split", SPLITS)
def test_slots_brackets_and_spaces(split: Split) -> None:
    for key, template in all_templates(split):
        assert not set("[]|") & set(_GROUP.sub("", template)), template
        for text in expansions(template):
            assert sorted(_SLOT.findall(text)) == sorted(SLOTS[key]), text
            assert text == text.strip() and "  " not in text, text


def test_no_text_is_said_by_two_templates() -> None:
    origin: dict[str, tuple[str, str, str]] = {}
    for split in SPLITS:
        for key, template in all_templates(split):
            for text in expansions(template):
                here = (split, key, template)
                assert origin.setdefault(text.lower(), here) == here, text


def content_words(text: str) -> frozenset[str]:
    return frozenset(re.findall(r"[a-z']+", _SLOT.sub(" ", text).lower())) - _STOP


def near_twins(first_only: bool, threshold: float) -> set[tuple[str, str]]:
    """Templates outside training that read like one of training, with that one."""
    found = set()
    known: dict[str, list[tuple[str, frozenset[str]]]] = {}
    for key, template in all_templates("train"):
        some = expansions(template)[: 1 if first_only else None]
        known.setdefault(key, []).extend((template, content_words(t)) for t in some)
    for split in SPLITS[1:]:
        for key, template in all_templates(split):
            for text in expansions(template)[: 1 if first_only else None]:
                mine = content_words(text)
                for other, words in known[key]:
                    if len(mine & words) >= threshold * len(mine | words):
                        found.add((template, other))
    return found


def test_near_twins_are_found() -> None:
    """The measure itself: it sees many twins where little is asked."""
    assert len({twin for twin, _ in near_twins(True, 0.15)}) > 30


def test_no_template_outside_training_is_a_near_twin_of_one_in_training() -> None:
    assert near_twins(True, 0.6) == set()
    assert near_twins(False, 0.75) == set()

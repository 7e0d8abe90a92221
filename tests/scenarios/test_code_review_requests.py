"""Requests for reviews keep their promises: slots, and splits without near twins."""

from __future__ import annotations

import pytest
from wording_bank import WordingBank

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
BANK = WordingBank(templates, SLOTS)
FEWEST: dict[Split, int] = {"train": 9, "validation": 3, "heldout": 3}


@pytest.mark.parametrize("split", SPLITS)
def test_every_split_has_every_kind_of_sentence(split: Split) -> None:
    BANK.check_kinds(split, FEWEST)


@pytest.mark.parametrize("split", SPLITS)
def test_slots_brackets_and_spaces(split: Split) -> None:
    BANK.check_slots(split)


def test_no_text_is_said_by_two_templates() -> None:
    BANK.check_origins()


def test_near_twins_are_found() -> None:
    """The measure itself: it sees many twins where little is asked."""
    assert len({twin for twin, _ in BANK.near_twins(True, 0.15)}) > 30


def test_no_template_outside_training_is_a_near_twin_of_one_in_training() -> None:
    assert BANK.near_twins(True, 0.6) == set()
    assert BANK.near_twins(False, 0.75) == set()

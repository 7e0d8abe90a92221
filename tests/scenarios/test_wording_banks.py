"""Templates keep their promises: slots, and splits without near twins."""

from __future__ import annotations

from functools import partial

import pytest
from wording_bank import WordingBank

from agentgym.core.task import SPLITS, Split
from agentgym.scenarios.code_review.guide import CATEGORIES
from agentgym.scenarios.wording import templates

QUESTIONS: dict[str, set[str]] = {
    "stat": {"stat", "num"},
    "top": {"cat", "agg", "num", "dir"},
    "month": {"agg", "num", "dir"},
    "correlation": {"corr", "num", "num2"},
    "strongest": {"num"},
    "outliers": {"num", "rule"},
    "anomaly": {"num"},
    "missing": {"column"},
    "distinct": {"cat"},
    "common": {"cat"},
    "share_equals": {"cat", "value"},
    "share_above": {"num", "limit"},
    "share_below": {"num", "limit"},
    "filter_equals": {"cat", "value"},
    "filter_differs": {"cat", "value"},
    "filter_above": {"num", "limit"},
    "filter_below": {"num", "limit"},
    "chart": set(),
    "file": {"file"},
    "decoy": {"other"},
    "opener": set(),
}
REQUESTS: dict[str, set[str]] = {
    **{category: set() for category in CATEGORIES},
    "full": set(),
    "file": {"file"},
    "files": {"file", "file2"},
    "decoy": {"other"},
    "suggest": set(),
    "opener": set(),
}
BANKS = {
    "data_analysis": WordingBank(
        partial(templates, "agentgym.scenarios.data_analysis", "questions"),
        QUESTIONS,
        family=lambda kind: kind.split("_")[0],
    ),
    "code_review": WordingBank(
        partial(templates, "agentgym.scenarios.code_review", "requests"), REQUESTS
    ),
}
FEWEST: dict[str, dict[Split, int]] = {
    "data_analysis": {"train": 10, "validation": 3, "heldout": 3},
    "code_review": {"train": 9, "validation": 3, "heldout": 3},
}
pytestmark = pytest.mark.parametrize("name", BANKS)


@pytest.mark.parametrize("split", SPLITS)
def test_every_split_has_every_kind_of_sentence(name: str, split: Split) -> None:
    BANKS[name].check_kinds(split, FEWEST[name])


@pytest.mark.parametrize("split", SPLITS)
def test_slots_brackets_and_spaces(name: str, split: Split) -> None:
    BANKS[name].check_slots(split)


def test_no_text_is_said_by_two_templates(name: str) -> None:
    BANKS[name].check_origins()


def test_near_twins_are_found(name: str) -> None:
    """The measure itself: it sees many twins where little is asked."""
    many = {"data_analysis": 50, "code_review": 30}[name]
    assert len({twin for twin, _ in BANKS[name].near_twins(True, 0.15)}) > many


def test_no_template_outside_training_is_a_near_twin_of_one_in_training(
    name: str,
) -> None:
    assert BANKS[name].near_twins(True, 0.6) == set()
    assert BANKS[name].near_twins(False, 0.75) == set()

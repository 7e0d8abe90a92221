"""The questions keep their promises: slots, clean names, splits without near twins."""

from __future__ import annotations

import itertools
import re
from collections.abc import Iterator

import pytest

from agentgym.core.task import SPLITS, Split
from agentgym.scenarios.data_analysis.names import DOMAINS, columns, values
from agentgym.scenarios.data_analysis.questions import WORDS, templates

SLOTS: dict[str, set[str]] = {
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
    fewest = {"train": 10, "validation": 3, "heldout": 3}[split]
    assert min(map(len, bank.values())) >= fewest


@pytest.mark.parametrize("split", SPLITS)
def test_slots_brackets_and_spaces(split: Split) -> None:
    for key, template in all_templates(split):
        assert not set("[]|") & set(_GROUP.sub("", template)), template
        for text in expansions(template):
            slots = _SLOT.findall(text)
            assert sorted(slots) == sorted(SLOTS[key]), text
            assert text == text.strip() and "  " not in text, text


@pytest.mark.parametrize("split", SPLITS)
def test_the_name_of_a_column_is_a_clean_span(split: Split) -> None:
    for _, template in all_templates(split):
        for text in expansions(template):
            filled = _SLOT.sub(
                lambda m: "Net Revenue" if m[1] in _COLUMNS else "x", text
            )
            found = re.findall(r"[A-Z][a-z]+(?: [A-Z][a-z]+)+", filled)
            assert set(found) <= {"Net Revenue"}, text


_COLUMNS = {"num", "num2", "cat", "column"}


def test_values_are_quoted_and_words_of_the_trade_are_distinct() -> None:
    for split in SPLITS:
        for _, template in all_templates(split):
            assert template.count("{value}") == template.count("'{value}'"), template
    for words in WORDS.values():
        listed = [word for some in words.values() for word in some]
        assert len(set(listed)) == len(listed)


def test_no_text_is_said_by_two_templates() -> None:
    origin: dict[str, tuple[str, str, str]] = {}
    for split in SPLITS:
        for key, template in all_templates(split):
            for text in expansions(template):
                here = (split, key, template)
                assert origin.setdefault(text.lower(), here) == here, text


def content_words(text: str) -> frozenset[str]:
    return frozenset(re.findall(r"[a-z']+", _SLOT.sub(" ", text).lower())) - _STOP


def family(key: str) -> str:
    return key.split("_")[0]


def near_twins(first_only: bool, threshold: float) -> set[tuple[str, str]]:
    """Templates outside training that read like one of training, with that one."""
    found = set()
    known: dict[str, list[tuple[str, frozenset[str]]]] = {}
    for key, template in all_templates("train"):
        some = expansions(template)[: 1 if first_only else None]
        known.setdefault(family(key), []).extend(
            (template, content_words(t)) for t in some
        )
    for split in SPLITS[1:]:
        for key, template in all_templates(split):
            for text in expansions(template)[: 1 if first_only else None]:
                mine = content_words(text)
                for other, words in known[family(key)]:
                    if len(mine & words) >= threshold * len(mine | words):
                        found.add((template, other))
    return found


def test_near_twins_are_found() -> None:
    """The measure itself: it sees many twins where little is asked."""
    assert len({twin for twin, _ in near_twins(True, 0.15)}) > 50


def test_no_template_outside_training_is_a_near_twin_of_one_in_training() -> None:
    assert near_twins(True, 0.6) == set()
    assert near_twins(False, 0.75) == set()


def test_names_of_columns_and_values_belong_to_one_split() -> None:
    for a, b in itertools.combinations(SPLITS, 2):
        for domain in DOMAINS:
            mine, yours = columns(domain, a), columns(domain, b)
            assert not set(mine[0]) & set(yours[0])
            assert mine[2] != yours[2]
            for kind in mine[1]:
                assert not set(mine[1][kind]) & set(yours[1][kind])
        for kind in ("item", "place", "group"):
            assert not set(values(kind, a)) & set(values(kind, b))


def test_names_are_written_as_the_tools_expect() -> None:
    for split in SPLITS:
        for domain in DOMAINS:
            numbers, categories, date = columns(domain, split)
            names = [*numbers, *itertools.chain(*categories.values()), date]
            assert len(set(names)) == len(names)
            assert all(re.fullmatch(r"[A-Z][a-z]+(?: [A-Z][a-z]+)+", n) for n in names)
            assert len(numbers) >= 4
        for kind in ("item", "place", "group"):
            assert all(re.fullmatch(r"[a-z]+ [a-z]+", v) for v in values(kind, split))
            assert len(values(kind, split)) >= 8

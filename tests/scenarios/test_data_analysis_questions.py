"""The questions keep their promises: clean names, of one split each."""

from __future__ import annotations

import itertools
import re
from functools import partial

import pytest
from wording_bank import SLOT, expansions

from agentgym.core.task import SPLITS, Split
from agentgym.scenarios.data_analysis.datasets import DOMAINS, columns, values
from agentgym.scenarios.data_analysis.tasks import WORDS
from agentgym.scenarios.wording import templates

questions = partial(templates, "agentgym.scenarios.data_analysis", "questions")


@pytest.mark.parametrize("split", SPLITS)
def test_the_name_of_a_column_is_a_clean_span(split: Split) -> None:
    for template in itertools.chain(*questions(split).values()):
        for text in expansions(template):
            filled = SLOT.sub(
                lambda m: "Net Revenue" if m[1] in _COLUMNS else "x", text
            )
            found = re.findall(r"[A-Z][a-z]+(?: [A-Z][a-z]+)+", filled)
            assert set(found) <= {"Net Revenue"}, text


_COLUMNS = {"num", "num2", "cat", "column"}


def test_values_are_quoted_and_words_of_the_trade_are_distinct() -> None:
    for split in SPLITS:
        for template in itertools.chain(*questions(split).values()):
            assert template.count("{value}") == template.count("'{value}'"), template
    for words in WORDS.values():
        listed = [word for some in words.values() for word in some]
        assert len(set(listed)) == len(listed)


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

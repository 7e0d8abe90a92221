"""How well tools that were never met fit what was said."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from agentgym.errors import AssetError
from agentgym.policies.calls.candidates import find_candidates
from agentgym.policies.calls.conversation import Said
from agentgym.policies.planner.encoder import WIDTH, SentenceEncoder
from agentgym.policies.planner.facts import (
    is_free,
    kind_of_schema,
    kind_of_value,
    left_over,
    loose,
    name_words,
    named,
    spoken,
    unused,
)
from agentgym.policies.planner.vectors import message_block, weakest_match, word_vectors

TEXT = 'Send invoice AB-1234 to ana@example.com on 2027-01-31 as "Old Mill", 9 times.'
ID = {"type": "string", "pattern": "^[A-Z]{2}-[0-9]{4}$"}
EMAIL = {"type": "string", "format": "email"}
DATE = {"type": "string", "format": "date"}
NUMBER = {"type": "integer"}
FREE = {"type": "string"}


def test_marks() -> None:
    assert Said(TEXT).marks == {
        "AB-1234",
        "ana@example.com",
        "2027-01-31",
        "Old Mill",
        "9",
    }
    assert Said("Nothing to see here.").marks == frozenset()


def test_names_that_were_said() -> None:
    said = [Said("Cancel all my invoices, please.")]
    assert named(name_words("cancel_invoice"), said) == 1.0
    assert named(name_words("cancelMeeting"), said) == 0.5
    assert named(name_words("find_parcel"), said) == 0.0
    assert named([], said) == 0.0


@pytest.mark.parametrize(
    ("schemas", "share"),
    [
        ([], 1.0),
        ([ID], 0.8),
        ([ID, ID], 0.8),
        ([ID, EMAIL], 0.6),
        ([ID, EMAIL, DATE, NUMBER, FREE], 0.0),
        # One parameter takes one value, however many would fit.
        ([FREE], 0.8),
    ],
)
def test_values_that_a_tool_leaves_over(schemas: list[Any], share: float) -> None:
    said = [Said(TEXT)]
    offers = [spoken(find_candidates(schema, said)) for schema in schemas]
    assert left_over(said, offers) == pytest.approx(share)


@pytest.mark.parametrize(
    ("schemas", "share"),
    [
        ([], 0.0),
        ([ID, EMAIL], 0.0),
        # The name in quotation marks is what free text is for; the ids are not.
        ([FREE], 0.4),
        ([ID, FREE], 0.2),
    ],
)
def test_values_that_only_free_text_could_hold(
    schemas: list[Any], share: float
) -> None:
    said = [Said(TEXT)]
    typed, free = (
        [spoken(find_candidates(s, said)) for s in schemas if is_free(s) is wanted]
        for wanted in (False, True)
    )
    assert loose(said, typed, free) == pytest.approx(share)
    assert loose([Said("Hello there")], typed, free) == 0.0


def test_passages_are_not_spoken_as_values() -> None:
    said = [Said("Please cancel it today.")]
    assert find_candidates(FREE, said)
    assert spoken(find_candidates(FREE, said)) == []


def test_the_weakest_word_of_a_name() -> None:
    try:
        encoder = SentenceEncoder.load()
    except AssetError as error:
        pytest.skip(str(error))

    def weakest(name: str, text: str) -> float:
        said = Said(text)
        words = word_vectors(encoder.encode([name])[0], name_words(name))
        block = message_block(said, encoder.encode([text])[0])
        return weakest_match(words, [block])

    text = "Please cancel the invoice AB-1234."
    said = weakest("cancel invoice", text)
    assert said <= 1.0 + 1e-5
    # All of its words must be heard, not only the most of them.
    assert said > weakest("cancel parcel", text)
    assert said > weakest("share invoice", text)
    assert weakest("", text) == 0.0
    assert weakest_match(np.ones((1, WIDTH), np.float32), []) == 0.0


def test_values_that_no_call_has_used() -> None:
    said = [Said(TEXT)]
    assert unused(said, []) == 1.0
    assert unused(said, ["AB-1234", "ana@example.com"]) == pytest.approx(0.6)
    assert unused([Said("Hello")], []) == 0.0


def test_kinds() -> None:
    assert kind_of_schema(DATE) == kind_of_schema({**DATE, "description": "x"})
    assert len({kind_of_schema(s) for s in (ID, EMAIL, DATE, NUMBER, FREE)}) == 5
    assert kind_of_value("a", False) == kind_of_value("b", False)
    assert kind_of_value(True, False) != kind_of_value(False, False)

"""How well tools that were never met fit what was said."""

from __future__ import annotations

from typing import Any

import pytest

from agentgym.policies.calls.candidates import find_candidates
from agentgym.policies.calls.conversation import Said
from agentgym.policies.planner.fit import (
    kind_of_schema,
    kind_of_value,
    left_over,
    name_words,
    named,
    unused,
)

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
    offers = [find_candidates(schema, said) for schema in schemas]
    assert left_over(said, offers) == pytest.approx(share)


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

"""The language bank keeps its promises: counts, slots, brackets, no duplicates."""

from __future__ import annotations

import itertools
import re

import pytest

from agentgym.scenarios.customer_support.knowledge import (
    ARTICLES,
    CARRIERS,
    CITIES,
    FIRST_NAMES,
    LAST_NAMES,
    MAIL_DOMAINS,
    PRODUCTS,
    STREETS,
    Article,
)
from agentgym.scenarios.customer_support.phrases import PHRASES

# Key: (fewest templates, slots that every template has, slots it may have).
Rule = tuple[int, set[str], set[str]]

RULES: dict[str, Rule] = {
    "track/id": (40, {"order"}, {"product"}),
    "track/noid": (25, set(), {"product"}),
    "details/id": (36, {"order"}, {"product"}),
    "details/noid": (20, set(), {"product"}),
    "refund_damaged/id": (36, {"order"}, {"product"}),
    "refund_damaged/noid": (20, set(), {"product"}),
    "refund_wrong_item/id": (36, {"order"}, {"product"}),
    "refund_wrong_item/noid": (20, set(), {"product"}),
    "refund_not_needed/id": (36, {"order"}, {"product"}),
    "refund_not_needed/noid": (20, set(), {"product"}),
    "replacement/id": (36, {"order"}, {"product"}),
    "replacement/noid": (20, set(), {"product"}),
    "cancel/id": (36, {"order"}, {"product"}),
    "cancel/noid": (20, set(), {"product"}),
    "address/id": (36, {"order", "address"}, {"product"}),
    "address/noid": (20, {"address"}, {"product"}),
    "address_missing/id": (24, {"order"}, set()),
    "double_charge/id": (36, {"order"}, {"product"}),
    "double_charge/noid": (20, set(), {"product"}),
    "invoice/id": (36, {"order"}, {"product"}),
    "invoice/email": (36, {"order", "email"}, {"product"}),
    "password/email": (40, {"email"}, set()),
    "password/noemail": (24, set(), set()),
    "unsubscribe_newsletter/email": (24, {"email"}, set()),
    "unsubscribe_sms/email": (24, {"email"}, set()),
    "unsubscribe_phone/email": (24, {"email"}, set()),
    "subscribe_newsletter/email": (20, {"email"}, set()),
    "subscribe_sms/email": (20, {"email"}, set()),
    "subscribe_phone/email": (20, {"email"}, set()),
    "ticket/id": (36, {"ticket"}, set()),
    "human": (40, set(), set()),
    "legal": (40, set(), set()),
    "safety": (40, set(), {"product"}),
    "thanks": (40, set(), {"product"}),
    "greeting": (24, set(), set()),
    "closing": (30, set(), set()),
    "filler": (40, set(), {"zip", "phone", "name"}),
    "other_order": (30, {"other_order"}, set()),
    "other_email": (30, {"other_email"}, set()),
    "my_email": (30, {"email"}, set()),
    "second_issue": (24, set(), set()),
    "reply_order": (24, {"order"}, set()),
    "reply_email": (24, {"email"}, set()),
    "reply_address": (20, {"address"}, set()),
    "no_order_but_email": (24, {"email"}, set()),
}
STARTS_WITH_SPACE = {
    "closing",
    "filler",
    "other_order",
    "other_email",
    "my_email",
    "second_issue",
}
ENDS_WITH_SPACE = {"greeting", "second_issue"}
# A small part may be a fixed phrase; a message has something to vary.
MAY_BE_FIXED = STARTS_WITH_SPACE | {"greeting", "reply_order", "reply_email"}

_GROUP = re.compile(r"\[([^\[\]]*)\]")
_SLOT = re.compile(r"\{([^{}]*)\}")


def expansions(template: str) -> list[str]:
    """All ways to choose the alternatives of a template."""
    parts = _GROUP.split(template)
    choices = [p.split("|") if i % 2 else [p] for i, p in enumerate(parts)]
    return ["".join(chosen) for chosen in itertools.product(*choices)]


def test_keys_are_the_known_ones() -> None:
    assert set(PHRASES) == set(RULES)


@pytest.mark.parametrize("key", RULES)
def test_count(key: str) -> None:
    assert len(PHRASES[key]) >= RULES[key][0]


@pytest.mark.parametrize("key", RULES)
def test_slots_of_every_expansion(key: str) -> None:
    _, required, optional = RULES[key]
    for template in PHRASES[key]:
        for text in expansions(template):
            slots = _SLOT.findall(text)
            assert required <= set(slots) <= required | optional, text
            assert len(slots) == len(set(slots)), text


@pytest.mark.parametrize("key", RULES)
def test_brackets(key: str) -> None:
    for template in PHRASES[key]:
        groups = _GROUP.findall(template)
        rest = _GROUP.sub("", template)
        assert not set("[]|") & set(rest), template
        assert not set("{}") & set(_SLOT.sub("", template)), template
        assert all(2 <= len(group.split("|")) <= 4 for group in groups), template
        assert len(groups) <= 3, template
        assert groups or key in MAY_BE_FIXED, template


@pytest.mark.parametrize("key", RULES)
def test_whitespace(key: str) -> None:
    for template in PHRASES[key]:
        for text in expansions(template):
            assert text.startswith(" ") == (key in STARTS_WITH_SPACE), text
            assert text.endswith(" ") == (key in ENDS_WITH_SPACE), text
            assert "  " not in text, text
            assert not re.search(r"[\t\n]| [,.;:?!]", text), text


@pytest.mark.parametrize("key", RULES)
def test_length(key: str) -> None:
    for template in PHRASES[key]:
        assert all(len(text.split()) <= 32 for text in expansions(template)), template


def test_no_text_is_said_by_two_templates() -> None:
    origin: dict[str, tuple[str, int]] = {}
    for key, templates in PHRASES.items():
        for index, template in enumerate(templates):
            for text in expansions(template):
                here = (key, index)
                first = origin.setdefault(text.strip().lower(), here)
                assert first == here, text


@pytest.mark.parametrize("key", ["address/id", "address/noid", "reply_address"])
def test_an_address_is_a_clean_span(key: str) -> None:
    for template in PHRASES[key]:
        for text in expansions(template):
            before, after = text.split("{address}")
            previous = re.findall(r"[\w'{}]+", before)[-1]
            following = re.findall(r"[\w'{}]+", after)[:1]
            assert re.match(r"[a-z]", previous), text
            assert not following or re.match(r"[a-z]", following[0]), text
            assert re.match(r"[ ,.?!]", after), text


def test_no_article_before_a_product() -> None:
    for templates in PHRASES.values():
        for text in itertools.chain.from_iterable(map(expansions, templates)):
            assert not re.search(r"\ban? \{product\}", text), text


def test_noid_messages_mostly_name_the_product() -> None:
    for key in (key for key in PHRASES if key.endswith("/noid")):
        named = sum("{product}" in template for template in PHRASES[key])
        assert named >= 0.8 * len(PHRASES[key]), key


# Knowledge base and entities


def test_articles_are_complete_and_distinct() -> None:
    assert len(ARTICLES) >= 45
    for field in ("topic", "title", "body"):
        assert len({getattr(a, field).lower() for a in ARTICLES}) == len(ARTICLES)
    for article in ARTICLES:
        assert re.fullmatch(r"[a-z]+(-[a-z]+)*", article.topic)
        assert len(article.questions) >= 6, article.topic
    questions = [q.lower() for a in ARTICLES for q in a.questions]
    assert len(set(questions)) == len(questions)


@pytest.mark.parametrize("article", ARTICLES, ids=lambda article: article.topic)
def test_question_format(article: Article) -> None:
    for template in article.questions:
        groups = _GROUP.findall(template)
        assert not set("[]|{}") & set(_GROUP.sub("", template)), template
        assert 1 <= len(groups) <= 3, template
        assert all(2 <= len(group.split("|")) <= 4 for group in groups), template
        for text in expansions(template):
            assert text == text.strip() and "  " not in text, text


def _words(text: str) -> set[str]:
    words = re.findall(r"[a-z0-9]+", text.lower())
    return {w[:-1] if len(w) > 3 and w.endswith("s") else w for w in words}


@pytest.mark.parametrize("article", ARTICLES, ids=lambda article: article.topic)
def test_a_keyword_search_for_a_question_finds_its_article(article: Article) -> None:
    titles = {a.topic: _words(a.title) for a in ARTICLES}
    spread = {
        word: sum(word in title for title in titles.values())
        for word in set().union(*titles.values())
    }
    for text in itertools.chain.from_iterable(map(expansions, article.questions)):
        asked = _words(text)
        scores = {
            topic: sum(1 / spread[word] for word in asked & title)
            for topic, title in titles.items()
        }
        best = max(scores.values())
        assert [t for t, score in scores.items() if score == best] == [article.topic], (
            text
        )


CATEGORIES = {"electronics", "clothing", "furniture", "kitchen", "toys", "sports"}


@pytest.mark.parametrize(
    ("values", "fewest", "pattern"),
    [
        ([name for name, _ in PRODUCTS], 90, r"[a-z]+(?:[ -][a-z]+){0,2}"),
        (FIRST_NAMES, 120, r"[A-Z][a-z]+"),
        (LAST_NAMES, 120, r"[A-Z][A-Za-z]+"),
        (STREETS, 90, r"[A-Z][a-z]+(?: [A-Z][a-z]+)+"),
        (CITIES, 90, r"[A-Z][a-z]+(?: [A-Z][a-z]+)?"),
        (MAIL_DOMAINS, 30, r"[a-z0-9-]+(?:\.[a-z0-9-]+)*\.[a-z]{2,}"),
        (CARRIERS, 6, r"[A-Z][A-Za-z]+(?: [A-Z][A-Za-z]+)*"),
    ],
    ids=["products", "first", "last", "streets", "cities", "domains", "carriers"],
)
def test_entities(values: list[str], fewest: int, pattern: str) -> None:
    assert len(values) >= fewest
    assert len({value.lower() for value in values}) == len(values)
    for value in values:
        assert re.fullmatch(pattern, value), value


def test_every_category_has_products() -> None:
    assert {category for _, category in PRODUCTS} == CATEGORIES
    for name in CATEGORIES:
        assert sum(category == name for _, category in PRODUCTS) >= 12, name

"""The language bank keeps its promises: slots, brackets, splits, findable articles."""

from __future__ import annotations

import itertools
import re
from collections import defaultdict
from collections.abc import Callable, Iterator
from functools import partial

import numpy as np
import pytest

from agentgym.core.task import SPLITS, Split
from agentgym.scenarios.customer_support.language import ARTICLES, ENTITIES, PRODUCTS
from agentgym.scenarios.customer_support.tools import search_knowledge_base
from agentgym.scenarios.customer_support.world import World
from agentgym.scenarios.wording import sections, templates

_PACKAGE = "agentgym.scenarios.customer_support"
phrases = partial(templates, _PACKAGE, "phrases")

# Key: (slots that every expansion has, slots it may have).
Rule = tuple[set[str], set[str]]

_ORDER: Rule = ({"order"}, {"product"})
_PRODUCT: Rule = (set(), {"product"})
_EMAIL: Rule = ({"email"}, set())
_NOTHING: Rule = (set(), set())

REQUESTS: dict[str, Rule] = {
    **{
        f"{intent}/{kind}": rule
        for intent in (
            "track",
            "details",
            "refund_damaged",
            "refund_wrong_item",
            "refund_not_needed",
            "replacement",
            "cancel",
            "double_charge",
        )
        for kind, rule in (("id", _ORDER), ("noid", _PRODUCT))
    },
    "address/id": ({"order", "address"}, {"product"}),
    "address/noid": ({"address"}, {"product"}),
    "address_missing/id": ({"order"}, set()),
    "invoice/id": _ORDER,
    "invoice/email": ({"order", "email"}, {"product"}),
    "password/email": _EMAIL,
    "password/noemail": _NOTHING,
    **{
        f"{verb}_{channel}/email": _EMAIL
        for verb in ("subscribe", "unsubscribe")
        for channel in ("newsletter", "sms", "phone")
    },
    "ticket/id": ({"ticket"}, set()),
    "human": _NOTHING,
    "legal": _NOTHING,
    "safety": _PRODUCT,
    "thanks": _PRODUCT,
}
PARTS: dict[str, Rule] = {
    "greeting": _NOTHING,
    "closing": _NOTHING,
    "filler": (set(), {"zip", "phone", "name"}),
    "other_order": ({"other_order"}, set()),
    "other_email": ({"other_email"}, set()),
    "my_email": _EMAIL,
    "second_issue": _NOTHING,
    "reply_order": ({"order"}, set()),
    "reply_email": _EMAIL,
    "reply_address": ({"address"}, set()),
    "no_order_but_email": _EMAIL,
}
RULES = REQUESTS | PARTS

_GROUP = re.compile(r"\[([^\[\]]*)\]")
_SLOT = re.compile(r"\{([^{}]*)\}")


def expansions(template: str) -> list[str]:
    """All ways to choose the alternatives of a template."""
    parts = _GROUP.split(template)
    choices = [p.split("|") if i % 2 else [p] for i, p in enumerate(parts)]
    return ["".join(chosen) for chosen in itertools.product(*choices)]


def all_templates(split: Split) -> Iterator[tuple[str, str]]:
    """Key and text of every template of a split."""
    for key, texts in phrases(split).items():
        for text in texts:
            yield key, text


@pytest.mark.parametrize("split", SPLITS)
def test_every_split_has_every_kind_of_message(split: Split) -> None:
    bank = phrases(split)
    assert set(bank) == set(RULES)
    assert len(sections(_PACKAGE, f"phrases_{split}.txt")) == len(RULES), (
        "a key stands twice"
    )
    fewest = {"train": (45, 12), "validation": (6, 4), "heldout": (8, 3)}[split]
    assert min(len(bank[key]) for key in REQUESTS) >= fewest[0]
    assert min(len(bank[key]) for key in PARTS) >= fewest[1]


@pytest.mark.parametrize("split", SPLITS)
def test_brackets_are_balanced_and_do_not_nest(split: Split) -> None:
    for _, template in all_templates(split):
        groups = _GROUP.findall(template)
        assert not set("[]|") & set(_GROUP.sub("", template)), template
        assert not set("{}") & set(_SLOT.sub("", template)), template
        assert all(2 <= len(group.split("|")) <= 4 for group in groups), template
        assert all(len(set(g.split("|"))) == len(g.split("|")) for g in groups), (
            template
        )
        # A slot lies within one alternative, never across a bracket.
        assert all(g.count("{") == g.count("}") for g in groups), template


@pytest.mark.parametrize("split", SPLITS)
def test_slots_of_every_expansion(split: Split) -> None:
    for key, template in all_templates(split):
        required, optional = RULES[key]
        for text in expansions(template):
            slots = _SLOT.findall(text)
            assert required <= set(slots) <= required | optional, (key, text)
            assert len(slots) == len(set(slots)), (key, text)


@pytest.mark.parametrize("split", SPLITS)
def test_whitespace_and_length(split: Split) -> None:
    for _, template in all_templates(split):
        for text in expansions(template):
            assert text == text.strip() and text, template
            assert "  " not in text and "\t" not in text, text
            assert len(text.split()) <= 32, text


@pytest.mark.parametrize("split", SPLITS)
def test_no_article_before_a_product(split: Split) -> None:
    for _, template in all_templates(split):
        for text in expansions(template):
            assert not re.search(r"\ban? \{product\}", text), text


@pytest.mark.parametrize("split", SPLITS)
def test_an_address_is_a_clean_span(split: Split) -> None:
    for _, template in all_templates(split):
        for text in expansions(template):
            if "{address}" not in text:
                continue
            before, after = text.split("{address}")
            # A capital or a digit beside it could be taken for a part of it.
            beside = re.findall(r"[\w'{}]+", before)[-1:]
            beside += re.findall(r"[\w'{}]+", after)[:1]
            assert all(re.match(r"[a-z]", word) for word in beside), text
            assert re.match(r"[ ,.?!]|$", after), text


@pytest.mark.parametrize("split", SPLITS)
def test_messages_without_a_number_mostly_name_the_product(split: Split) -> None:
    for key, texts in phrases(split).items():
        if key.endswith("/noid"):
            named = sum("{product}" in template for template in texts)
            assert named >= 0.8 * len(texts), key


# Splits


def test_no_text_is_said_by_two_templates() -> None:
    origin: dict[str, tuple[str, str, str]] = {}
    for split in SPLITS:
        for key, template in all_templates(split):
            for text in expansions(template):
                here = (split, key, template)
                assert origin.setdefault(text.lower(), here) == here, text


# Words that say nothing of a sentence's frame: function words, and the channel, in
# which the six kinds of subscription differ.
_STOP = frozenset(
    "a an and call calling calls can could e emails for i in is it mail me message "
    "messages my newsletter newsletters of on phone please sms telephone text texts "
    "the to would you your".split()
)


def content_words(text: str) -> set[str]:
    words = re.findall(r"[a-z']+", _SLOT.sub(" ", text).lower())
    return set(words) - _STOP


def family(key: str) -> str:
    intent = key.split("/")[0].removesuffix("_missing")
    return re.sub(r"^(un)?subscribe_.*", "subscription", intent)


def first_expansion(template: str) -> list[str]:
    return expansions(template)[:1]


def near_twins(
    readings: Callable[[str], list[str]], threshold: float
) -> set[tuple[str, str, str]]:
    """Templates outside training that read like one of training, with that one."""
    families: dict[str, dict[Split, list[tuple[str, set[str]]]]] = defaultdict(
        lambda: {split: [] for split in SPLITS}
    )
    for split in SPLITS:
        for key, template in all_templates(split):
            families[family(key)][split] += [
                (template, content_words(text)) for text in readings(template)
            ]
    found = set()
    for name, splits in families.items():
        vocabulary = {
            word: i
            for i, word in enumerate(
                sorted(set().union(*(w for rows in splits.values() for _, w in rows)))
            )
        }
        matrices = {}
        for split, rows in splits.items():
            matrices[split] = np.zeros((len(rows), len(vocabulary)), np.float32)
            for row, (_, words) in zip(matrices[split], rows, strict=True):
                row[[vocabulary[word] for word in words]] = 1
        known = matrices["train"]
        for split in SPLITS[1:]:
            other = matrices[split]
            shared = other @ known.T
            either = other.sum(1)[:, None] + known.sum(1) - shared
            for a, b in np.argwhere(shared >= threshold * np.maximum(either, 1)):
                found.add((name, splits[split][a][0], splits["train"][b][0]))
    return found


def test_near_twins_are_found() -> None:
    """The measure itself: it sees all templates as twins where little is asked."""
    assert len({twin for _, twin, _ in near_twins(first_expansion, 0.2)}) > 1000


def test_no_template_outside_training_is_a_near_twin_of_one_in_training() -> None:
    """As the splits were drawn: by each template's first alternatives."""
    assert near_twins(first_expansion, 0.6) == set()


def test_no_message_outside_training_is_a_near_twin_of_one_in_training() -> None:
    """Whichever alternatives are chosen."""
    assert near_twins(expansions, 0.75) == set()


# Knowledge base and entities


def test_articles_are_complete_and_distinct() -> None:
    assert len(ARTICLES) == 190
    for field in ("topic", "title", "body"):
        assert len({getattr(a, field).lower() for a in ARTICLES}) == len(ARTICLES)
    for article in ARTICLES:
        assert re.fullmatch(r"[a-z0-9]+(-[a-z]+)*", article.topic)
        assert article.title and not article.title.startswith("title:")
        assert article.body and not article.body.startswith("body:")
        assert len(article.questions) >= 6, article.topic
    questions = [q.lower() for a in ARTICLES for q in a.questions]
    assert len(set(questions)) == len(questions)


def test_question_format() -> None:
    for template in (q for article in ARTICLES for q in article.questions):
        groups = _GROUP.findall(template)
        assert not set("[]|{}") & set(_GROUP.sub("", template)), template
        assert all(2 <= len(group.split("|")) <= 4 for group in groups), template
        assert not any(set("{}") & set(group) for group in groups), template
        for text in expansions(template):
            assert text == text.strip() and "  " not in text, text


def test_the_shops_own_search_finds_every_question() -> None:
    world = World(World.image({}))
    for article in ARTICLES:
        for question in article.questions:
            for text in expansions(question):
                found = search_knowledge_base(world, text)["article"]
                assert found == article.topic, text
    world.close()


CATEGORIES = {"electronics", "clothing", "furniture", "kitchen", "toys", "sports"}


@pytest.mark.parametrize(
    ("values", "fewest", "pattern"),
    [
        ([name for name, _ in PRODUCTS], 90, r"[a-z]+(?:[ -][a-z]+){0,2}"),
        (ENTITIES["first names"], 120, r"[A-Z][a-z]+"),
        (ENTITIES["last names"], 120, r"[A-Z][A-Za-z]+"),
        (ENTITIES["streets"], 90, r"[A-Z][a-z]+(?: [A-Z][a-z]+)+"),
        (ENTITIES["cities"], 90, r"[A-Z][a-z]+(?: [A-Z][a-z]+)?"),
        (ENTITIES["mail domains"], 30, r"[a-z0-9-]+(?:\.[a-z0-9-]+)*\.[a-z]{2,}"),
        (ENTITIES["carriers"], 6, r"[A-Z][A-Za-z]+(?: [A-Z][A-Za-z]+)*"),
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

"""The customers' messages, and the articles and entities that tasks draw from.

A template's key in `data/phrases_*.txt` names the intent and, after the slash, what the
message contains: `id` (the order or ticket number), `noid` (no number), `email` or
`noemail`. Keys without a slash are whole messages that need no data, or small parts of
a message. `{product}` stands for a singular noun without an article, so templates put
"the", "my" or "new" before it, never "a".
"""

from __future__ import annotations

import random
from collections.abc import Callable
from dataclasses import dataclass
from functools import cache
from typing import TypeVar

from agentgym.core.task import Split
from agentgym.scenarios.wording import (
    chosen,
    misspelt,
    sections,
    split_of,
    templates,
    word_lists,
)

_T = TypeVar("_T")
_PACKAGE = "agentgym.scenarios.customer_support"


@dataclass(frozen=True, slots=True)
class Article:
    """A help article and customers' questions about it (templates, see `wording`)."""

    topic: str
    title: str
    body: str
    questions: tuple[str, ...]


ARTICLES = [
    Article(
        topic, title.removeprefix("title: "), body.removeprefix("body: "), tuple(asked)
    )
    for topic, title, body, *asked in sections(_PACKAGE, "articles.txt")
]
ENTITIES = word_lists(_PACKAGE, "entities.txt")
PRODUCTS = [
    (name, kind.removeprefix("products/"))
    for kind, names in ENTITIES.items()
    if kind.startswith("products/")
    for name in names
]

# Ranges that no other split draws from.
_ORDER_IDS = {
    "train": (10_000, 49_999),
    "validation": (50_000, 69_999),
    "heldout": (70_000, 99_999),
}
_TICKET_IDS = {
    "train": (1000, 4999),
    "validation": (5000, 6999),
    "heldout": (7000, 9999),
}


class Speaker:
    """Draws entities and phrasings of one split."""

    def __init__(self, split: Split, rng: random.Random) -> None:
        self.split = split
        self.rng = rng
        self._phrases = templates(_PACKAGE, "phrases", split)
        self._used: set[str] = set()

    def say(self, key: str, **slots: str) -> str:
        """A phrasing of a kind, with its slots filled."""
        template = self.rng.choice(self._phrases[key])
        return self.expand(template, **slots)

    def expand(self, template: str, **slots: str) -> str:
        """A template with its alternatives chosen and its slots filled."""
        text = chosen(template, self.rng)
        if self.rng.random() < 0.08:
            text = misspelt(text, self.rng)
        return text.format(**slots)

    def order_id(self) -> str:
        """An order number, unique within the task."""
        return self._fresh(lambda: str(self.rng.randint(*_ORDER_IDS[self.split])))

    def near(self, order_id: str) -> str:
        """A number that looks similar to the given one."""
        low, high = _ORDER_IDS[self.split]

        def draw() -> str:
            digits = list(order_id)
            digits[self.rng.randrange(1, 5)] = str(self.rng.randrange(10))
            value = "".join(digits)
            return value if low <= int(value) <= high else order_id

        return self._fresh(draw)

    def ticket_id(self) -> str:
        """A ticket number."""
        return f"T-{self.rng.randint(*_TICKET_IDS[self.split])}"

    def name(self) -> str:
        """First and last name."""
        return f"{self._one('first names')} {self._one('last names')}"

    def email(self) -> str:
        """An e-mail address, unique within the task."""

        def draw() -> str:
            first, last = self.name().lower().replace("'", "").split(" ", 1)
            form = self.rng.choice(["{f}.{l}", "{f}{n}", "{l}.{f}{n}", "{f}_{l}"])
            local = form.format(f=first, l=last, n=self.rng.randint(1, 99))
            return f"{local}@{self._one('mail domains')}".replace(" ", "")

        return self._fresh(draw)

    def address(self) -> str:
        """Street and city."""
        number = self.rng.randint(1, 199)
        return f"{number} {self._one('streets')}, {self._one('cities')}"

    def product(self) -> tuple[str, str]:
        """A product, unique within the task, and its category."""
        return self._fresh(lambda: self.rng.choice(_products(self.split)))

    def article(self) -> Article:
        """A help article."""
        return self.rng.choice(_articles(self.split))

    def postcode(self) -> str:
        """A postcode that doesn't look like an order number."""
        letters = "".join(self.rng.choices("ABCDEFGHLMNPRSTW", k=2))
        return f"{letters}{self.rng.randint(1, 20)}"

    def phone(self) -> str:
        """A phone number."""
        return f"0{self.rng.randint(100, 999)} {self.rng.randint(1000000, 9999999)}"

    def _one(self, kind: str) -> str:
        return self.rng.choice(_entities(self.split)[kind])

    def _fresh(self, draw: Callable[[], _T]) -> _T:
        while True:
            value = draw()
            if str(value) not in self._used:
                self._used.add(str(value))
                return value


@cache
def _entities(split: Split) -> dict[str, list[str]]:
    return {kind: split_of(names, split) for kind, names in ENTITIES.items()}


@cache
def _products(split: Split) -> list[tuple[str, str]]:
    return split_of(PRODUCTS, split)


@cache
def _articles(split: Split) -> list[Article]:
    return split_of(ARTICLES, split)

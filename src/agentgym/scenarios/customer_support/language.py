"""The customers' language: templates, their splits, and typos."""

from __future__ import annotations

import random
from functools import lru_cache
from typing import TypeVar

from agentgym.core.task import Split
from agentgym.scenarios.customer_support.knowledge import (
    ARTICLES,
    CITIES,
    FIRST_NAMES,
    LAST_NAMES,
    MAIL_DOMAINS,
    PRODUCTS,
    STREETS,
    Article,
)
from agentgym.scenarios.customer_support.phrases import phrases
from agentgym.scenarios.wording import chosen, misspelt, split_of

_T = TypeVar("_T")

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
        self._bank = _bank(split)
        self._used: set[str] = set()

    def say(self, key: str, **slots: str) -> str:
        """A phrasing of a kind, with its slots filled."""
        template = self.rng.choice(self._bank.phrases[key])
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
        rng, bank = self.rng, self._bank
        return f"{rng.choice(bank.first_names)} {rng.choice(bank.last_names)}"

    def email(self) -> str:
        """An e-mail address, unique within the task."""

        def draw() -> str:
            first, last = self.name().lower().replace("'", "").split(" ", 1)
            form = self.rng.choice(["{f}.{l}", "{f}{n}", "{l}.{f}{n}", "{f}_{l}"])
            local = form.format(f=first, l=last, n=self.rng.randint(1, 99))
            return f"{local}@{self.rng.choice(self._bank.domains)}".replace(" ", "")

        return self._fresh(draw)

    def address(self) -> str:
        """Street and city."""
        rng, bank = self.rng, self._bank
        number = rng.randint(1, 199)
        return f"{number} {rng.choice(bank.streets)}, {rng.choice(bank.cities)}"

    def product(self) -> tuple[str, str]:
        """A product, unique within the task, and its category."""
        return self._fresh(lambda: self.rng.choice(self._bank.products))

    def article(self) -> Article:
        """A help article."""
        return self.rng.choice(self._bank.articles)

    def postcode(self) -> str:
        """A postcode that doesn't look like an order number."""
        letters = "".join(self.rng.choices("ABCDEFGHLMNPRSTW", k=2))
        return f"{letters}{self.rng.randint(1, 20)}"

    def phone(self) -> str:
        """A phone number."""
        return f"0{self.rng.randint(100, 999)} {self.rng.randint(1000000, 9999999)}"

    def _fresh(self, draw: object) -> _T:  # type: ignore[type-var]
        assert callable(draw)
        while True:
            value = draw()
            if str(value) not in self._used:
                self._used.add(str(value))
                return value  # type: ignore[no-any-return]


class _Bank:
    def __init__(self, split: Split) -> None:
        self.phrases = phrases(split)
        self.first_names = split_of(FIRST_NAMES, split)
        self.last_names = split_of(LAST_NAMES, split)
        self.domains = split_of(MAIL_DOMAINS, split)
        self.streets = split_of(STREETS, split)
        self.cities = split_of(CITIES, split)
        self.products = split_of(PRODUCTS, split)
        self.articles = split_of(ARTICLES, split)


@lru_cache(maxsize=3)
def _bank(split: Split) -> _Bank:
    return _Bank(split)

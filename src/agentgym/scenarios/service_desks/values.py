"""Random values for requests: numbers, dates, names, addresses."""

from __future__ import annotations

import random
import re
from collections.abc import Callable, Mapping
from typing import Any

from agentgym.core.task import Split
from agentgym.scenarios.wording import split_of

_FIRST = (
    "Ines Tomas Priya Jonas Leila Marco Aiko Ruth Samir Clara Viktor Noor Elif Pavel "
    "Grace Otto Mina Hugo Zofia Kofi Dana Luis Freya Amir Nadia Bram Talia Oleg Signe "
    "Ravi Paula Emil Yara Niklas Chiara Anders Lucia Malik Greta Jorge"
).split()
_LAST = (
    "Okafor Lindqvist Moreau Santos Keller Ivanova Tanaka Byrne Haddad Novak Rossi "
    "Jansen Mensah Castro Weber Dubois Larsen Petit Silva Yilmaz Berg Costa Meyer Nagy "
    "Papas Quinn Rojas Sato Turner Vasquez Winter Zhou"
).split()
_DOMAINS = (
    "quickmail.example riverpost.test homebox.example lettera.test bluewire.example "
    "courier.test windmail.example postbox.test harbour.example parcelbox.test"
).split()
_STREETS = (
    "Mill Lane, Harbour Road, Chestnut Avenue, Station Street, Castle Hill, Garden "
    "Row, Orchard Close, Bakers Yard, Linden Square, Canal Walk, Abbey Road, Fountain "
    "Street, Market Place, Vine Court, Sandy Bank"
).split(", ")
_CITIES = (
    "Porto Ghent Turku Graz Leeds Nantes Cork Bergen Malaga Trieste Utrecht Aarhus "
    "Lyon Bologna Gdansk"
).split()
_ATOM = re.compile(r"(\[A-Z\]|\[0-9\]|[A-Za-z0-9-])(?:\{(\d+)\})?")


class Values:
    """Draws the values of one split."""

    def __init__(self, split: Split, rng: random.Random) -> None:
        self._rng = rng
        self._split = split
        self._kinds: Mapping[str, Callable[[], Any]] = {
            "date": self._date,
            "email": self._email,
            "person": self._person,
            "amount": self._amount,
            "count": lambda: rng.randint(2, 60),
            "phone": lambda: (
                f"0{rng.randint(100, 999)} {rng.randint(10**6, 10**7 - 1)}"
            ),
            "address": self._address,
            "time": lambda: f"{rng.randint(7, 21):02d}:{rng.randrange(0, 60, 15):02d}",
        }

    def draw(self, spec: Mapping[str, Any]) -> Any:
        """Draws a value that fits a desk's description."""
        if "pattern" in spec:
            return self._of_pattern(spec["pattern"])
        if "choices" in spec:
            return self._rng.choice(spec["choices"])
        return self._kinds[spec["kind"]]()

    def near(self, value: str) -> str:
        """A number that looks similar to the given one."""
        at = self._rng.choice([i for i, c in enumerate(value) if c.isdigit()])
        digit = (int(value[at]) + self._rng.randint(1, 9)) % 10
        return f"{value[:at]}{digit}{value[at + 1 :]}"

    def _of_pattern(self, pattern: str) -> str:
        text = ""
        for atom, times in _ATOM.findall(pattern):
            for _ in range(int(times or 1)):
                if atom == "[A-Z]":
                    text += self._rng.choice("ABCDEFGHJKLMNPRSTUVWXY")
                elif atom == "[0-9]":
                    text += str(self._rng.randrange(10))
                else:
                    text += atom
        return text

    def _one(self, items: list[str]) -> str:
        return self._rng.choice(split_of(items, self._split))

    def _date(self) -> str:
        return f"2027-{self._rng.randint(1, 12):02d}-{self._rng.randint(1, 28):02d}"

    def _person(self) -> str:
        return f"{self._one(_FIRST)} {self._one(_LAST)}"

    def _email(self) -> str:
        form = self._rng.choice(["{f}.{l}", "{f}{n}", "{l}_{f}"])
        first, last = self._person().lower().split()
        local = form.format(f=first, l=last, n=self._rng.randint(1, 99))
        return f"{local}@{self._one(_DOMAINS)}"

    def _amount(self) -> float:
        form = self._rng.randrange(3)
        if form == 0:
            return round(self._rng.uniform(5, 400), 2)
        return (
            float(self._rng.randint(5, 400)) if form == 1 else self._rng.randint(5, 900)
        )

    def _address(self) -> str:
        number = self._rng.randint(1, 199)
        return f"{number} {self._one(_STREETS)}, {self._one(_CITIES)}"

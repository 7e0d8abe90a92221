"""Generates a desk's tasks as lines of a task file."""

from __future__ import annotations

import itertools
import random
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import lru_cache
from typing import Any

from agentgym.core.task import Split
from agentgym.scenarios.service_desks.desk import Desk, Due, Intent, load_chatter
from agentgym.scenarios.wording import closed, misspelt, split_of, word_lists

_SLOT = re.compile(r"\{([a-z_]+)\}")
_TWO_REQUESTS = 0.25
_VAGUE = 0.35
_OTHER_NUMBER = 0.3
_SMALL_TALK = 0.25
_SIDE_FACT = 0.1
_GREETING = 0.35
_CLOSING = 0.3
_MISSPELT = 0.08
"""Shares of messages with such an element."""

_NAMES = word_lists("agentgym.scenarios.service_desks", "_values.txt")
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

    def _one(self, kind: str) -> str:
        return self._rng.choice(split_of(_NAMES[kind], self._split))

    def _date(self) -> str:
        return f"2027-{self._rng.randint(1, 12):02d}-{self._rng.randint(1, 28):02d}"

    def _person(self) -> str:
        return f"{self._one('first names')} {self._one('last names')}"

    def _email(self) -> str:
        form = self._rng.choice(["{f}.{l}", "{f}{n}", "{l}_{f}"])
        first, last = self._person().lower().split()
        local = form.format(f=first, l=last, n=self._rng.randint(1, 99))
        return f"{local}@{self._one('mail domains')}"

    def _amount(self) -> float:
        form = self._rng.randrange(3)
        if form == 0:
            return round(self._rng.uniform(5, 400), 2)
        return (
            float(self._rng.randint(5, 400)) if form == 1 else self._rng.randint(5, 900)
        )

    def _address(self) -> str:
        number = self._rng.randint(1, 199)
        return f"{number} {self._one('streets')}, {self._one('cities')}"


@dataclass(slots=True)
class _Wish:
    """An intent with its phrasing and values."""

    text: str
    plan: list[Due]
    answers: dict[str, str] = field(default_factory=dict)
    numbers: list[tuple[str, str]] = field(default_factory=list)
    """The numbers in the text, with the names of their kinds."""


def make_line(desk: Desk, split: Split, rng: random.Random, id_: str) -> dict[str, Any]:
    """A message with one or two requests, and the right calls."""
    values = Values(split, rng)
    two = rng.random() < _TWO_REQUESTS
    intents = [i for i in desk.intents if not two or any(i.courses)]
    wishes = [
        _wish(desk, intent, values, rng, vague=not two)
        for intent in rng.sample(intents, 2 if two else 1)
    ]
    message = _message(desk, wishes, values, split, rng)
    plans = [wish.plan for wish in wishes]
    calls = [due for plan in plans for due in plan]
    courses = [[_call(due) for due in course] for course in _orders(plans)]
    nothing = {"error": "not found"}
    return {
        "id": id_,
        "messages": [
            {"role": "system", "content": desk.system},
            {"role": "user", "content": message},
        ],
        "tools": [{"type": "function", "function": tool} for tool in desk.tools],
        "expected": {"any_of": courses},
        "responses": [
            *({**_call(due), "answer": due.result} for due in calls),
            *({"name": tool["name"], "answer": nothing} for tool in desk.tools),
        ],
        "answers": dict(pair for wish in wishes for pair in wish.answers.items()),
    }


def _wish(
    desk: Desk, intent: Intent, values: Values, rng: random.Random, *, vague: bool
) -> _Wish:
    filling = {name: values.draw(spec) for name, spec in desk.values.items()}
    course = rng.choice(intent.courses)
    vague = vague and bool(intent.vague) and rng.random() < _VAGUE
    template = rng.choice(intent.vague if vague else intent.requests)
    if rng.random() < _MISSPELT:
        template = misspelt(template, rng)
    wish = _Wish(
        _text(template, filling),
        [
            Due(due.tool, _filled(due.arguments, filling), _filled(due.result, filling))
            for due in course
        ],
    )
    if vague:
        first = course[0]
        missing = f"{{{intent.asks}}}"
        parameter = next(p for p, v in first.arguments.items() if v == missing)
        reply = _text(rng.choice(intent.replies), filling)
        wish.answers[desk.about(first.tool, parameter)] = reply
    wish.numbers = [
        (desk.values[name]["noun"], filling[name])
        for name in _SLOT.findall(template)
        if "pattern" in desk.values[name]
    ]
    return wish


def _message(
    desk: Desk,
    wishes: Sequence[_Wish],
    values: Values,
    split: Split,
    rng: random.Random,
) -> str:
    """The user's message: requests and irrelevant text around them."""
    chatter = _chatter(split)
    parts = [wishes[0].text]
    if len(wishes) > 1:
        parts += [rng.choice(chatter["next"]), wishes[1].text]
    elif wishes[0].numbers and rng.random() < _OTHER_NUMBER:
        noun, number = rng.choice(wishes[0].numbers)
        other = values.near(number)
        parts.append(
            _text(rng.choice(chatter["other"]), {"noun": noun, "other": other})
        )
    if rng.random() < _SMALL_TALK:
        parts.append(rng.choice(chatter["smalltalk"]))
    elif rng.random() < _SIDE_FACT:
        facts = {k: values.draw({"kind": k}) for k in ("phone", "email", "person")}
        parts.append(_text(rng.choice(chatter["side_facts"]), facts))
    if rng.random() < _CLOSING:
        parts.append(rng.choice(chatter["closings"]))
    if rng.random() < _GREETING:
        parts.insert(0, rng.choice(chatter["greetings"]))
    # Greetings and transitions to a second request have their own punctuation.
    own = {*chatter["greetings"], *chatter["next"]}
    ended = [part if part in own else closed(part) for part in parts[:-1]]
    return " ".join([*ended, parts[-1]])


@lru_cache(maxsize=3)
def _chatter(split: Split) -> dict[str, list[str]]:
    return {name: split_of(texts, split) for name, texts in load_chatter().items()}


def _orders(plans: Sequence[Sequence[Due]]) -> list[list[Due]]:
    """All right orders: requests in any order, the calls of each in sequence."""
    turns = [number for number, plan in enumerate(plans) for _ in plan]
    courses = []
    for order in sorted(set(itertools.permutations(turns))):
        left = [iter(plan) for plan in plans]
        courses.append([next(left[number]) for number in order])
    return courses


def _call(due: Due) -> dict[str, Any]:
    return {"name": due.tool, "arguments": due.arguments}


def _text(template: str, filling: Mapping[str, Any]) -> str:
    return _SLOT.sub(lambda slot: str(filling[slot[1]]), template)


def _filled(value: Any, filling: Mapping[str, Any]) -> Any:
    """A JSON value with its slots filled; a lone slot keeps its value's type."""
    if isinstance(value, str):
        slot = _SLOT.fullmatch(value)
        return filling[slot[1]] if slot else _text(value, filling)
    if isinstance(value, dict):
        if value.keys() == {"contains"}:
            return {"regex": f"(?is).*{re.escape(_text(value['contains'], filling))}.*"}
        return {name: _filled(one, filling) for name, one in value.items()}
    return value

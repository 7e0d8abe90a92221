"""Generates a desk's tasks as lines of a task file."""

from __future__ import annotations

import itertools
import random
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import lru_cache
from typing import Any

from agentgym.core.task import Split
from agentgym.scenarios.service_desks.desk import Desk, Due, Intent, load_chatter
from agentgym.scenarios.service_desks.values import Values
from agentgym.scenarios.wording import closed, misspelt, split_of

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

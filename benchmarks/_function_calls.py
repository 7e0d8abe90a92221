"""Makes a file of 400 function-calling tasks with 300 different tools.

    python benchmarks/_function_calls.py 0 tasks.jsonl

Tools are an action on a thing: ten actions, each in several words, and sixty things,
five actions a thing. The splits share neither things nor wordings, hence no tool. Every
task offers four to seven tools of its split, among them other actions on the same
thing. In every fifth the right tool is missing, so that no call is right; in every
tenth two calls are.
"""

from __future__ import annotations

import json
import random
import sys
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

_THINGS = (
    "invoice parcel meeting_room subscription gym_class rental_car hotel_room "
    "library_book flight_ticket prescription greenhouse_sensor printer webinar "
    "warehouse_pallet playlist support_case server_backup insurance_claim "
    "concert_seat recipe solar_panel school_trip ferry_cabin podcast_episode "
    "parking_spot gift_card lab_sample translation_job vineyard_tour drone_survey "
    "dentist_visit newsletter blood_test company_laptop harvest_crate tram_pass "
    "museum_guide ski_lesson data_export wedding_cake beehive tax_form pottery_kiln "
    "night_shift satellite_image coffee_machine charging_point film_permit "
    "horse_stable radio_advert water_meter choir_rehearsal mortgage_offer "
    "escape_room bus_charter plant_delivery chess_tournament fishing_licence "
    "piano_tuning mountain_hut"
).split()

_SPLITS = {"train": (32, 220), "validation": (8, 60), "heldout": (20, 120)}
"""Things and tasks of each split."""

_ID = {"type": "string", "pattern": "^[A-Z]{2}-[0-9]{4}$"}
_DATE = {"type": "string", "format": "date"}
_NAMES = (
    "Blue Harbor, Quiet Meadow, North Star, Silver Birch, Old Mill, Green Valley, "
    "Red Lantern, Stone Bridge, Golden Hour, White Owl, Summer Rain, Copper Field"
).split(", ")


@dataclass(frozen=True)
class Action:
    """What can be done to a thing.

    Attributes:
        verbs: Names of the tool, and what its description says.
        parameters: Name, schema and whether it is required; {} is the thing.
        requests: Of the splits train, validation and heldout. Values stand in braces.
    """

    verbs: tuple[tuple[str, str], ...]
    parameters: tuple[tuple[str, dict[str, Any], bool], ...]
    requests: tuple[tuple[str, ...], tuple[str, ...], tuple[str, ...]]


_VALUES: dict[str, Callable[[random.Random], Any]] = {
    "id": lambda rng: (
        f"{rng.choice('ABCDEFGH')}{rng.choice('KLMNPQRS')}-{rng.randint(1000, 9999)}"
    ),
    "date": lambda rng: f"2027-{rng.randint(1, 12):02d}-{rng.randint(1, 28):02d}",
    "name": lambda rng: rng.choice(_NAMES),
    "email": lambda rng: (
        f"{rng.choice(['ana', 'bo', 'chen', 'dina', 'eli'])}{rng.randint(1, 99)}"
        "@example.com"
    ),
    "count": lambda rng: rng.randint(2, 90),
    "amount": lambda rng: rng.randint(100, 9000),
    "currency": lambda rng: rng.choice(["EUR", "USD", "GBP"]),
    "severity": lambda rng: rng.choice(["low", "medium", "high"]),
}

_ACTIONS = (
    Action(
        (
            ("cancel_{}", "Cancels a {}, which is then gone for good."),
            ("revoke_{}", "Revokes a {} that is not wanted any more."),
            ("withdraw_{}", "Withdraws a {} and frees what it had taken."),
        ),
        (("{}_id", {**_ID, "description": "Number of the {}"}, True),),
        (
            (
                "Please cancel {thing} {id}.",
                "We do not need {thing} {id} any longer, call it off.",
                "Drop {thing} {id}, our plans have changed.",
            ),
            ("Could you scrap {thing} {id} for me?",),
            (
                "I no longer want {thing} {id}, get rid of it.",
                "Our {thing} {id} has to be called off.",
            ),
        ),
    ),
    Action(
        (
            ("find_{}", "Looks up a {} by its name."),
            ("search_{}", "Searches for a {} that has a certain name."),
            ("lookup_{}", "Gives the details of a {} with the given name."),
        ),
        (("name", {"type": "string", "description": "Name to look for"}, True),),
        (
            (
                'Look up the {thing} called "{name}".',
                'Is there a {thing} with the name "{name}"?',
                'Show me what you have on the {thing} "{name}".',
            ),
            ('I am looking for the {thing} named "{name}".',),
            (
                'Can you find the {thing} that goes by "{name}"?',
                'What do we know about the {thing} "{name}"?',
            ),
        ),
    ),
    Action(
        (
            ("quote_{}", "Calculates what a number of {}s costs."),
            ("price_{}", "Gives the price of several {}s in a currency."),
            ("estimate_{}_cost", "Estimates the cost of {}s."),
        ),
        (
            (
                "quantity",
                {"type": "integer", "minimum": 1, "description": "How many"},
                True,
            ),
            (
                "currency",
                {"type": "string", "enum": ["EUR", "USD", "GBP"]},
                True,
            ),
        ),
        (
            (
                "What would {count} of the {thing} cost in {currency}?",
                "How much is it for {count} times {thing}, in {currency}?",
                "Give me a price in {currency} for {count} of this: {thing}.",
            ),
            ("I need an offer in {currency} for {count} units of {thing}.",),
            (
                "How expensive are {count} of the {thing}? I pay in {currency}.",
                "Please work out the costs of {count} {thing} items in {currency}.",
            ),
        ),
    ),
    Action(
        (
            ("reschedule_{}", "Moves a {} to another day."),
            ("postpone_{}", "Puts a {} off until a later date."),
            ("set_{}_date", "Changes the day on which a {} is due."),
        ),
        (
            ("{}_id", {**_ID, "description": "Number of the {}"}, True),
            ("date", {**_DATE, "description": "The new day"}, True),
        ),
        (
            (
                "Move {thing} {id} to {date}.",
                "We cannot make it: {thing} {id} should be on {date} instead.",
                "Please put {thing} {id} off until {date}.",
            ),
            ("Shift {thing} {id} to {date}, please.",),
            (
                "The new day for {thing} {id} is {date}.",
                "Could {thing} {id} take place on {date}?",
            ),
        ),
    ),
    Action(
        (
            ("share_{}", "Shares a {} with somebody by email."),
            ("invite_to_{}", "Gives another person access to a {}."),
            ("forward_{}", "Sends a {} on to an address."),
        ),
        (
            ("{}_id", {**_ID, "description": "Number of the {}"}, True),
            (
                "email",
                {"type": "string", "format": "email", "description": "Who gets it"},
                True,
            ),
        ),
        (
            (
                "Share {thing} {id} with {email}.",
                "{email} should be able to see {thing} {id} as well.",
                "Send {thing} {id} on to {email}.",
            ),
            ("Let {email} have a look at {thing} {id}.",),
            (
                "My colleague {email} needs access to {thing} {id}.",
                "Pass {thing} {id} on to {email}, please.",
            ),
        ),
    ),
    Action(
        (
            ("report_{}_problem", "Reports that something is wrong with a {}."),
            ("flag_{}", "Flags a defect of a {} for the repair team."),
            ("complain_about_{}", "Files a complaint about a {}."),
        ),
        (
            ("{}_id", {**_ID, "description": "Number of the {}"}, True),
            (
                "severity",
                {"type": "string", "enum": ["low", "medium", "high"]},
                True,
            ),
        ),
        (
            (
                "There is a defect on {thing} {id}, severity {severity}.",
                "Something is broken: {thing} {id}. I would call it {severity}.",
                "File a complaint of {severity} severity about {thing} {id}.",
            ),
            ("{thing} {id} does not work, the damage is {severity}.",),
            (
                "I have trouble with {thing} {id}; rate it {severity}.",
                "Note a fault of {severity} urgency on {thing} {id}.",
            ),
        ),
    ),
    Action(
        (
            ("rename_{}", "Gives a {} another name."),
            ("label_{}", "Puts a new label on a {}."),
            ("retitle_{}", "Changes the title of a {}."),
        ),
        (
            ("{}_id", {**_ID, "description": "Number of the {}"}, True),
            ("new_name", {"type": "string", "description": "What to call it"}, True),
        ),
        (
            (
                'Rename {thing} {id} to "{name}".',
                'From now on {thing} {id} is called "{name}".',
                'Change the title of {thing} {id} to "{name}".',
            ),
            ('Give {thing} {id} the name "{name}".',),
            (
                'I would like {thing} {id} to be known as "{name}".',
                'The label on {thing} {id} should read "{name}".',
            ),
        ),
    ),
    Action(
        (
            ("count_{}s", "Counts all {}s since a day."),
            ("{}_statistics", "Statistics of {}s from a day on."),
            ("summarize_{}s", "Sums up how many {}s there were since a date."),
        ),
        (("since", {**_DATE, "description": "First day to count"}, True),),
        (
            (
                "How many entries of {thing} have there been since {date}?",
                "I need the figures for {thing} from {date} on.",
                "Give me a total for {thing} since {date}.",
            ),
            ("What is the tally of {thing} as of {date}?",),
            (
                "Starting on {date}, what number of {thing} records do we have?",
                "Sum up {thing} since {date} for my statistics.",
            ),
        ),
    ),
    Action(
        (
            ("pay_{}", "Pays an amount of money for a {}."),
            ("settle_{}", "Settles what is owed for a {}."),
            ("transfer_for_{}", "Transfers money for a {}."),
        ),
        (
            ("{}_id", {**_ID, "description": "Number of the {}"}, True),
            (
                "amount",
                {"type": "number", "minimum": 0, "description": "Sum to pay"},
                True,
            ),
        ),
        (
            (
                "Pay {amount} for {thing} {id}.",
                "I want to settle {thing} {id}: it is {amount} in all.",
                "Transfer {amount} for {thing} {id}, please.",
            ),
            ("{thing} {id} costs {amount}; take it from my account.",),
            (
                "Please send {amount} to cover {thing} {id}.",
                "The bill for {thing} {id} is {amount}, clear it.",
            ),
        ),
    ),
    Action(
        (
            ("order_{}s", "Orders a number of {}s."),
            ("book_{}s", "Books several {}s at once."),
            ("reserve_{}s", "Reserves {}s for the customer."),
        ),
        (
            (
                "quantity",
                {"type": "integer", "minimum": 1, "description": "How many"},
                True,
            ),
        ),
        (
            (
                "Order {count} of the {thing} for us.",
                "We would like to book {count} times {thing}.",
                "Reserve {count} of this: {thing}.",
            ),
            ("I will take {count} units of {thing}.",),
            (
                "Get me {count} of the {thing}.",
                "Put us down for {count} {thing} items.",
            ),
        ),
    ),
)


def make_tasks(seed: int) -> list[dict[str, Any]]:
    """All lines of the file; the same for the same seed."""
    rng = random.Random(f"function calls {seed}")
    things = rng.sample(_THINGS, len(_THINGS))
    lines = []
    start = 0
    for split, (count, tasks) in _SPLITS.items():
        tools = [
            _tool(rng, thing, action)
            for thing in things[start : start + count]
            for action in rng.sample(_ACTIONS, 5)
        ]
        start += count
        # Every tool is met, as far as there are tasks for it.
        targets = [tools[i % len(tools)] for i in range(tasks)]
        lines += [
            _task(rng, split, i, target, tools) for i, target in enumerate(targets)
        ]
    return lines


@dataclass(frozen=True, eq=False)
class _Tool:
    thing: str
    action: Action
    definition: dict[str, Any]


def _tool(rng: random.Random, thing: str, action: Action) -> _Tool:
    name, description = rng.choice(action.verbs)
    words = thing.replace("_", " ")
    properties = {
        parameter.format(thing): {
            **schema,
            **(
                {"description": schema["description"].format(words)}
                if "description" in schema
                else {}
            ),
        }
        for parameter, schema, _ in action.parameters
    }
    required = [p.format(thing) for p, _, needed in action.parameters if needed]
    function = {
        "name": name.format(thing),
        "description": description.format(words),
        "parameters": {
            "type": "object",
            "properties": properties,
            "required": required,
        },
    }
    return _Tool(thing, action, {"type": "function", "function": function})


def _task(
    rng: random.Random, split: str, number: int, target: _Tool, tools: list[_Tool]
) -> dict[str, Any]:
    kind = "abstain" if number % 5 == 4 else "two" if number % 10 == 3 else "one"
    others = [tool for tool in tools if tool is not target]
    akin = [tool for tool in others if tool.thing == target.thing]
    alike = [tool for tool in others if tool.action is target.action]
    offered = rng.sample(akin, 2) + rng.sample(alike, min(1, len(alike)))
    rest = [tool for tool in others if tool not in offered]
    offered += rng.sample(rest, rng.randint(1, 3))
    wanted = [target]
    if kind == "two":
        wanted.append(rng.choice(offered))
    texts, calls = [], []
    for tool in wanted:
        text, call = _request(rng, split, tool)
        texts.append(text)
        calls.append(call)
    if kind != "abstain":
        offered.append(target)
    rng.shuffle(offered)
    expected: list[Any] = (
        [] if kind == "abstain" else [calls] if kind == "two" else calls
    )
    return {
        "id": f"{split}-{number}",
        "messages": [{"role": "user", "content": " ".join(texts)}],
        "tools": [tool.definition for tool in offered],
        "expected": expected,
        "split": split,
    }


def _request(rng: random.Random, split: str, tool: _Tool) -> tuple[str, dict[str, Any]]:
    template = rng.choice(tool.action.requests[list(_SPLITS).index(split)])
    values = {name: make(rng) for name, make in _VALUES.items()}
    text = template.format(thing=tool.thing.replace("_", " "), **values)
    text = text[0].upper() + text[1:]
    arguments = {}
    for parameter, _, _ in tool.action.parameters:
        source = {
            "{}_id": "id",
            "new_name": "name",
            "quantity": "count",
            "since": "date",
        }.get(parameter, parameter)
        arguments[parameter.format(tool.thing)] = values[source]
    name = tool.definition["function"]["name"]
    return text, {"name": name, "arguments": arguments}


def write_tasks(path: Path, seed: int) -> None:
    """Writes the file."""
    with path.open("w", encoding="utf-8") as file:
        for line in make_tasks(seed):
            file.write(json.dumps(line) + "\n")


if __name__ == "__main__":
    write_tasks(Path(sys.argv[2]), int(sys.argv[1]))

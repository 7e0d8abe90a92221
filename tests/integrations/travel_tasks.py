"""Sixty tasks for `travel_agent`, written as JSON lines."""

from __future__ import annotations

import json
from pathlib import Path

_CITIES = "Oslo Rome Lima Cairo Quito Hanoi Accra Tunis".split()
# Of each tool's twelve wordings five are trained on, two are looked at on the way, and
# five are held out. Some cities are never trained on.
_SPLITS = ["train"] * 5 + ["validation"] * 2 + ["heldout"] * 5
_SAID = {
    "get_weather": """What is the weather like in {city}?
Will I need an umbrella in {city}?
Is it raining in {city} today?
How warm is it in {city}?
Is the sun shining in {city}?
What temperature does {city} have?
Will it snow in {city} tomorrow?
Give me the forecast for {city}.
Do I need a coat in {city}?
Is it cold in {city}?
How hot does it get in {city}?
Are there storms in {city}?""",
    "get_time": """What time is it in {city}?
How late is it in {city}?
Local time of {city}, please.
Is it night already in {city}?
Tell me the hour in {city}.
What does the clock say in {city}?
Is it morning or evening in {city}?
What's the time over in {city}?
Can I still phone someone in {city}, or is it too late?
Current time in {city}?
Which hour is it now in {city}?
Is it past midnight in {city}?""",
    "convert_currency": """How much is {amount} dollars in {currency}?
Change {amount} dollars into {currency}.
I have {amount} dollars, what is that in {currency}?
Convert {amount} dollars to {currency}.
What do I get in {currency} for {amount} dollars?
Exchange {amount} dollars for {currency}, please.
{amount} dollars in {currency}?
I want {currency} for my {amount} dollars.
Turn {amount} dollars into {currency}.
How many {currency} are {amount} dollars?
What are {amount} dollars worth in {currency}?
Swap {amount} dollars for {currency}.""",
    "find_booking": """Is booking {number} fine?
Look up {number} for me.
What about my booking {number}?
Is my reservation {number} confirmed?
Find {number}, please.
Show me {number}.
I booked under {number}, is all well?
Check {number}.
Can you see my reservation {number}?
What is the status of {number}?
My number is {number}, what did I book?
Pull up booking {number}.""",
    "send_message": """Tell the hotel that I come late.
Let the hotel know I want a quiet room.
Write to the hotel that we are four.
Inform the hotel about my allergy.
Say to the reception that I need a crib.
Ask the hotel to keep my luggage.
Please pass on that I arrive at night.
Send the hotel a note: two extra pillows.
The hotel should know that I bring a dog.
Tell the reception we leave early.
Give the hotel my regards.
Message the hotel that the shower is broken.""",
}
_ARGUMENTS = {
    "get_weather": ["city"],
    "get_time": ["city"],
    "convert_currency": ["amount", "currency"],
    "find_booking": ["number"],
    "send_message": ["text"],
}


def write_tasks(path: Path) -> None:
    """Writes the file."""
    lines = []
    for name, wordings in _SAID.items():
        for i, wording in enumerate(wordings.splitlines()):
            values = {
                "city": _CITIES[i % 8],
                "amount": 10 + 7 * i,
                "currency": ("euros", "yen", "pesos")[i % 3],
                "number": f"{'ABCDEFGHIJKL'[i]}Z-{1000 + 37 * i}",
                "text": {"any": True},
            }
            arguments = {key: values[key] for key in _ARGUMENTS[name]}
            lines.append(
                {
                    "id": f"{name}-{i}",
                    "messages": [{"role": "user", "content": wording.format(**values)}],
                    "expected": [{"name": name, "arguments": arguments}],
                    "split": _SPLITS[i],
                }
            )
    path.write_text("\n".join(map(json.dumps, lines)), encoding="utf-8")

"""Sixty tasks for `travel_agent`, written as JSON lines."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

_CITIES = "Oslo Rome Lima Cairo Quito Hanoi Accra Tunis".split()
_WEATHER = (
    "What is the weather like in {}?",
    "Will I need an umbrella in {}?",
    "Is it raining in {} today?",
    "How warm is it in {}?",
)
_TIME = ("What time is it in {}?", "How late is it in {}?", "Local time of {}, please.")
_MONEY = ("How much is {} dollars in {}?", "Change {} dollars into {}.")
_BOOKING = ("Is booking {} fine?", "Look up {} for me.", "What about my booking {}?")
_TELL = ("Tell the hotel that I come late.", "Let the hotel know I want a quiet room.")


def write_tasks(path: Path) -> None:
    """Writes the file."""
    tasks: list[tuple[str, str, dict[str, Any]]] = []
    for i in range(12):
        city = _CITIES[i % 8]
        tasks.append((_WEATHER[i % 4].format(city), "get_weather", {"city": city}))
        tasks.append((_TIME[i % 3].format(city), "get_time", {"city": city}))
        amount, currency = 10 + 7 * i, ("euros", "yen", "pesos")[i % 3]
        tasks.append(
            (
                _MONEY[i % 2].format(amount, currency),
                "convert_currency",
                {"amount": amount, "currency": currency},
            )
        )
        number = f"{'ABCDEFGHIJKL'[i]}Z-{1000 + 37 * i}"
        tasks.append(
            (_BOOKING[i % 3].format(number), "find_booking", {"number": number})
        )
        text = f"{_TELL[i % 2]} Room {100 + i}."
        tasks.append((text, "send_message", {"text": {"any": True}}))
    lines = [
        {
            "id": f"travel-{i}",
            "messages": [{"role": "user", "content": said}],
            "expected": [{"name": name, "arguments": arguments}],
        }
        for i, (said, name, arguments) in enumerate(tasks)
    ]
    path.write_text("\n".join(map(json.dumps, lines)), encoding="utf-8")

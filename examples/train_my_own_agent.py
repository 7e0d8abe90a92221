"""Your own LangChain agent, trained with its own tools and a file of tasks.

pip install 'agentgym[langchain]'
python examples/train_my_own_agent.py
python examples/train_my_own_agent.py --policy llm        # needs agentgym[llm]

agentgym train --agent train_my_own_agent:build_agent --tasks tasks.jsonl   # the same

The agent's own model is not asked in training, so any key will do.
"""

import argparse
import json
import os
from pathlib import Path
from typing import Literal

from langchain.agents import create_agent
from langchain.tools import tool
from langchain_openai import ChatOpenAI

import agentgym

CITIES = "Oslo Rome Lima Cairo Quito Hanoi".split()
City = Literal["Oslo", "Rome", "Lima", "Cairo", "Quito", "Hanoi"]


@tool
def get_weather(city: City) -> str:
    """Get the weather forecast for a city."""
    return f"It's always sunny in {city}!"


@tool
def get_time(city: City) -> str:
    """Tell what time it is in a city."""
    return f"It is noon in {city}."


@tool
def book_table(guests: int) -> str:
    """Book a table at the restaurant for a number of guests."""
    return f"A table for {guests} is booked."


TOOLS = [get_weather, get_time, book_table]


def build_agent():
    os.environ.setdefault("OPENAI_API_KEY", "not asked in training")
    model = ChatOpenAI(model="gpt-4o-mini")
    return create_agent(model, TOOLS, system_prompt="You are a travel assistant.")


def write_tasks(path):
    tasks = []
    for i, city in enumerate(CITIES):
        tasks += [
            (f"What is the weather like in {city}?", "get_weather", {"city": city}),
            (f"Will it rain in {city}?", "get_weather", {"city": city}),
            (f"What time is it in {city}?", "get_time", {"city": city}),
            (f"How late is it in {city}?", "get_time", {"city": city}),
            (f"A table for {i + 2}, please.", "book_table", {"guests": i + 2}),
        ]
    with path.open("w") as file:
        for said, name, arguments in tasks:
            line = {
                "id": said,
                "messages": [{"role": "user", "content": said}],
                "expected": [{"name": name, "arguments": arguments}],
            }
            print(json.dumps(line), file=file)


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--episodes", type=int, default=2_000)
    parser.add_argument("--policy", default="planner")
    options = parser.parse_args()
    write_tasks(Path("tasks.jsonl"))
    result = agentgym.train(
        build_agent,
        tasks="tasks.jsonl",
        policy=options.policy,
        episodes=options.episodes,
    )
    before, after = result.baseline, result.metrics
    print(f"{before.tool_reliability:.0%} -> {after.tool_reliability:.0%}")

    agent = result.to_langchain(tools=TOOLS)
    state = agent.invoke({"messages": [("user", "What time is it in Quito?")]})
    print(state["messages"][-1].text)


if __name__ == "__main__":
    main()

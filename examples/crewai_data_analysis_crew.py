"""A CrewAI crew that answers questions about data: trained as it is, and handed back.

pip install 'openagentgym[crewai]'
python examples/crewai_data_analysis_crew.py

With OPENAI_API_KEY set, the crew's own model is a real one; training does not ask it.
"""

import argparse
import json
import os
import statistics
from pathlib import Path
from typing import Literal

os.environ.setdefault("CREWAI_DISABLE_TELEMETRY", "true")
os.environ.setdefault("OPENAI_API_KEY", "not asked in training")

from crewai import Agent, Crew, Task
from crewai.tools import tool

import agentgym

SALES = {"north": [12, 30, 7], "south": [44, 2, 19], "west": [5, 5, 60]}
Region = Literal["north", "south", "west"]


@tool("total_sales")
def total_sales(region: Region) -> int:
    """Add up all sales of a region."""
    return sum(SALES[region])


@tool("average_sale")
def average_sale(region: Region) -> float:
    """The mean of the sales of a region."""
    return statistics.mean(SALES[region])


@tool("best_sale")
def best_sale(region: Region) -> int:
    """The largest single sale of a region."""
    return max(SALES[region])


ASKED = {
    "total_sales": ("How much did the {} sell in all?", "Total of the {}?"),
    "average_sale": ("What is the average sale in the {}?", "The {}'s mean, please."),
    "best_sale": ("What was the best sale of the {}?", "Top sale in the {}?"),
}
TOOLS = [total_sales, average_sale, best_sale]


def write_tasks(path):
    with path.open("w") as file:
        for name, texts in ASKED.items():
            for text in texts:
                for region in SALES:
                    said = text.format(region)
                    line = {
                        "id": said,
                        "messages": [{"role": "user", "content": said}],
                        "expected": [{"name": name, "arguments": {"region": region}}],
                    }
                    print(json.dumps(line), file=file)


def crew_of(analyst):
    task = Task(description="{question}", expected_output="a number", agent=analyst)
    return Crew(agents=[analyst], tasks=[task])


def build_crew():
    return crew_of(
        Agent(
            role="Analyst",
            goal="Answer questions about sales",
            backstory="You know the sales of all regions.",
            llm="gpt-4o-mini",
            tools=TOOLS,
        )
    )


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--episodes", type=int, default=2_000)
    options = parser.parse_args()
    write_tasks(Path("sales_tasks.jsonl"))
    result = agentgym.train(
        build_crew, tasks="sales_tasks.jsonl", episodes=options.episodes
    )
    before, after = result.baseline, result.metrics
    print(f"{before.tool_reliability:.0%} -> {after.tool_reliability:.0%}")

    crew = crew_of(result.to_crewai(tools=TOOLS, role="Analyst"))
    print(crew.kickoff(inputs={"question": "What was the best sale of the west?"}).raw)


if __name__ == "__main__":
    main()

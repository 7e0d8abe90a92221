"""An AutoGen team that reviews code: its reviewer is trained, and joins the team again.

pip install 'openagentgym[autogen]'
python examples/autogen_code_review_team.py

With OPENAI_API_KEY set, the reviewer's own model is a real one; it is not asked in
training, and writes the words afterwards.
"""

import argparse
import ast
import asyncio
import json
import os
from pathlib import Path
from typing import Literal

from autogen_agentchat.agents import AssistantAgent, UserProxyAgent
from autogen_agentchat.conditions import MaxMessageTermination
from autogen_agentchat.teams import RoundRobinGroupChat
from autogen_ext.models.openai import OpenAIChatCompletionClient

import agentgym

FILES = {
    "shop.py": "def buy(item):\n    return item  # TODO: pay\n",
    "mail.py": "import os, smtplib\n\n\ndef send():\n    pass\n",
    "math.py": "def add(a, b):\n    return a + b\n",
}
File = Literal["shop.py", "mail.py", "math.py"]


def list_functions(file: File) -> list[str]:
    """List the functions that a file defines."""
    nodes = ast.walk(ast.parse(FILES[file]))
    return [node.name for node in nodes if isinstance(node, ast.FunctionDef)]


def find_imports(file: File) -> list[str]:
    """Find out which modules a file imports."""
    nodes = [n for n in ast.walk(ast.parse(FILES[file])) if isinstance(n, ast.Import)]
    return [alias.name for node in nodes for alias in node.names]


def find_todos(file: File) -> list[str]:
    """Find the notes of unfinished work in a file."""
    return [line for line in FILES[file].splitlines() if "TODO" in line]


ASKED = {
    "list_functions": ("Which functions are in {}?", "What does {} define?"),
    "find_imports": ("What does {} import?", "Which modules does {} need?"),
    "find_todos": ("What is left to do in {}?", "Is anything unfinished in {}?"),
}


def write_tasks(path):
    with path.open("w") as file:
        for tool, texts in ASKED.items():
            for text in texts:
                for name in FILES:
                    said = text.format(name)
                    line = {
                        "id": said,
                        "messages": [{"role": "user", "content": said}],
                        "expected": [{"name": tool, "arguments": {"file": name}}],
                    }
                    print(json.dumps(line), file=file)


def reviewer():
    key = os.environ.get("OPENAI_API_KEY", "not asked in training")
    client = OpenAIChatCompletionClient(model="gpt-4o-mini", api_key=key)
    tools = [list_functions, find_imports, find_todos]
    return AssistantAgent("reviewer", client, tools=tools)


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--episodes", type=int, default=2_000)
    options = parser.parse_args()
    write_tasks(Path("review_tasks.jsonl"))
    result = agentgym.train(
        reviewer, tasks="review_tasks.jsonl", episodes=options.episodes
    )
    before, after = result.baseline, result.metrics
    print(f"{before.tool_reliability:.0%} -> {after.tool_reliability:.0%}")

    trained = result.to_autogen(
        tools=[list_functions, find_imports, find_todos], name="reviewer"
    )
    author = UserProxyAgent("author", input_func=lambda prompt: "Thank you.")
    team = RoundRobinGroupChat(
        [trained, author], termination_condition=MaxMessageTermination(3)
    )
    for message in asyncio.run(team.run(task="What does mail.py import?")).messages:
        print(f"{message.source}: {message.to_text()}")


if __name__ == "__main__":
    main()

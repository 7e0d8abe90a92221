"""Your own LangChain agent, trained with its own tools and a file of tasks.

pip install 'openagentgym[langchain]'
python examples/train_my_own_agent.py
python examples/train_my_own_agent.py --policy llm        # needs openagentgym[llm]

agentgym train --agent train_my_own_agent:build_agent --tasks tasks.jsonl   # the same

The agent is one as LangChain's documentation shows; nothing of AgentGym is in it. Its
tools are those of an old system: their names and descriptions say little, so that a
model which only reads them has to guess. Its own model is not asked in training, so any
key will do.
"""

import argparse
import json
import os
from pathlib import Path
from typing import Annotated

from langchain.agents import create_agent
from langchain.tools import tool
from langchain_openai import ChatOpenAI
from pydantic import Field

Item = Annotated[str, Field(pattern=r"^[A-Z]{3}-[0-9]{3}$")]


@tool
def op_11(item: Item) -> str:
    """Operation 11 on an item."""
    return f"{item}: 14 pieces"


@tool
def op_12(item: Item) -> str:
    """Operation 12 on an item."""
    return f"{item}: one piece is set aside"


@tool
def op_21(item: Item) -> str:
    """Operation 21 on an item."""
    return f"{item}: on its way"


@tool
def op_22(item: Item) -> str:
    """Operation 22 on an item."""
    return f"{item}: taken back"


@tool
def op_30(item: Item) -> str:
    """Operation 30 on an item."""
    return f"{item}: marked as broken"


TOOLS = [op_11, op_12, op_21, op_22, op_30]


def build_agent():
    os.environ.setdefault("OPENAI_API_KEY", "not asked in training")
    model = ChatOpenAI(model="gpt-4o-mini")
    return create_agent(model, TOOLS, system_prompt="You work in a warehouse.")


# Of each tool's twelve wordings six are trained on, two are looked at on the way, and
# four are held out.
SPLITS = ["train"] * 6 + ["validation"] * 2 + ["heldout"] * 4
SAID = {
    "op_11": """How many of {} do we have in stock?
What is the stock of {}?
Count the pieces of {} on the shelf.
How much of {} is left in stock?
Tell me the quantity of {} in the warehouse.
Do we still have {} in stock?
How many pieces of {} are there?
Give me the stock level of {}.
What quantity of {} is on the shelf?
How many {} are left?
Is {} still in stock?
What is the number of pieces of {} we have?""",
    "op_12": """Please reserve {} for a customer.
Hold {} for Mrs Miller.
Set {} aside for later, somebody wants it.
Keep {} reserved until Friday.
A customer wants to have {} reserved.
Put a reservation on {}.
Reserve one {} for me, please.
Hold back {} for a customer.
Please keep {} aside for a customer.
Can you reserve {}?
Make a reservation for {}.
Hold {} until tomorrow, it is reserved.""",
    "op_21": """Ship {} to the customer.
Send {} out today by parcel.
{} must be delivered, please dispatch it.
Get {} on its way to the customer.
Hand {} over to the carrier.
Dispatch {} by express delivery.
Please ship {} now.
Send the parcel with {} off.
Deliver {} to the customer today.
Please dispatch {}.
Ship {} by express.
Give {} to the carrier for delivery.""",
    "op_22": """A customer brought {} back, take the return.
{} was returned to us.
Please accept the return of {}.
The customer does not want {} any more and returns it.
Book {} as returned.
{} has come back from the customer.
We got {} back as a return.
Take {} back, the customer returned it.
The return of {} has arrived.
Somebody returned {}.
A customer wants to return {}.
Accept {} back from the customer.""",
    "op_30": """{} is broken.
Someone dropped {} and it is damaged.
Report {} as damaged goods.
{} has a crack, it cannot be sold.
The box of {} got wet and it is ruined.
Write {} off, it is defective.
{} is damaged, please note it.
We found {} broken on the floor.
{} is defective and cannot be sold.
{} fell down and broke.
Mark {} as damaged.
The glass of {} is cracked and broken.""",
}


def write_tasks(path):
    with path.open("w") as file:
        for name, texts in SAID.items():
            for i, text in enumerate(texts.splitlines()):
                # Says nothing of the tool.
                item = f"{'ABCDEFGHIJKL'[i]}QX-{100 + 7 * i}"
                line = {
                    "id": f"{name}-{i}",
                    "messages": [{"role": "user", "content": text.format(item)}],
                    "expected": [{"name": name, "arguments": {"item": item}}],
                    "split": SPLITS[i],
                }
                print(json.dumps(line), file=file)


def reliability(metrics):
    interval = metrics.tool_reliability_interval
    return f"{metrics.tool_reliability:.0%} ({interval.low:.0%} to {interval.high:.0%})"


def main():
    import agentgym

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
    before, after = reliability(result.baseline), reliability(result.metrics)
    print(f"{result.metrics.tasks} held-out tasks: {before} -> {after}")

    agent = result.to_langchain(tools=TOOLS)
    state = agent.invoke({"messages": [("user", "Please dispatch ABC-123.")]})
    print(state["messages"][-1].text)


if __name__ == "__main__":
    main()

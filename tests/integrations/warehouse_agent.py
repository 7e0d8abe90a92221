"""A LangChain agent as its documentation shows one; nothing of AgentGym in it.

Its tools are those of an old system: their names and descriptions say little, so that
a model which only reads them has to guess.
"""

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


def build_agent():
    return create_agent(
        ChatOpenAI(model="gpt-4o-mini"),
        [op_11, op_12, op_21, op_22, op_30],
        system_prompt="You work in a warehouse.",
    )

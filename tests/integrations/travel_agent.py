"""A LangChain agent as its documentation shows one; nothing of AgentGym in it."""

from typing import Annotated, Literal

from langchain.agents import create_agent
from langchain.tools import tool
from langchain_core.prompts import ChatPromptTemplate, MessagesPlaceholder
from langchain_openai import ChatOpenAI
from pydantic import Field

City = Literal["Oslo", "Rome", "Lima", "Cairo", "Quito", "Hanoi", "Accra", "Tunis"]
Currency = Literal["euros", "yen", "pesos"]


@tool
def get_weather(city: City) -> str:
    """Get the weather forecast for a city: rain, sun, temperature."""
    return f"It's always sunny in {city}!"


@tool
def get_time(city: City) -> str:
    """Tell what time the clock says in a city."""
    return f"It is noon in {city}."


@tool
def convert_currency(amount: float, currency: Currency) -> dict[str, object]:
    """Change an amount of money in dollars into another currency."""
    return {"amount": 2 * amount, "currency": currency}


@tool
def find_booking(
    number: Annotated[str, Field(pattern=r"^[A-Z]{2}-[0-9]{4}$")],
) -> dict[str, str]:
    """Look up a booking by its number."""
    if number.startswith("XX"):
        raise ValueError("there is no such booking")
    return {"number": number, "status": "confirmed"}


@tool
def send_message(text: str) -> str:
    """Pass on to the hotel what the guest wants to tell it."""
    return "sent"


TOOLS = [get_weather, get_time, convert_currency, find_booking, send_message]
PROMPT = "You are a travel assistant."


def build_agent():
    model = ChatOpenAI(model="gpt-4o-mini")
    return create_agent(model, TOOLS, system_prompt=PROMPT)


def build_executor():
    from langchain_classic.agents import AgentExecutor, create_tool_calling_agent

    prompt = ChatPromptTemplate.from_messages(
        [
            ("system", PROMPT),
            ("human", "{input}"),
            MessagesPlaceholder("agent_scratchpad"),
        ]
    )
    agent = create_tool_calling_agent(ChatOpenAI(model="gpt-4o-mini"), TOOLS, prompt)
    return AgentExecutor(agent=agent, tools=TOOLS)

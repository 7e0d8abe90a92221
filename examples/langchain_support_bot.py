"""A trained support agent as a LangChain agent that writes into a shop's database.

pip install 'openagentgym[langchain]'
python examples/langchain_support_bot.py

With OPENAI_API_KEY or ANTHROPIC_API_KEY set (and langchain-openai or
langchain-anthropic installed), that model writes the words.
"""

import argparse
import os
from functools import partial

from langchain.chat_models import init_chat_model

from agentgym import ScenarioRegistry, Trainer


def language_model():
    if os.environ.get("OPENAI_API_KEY"):
        return init_chat_model("openai:gpt-4o-mini")
    if os.environ.get("ANTHROPIC_API_KEY"):
        return init_chat_model("anthropic:claude-3-5-haiku-latest")
    return None


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--episodes", type=int, default=8_000)
    options = parser.parse_args()
    result = Trainer().train("customer_support", episodes=options.episodes)
    print(f"tool reliability: {result.metrics.tool_reliability:.0%}")

    # A shop to work in: the world of a task that training never saw.
    scenario = ScenarioRegistry.load("customer_support")
    shop = scenario.create_environment()
    shop.reset_task(scenario.tasks("heldout", seed=7, count=1)[0])
    tools = {tool.name: partial(tool.function, shop.world) for tool in shop.tool_list}

    agent = result.to_langchain(tools=tools, llm=language_model())
    state = agent.invoke({"messages": shop.messages[1:]})
    for message in state["messages"]:
        message.pretty_print()
    shop.close()


if __name__ == "__main__":
    main()

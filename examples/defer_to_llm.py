"""A trained planner decides where it is sure, and a language model where it is not.

pip install 'openagentgym[langchain]'
python examples/defer_to_llm.py

With OPENAI_API_KEY set the language model is OpenAI's. Without, a model that says the
same thing each time stands in for it, so that the counts can be seen.
"""

import argparse
import os
from functools import partial

from langchain.agents import create_agent
from langchain.chat_models import init_chat_model
from langchain_core.language_models import GenericFakeChatModel
from langchain_core.messages import AIMessage
from langchain_core.tools import StructuredTool

from agentgym import ScenarioRegistry, TrainedAgent, Trainer
from agentgym.integrations.langchain import AgentGymMiddleware


class StandIn(GenericFakeChatModel):
    def bind_tools(self, tools, **options):
        return self


def language_model():
    if os.environ.get("OPENAI_API_KEY"):
        return init_chat_model("openai:gpt-4o-mini")
    return StandIn(messages=iter(lambda: AIMessage("We are looking into it."), None))


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--episodes", type=int, default=8_000)
    options = parser.parse_args()
    result = Trainer().train("customer_support", episodes=options.episodes)
    trained = TrainedAgent.load(result.model)

    # One middleware in an agent that stays yours.
    middleware = AgentGymMiddleware(trained, defer_below=0.8)
    scenario = ScenarioRegistry.load("customer_support")
    for task in scenario.tasks("heldout", seed=7, count=10):
        shop = scenario.create_environment()
        shop.reset_task(task)
        tools = [
            StructuredTool(
                name=tool.name,
                description=tool.description,
                args_schema=dict(tool.parameters),
                func=partial(tool.function, shop.world).__call__,
                handle_tool_error=True,
            )
            for tool in shop.tool_list
        ]
        agent = create_agent(language_model(), tools, middleware=[middleware])
        agent.invoke({"messages": shop.messages[1:]})
        shop.close()
    counted = middleware.savings
    print(f"decided alone: {counted.decided}, put into words: {counted.worded},")
    print(f"left to the language model: {counted.deferred}")
    print(f"tokens that it was spared: {counted.tokens_saved:,}")


if __name__ == "__main__":
    main()

"""Train your own agent without changing it: a tool loop with OpenAI's client.

python examples/tool_loop_agent.py

agentgym train customer_support --agent tool_loop_agent:agent    # in its folder
"""

import argparse
import json

from openai import OpenAI

from agentgym import Trainer

# One for all episodes: making one takes longer than a decision.
shared = OpenAI(base_url="http://127.0.0.1", api_key="none", max_retries=2)


def agent(task, base_url, api_key):
    client = shared.with_options(base_url=base_url, api_key=api_key)
    messages = list(task.messages)
    while True:
        answer = client.chat.completions.create(
            model="any", messages=messages, tools=task.tools
        )
        message = answer.choices[0].message
        messages.append(message.model_dump(exclude_none=True))
        for call in message.tool_calls or ():
            arguments = json.loads(call.function.arguments)
            content = task.call_tool(call.function.name, arguments)
            messages.append(
                {"role": "tool", "tool_call_id": call.id, "content": content}
            )
        if not message.tool_calls:
            reply = task.reply(message.content)
            if reply is None:
                return
            messages.append({"role": "user", "content": reply})


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--episodes", type=int, default=4_000)
    options = parser.parse_args()
    result = Trainer().train(
        "customer_support",
        agent="tool_loop_agent:agent",
        episodes=options.episodes,
        eval_tasks=50,
        heldout_tasks=100,
    )
    before, after = result.baseline, result.metrics
    print(f"{before.tool_reliability:.0%} -> {after.tool_reliability:.0%}")


if __name__ == "__main__":
    main()

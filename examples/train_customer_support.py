"""Trains a support agent, then lets it serve a customer with live tools.

    python examples/train_customer_support.py

`--episodes 500` shows the same sooner, with an agent that has learned little.
"""

import argparse
from dataclasses import replace
from functools import partial

from agentgym import ScenarioRegistry, TrainedAgent, Trainer, TrainingConfig

parser = argparse.ArgumentParser(description=__doc__)
parser.add_argument("--episodes", type=int, default=10_000)
parser.add_argument("--seed", type=int, default=0)
options = parser.parse_args()

config = TrainingConfig(
    scenario="customer_support", episodes=options.episodes, seed=options.seed
)
result = Trainer(config).train()

print(f"\nmodel {result.model}, saved in {result.trained_model_path}")
for name in ("tool_reliability", "task_success"):
    before, after = getattr(result.baseline, name), getattr(result.metrics, name)
    interval = getattr(result.metrics, f"{name}_interval")
    print(
        f"{name}: {before:.1%} -> {after:.1%}"
        f" (95% interval {interval.low:.1%} to {interval.high:.1%})"
    )

# A customer of the held-out split, who opens a shop in which the tools really work.
scenario = ScenarioRegistry.load("customer_support")
task = scenario.tasks("heldout", seed=12345, count=1)[0]
environment = scenario.create_environment([task])
environment.reset_task(task)
tools = [
    replace(tool, function=partial(tool.function, environment.world), takes_world=False)
    for tool in environment.tool_list
]
run = TrainedAgent.load(result.model).run(environment.messages, tools=tools)

print()
for message in run.messages:
    for call in message.get("tool_calls") or ():
        print(f"call: {call['function']['name']}({call['function']['arguments']})")
    if message.get("content"):
        print(f"{message['role']}: {message['content']}")
print(
    f"\n{run.status}; the least sure decision had a confidence of {run.confidence:.0%}"
)

"""The policy llm against TRL's GRPOTrainer: same model, tasks and reward, one run.

    pip install -e '.[trl]' -c constraints.txt
    python benchmarks/llm_vs_trl.py [--quick] [--json]

TRL learns from the first decision of customer_support tasks: the reward is 1 if it is
right, else 0. It gets the same prompt, LoRA of that rank on all layers, groups of 8,
and samples free-form; what it writes is read by the same parser. Ours plays whole
episodes of such tasks, in groups of up to 32.

Rows: CPU seconds for a task group, and the reliability on validation tasks after equal
CPU time. Leaves out: GPUs, vLLM, and anything that TRL does better at scale.
"""

from __future__ import annotations

import sys
import tempfile
import time
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).parent))

from _common import parser, report, say, share, table

GROUP = 8


def ours(scenario: Any, updates: int, batch: int) -> tuple[Any, float]:
    """Trains for some updates; returns the policy and CPU seconds for a group."""
    from agentgym.core.rewards import assign_advantages
    from agentgym.policies.llm.policy import LlmPolicy
    from agentgym.training.rollout import Rollout
    from agentgym.training.sampler import Sampler

    policy = LlmPolicy()
    sampler = Sampler(scenario, seed=0)
    rollout = Rollout(scenario, max_steps=10)
    started = time.process_time()
    for _ in range(updates):
        plans = sampler.plan(batch, 32, exploration=0.1)
        groups = rollout.groups(policy, plans)
        sampler.note(plans, groups)
        assign_advantages(groups, "state", 0.95)
        policy.learn(
            groups,
            learning_rate=policy.training_defaults["learning_rate"],
            entropy=0.02,
            trainable=frozenset({"tool_selection", "parameter_selection"}),
        )
    return policy, (time.process_time() - started) / (updates * batch)


def trl(
    scenario: Any, policy: Any, seconds: float, folder: str
) -> tuple[Any, float, int]:
    """Lets GRPOTrainer train for as many CPU seconds; the same figures, and groups."""
    from datasets import Dataset
    from peft import LoraConfig
    from transformers import AutoModelForCausalLM, TrainerCallback
    from trl import GRPOConfig, GRPOTrainer

    from agentgym.policies.llm.models import EMBEDDED, find_model
    from agentgym.policies.llm.parse import parse_call

    environment = scenario.create_environment()
    tasks = scenario.tasks("train", 10_000, 512)
    prompts = []
    for i, task in enumerate(tasks):
        text = policy.format.render(task.messages, environment.tool_list)
        prompts.append({"prompt": text, "number": i})

    def reward(completions: list[str], number: list[int], **_: Any) -> list[float]:
        rewards = []
        for text, i in zip(completions, number, strict=True):
            environment.reset_task(tasks[i])
            call = parse_call(text)
            message: dict[str, Any] = {"role": "assistant", "content": text}
            if call is not None:
                function = {"name": call[0], "arguments": call[1]}
                message["tool_calls"] = [
                    {"id": "c0", "type": "function", "function": function}
                ]
            rewards.append(float(environment.act(message).verdict.correct))
        return rewards

    class Limit(TrainerCallback):  # type: ignore[misc]
        """Stops when the time is up."""

        steps = 0

        def on_step_end(self, args: Any, state: Any, control: Any, **_: Any) -> None:
            self.steps += 1
            control.should_training_stop = time.process_time() - started > seconds

    limit = Limit()
    model = AutoModelForCausalLM.from_pretrained(find_model(EMBEDDED))
    trainer = GRPOTrainer(
        model=model,
        reward_funcs=reward,
        args=GRPOConfig(
            output_dir=folder,
            # Two groups a step, half a group at a time: a whole one takes over 20 GB.
            per_device_train_batch_size=GROUP // 2,
            gradient_accumulation_steps=4,
            num_generations=GROUP,
            max_completion_length=40,
            learning_rate=1e-4,
            max_steps=10_000,
            beta=0.0,
            report_to=[],
            use_cpu=True,
            bf16=False,
            save_strategy="no",
            gradient_checkpointing=False,
            disable_tqdm=True,
        ),
        train_dataset=Dataset.from_list(prompts),
        processing_class=policy.tokenizer,
        peft_config=LoraConfig(r=16, lora_alpha=32, target_modules="all-linear"),
        callbacks=[limit],
    )
    started = time.process_time()
    trainer.train()
    groups = 2 * limit.steps
    spent = time.process_time() - started
    return trainer.model.merge_and_unload(), spent / max(1, groups), groups


def main() -> None:
    """Measures and prints."""
    options = parser(__doc__).parse_args()
    import torch

    from agentgym.policies.llm.policy import LlmPolicy
    from agentgym.scenarios.registry import ScenarioRegistry
    from agentgym.training.evaluation import evaluate
    from agentgym.training.rollout import Rollout

    torch.set_num_threads(1)
    scenario = ScenarioRegistry.load("customer_support")
    updates, batch = (1, 4) if options.quick else (10, 16)
    count = 10 if options.quick else 60
    rollout = Rollout(scenario, max_steps=10)
    tasks = scenario.tasks("validation", 0, count)
    mine, cost = ours(scenario, updates, batch)
    say(f"ours: {cost:.2f} CPU-s a group")
    judged = evaluate(mine.free_form(), rollout, tasks)
    constrained = evaluate(mine, rollout, tasks)
    other = LlmPolicy()
    with tempfile.TemporaryDirectory() as folder:
        given = cost * updates * batch
        model, theirs, groups = trl(scenario, other, given, folder)
    say(f"TRL: {theirs:.2f} CPU-s a group")
    other.engine.model = model.eval()
    peer = evaluate(other.free_form(), rollout, tasks)
    rows = [
        _row("ours, constrained", cost, updates * batch, constrained),
        _row("ours, free-form", cost, updates * batch, judged),
        _row("TRL GRPOTrainer, free-form", theirs, groups, peer),
    ]
    lines = [
        (
            row["contestant"],
            f"{row['cpu_seconds_per_group']:.2f}",
            str(row["groups"]),
            share(row["tool_reliability"], row["interval"]),
        )
        for row in rows
    ]
    report(
        options,
        name="llm_vs_trl",
        rows=rows,
        ratio=theirs / cost,
        peer="TRL GRPOTrainer, CPU seconds for a task group",
        text=table(("", "CPU-s a group", "groups", "reliability"), lines),
    )


def _row(name: str, cost: float, groups: int, evaluation: Any) -> dict[str, Any]:
    interval = evaluation.tool_reliability_interval()
    return {
        "contestant": name,
        "cpu_seconds_per_group": cost,
        "groups": groups,
        "tool_reliability": evaluation.tool_reliability,
        "interval": [interval.low, interval.high],
    }


if __name__ == "__main__":
    main()

"""The engine `trl`: TRL's GRPOTrainer trains the language model that agents ask.

    agentgym train SCENARIO --agent module:function --engine trl

It differs from the engine `local` in what is learned. There, the policy chooses among
valid calls. Here, the model writes freely, token by token, and every token it wrote is
pushed by the advantage of the whole episode among its siblings. So it must already
write some calls before training, or there is nothing to prefer.

What is trained are the same LoRA matrices as those of the policy `llm`; so the result
is such a policy, measured and published as any other: constrained to valid calls
(`tool_reliability`) and writing freely (`free_form_reliability`).

Where there is a GPU and vLLM is installed, vLLM samples.

What it leaves out: resuming runs, evaluations in between, branching siblings,
credit for single steps, several processes, and training of the tool or of the
parameters alone.
"""

from __future__ import annotations

import importlib.util
import os
import tempfile
import time
from collections.abc import Iterator, Sequence
from contextlib import closing
from typing import Any

from agentgym.core.config import TrainingConfig
from agentgym.core.events import IterationDone, Warned
from agentgym.core.rewards import Signal
from agentgym.core.task import Task
from agentgym.core.tools import Tool, ToolCall
from agentgym.core.trajectory import Group, GroupPlan, Trajectory
from agentgym.engines.base import Context, Engine, Job
from agentgym.errors import ConfigError, MissingExtraError
from agentgym.policies.base import UpdateStats
from agentgym.policies.registry import LANGUAGE_MODEL, policy_class
from agentgym.training.loop import LoopResult, Session
from agentgym.training.rollout import Rollout
from agentgym.training.sampler import Sampler
from agentgym.training.summary import training_values

_NEEDS = ("torch", "transformers", "trl", "peft", "datasets", "starlette", "uvicorn")
_UNREAD = (
    "components",
    "credit",
    "discount_factor",
    "entropy",
    "entropy_decay",
    "eval_every",
    "exploration",
    "exploration_decay",
    "learning_rate_decay",
    "max_mistakes",
    "target_reliability",
)
"""Settings of AgentGym's own loop."""


class TrlEngine(Engine):
    """Trains in this process, with TRL."""

    name = "trl"
    training_defaults = {
        "policy": LANGUAGE_MODEL,
        "episodes": 2_000,
        "group_size": 8,
        "batch_size": 4,
        "learning_rate": 5e-5,
    }
    resumable = False
    adjustable = ()

    def check(self, config: TrainingConfig) -> None:
        """See `Engine.check`."""
        if not policy_class(config.policy).language_model:
            raise ConfigError(
                f"Engine 'trl' trains language models only, not '{config.policy}'. "
                f"Use --policy {LANGUAGE_MODEL}, or omit --policy."
            )
        if config.agent_count != 1:
            raise ConfigError(
                "Engine 'trl' trains the model of one agent. Set exactly one of agent, "
                "agent_command and framework."
            )
        for name in _UNREAD:
            if name in config.model_fields_set:
                raise ConfigError(
                    f"Engine 'trl' doesn't use '{name}': TRL compares whole episodes. "
                    f"Omit '{name}'."
                )
        if not all(map(importlib.util.find_spec, _NEEDS)):
            raise MissingExtraError("Engine 'trl'", "api,trl")

    def train(self, job: Job, context: Context) -> LoopResult:
        """See `Engine.train`."""
        with closing(job.make_rollout(context.warn)) as rollout:
            return _train(job, rollout, context)


def _train(job: Job, rollout: Rollout, context: Context) -> LoopResult:
    """Measures, lets TRL train, and measures again."""
    policy = job.make_policy()
    session = Session(job.config, rollout, policy, context.events, context.control)

    def measure() -> None:
        session.progress.best_decisions = list(session.validate().decisions)

    measure()
    adapter = _with_trl(job, session, context)
    policy.load_state({**policy.weights(), "lora": adapter})
    measure()
    return session.finish()


def _with_trl(job: Job, session: Session, context: Context) -> dict[str, Any]:
    """What GRPOTrainer makes of the policy's LoRA matrices."""
    os.environ.setdefault("TRL_EXPERIMENTAL_SILENCE", "1")
    import torch
    from datasets import Dataset
    from peft import LoraConfig, get_peft_model
    from transformers import PrinterCallback
    from trl import GRPOConfig, GRPOTrainer

    from agentgym.agents.gateway import Gateway
    from agentgym.agents.manager import AgentManager
    from agentgym.agents.rollout import manager_maker
    from agentgym.agents.trl import ModelBackend, rollout_func
    from agentgym.episodes.episode import EnvironmentPool
    from agentgym.policies.llm.free_form import MAX_NEW_TOKENS
    from agentgym.policies.llm.lora import lora_layers
    from agentgym.policies.llm.models import EMBEDDED, find_model, load_model
    from agentgym.policies.llm.policy import LlmPolicy

    policy, progress, config = session.policy, session.progress, job.config
    assert isinstance(policy, LlmPolicy)
    # The rest is too small for another update, but the first one always runs.
    count = max(1, config.episodes // config.group_size)
    size = min(config.batch_size, count)
    tasks = _Tasks(Sampler(job.scenario, config.seed, config.revisit), config, size)
    model, tokenizer = load_model(find_model(config.model or EMBEDDED))
    layers = dict(lora_layers(policy.engine.model))
    rank = next(iter(layers.values())).down.shape[0]
    scale = next(iter(layers.values())).scale
    torch.manual_seed(config.seed)
    adapted = get_peft_model(
        model, LoraConfig(r=rank, lora_alpha=scale * rank, target_modules=list(layers))
    )
    format_ = policy.format

    def prompt(chat: dict[str, Any]) -> list[int]:
        tools = [Tool.from_openai(tool) for tool in chat.get("tools") or ()]
        return format_.prompt(chat["messages"], tools)[0]

    groups: list[Group] = []
    problems: list[Exception] = []

    def judge(trajectories: list[Trajectory]) -> None:
        for problem in problems:
            context.warn(f"The gateway failed on a request ({problem!r}).")
        problems.clear()
        for trajectory in trajectories:
            trajectory.baseline_tokens = progress.baseline_tokens
            session.rollout.reward(trajectory)
        groups[:] = _grouped(trajectories, config.group_size)
        tasks.note(groups)
        progress.count_broken(trajectories, config.failure_budget)

    gpu = torch.cuda.is_available()
    with (
        tempfile.TemporaryDirectory(prefix="agentgym-trl-") as folder,
        closing(
            EnvironmentPool(
                job.scenario,
                max_steps=config.max_steps,
                tool_timeout=config.tool_timeout,
            )
        ) as environments,
        Gateway(
            ModelBackend(MAX_NEW_TOKENS, prompt, _parse), log=problems.append
        ) as gateway,
    ):
        make = manager_maker(config, job.scenario, job.agents, context.warn)
        manager = make(gateway)
        assert isinstance(manager, AgentManager)
        manager.environments = environments
        trainer = GRPOTrainer(
            model=adapted,
            reward_funcs=_reward,
            args=GRPOConfig(
                output_dir=folder,
                seed=config.seed,
                learning_rate=config.learning_rate,
                num_generations=config.group_size,
                per_device_train_batch_size=config.group_size,
                gradient_accumulation_steps=size,
                max_steps=count // size,
                shuffle_dataset=False,
                max_completion_length=MAX_NEW_TOKENS,
                use_cpu=not gpu,
                bf16=gpu and torch.cuda.is_bf16_supported(),
                gradient_checkpointing=gpu,
                use_vllm=gpu and importlib.util.find_spec("vllm") is not None,
                logging_steps=1,
                report_to=[],
                save_strategy="no",
                disable_tqdm=True,
            ),
            # Numbers stand for tasks: the messages of different ones may be equal.
            train_dataset=Dataset.from_dict(
                {"prompt": [f"{i}" for i in range(count - count % size)]}
            ),
            processing_class=tokenizer,
            rollout_func=rollout_func(gateway, manager.play, tasks.of, judge),
            callbacks=[_callback(groups, session)],
        )
        # Standard output is for results.
        trainer.remove_callback(PrinterCallback)
        trainer.train()
    return dict(_matrices(adapted))


class _Tasks:
    """The tasks behind the numbers that TRL takes for prompts, planned when due."""

    def __init__(self, sampler: Sampler, config: TrainingConfig, size: int) -> None:
        self._sampler = sampler
        self._config = config
        self._size = size
        self._update = -1
        self._plans: list[GroupPlan] = []

    def of(self, prompt: str) -> Task:
        """The task of a prompt; those of the next update are planned with its first."""
        update, position = divmod(int(prompt), self._size)
        if update != self._update:
            self._update = update
            self._plans = self._sampler.plan(self._size, self._config.group_size)
        return self._plans[position % len(self._plans)].task

    def note(self, groups: Sequence[Group]) -> None:
        """Records how the groups of an update went."""
        self._sampler.note(self._plans[: len(groups)], groups[: len(self._plans)])


def _parse(text: str) -> tuple[str, list[ToolCall]]:
    """What the model says, and the call that it makes; read as `FreeForm` reads it."""
    from agentgym.policies.llm.parse import parse_call

    found = parse_call(text.strip())
    return (text, []) if found is None else ("", [ToolCall(*found, "call_0")])


def _reward(
    completions: list[Any], reward: list[float | None], **fields: Any
) -> list[float | None]:
    """The scenario's; None for episodes that crashed, which TRL then omits."""
    return reward


def _grouped(trajectories: Sequence[Trajectory], size: int) -> list[Group]:
    return [
        Group(trajectories[i].task, list(trajectories[i : i + size]))
        for i in range(0, len(trajectories), size)
    ]


def _callback(groups: Sequence[Group], session: Session) -> Any:
    """Reports each update, and handles commands between them."""
    from transformers import TrainerCallback

    progress, events, orders = session.progress, session.events, session.control
    clock = time.perf_counter()

    class Telling(TrainerCallback):
        def on_log(self, args: Any, state: Any, control: Any, **fields: Any) -> None:
            nonlocal clock
            logs = fields["logs"]
            if "loss" not in logs:  # The summary at the end.
                return
            count = sum(len(group.trajectories) for group in groups)
            progress.iteration = state.global_step
            progress.episodes += count
            alike = round(logs.get("frac_reward_zero_std", 0.0) * len(groups))
            stats = UpdateStats(
                loss=logs["loss"],
                entropy=logs.get("entropy", 0.0),
                gradient_norm=logs.get("grad_norm", 0.0),
            )
            unrewarded = sum(
                t.mean_reward is None for g in groups for t in g.trajectories
            )
            values = training_values(
                groups, Signal(len(groups), alike, unrewarded), stats
            )
            now = time.perf_counter()
            values["learning_rate"] = logs["learning_rate"]
            values["episodes_per_second"] = count / (now - clock)
            clock = now
            events.emit(IterationDone(progress.iteration, progress.episodes, values))
            for complaint in orders.poll():
                events.emit(Warned(complaint))
            if changes := orders.take_adjustments():
                names = ", ".join(changes)
                text = f"Engine 'trl' can't change {names} during training."
                events.emit(Warned(text))
            session.handle_commands()
            control.should_training_stop |= orders.stop_reason is not None

    return Telling()


def _matrices(model: Any) -> Iterator[tuple[str, Any]]:
    """PEFT's matrices under the names that the policy llm gives them."""
    for name, module in model.named_modules():
        if hasattr(module, "lora_A") and hasattr(module, "lora_B"):
            plain = name.removeprefix("base_model.model.")
            for part, inner in (("down", module.lora_A), ("up", module.lora_B)):
                weight = inner["default"].weight.detach().float().cpu().numpy()
                yield f"{plain}.{part}", weight.copy()

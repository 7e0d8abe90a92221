"""Agents instead of TRL's own generation.

    backend = ModelBackend()
    with Gateway(backend) as gateway:
        manager = CallableAgentManager(agent, gateway)
        trainer = GRPOTrainer(
            model, reward_funcs=rewards, rollout_func=manager.as_rollout_func(), ...
        )
        trainer.train()

Each prompt is given to agents; the model that is being trained answers them. TRL
trains on exactly the sampled tokens: if an agent's next request doesn't start with the
tokens of the one before, the conversation is cut there.
"""

from __future__ import annotations

import asyncio
import json
import re
import threading
from collections.abc import Callable, Sequence
from typing import Any

from agentgym.agents.backends import Backend, Question
from agentgym.agents.gateway import Gateway
from agentgym.core.task import Message, Task
from agentgym.core.tools import ToolCall
from agentgym.core.trajectory import EpisodePlan, SampledTokens, Trajectory
from agentgym.errors import UsageError
from agentgym.policies.base import Decision
from agentgym.serving.answers import Completion, FinishReason
from agentgym.serving.deciding import Answer
from agentgym.serving.errors import ApiError
from agentgym.serving.protocol import parse_chat
from agentgym.serving.tools import ToolCache

WritePrompt = Callable[[dict[str, Any]], list[int]]
"""(body of a chat completion) -> (the tokens with which it is put to the model)."""
ParseText = Callable[[str], tuple[str, list[ToolCall]]]
"""(what the model wrote) -> (what it says, the calls that it makes)."""

_CALL = re.compile(r"<tool_call>\s*(\{.*?\})\s*</tool_call>", re.DOTALL)


class ModelBackend(Backend):
    """The model that TRL trains, in this process; it answers one request at a time.

    Args:
        max_tokens: Of an answer, where the request does not say less.
        prompt: Writes a request as the model reads it; by default its chat template.
        parse: Finds the calls in what the model wrote.
    """

    def __init__(
        self,
        max_tokens: int = 256,
        prompt: WritePrompt | None = None,
        parse: ParseText | None = None,
    ) -> None:
        self._max_tokens = max_tokens
        self._prompt = prompt
        self._parse = parse or parse_calls_in_text
        self._shelf = ToolCache()
        self._lock = threading.Lock()
        self._model: Any = None
        self._tokenizer: Any = None
        self._temperature = 1.0
        self._vllm: Any = None

    def use(
        self,
        model: Any,
        tokenizer: Any,
        temperature: float = 1.0,
        vllm: Any = None,
    ) -> None:
        """Answers from this model from now on; from none, if it is None.

        Args:
            model: What is being trained.
            tokenizer: Its tokenizer.
            temperature: Of the draws.
            vllm: TRL's vLLM with the same weights, to sample from instead.
        """
        with self._lock:
            self._model, self._tokenizer = model, tokenizer
            self._temperature, self._vllm = temperature, vllm

    def prompt_ids(self, chat: dict[str, Any]) -> list[int]:
        """The tokens of a request as the model reads them."""
        if self._prompt is not None:
            return self._prompt(chat)
        encoded = self._tokenizer.apply_chat_template(
            chat["messages"],
            tools=chat.get("tools") or None,
            add_generation_prompt=True,
            tokenize=True,
            return_dict=True,
        )
        return [int(i) for i in encoded["input_ids"]]

    async def answer(self, question: Question) -> Answer:
        """See `Backend.answer`."""
        request = parse_chat(question.chat, self._shelf)
        limit = min(self._max_tokens, request.max_tokens or self._max_tokens)
        return await asyncio.to_thread(self._generate, question.chat, limit)

    def _generate(self, chat: dict[str, Any], limit: int) -> Answer:
        with self._lock:
            if self._model is None:
                raise ApiError(
                    503, "The model isn't sampling now.", kind="server_error"
                )
            prompt = self.prompt_ids(chat)
            ids, logprobs = self._sample(prompt, limit)
            text = self._tokenizer.decode(ids, skip_special_tokens=True)
        said, calls = self._parse(text)
        sizes = len(prompt), len(ids)
        message: Message = {"role": "assistant", "content": said or None}
        decision = Decision(
            message,
            "call" if calls else "finish",
            tuple(calls),
            logprob=sum(logprobs),
            prompt_tokens=sizes[0],
            completion_tokens=sizes[1],
            sampled=SampledTokens(tuple(prompt), tuple(ids), tuple(logprobs)),
        )
        reason: FinishReason = "tool_calls" if calls else "stop"
        if len(ids) >= limit:
            reason = "length"
        completion = Completion(
            str(chat.get("model")), said or None, tuple(calls), reason, *sizes
        )
        return Answer(decision, completion)

    def _sample(self, prompt: list[int], limit: int) -> tuple[list[int], list[float]]:
        if self._vllm is not None:
            _, ids, logprobs, _ = self._vllm.generate(
                prompts=[prompt], images=None, num_generations=1
            )
            return list(ids[0]), [float(token[0]) for token in logprobs[0]]
        model = self._model
        training = model.training
        model.eval()
        try:
            inputs = self._tokenizer.pad(
                {"input_ids": [prompt]}, return_tensors="pt"
            ).to(model.device)
            made = model.generate(
                **inputs,
                do_sample=True,
                temperature=self._temperature,
                top_k=0,
                top_p=1.0,
                max_new_tokens=limit,
                return_dict_in_generate=True,
                output_scores=True,
            )
            scores = model.compute_transition_scores(
                made.sequences, made.scores, normalize_logits=True
            )
        finally:
            model.train(training)
        ids = made.sequences[0, len(prompt) :].tolist()
        return ids, [float(value) for value in scores[0].tolist()]


def parse_calls_in_text(text: str) -> tuple[str, list[ToolCall]]:
    """Finds calls as most small models write them: JSON between `<tool_call>` marks."""
    calls = []
    for i, found in enumerate(_CALL.findall(text)):
        try:
            call = json.loads(found)
        except ValueError:
            continue
        arguments = call.get("arguments")
        if isinstance(call.get("name"), str) and isinstance(arguments, dict):
            calls.append(ToolCall(call["name"], arguments, f"call_{i}"))
    # Words stay as they are, spaces included: they will be read again as tokens.
    return (_CALL.sub("", text).strip() if calls else text), calls


def rollout_func(
    gateway: Gateway,
    play: Callable[[Sequence[EpisodePlan]], list[list[Trajectory]]],
    task_of: Callable[[Any], Task] | None = None,
    judge: Callable[[list[Trajectory]], None] = lambda trajectories: None,
) -> Callable[[list[Any], Any], dict[str, Any]]:
    """What `GRPOTrainer(rollout_func=...)` takes.

    Beside the tokens it gives reward functions `success`, `outcome` and `reward`, one
    for each episode: what the world, or the manager's `judge`, said. None means not
    judged.

    Args:
        gateway: Where the agents' endpoints are.
        play: Plays episodes with them; see `AgentManager.play`.
        task_of: The task that a prompt stands for; by default one that opens with it.
        judge: Rewards the episodes, where the manager does not.

    Raises:
        UsageError: The gateway's backend isn't a `ModelBackend`.
    """
    backend = gateway.backend
    if not isinstance(backend, ModelBackend):
        raise UsageError(
            "TRL trains the model that answers. Use a gateway with a ModelBackend."
        )

    def rollout(prompts: list[Any], trainer: Any) -> dict[str, Any]:
        model = trainer.accelerator.unwrap_model(trainer.model)
        backend.use(
            model,
            trainer.processing_class,
            trainer.temperature,
            trainer.vllm_generation if trainer.use_vllm else None,
        )
        step = trainer.state.global_step
        tasks = [
            task_of(prompt) if task_of else Task(f"{step}-{i}", _messages(prompt))
            for i, prompt in enumerate(prompts)
        ]
        try:
            played = play(
                [
                    EpisodePlan(task, step * 65_537 + i, number=i)
                    for i, task in enumerate(tasks)
                ]
            )
            judge([found[0] for found in played])
            rows = [
                _row(found[0], backend.prompt_ids({"messages": list(task.messages)}))
                for found, task in zip(played, tasks, strict=True)
            ]
        finally:
            backend.use(None, trainer.processing_class)
        return {name: [row[name] for row in rows] for name in rows[0]}

    return rollout


def tokens_of(trajectory: Trajectory) -> tuple[SampledTokens, list[int]] | None:
    """A trajectory as one sequence: its tokens, and which of them the model wrote.

    Tokens between two answers (what tools and users said) are 0 in the mask and have
    the log-probability 0. None if there are no tokens.
    """
    steps = [step.sampled for step in trajectory.steps if step.sampled is not None]
    if not steps:
        return None
    first = steps[0]
    written = list(first.completion)
    logprobs, mask = list(first.logprobs), [1] * len(written)
    for sampled in steps[1:]:
        so_far = (*first.prompt, *written)
        if sampled.prompt[: len(so_far)] != so_far:
            break
        between = sampled.prompt[len(so_far) :]
        written += [*between, *sampled.completion]
        logprobs += [*([0.0] * len(between)), *sampled.logprobs]
        mask += [*([0] * len(between)), *([1] * len(sampled.completion))]
    return SampledTokens(first.prompt, tuple(written), tuple(logprobs)), mask


def _row(trajectory: Trajectory, prompt: Sequence[int]) -> dict[str, Any]:
    found = None if trajectory.failure else tokens_of(trajectory)
    if found is None:
        # TRL wants something for every prompt; from this nothing is learned.
        found = SampledTokens(tuple(prompt), (prompt[-1],), (0.0,)), [0]
    tokens, mask = found
    return {
        "prompt_ids": list(tokens.prompt),
        "completion_ids": list(tokens.completion),
        "logprobs": list(tokens.logprobs),
        "env_mask": mask,
        "success": trajectory.success,
        "outcome": trajectory.outcome,
        "reward": trajectory.mean_reward,
    }


def _messages(prompt: Any) -> tuple[Message, ...]:
    if isinstance(prompt, str):
        return ({"role": "user", "content": prompt},)
    return tuple(dict(message) for message in prompt)

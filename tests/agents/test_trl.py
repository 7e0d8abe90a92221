"""TRL's GRPOTrainer with agents in the place of its own generation."""

from __future__ import annotations

import json
import urllib.request
from pathlib import Path
from typing import Any

import pytest

from agentgym.agents.callables import CallableAgentManager
from agentgym.agents.gateway import Gateway
from agentgym.agents.trl import ModelBackend, parse_calls_in_text, tokens_of
from agentgym.core.task import Task
from agentgym.core.trajectory import SampledTokens, Step, Trajectory
from agentgym.errors import UsageError

LETTERS = "abcdefgh "


def _trajectory(*steps: SampledTokens | None) -> Trajectory:
    made = [Step({}, sampled=sampled) for sampled in steps]
    return Trajectory(Task("t", ()), made)


def test_a_trajectory_as_one_sequence() -> None:
    first = SampledTokens((1, 2), (3, 4), (-0.1, -0.2))
    second = SampledTokens((1, 2, 3, 4, 5, 6), (7,), (-0.3,))
    other = SampledTokens((1, 9), (8,), (-0.4,))
    found = tokens_of(_trajectory(first, second))
    assert found is not None
    assert found[0].prompt == (1, 2) and found[0].completion == (3, 4, 5, 6, 7)
    assert found[0].logprobs == (-0.1, -0.2, 0.0, 0.0, -0.3)
    assert found[1] == [1, 1, 0, 0, 1]
    # Where the tokens do not go on, the sequence ends.
    cut = tokens_of(_trajectory(first, other, second))
    assert cut == (first, [1, 1])
    assert tokens_of(_trajectory(None)) is None


@pytest.mark.parametrize(
    ("text", "said", "calls"),
    [
        ("Hello", "Hello", []),
        (
            'Well. <tool_call>\n{"name": "f", "arguments": {"x": 1}}\n</tool_call>',
            "Well.",
            [("f", {"x": 1})],
        ),
        (" Hello ", " Hello ", []),
        ("<tool_call>{bad}</tool_call>", "<tool_call>{bad}</tool_call>", []),
        (
            '<tool_call>{"name": 3}</tool_call>',
            '<tool_call>{"name": 3}</tool_call>',
            [],
        ),
    ],
)
def test_calls_in_a_text(text: str, said: str, calls: Any) -> None:
    found = parse_calls_in_text(text)
    assert (found[0], [(c.name, c.arguments) for c in found[1]]) == (said, calls)


def test_only_a_model_can_be_trained(gateway: Gateway) -> None:
    manager = CallableAgentManager(lambda *a: None, gateway)
    with pytest.raises(UsageError, match="ModelBackend"):
        manager.as_rollout_func()


# With TRL --------------------------------------------------------------------------


def _tokenizer() -> Any:
    from tokenizers import Regex, Tokenizer, decoders, models, pre_tokenizers
    from transformers import PreTrainedTokenizerFast

    names = ["<pad>", "<end>", "<system>", "<user>", "<assistant>", "<unk>"]
    vocabulary = {text: i for i, text in enumerate([*names, *LETTERS])}
    inner = Tokenizer(models.WordLevel(vocabulary, unk_token="<unk>"))
    inner.pre_tokenizer = pre_tokenizers.Split(Regex("."), "isolated")
    inner.decoder = decoders.Fuse()
    made = PreTrainedTokenizerFast(
        tokenizer_object=inner,
        pad_token="<pad>",
        eos_token="<end>",
        unk_token="<unk>",
        additional_special_tokens=names[2:5],
    )
    made.chat_template = (
        "{% for m in messages %}<{{ m['role'] }}>{{ m['content'] or '' }}<end>"
        "{% endfor %}{% if add_generation_prompt %}<assistant>{% endif %}"
    )
    return made


class Counting(CallableAgentManager):
    """Likes the letter a, and keeps what was played."""

    def __init__(self, *arguments: Any, **options: Any) -> None:
        super().__init__(*arguments, **options)
        self.played: list[Trajectory] = []

    def judge(self, context: Any, trajectories: Any) -> None:
        for trajectory in trajectories:
            said = "".join(str(s.message["content"]) for s in trajectory.steps)
            trajectory.success, trajectory.outcome = True, float(said.count("a"))
        self.played += trajectories


def talks(task: Any, base_url: str, api_key: str) -> None:
    """Asks twice, and goes on with what it was told."""
    messages = list(task.messages)
    for _ in range(2):
        request = urllib.request.Request(
            f"{base_url}/chat/completions",
            json.dumps({"model": "m", "messages": messages}).encode(),
            {"authorization": f"Bearer {api_key}"},
        )
        with urllib.request.urlopen(request) as answer:
            messages.append(json.load(answer)["choices"][0]["message"])
        messages.append({"role": "user", "content": "bad"})


@pytest.mark.slow
def test_two_steps_of_grpo(tmp_path: Path) -> None:
    torch = pytest.importorskip("torch")
    trl = pytest.importorskip("trl")
    from datasets import Dataset
    from transformers import LlamaConfig, LlamaForCausalLM

    torch.manual_seed(0)
    tokenizer = _tokenizer()
    model = LlamaForCausalLM(
        LlamaConfig(
            vocab_size=len(tokenizer),
            hidden_size=16,
            intermediate_size=32,
            num_hidden_layers=1,
            num_attention_heads=2,
            pad_token_id=0,
            eos_token_id=1,
            bos_token_id=1,
        )
    )
    # Marks of the template, written by the model, would not survive as text.
    model.generation_config.suppress_tokens = [0, 2, 3, 4, 5]
    before = {n: p.detach().clone() for n, p in model.named_parameters()}
    prompts = [[{"role": "user", "content": text}] for text in ("abc", "head", "fed")]
    seen: list[list[float]] = []

    def reward(completions: Any, outcome: list[float], **fields: Any) -> list[float]:
        seen.append(outcome)
        return outcome

    errors: list[Exception] = []
    with Gateway(ModelBackend(max_tokens=6), log=errors.append) as gateway:
        manager = Counting(talks, gateway, concurrency=2)
        trainer = trl.GRPOTrainer(
            model=model,
            reward_funcs=reward,
            args=trl.GRPOConfig(
                output_dir=str(tmp_path),
                per_device_train_batch_size=4,
                num_generations=4,
                max_completion_length=64,
                max_steps=2,
                learning_rate=1e-2,
                use_cpu=True,
                bf16=False,
                report_to=[],
                save_strategy="no",
                disable_tqdm=True,
            ),
            train_dataset=Dataset.from_dict({"prompt": prompts * 4}),
            processing_class=tokenizer,
            rollout_func=manager.as_rollout_func(),
        )
        trained: list[tuple[tuple[int, ...], tuple[int, ...], tuple[int, ...]]] = []
        score = trainer._generate_and_score_completions

        def spy(inputs: Any) -> Any:
            made = score(inputs)
            mask = made.get("tool_mask", made["completion_mask"])
            for i in range(len(inputs)):
                keep = made["completion_mask"][i].bool()
                trained.append(
                    (
                        tuple(
                            made["prompt_ids"][i][
                                made["prompt_mask"][i].bool()
                            ].tolist()
                        ),
                        tuple(made["completion_ids"][i][keep].tolist()),
                        tuple(mask[i][keep].tolist()),
                    )
                )
            return made

        trainer._generate_and_score_completions = spy
        trainer.train()
    assert errors == [] and trainer.state.global_step == 2
    assert len(trained) == len(manager.played) == 8
    sampled = []
    for trajectory in manager.played:
        found = tokens_of(trajectory)
        assert found is not None
        tokens, mask = found
        assert len(tokens.logprobs) == len(tokens.completion) == len(mask)
        sampled.append((tokens.prompt, tokens.completion, tuple(mask)))
    assert sorted(trained) == sorted(sampled)
    # Both answers of a conversation, and what was said between them.
    assert all(0 in mask and mask[-1] == 1 for _, _, mask in sampled)
    rewarded = [value for batch in seen for value in batch]
    assert sorted(rewarded) == sorted(t.outcome or 0.0 for t in manager.played)
    assert any(not torch.equal(before[n], p) for n, p in model.named_parameters())

"""Tiny models of two families, made on the spot; the embedded one is pulled."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("torch", reason="needs the extra: pip install 'openagentgym[llm]'")
pytest.importorskip("transformers", reason="needs the extra 'openagentgym[llm]'")

# Tests in half precision run on every CPU: some virtual machines advertise AMX, and
# kill the process that uses it.
os.environ.setdefault("ONEDNN_MAX_CPU_ISA", "AVX512_CORE_BF16")

VOCABULARY = 340
CORPUS = """
open_gate close_gate report_fault Opens a gate Closes a gate Reports a broken gate
gate: string Code of the gate Please open gate Cars wait, open Open up Please close gate
Night falls, close Close up I am at gate_tool parameter value name arguments
{"type": "function", "function": {"name": "open_gate", "description": "Opens a gate",
"parameters": {"type": "object", "properties": {"gate": {"type": "string",
"pattern": "^[A-Z][0-9]{2}$", "description": "Code of the gate"}}, "required":
["gate"]}}} Answer with one call, like [tool(parameter="value")], or with a message to
the user when something must be asked or everything is done. Could you please tell me
the Code of the gate? Thank you for your message. Nothing else needs to be done. It is
done. state: open; state: closed. system user assistant Tools: Result:
"""
CHATML = (
    "{% for message in messages %}{{'<|im_start|>' + message['role'] + '\n' + "
    "message['content'] + '<|im_end|>' + '\n'}}{% endfor %}"
    "{% if add_generation_prompt %}{{ '<|im_start|>assistant\n' }}{% endif %}"
)
# As Qwen writes it, shortened.
TOOL_TEMPLATE = (
    "{%- if tools %}{{- '<|im_start|>system\n# Tools\n' }}"
    "{%- for tool in tools %}{{- tool | tojson }}{{- '\n' }}{%- endfor %}"
    "{{- '<|im_end|>\n' }}{%- endif %}"
    "{%- for message in messages %}"
    "{%- if message.role == 'tool' %}"
    "{{- '<|im_start|>user\n<tool_response>\n' + message.content + "
    "'\n</tool_response><|im_end|>\n' }}"
    "{%- else %}{{- '<|im_start|>' + message.role + '\n' + (message.content or '') }}"
    "{%- for call in message.tool_calls or [] %}"
    '{{- \'<tool_call>\n{"name": "\' + call.function.name + \'", "arguments": \' }}'
    "{{- call.function.arguments | tojson }}{{- '}\n</tool_call>' }}"
    "{%- endfor %}{{- '<|im_end|>\n' }}{%- endif %}{%- endfor %}"
    "{%- if add_generation_prompt %}{{- '<|im_start|>assistant\n' }}{%- endif %}"
)


def make_tokenizer(template: str) -> Any:
    """A small byte-level BPE; the chat's marks are its first two tokens."""
    from tokenizers import Tokenizer, decoders, models, pre_tokenizers, trainers
    from transformers import PreTrainedTokenizerFast

    tokenizer = Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    trainer = trainers.BpeTrainer(
        vocab_size=VOCABULARY,
        special_tokens=["<|im_start|>", "<|im_end|>"],
        initial_alphabet=pre_tokenizers.ByteLevel.alphabet(),
        show_progress=False,
    )
    tokenizer.train_from_iterator([CORPUS] * 4, trainer)
    assert tokenizer.get_vocab_size() == VOCABULARY
    fast = PreTrainedTokenizerFast(
        tokenizer_object=tokenizer, eos_token="<|im_end|>", pad_token="<|im_end|>"
    )
    fast.chat_template = template
    return fast


def make_model(folder: Path, family: str, seed: int = 0) -> Path:
    """Writes a randomly initialised model with its tokenizer."""
    import torch
    from transformers import (
        LlamaConfig,
        LlamaForCausalLM,
        Qwen2Config,
        Qwen2ForCausalLM,
        Qwen3Config,
        Qwen3ForCausalLM,
    )

    sizes: dict[str, Any] = {
        "vocab_size": VOCABULARY,
        "hidden_size": 64,
        "intermediate_size": 96,
        "num_hidden_layers": 4,
        "num_attention_heads": 4,
        "num_key_value_heads": 2,
        "max_position_embeddings": 4096,
        "initializer_range": 0.12,
        "eos_token_id": 1,
        "pad_token_id": 1,
        "bos_token_id": 0,
    }
    kinds: dict[str, tuple[Any, Any, dict[str, Any]]] = {
        "llama": (LlamaConfig, LlamaForCausalLM, {"tie_word_embeddings": False}),
        "qwen2": (Qwen2Config, Qwen2ForCausalLM, {"tie_word_embeddings": True}),
        "qwen3": (Qwen3Config, Qwen3ForCausalLM, {"head_dim": 16}),
    }
    config, model, extra = kinds[family]
    torch.manual_seed(seed)
    made = model(config(**sizes, **extra))
    made.save_pretrained(folder)
    template = CHATML if family == "llama" else TOOL_TEMPLATE
    make_tokenizer(template).save_pretrained(folder)
    return folder


@pytest.fixture(scope="session")
def families(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    """A folder for each family."""
    root = tmp_path_factory.mktemp("models")
    return {name: make_model(root / name, name) for name in ("llama", "qwen2", "qwen3")}


@pytest.fixture(scope="session")
def smollm2() -> Path:
    """The embedded model; pulled, as a user's first training does."""
    from agentgym.errors import AssetError
    from agentgym.policies.llm.models import EMBEDDED, find_model

    try:
        return find_model(EMBEDDED)
    except AssetError as error:
        pytest.skip(f"the embedded model cannot be had here: {error}")

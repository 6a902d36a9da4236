"""Models to make graphs of, each with a loss and the rows of one group."""

from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

import pytest
import torch
from torch import Tensor, nn
from torch.nn import functional as F  # noqa: N812

from fedlearn.tasks.torch_graph.export.export import ExportedGraph

Rows = dict[str, Tensor]
Loss = Callable[[nn.Module, Rows], Tensor]


class Case(NamedTuple):
    """A model with a loss, the rows of one group, and what is exported of them."""

    model: nn.Module
    loss: Loss
    rows: Rows
    exported: ExportedGraph | None = None


def cross_entropy(model: nn.Module, rows: Rows) -> Tensor:
    return F.cross_entropy(model(rows["x"]), rows["y"])


def next_token(model: nn.Module, rows: Rows) -> Tensor:
    logits = model(rows["tokens"][:, :-1])
    logits = getattr(logits, "logits", logits)
    return F.cross_entropy(logits.flatten(0, 1), rows["tokens"][:, 1:].flatten())


class Residual(nn.Module):
    def __init__(self, n_in: int, n_out: int, stride: int) -> None:
        super().__init__()
        self.first, self.second = nn.Conv2d(n_in, n_out, 3, stride, 1, bias=False), nn.Conv2d(n_out, n_out, 3, 1, 1)
        self.norms = nn.ModuleList(nn.BatchNorm2d(n_out) for _ in range(2))
        self.skip = nn.Conv2d(n_in, n_out, 1, stride) if stride > 1 else nn.Identity()

    def forward(self, x: Tensor) -> Tensor:
        y = F.relu(self.norms[0](self.first(x)), inplace=True)
        y = self.norms[1](self.second(y))
        y += self.skip(x)
        return F.relu(y, inplace=True)


def resnet() -> nn.Module:
    """The first half of ResNet-18, an eighth as wide."""
    blocks = [Residual(8, 8, 1), Residual(8, 8, 1), Residual(8, 16, 2), Residual(16, 16, 1)]
    stem = [nn.Conv2d(3, 8, 7, 2, 3, bias=False), nn.BatchNorm2d(8), nn.ReLU(inplace=True), nn.MaxPool2d(3, 2, 1)]
    return nn.Sequential(*stem, *blocks, nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(16, 10))


class Block(nn.Module):
    def __init__(self, width: int) -> None:
        super().__init__()
        self.norms = nn.ModuleList(nn.LayerNorm(width) for _ in range(2))
        self.qkv, self.out = nn.Linear(width, 3 * width), nn.Linear(width, width)
        self.up, self.down = nn.Linear(width, 4 * width), nn.Linear(4 * width, width)

    def forward(self, x: Tensor) -> Tensor:
        batch_size, length, width = x.shape
        q, k, v = self.qkv(self.norms[0](x)).view(batch_size, length, 3, 2, width // 2).permute(2, 0, 3, 1, 4)
        mixed = F.scaled_dot_product_attention(q, k, v, is_causal=True)
        x = x + self.out(mixed.transpose(1, 2).reshape(batch_size, length, width))
        y: Tensor = x + self.down(F.gelu(self.up(self.norms[1](x))))
        return y


class Transformer(nn.Module):
    """Causal, with the head tied to the embedding."""

    def __init__(self) -> None:
        super().__init__()
        self.tokens, self.places = nn.Embedding(20, 16), nn.Embedding(8, 16)
        self.blocks = nn.ModuleList(Block(16) for _ in range(2))
        self.norm, self.head = nn.LayerNorm(16), nn.Linear(16, 20, bias=False)
        self.head.weight = self.tokens.weight

    def forward(self, tokens: Tensor) -> Tensor:
        x = self.tokens(tokens) + self.places(torch.arange(tokens.shape[1]))
        for block in self.blocks:
            x = block(x)
        logits: Tensor = self.head(self.norm(x))
        return logits


class Recurrent(nn.Module):
    def __init__(self, layer: Callable[..., nn.RNNBase], **options: Any) -> None:  # noqa: ANN401
        super().__init__()
        self.tokens = nn.Embedding(20, 6)
        self.layer = layer(6, 8, num_layers=2, batch_first=True, **options)
        self.head = nn.Linear(16 if self.layer.bidirectional else 8, 20)

    def forward(self, tokens: Tensor) -> Tensor:
        logits: Tensor = self.head(self.layer(self.tokens(tokens))[0])
        return logits


class Frequencies(nn.Module):
    """Reads a small constant, a large one, and parameters that are not learned."""

    def __init__(self) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.randn(4, 300))
        self.register_buffer("small", torch.arange(4.0))
        self.register_buffer("large", torch.randn(300).bfloat16())
        self.kept = nn.Linear(4, 4).requires_grad_(False)

    def forward(self, x: Tensor) -> Tensor:
        assert isinstance(self.small, Tensor)
        assert isinstance(self.large, Tensor)
        y: Tensor = self.kept(x * self.small) @ self.weight * self.large.float() + torch.tensor([1.0, -torch.inf])[0]
        return y


def convolutional() -> nn.Module:
    return nn.Sequential(
        nn.Conv2d(3, 8, 3, padding=1, groups=1), nn.GroupNorm(2, 8), nn.GELU(), nn.AvgPool2d(2), nn.Conv2d(8, 8, 3),
        nn.ConvTranspose2d(8, 4, 2), nn.InstanceNorm2d(4, affine=True), nn.PReLU(), nn.AdaptiveMaxPool2d(2),
        nn.Flatten(), nn.Linear(16, 10),
    )  # fmt: skip


def hugging_face(name: str) -> Case:
    hf = pytest.importorskip("transformers")
    sizes = {"vocab_size": 20, "hidden_size": 16, "num_hidden_layers": 2, "num_attention_heads": 2}
    tokens = torch.randint(0, 20, (2, 9))
    if name == "gpt2":
        config = hf.GPT2Config(vocab_size=20, n_embd=16, n_layer=2, n_head=2, n_positions=16, use_cache=False)
        return Case(hf.GPT2LMHeadModel(config), next_token, {"tokens": tokens})
    if name == "llama":
        config = hf.LlamaConfig(**sizes, intermediate_size=32, num_key_value_heads=1, use_cache=False)
        return Case(hf.LlamaForCausalLM(config), next_token, {"tokens": tokens})
    model = hf.BertForSequenceClassification(hf.BertConfig(**sizes, intermediate_size=32, max_position_embeddings=16))
    rows = {"ids": tokens, "mask": (torch.rand(2, 9) > 0.2).long(), "label": torch.tensor([0, 1])}
    return Case(model, lambda m, r: m(input_ids=r["ids"], attention_mask=r["mask"], labels=r["label"]).loss, rows)


def images() -> Rows:
    return {"x": torch.randn(2, 3, 32, 32), "y": torch.randint(0, 10, (2,))}


def texts() -> Rows:
    return {"tokens": torch.randint(0, 20, (3, 8))}


CASES: Mapping[str, Callable[[], Case]] = {
    "mlp": lambda: Case(
        nn.Sequential(nn.Linear(5, 8), nn.Tanh(), nn.Linear(8, 3)),
        cross_entropy,
        {"x": torch.randn(4, 5), "y": torch.randint(0, 3, (4,))},
    ),
    "mistakes": lambda: Case(
        nn.Linear(5, 3), lambda m, r: (m(r["x"]).argmax(-1) != 1).float().mean(), {"x": torch.randn(40, 5)}
    ),
    "constants": lambda: Case(Frequencies(), lambda m, r: m(r["x"]).square().mean(), {"x": torch.randn(2, 4)}),
    "convolutional": lambda: Case(convolutional(), cross_entropy, images()),
    "resnet": lambda: Case(resnet(), cross_entropy, images()),
    "transformer": lambda: Case(Transformer(), next_token, texts()),
    "lstm": lambda: Case(Recurrent(nn.LSTM), next_token, texts()),
    "bidirectional gru": lambda: Case(Recurrent(nn.GRU, bidirectional=True), next_token, texts()),
    "rnn": lambda: Case(Recurrent(nn.RNN, nonlinearity="relu", bias=False), next_token, texts()),
    "gpt2": lambda: hugging_face("gpt2"),
    "bert": lambda: hugging_face("bert"),
    "llama": lambda: hugging_face("llama"),
}

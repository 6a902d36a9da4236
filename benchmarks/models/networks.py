"""Networks for the benchmarks of members and stages: small ones of each kind, and known ones with random weights."""

import sys
import types
from collections.abc import Callable, Mapping, Sequence
from importlib import import_module
from itertools import pairwise
from typing import final

import torch
from msgspec import Struct
from torch import Tensor, nn
from torch.nn import functional

Rows = Mapping[str, Tensor]
VOCABULARY, LENGTH, BATCH = 97, 32, 2


class Network(Struct, frozen=True, eq=False):
    """A module with a loss and the rows of one group."""

    module: nn.Module
    loss: Callable[[nn.Module, Rows], Tensor]
    rows: dict[str, Tensor]


@final
class Block(nn.Module):
    """A layer of a transformer."""

    def __init__(self, width: int, *, is_causal: bool) -> None:
        super().__init__()
        self.is_causal, self.n_heads = is_causal, max(width // 16, 1)
        self.norms = nn.ModuleList(nn.LayerNorm(width) for _ in range(2))
        self.qkv, self.out = nn.Linear(width, 3 * width), nn.Linear(width, width)
        self.up, self.down = nn.Linear(width, 4 * width), nn.Linear(4 * width, width)

    def forward(self, x: Tensor) -> Tensor:
        """[texts, length, width] of the same."""
        q, k, v = self.qkv(self.norms[0](x)).unflatten(-1, (3, self.n_heads, -1)).permute(2, 0, 3, 1, 4)
        mixed = functional.scaled_dot_product_attention(q, k, v, is_causal=self.is_causal)
        x = x + self.out(mixed.transpose(1, 2).flatten(2))
        y: Tensor = x + self.down(functional.gelu(self.up(self.norms[1](x))))
        return y


@final
class Gpt(nn.Module):
    """Causal, with the head tied to the embedding."""

    def __init__(self, width: int = 64, n_layers: int = 4) -> None:
        super().__init__()
        self.tokens, self.places = nn.Embedding(VOCABULARY, width), nn.Embedding(LENGTH, width)
        self.blocks = nn.ModuleList(Block(width, is_causal=True) for _ in range(n_layers))
        self.norm, self.head = nn.LayerNorm(width), nn.Linear(width, VOCABULARY, bias=False)
        for parameter in self.parameters():
            if parameter.dim() > 1:
                nn.init.normal_(parameter, std=0.02)
        self.head.weight = self.tokens.weight

    def forward(self, tokens: Tensor) -> Tensor:
        """Logits [texts, length, vocabulary]."""
        x = self.tokens(tokens) + self.places(torch.arange(tokens.shape[1], device=tokens.device))
        for block in self.blocks:
            x = block(x)
        logits: Tensor = self.head(self.norm(x))
        return logits


@final
class CharRnn(nn.Module):
    """A recurrent model of text."""

    def __init__(self, layer: type[nn.LSTM] | type[nn.GRU], width: int, n_layers: int = 1) -> None:
        super().__init__()
        self.tokens, self.rnn = nn.Embedding(VOCABULARY, width), layer(width, width, n_layers, batch_first=True)
        self.head = nn.Linear(width, VOCABULARY)

    def forward(self, tokens: Tensor) -> Tensor:
        """Logits [texts, length, vocabulary]."""
        logits: Tensor = self.head(self.rnn(self.tokens(tokens))[0])
        return logits


@final
class NamedValues(nn.Module):
    """A list of layers, one of which adds what an earlier one put under a name."""

    def __init__(self, width: int = 512) -> None:
        super().__init__()
        self.layers = nn.ModuleList(
            (nn.Linear(1, width), nn.Linear(width, width), nn.Linear(width, width), nn.Linear(width, width),
             nn.Linear(width, 1))
        )  # fmt: skip
        self.gives, self.takes = {1: "res_1"}, {3: "res_1"}

    def forward(self, x: Tensor) -> Tensor:
        """[rows, 1] of the same."""
        named: dict[str, Tensor] = {}
        for number, layer in enumerate(self.layers):
            x = layer(x)
            if number in self.takes:
                x = x + named.pop(self.takes[number])
            if number in self.gives:
                named[self.gives[number]] = x
            x = torch.sigmoid(x) if number == len(self.layers) - 1 else torch.relu(x)
        return x


@final
class Bottleneck(nn.Module):
    """A block of ResNet-50."""

    def __init__(self, n_in: int, width: int, stride: int) -> None:
        super().__init__()
        self.conv1, self.bn1 = nn.Conv2d(n_in, width, 1, bias=False), nn.BatchNorm2d(width)
        self.conv2, self.bn2 = nn.Conv2d(width, width, 3, stride, 1, bias=False), nn.BatchNorm2d(width)
        self.conv3, self.bn3 = nn.Conv2d(width, 4 * width, 1, bias=False), nn.BatchNorm2d(4 * width)
        self.relu = nn.ReLU(inplace=True)
        self.downsample: nn.Module = nn.Identity()
        if stride > 1 or n_in != 4 * width:
            self.downsample = nn.Sequential(
                nn.Conv2d(n_in, 4 * width, 1, stride, bias=False), nn.BatchNorm2d(4 * width)
            )

    def forward(self, x: Tensor) -> Tensor:
        """Images of 4 * width channels."""
        y = self.relu(self.bn1(self.conv1(x)))
        y = self.bn3(self.conv3(self.relu(self.bn2(self.conv2(y)))))
        y += self.downsample(x)
        result: Tensor = self.relu(y)
        return result


def resnet(n_blocks: Sequence[int] = (3, 4, 6, 3), width: int = 64, n_classes: int = 1000) -> nn.Module:
    """ResNet-50, for who has no torchvision.

    Source: https://arxiv.org/abs/1512.03385
    """
    layers: list[nn.Module] = [
        nn.Conv2d(3, width, 7, 2, 3, bias=False), nn.BatchNorm2d(width), nn.ReLU(inplace=True), nn.MaxPool2d(3, 2, 1)
    ]  # fmt: skip
    n_in = width
    for stage, count in enumerate(n_blocks):
        for number in range(count):
            layers.append(Bottleneck(n_in, width << stage, 2 if stage and not number else 1))
            n_in = 4 * (width << stage)
    return nn.Sequential(*layers, nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(n_in, n_classes))


@final
class Vit(nn.Module):
    """Attention over patches of images."""

    def __init__(self, width: int = 64, n_layers: int = 3) -> None:
        super().__init__()
        self.patches = nn.Conv2d(3, width, 8, 8)
        self.first = nn.Parameter(torch.zeros(1, 1, width))
        self.places = nn.Parameter(0.02 * torch.randn(1, 65, width))
        self.blocks = nn.Sequential(*(Block(width, is_causal=False) for _ in range(n_layers)))
        self.norm, self.head = nn.LayerNorm(width), nn.Linear(width, 10)

    def forward(self, images: Tensor) -> Tensor:
        """Logits [images, classes]."""
        x = self.patches(images).flatten(2).mT
        x = torch.cat([self.first.expand(len(x), -1, -1), x], 1) + self.places
        logits: Tensor = self.head(self.norm(self.blocks(x))[:, 0])
        return logits


@final
class GraphNet(nn.Module):
    """Messages along the edges of a graph, summed at their ends."""

    def __init__(self, width: int = 32, n_layers: int = 3) -> None:
        super().__init__()
        self.inward, self.head = nn.Linear(16, width), nn.Linear(width, 10)
        self.messages = nn.ModuleList(nn.Linear(2 * width, width) for _ in range(n_layers))
        self.updates = nn.ModuleList(nn.Linear(2 * width, width) for _ in range(n_layers))

    def forward(self, x: Tensor, edges: Tensor) -> Tensor:
        """Logits [graphs, classes] of nodes [graphs, nodes, 16] and edges [graphs, 2, edges] between them."""
        n_graphs, n_nodes, _ = x.shape
        offsets = n_nodes * torch.arange(n_graphs, device=x.device)[:, None]
        begins, ends = (edges[:, 0] + offsets).flatten(), (edges[:, 1] + offsets).flatten()
        h = torch.relu(self.inward(x)).flatten(0, 1)
        for message, update in zip(self.messages, self.updates, strict=True):
            sent = torch.relu(message(torch.cat((h[begins], h[ends]), 1)))
            h = h + torch.relu(update(torch.cat((h, torch.zeros_like(h).index_add(0, ends, sent)), 1)))
        y: Tensor = self.head(h.reshape(n_graphs, n_nodes, -1).mean(1))
        return y


def convolutional(*widths: int, stride: int = 1) -> nn.Module:
    """Convolutions of 3 x 3, each of which halves the sides, after one with this stride."""
    layers: list[nn.Module] = [nn.Conv2d(3, widths[0], 3, stride, 1), nn.ReLU()]
    for before, after in pairwise(widths):
        layers += [nn.Conv2d(before, after, 3, 2, 1), nn.ReLU()]
    return nn.Sequential(*layers, nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(widths[-1], 10))


def _next_token(model: nn.Module, rows: Rows) -> Tensor:
    logits = model(rows["tokens"])
    logits = getattr(logits, "logits", logits)
    return functional.cross_entropy(logits.flatten(0, 1), rows["targets"].flatten())


def _class(model: nn.Module, rows: Rows) -> Tensor:
    return functional.cross_entropy(model(rows["images"]), rows["labels"])


def _class_of_graphs(model: nn.Module, rows: Rows) -> Tensor:
    return functional.cross_entropy(model(rows["x"], rows["edges"]), rows["y"])


def _error(model: nn.Module, rows: Rows) -> Tensor:
    return functional.mse_loss(model(rows["x"]), rows["y"])


def _text(module: nn.Module, n_texts: int = BATCH) -> Network:
    tokens = torch.randint(0, VOCABULARY, (n_texts, LENGTH + 1))
    return Network(module, _next_token, {"tokens": tokens[:, :-1].clone(), "targets": tokens[:, 1:].clone()})


def _images(module: nn.Module, size: int = 64, n_images: int = BATCH) -> Network:
    rows = {"images": torch.randn(n_images, 3, size, size), "labels": torch.arange(n_images) % 10}
    return Network(module, _class, rows)


def _torchvision(name: str, size: int = 64, **options: bool) -> Network:
    # A wheel built for CUDA registers operators that a PyTorch for the processor has not; models need none of them.
    for module in ("_meta_registrations", "_autograd_registrations"):
        sys.modules.setdefault(f"torchvision.{module}", types.ModuleType(f"torchvision.{module}"))
    make: Callable[..., nn.Module] = getattr(import_module("torchvision").models, name)
    return _images(make(weights=None, **options), size)


def _hugging_face(name: str) -> Network:
    library = import_module("transformers")
    if name == "gpt2":
        sizes = {"vocab_size": VOCABULARY, "n_embd": 64, "n_layer": 4, "n_head": 4, "n_positions": 64}
        config = library.GPT2Config(**sizes, use_cache=False, bos_token_id=None, eos_token_id=None)
        return _text(library.GPT2LMHeadModel(config))
    # The sizes of BERT-tiny, whose vocabulary has 30522 words.
    config = library.BertConfig(vocab_size=30522, hidden_size=128, num_hidden_layers=2, num_attention_heads=2,
                                intermediate_size=512)  # fmt: skip
    rows = {
        "tokens": torch.randint(0, 30522, (BATCH, LENGTH)),
        "mask": (torch.rand(BATCH, LENGTH) > 0.1).long(),
        "labels": torch.tensor([0, 1]),
    }
    return Network(library.BertForSequenceClassification(config), _sentence, rows)


def _sentence(model: nn.Module, rows: Rows) -> Tensor:
    loss: Tensor = model(input_ids=rows["tokens"], attention_mask=rows["mask"], labels=rows["labels"]).loss
    return loss


def _graphs() -> Network:
    rows = {"x": torch.randn(8, 64, 16), "edges": torch.randint(0, 64, (8, 2, 256)), "y": torch.randint(0, 10, (8,))}
    return Network(GraphNet(), _class_of_graphs, rows)


def _perceptron() -> Network:
    module = nn.Sequential(nn.Linear(64, 128), nn.ReLU(), nn.Linear(128, 64), nn.ReLU(), nn.Linear(64, 10))
    return Network(module, lambda m, r: functional.cross_entropy(m(r["x"]), r["y"]),
                   {"x": torch.randn(8, 64), "y": torch.randint(0, 10, (8,))})  # fmt: skip


NETWORKS: Mapping[str, Callable[[], Network]] = {
    "mlp": _perceptron,
    "named": lambda: Network(NamedValues(), _error, {"x": torch.randn(32, 1), "y": torch.rand(32, 1)}),
    "lstm": lambda: _text(CharRnn(nn.LSTM, 64, 2)),
    "gpt": lambda: _text(Gpt()),
    "vit": lambda: _images(Vit()),
    "resnet50": lambda: _images(resnet()),
    "bert-tiny": lambda: _hugging_face("bert"),
    "gpt2": lambda: _hugging_face("gpt2"),
    "torchvision resnet18": lambda: _torchvision("resnet18"),
    "torchvision resnet50": lambda: _torchvision("resnet50"),
    "torchvision vgg11": lambda: _torchvision("vgg11"),
    "torchvision mobilenet_v3_small": lambda: _torchvision("mobilenet_v3_small"),
    "torchvision inception_v3": lambda: _torchvision("inception_v3", 75, aux_logits=False, init_weights=False),
    "torchvision vit_b_16": lambda: _torchvision("vit_b_16", 224),
}
"""Networks that `split_models.py` cuts into stages; each is made when it is called, and those of other packages need
these."""

LAYERS: Mapping[str, Callable[[], Network]] = {
    "LSTM 64": lambda: _text(CharRnn(nn.LSTM, 64), 8),
    "LSTM 256": lambda: _text(CharRnn(nn.LSTM, 256), 8),
    "GRU 64": lambda: _text(CharRnn(nn.GRU, 64), 8),
    "GRU 256": lambda: _text(CharRnn(nn.GRU, 256), 8),
    "CNN": lambda: _images(convolutional(16, 32, 64), 32, 8),
    "CNN, wide": lambda: _images(convolutional(64, 128, 128, stride=4), 32, 8),
    "GPT 64": lambda: _text(Gpt(), 8),
    "GPT 256": lambda: _text(Gpt(256, 2), 8),
    "ViT": lambda: _images(Vit(), 64, 8),
    "graph net": _graphs,
}
"""Networks whose members `member_costs.py` measures, each with layers that are run in another way."""

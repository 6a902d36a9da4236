"""Processor time of a model that travels as a graph, for that of the module it was made of: above 1 it is slower.

Each model is run twice over: as plain inference of one group's rows, and by members as a task runs them, in the way and
the pieces that its own search finds. One thread, alternating rounds; every ratio is the median within a round. Losses
are compared first.
"""

import argparse
import sys
import time
from collections.abc import Callable, Mapping
from functools import partial
from typing import final

import msgspec
import numpy as np
from numpy.typing import NDArray

from benchmarks.kernels.kernel import ENVIRONMENT
from benchmarks.measure import TURN_S, Spread, alternate, parser_of, print_tables, ratio, spread, use_processors
from fedlearn.es.noise import member_noise
from fedlearn.es.perturbation import Perturbation
from fedlearn.es.trials import Trials
from fedlearn.tasks.blocks import Columns
from fedlearn.tasks.task import Batch, flat_weights

try:
    import torch
    from torch import Tensor, nn
    from torch.nn import functional as F  # noqa: N812 (as everybody calls it)
except ImportError:
    sys.exit("graph_costs.py needs PyTorch: pip install 'fedlearn[torch]'")

from fedlearn.tasks.torch.module_task import ModuleTask
from fedlearn.tasks.torch.supervised import Rows, supervised
from fedlearn.tasks.torch_graph.export.export import export
from fedlearn.tasks.torch_graph.graph_task import GraphTask
from fedlearn.tasks.torch_graph.program import Program

WARM_UP = 20
"""Steps in which a task searches for the size of its pieces."""

CLASSES, VOCABULARY, LENGTH = 10, 65, 32
NODES, EDGES = 64, 256


@final
class Texts(nn.Module):
    """The next token of each place, by a recurrent layer."""

    def __init__(self, hidden: int) -> None:
        super().__init__()
        self.tokens = nn.Embedding(VOCABULARY, 32)
        self.layer = nn.LSTM(32, hidden, batch_first=True)
        self.head = nn.Linear(hidden, VOCABULARY)

    def forward(self, x: Tensor) -> Tensor:
        """Logits [texts, length, vocabulary] of tokens [texts, length]."""
        y: Tensor = self.head(self.layer(self.tokens(x))[0])
        return y


@final
class Unrolled(nn.Module):
    """The same by a cell that is called for each token."""

    def __init__(self, hidden: int) -> None:
        super().__init__()
        self.tokens = nn.Embedding(VOCABULARY, 32)
        self.cell = nn.LSTMCell(32, hidden)
        self.head = nn.Linear(hidden, VOCABULARY)

    def forward(self, x: Tensor) -> Tensor:
        """Logits [texts, length, vocabulary] of tokens [texts, length]."""
        state, outputs = None, []
        for token in self.tokens(x).unbind(1):
            state = self.cell(token, state)
            outputs.append(state[0])
        y: Tensor = self.head(torch.stack(outputs, 1))
        return y


@final
class Images(nn.Module):
    """A small vision transformer on patches of 4 x 4."""

    def __init__(self, width: int, layers: int) -> None:
        super().__init__()
        self.patches = nn.Conv2d(3, width, 4, stride=4)
        self.first = nn.Parameter(torch.zeros(1, 1, width))
        self.places = nn.Parameter(0.02 * torch.randn(1, 65, width))
        layer = nn.TransformerEncoderLayer(width, 4, 4 * width, dropout=0.0, activation="gelu", batch_first=True)
        self.layers = nn.TransformerEncoder(layer, layers, enable_nested_tensor=False)
        self.norm, self.head = nn.LayerNorm(width), nn.Linear(width, CLASSES)

    def forward(self, x: Tensor) -> Tensor:
        """Logits [images, classes] of images [images, 3, 32, 32]."""
        patches = self.patches(x).flatten(2).transpose(1, 2)
        x = torch.cat((self.first.expand(len(x), -1, -1), patches), 1) + self.places
        y: Tensor = self.head(self.norm(self.layers(x)[:, 0]))
        return y


@final
class Gpt(nn.Module):
    """A causal transformer on tokens."""

    def __init__(self, width: int, layers: int) -> None:
        super().__init__()
        self.tokens, self.places = nn.Embedding(VOCABULARY, width), nn.Embedding(LENGTH, width)
        self.layers = nn.ModuleList(_Layer(width) for _ in range(layers))
        self.norm, self.head = nn.LayerNorm(width), nn.Linear(width, VOCABULARY, bias=False)

    def forward(self, x: Tensor) -> Tensor:
        """Logits [texts, length, vocabulary] of tokens [texts, length]."""
        x = self.tokens(x) + self.places(torch.arange(x.shape[1], device=x.device))
        for layer in self.layers:
            x = layer(x)
        y: Tensor = self.head(self.norm(x))
        return y


@final
class _Layer(nn.Module):
    def __init__(self, width: int) -> None:
        super().__init__()
        self.norm1, self.norm2 = nn.LayerNorm(width), nn.LayerNorm(width)
        self.qkv, self.out = nn.Linear(width, 3 * width), nn.Linear(width, width)
        self.up, self.down = nn.Linear(width, 4 * width), nn.Linear(4 * width, width)

    def forward(self, x: Tensor) -> Tensor:
        q, k, v = (
            part.reshape(*part.shape[:2], 4, -1).transpose(1, 2) for part in self.qkv(self.norm1(x)).chunk(3, -1)
        )
        read = F.scaled_dot_product_attention(q, k, v, is_causal=True).transpose(1, 2).flatten(2)
        x = x + self.out(read)
        return x + self.down(F.gelu(self.up(self.norm2(x))))  # type: ignore[no-any-return]


@final
class Nodes(nn.Module):
    """Messages along the edges of a graph, summed at their ends."""

    def __init__(self, width: int, layers: int) -> None:
        super().__init__()
        self.inward, self.head = nn.Linear(16, width), nn.Linear(width, CLASSES)
        self.messages = nn.ModuleList(nn.Linear(2 * width, width) for _ in range(layers))
        self.updates = nn.ModuleList(nn.Linear(2 * width, width) for _ in range(layers))

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


def convolutional() -> nn.Module:
    """Convolutions with batch normalisation of growing width."""
    layers: list[nn.Module] = []
    for before, after in ((3, 16), (16, 32), (32, 64)):
        layers += [nn.Conv2d(before, after, 3, padding=1), nn.BatchNorm2d(after), nn.ReLU(), nn.MaxPool2d(2)]
    return nn.Sequential(*layers, nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(64, CLASSES)).eval()


def texts(random: np.random.Generator) -> Columns:
    """Eight texts and what comes next."""
    tokens = random.integers(0, VOCABULARY, (8, LENGTH + 1))
    return {"x": tokens[:, :-1].copy(), "y": tokens[:, 1:].copy()}


def images(random: np.random.Generator) -> Columns:
    """Eight small images and their classes."""
    x: NDArray[np.float32] = random.standard_normal((8, 3, 32, 32)).astype(np.float32)
    return {"x": x, "y": random.integers(0, CLASSES, 8)}


def graphs(random: np.random.Generator) -> Columns:
    """Eight graphs and their classes."""
    x: NDArray[np.float32] = random.standard_normal((8, NODES, 16)).astype(np.float32)
    return {"x": x, "edges": random.integers(0, NODES, (8, 2, EDGES)), "y": random.integers(0, CLASSES, 8)}


MODELS: Mapping[str, tuple[Callable[[], nn.Module], Callable[[np.random.Generator], Columns]]] = {
    "LSTM 64": (partial(Texts, 64), texts),
    "LSTM 256": (partial(Texts, 256), texts),
    "LSTM cell 64": (partial(Unrolled, 64), texts),
    "ViT": (partial(Images, 64, 4), images),
    "graph net": (partial(Nodes, 32, 3), graphs),
    "CNN": (convolutional, images),
    "GPT": (partial(Gpt, 64, 4), texts),
}
"""By name: what makes it, and its rows."""


class Result(msgspec.Struct, frozen=True):
    """What was found for one model."""

    model: str
    calls: int
    """Of operators, in the graph."""
    module_us: Spread
    """Inference of one group's rows."""
    inference: Spread
    """Of the graph, for the module's."""
    member_us: Spread
    """A member of the module's own task."""
    members: Spread
    """Of the graph's task, for the module's."""
    ways: tuple[str, str]


def loss(model: nn.Module, rows: Rows) -> Tensor:
    """Cross entropy of what the model makes of all other columns."""
    logits = model(*(column for name, column in rows.items() if name != "y"))
    return F.cross_entropy(logits.flatten(0, -2), rows["y"].flatten())


def measure(name: str, options: argparse.Namespace) -> Result:
    """The ratios of one model.

    Raises:
        RuntimeError: the graph has another loss than the module.
    """
    make, draw = MODELS[name]
    data = draw(np.random.default_rng(1))
    n_rows = len(data["y"])
    own = supervised(make, loss, data, batch_size=n_rows)
    rows = {key: torch.from_numpy(column) for key, column in data.items()}
    exported = export(own.model, loss, rows, own.parameters)
    travelled = GraphTask(exported.graph, exported.frozen, start=own.tensors, data=data)
    program = Program(exported.graph, exported.frozen)
    for parameter, start in zip(program.module.parameters(), own.parameters.values(), strict=True):
        parameter.data = start.detach().clone()

    def infer(run: Callable[[Rows], Tensor]) -> Tensor:
        with torch.no_grad():
            return run(rows)

    weights, trials = flat_weights(own.tensors), Trials(0, Perturbation(0.01, 1), options.members, 0, options.members)
    noise = member_noise(own.layout, trials, seed=1)
    batch = Batch({key: column[None] for key, column in data.items()}, (1,))

    def try_members(task: ModuleTask) -> NDArray[np.float32]:
        return np.asarray(task.losses(task.members(weights, noise, n_groups=1), batch))

    contestants: dict[str, Callable[[], Tensor | NDArray[np.float32]]] = {
        "module": lambda: infer(partial(loss, own.model)),
        "graph": lambda: infer(program),
        "module, members": lambda: try_members(own),
        "graph, members": lambda: try_members(travelled),
    }
    for task in (own, travelled):
        task.use("cpu", threads=1)
    for _ in range(WARM_UP):
        losses = {name: np.asarray(run()) for name, run in contestants.items()}
    for one, other in (("module", "graph"), ("module, members", "graph, members")):
        if not np.allclose(losses[one], losses[other], rtol=1e-5, atol=2e-6):
            raise RuntimeError(f"{name}: expected losses like {losses[one]}, got {losses[other]} of the graph")
    seconds = alternate(contestants, rounds=options.rounds, turn_s=TURN_S, clock=time.process_time)
    return Result(
        model=name,
        calls=len(exported.graph.calls),
        module_us=spread([1e6 * s for s in seconds["module"]]),
        inference=ratio(seconds["graph"], seconds["module"]),
        member_us=spread([1e6 * s / options.members for s in seconds["module, members"]]),
        members=ratio(seconds["graph, members"], seconds["module, members"]),
        ways=(own.report().splitlines()[0], travelled.report().splitlines()[0]),
    )


def main() -> int:
    """Runs the benchmark; gives the exit code."""
    parser = parser_of(__doc__)
    parser.add_argument("--models", nargs="+", choices=MODELS, default=list(MODELS), metavar="NAME", help="which")
    parser.add_argument("--members", type=int, default=64, metavar="N", help="members (default: 64)")
    parser.add_argument("--rounds", type=int, default=7, metavar="N", help="alternating rounds (default: 7)")
    options = parser.parse_args()
    use_processors(1, **ENVIRONMENT)
    torch.set_num_threads(1)
    facts = {"rounds": options.rounds, "members": options.members, "PyTorch": str(torch.__version__)}
    results = [measure(name, options) for name in options.models]
    print_tables("graph_costs", as_json=options.json, facts=facts, results=results)
    return 0


if __name__ == "__main__":
    sys.exit(main())

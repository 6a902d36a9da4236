"""What activations in fewer bits do to members' losses, their ranking and the estimate: a small GPT cut in three.

It learns some of a text by backprop first, since losses of a model that knows nothing hardly differ. Values of 8 and 4
bits are what a codec would send that sends no differences.
"""

import sys
from collections.abc import Mapping
from functools import partial
from pathlib import Path

import msgspec
import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor
from torch.nn import functional

from benchmarks.measure import parser_of, print_tables, use_processors
from benchmarks.models.networks import LENGTH, VOCABULARY, Gpt, Network
from benchmarks.models.split_models import Chain, noise_of, thirds
from fedlearn.es.layout import Float32Array
from fedlearn.es.noise import LowRank, TensorNoise
from fedlearn.graphs.graph import Graph
from fedlearn.graphs.pieces import pieces
from fedlearn.tasks.parts.activations import CODECS, ActivationCodec, decode, encode, member_bytes
from fedlearn.tasks.torch_graph.export.export import export

TEXT = Path(__file__).parents[3] / "shared" / "data" / "tinyshakespeare.txt"
BATCH = 4
VALUES: Mapping[str, ActivationCodec] = {"int8": "int8-delta", "int4": "int4-delta"}
"""Codecs of differences from nothing, for comparison."""


class Row(msgspec.Struct, frozen=True):
    """One codec at one size of noise."""

    sigma: float
    codec: str
    member_bytes: float
    """Bytes of a member at a cut, without unperturbed values."""
    error: float
    """Error of losses, as a share of their spread."""
    rank_correlation: float
    cosine: float
    """Cosine of the angle between the estimate and that of exact losses."""


def main() -> int:
    """Runs the benchmark; gives the exit code."""
    parser = parser_of(__doc__)
    parser.add_argument("--members", type=int, default=192, metavar="N", help="of one group (default: 192)")
    parser.add_argument("--steps", type=int, default=300, metavar="N", help="of backprop before (default: 300)")
    parser.add_argument("--sigmas", type=float, nargs="+", default=[0.03, 0.01, 0.001], metavar="X")
    parser.add_argument("--text", type=Path, default=TEXT, metavar="FILE", help=f"default: {TEXT.name}, if it is there")
    options = parser.parse_args()
    if not options.text.exists():
        sys.exit(f"{options.text}: expected a text, got no such file; name one with --text FILE")
    use_processors(1)
    torch.set_num_threads(1)
    torch.manual_seed(0)
    network, loss = trained(options.text, options.steps)
    exported = export(network.module, loss_of, network.rows, dict(network.module.named_parameters()))
    chain = Chain(exported, thirds(pieces(exported.graph)), network)
    found = [row for sigma in options.sigmas for row in compare(chain, exported.graph, sigma, options.members)]
    # Where differences are sent, the unperturbed values go beside them once a group.
    group_bytes = sum(member_bytes("float32", shape) for shape in shapes_of(chain)) // 2
    facts = {"trained_loss": loss, "group_bytes": group_bytes}
    print_tables("activation_codecs", as_json=options.json, facts=facts, rows=found)
    return 0


def shapes_of(chain: Chain) -> list[tuple[int, ...]]:
    """The shapes of all that crosses, at both cuts."""
    return [spec.shape for runner in chain.runners for spec in runner.stage.received]


def losses_of(chain: Chain, noise: Mapping[str, TensorNoise], codec: str) -> NDArray[np.float64]:
    """The losses of all members whose noise this is, where activations cross in this codec."""
    values: dict[str, Float32Array] = {}
    bases: dict[str, Float32Array] = {}
    for runner in chain.runners:
        own = [noise[array.name] for array in runner.stage.learned]
        given = dict(runner.members(chain.rows, values, own))
        bases = dict(runner.unperturbed(chain.rows, bases))
        values = {name: crossed(value, bases[name], codec) for name, value in given.items()}
    return given[runner.stage.outputs[0]].reshape(-1).astype(np.float64)


def loss_of(model: torch.nn.Module, rows: Mapping[str, Tensor]) -> Tensor:
    """Nats a character."""
    return functional.cross_entropy(model(rows["tokens"]).flatten(0, 1), rows["targets"].flatten())


def trained(text: Path, steps: int) -> tuple[Network, float]:
    """A model that has read some of the text with the rows of a group, and the loss on them."""
    characters = sorted(set(text.read_text()))[:VOCABULARY]
    data = torch.tensor([characters.index(one) for one in text.read_text() if one in characters])
    model = Gpt()

    def batch(count: int) -> dict[str, Tensor]:
        starts = torch.randint(0, len(data) - LENGTH - 1, (count,))
        windows = torch.stack([data[start : start + LENGTH + 1] for start in starts])
        return {"tokens": windows[:, :-1].clone(), "targets": windows[:, 1:].clone()}

    optimizer = torch.optim.Adam(model.parameters(), 3e-3)
    for _ in range(steps):
        optimizer.zero_grad()
        loss_of(model, batch(32)).backward()  # type: ignore[no-untyped-call]
        optimizer.step()
    rows = batch(BATCH)
    return Network(model.eval(), loss_of, rows), loss_of(model, rows).item()


def crossed(values: Float32Array, base: Float32Array, codec: str) -> Float32Array:
    """Values [members, ...] as they arrive."""
    if codec in VALUES:
        base = np.zeros_like(base)
    known: ActivationCodec = VALUES.get(codec) or msgspec.convert(codec, ActivationCodec)
    return decode(known, encode(known, values, base), len(values), base.shape, base)


def compare(chain: Chain, graph: Graph, sigma: float, n_members: int) -> list[Row]:
    """All codecs at one size of noise."""
    noise = noise_of(graph, n_members, sigma)
    exact = losses_of(chain, noise, "float32")
    estimate = partial(estimated, list(noise.values()))
    rows = []
    for codec in (*CODECS, *VALUES):
        losses = losses_of(chain, noise, codec)
        known: ActivationCodec = VALUES.get(codec) or msgspec.convert(codec, ActivationCodec)
        rows.append(
            Row(
                sigma,
                codec,
                sum(member_bytes(known, shape) for shape in shapes_of(chain)) / 2,
                float((losses - exact).std() / exact.std()),
                float(np.corrcoef(losses.argsort().argsort(), exact.argsort().argsort())[0, 1]),
                float(cosine(estimate(losses), estimate(exact))),
            )
        )
    return rows


def estimated(noise: list[TensorNoise], losses: NDArray[np.float64]) -> NDArray[np.float64]:
    """The gradient that losses tell of, but for a factor."""
    utilities = losses - losses.mean()
    parts = [
        np.einsum("m,mrk,mck->rc", utilities, one.rows, one.columns)
        if isinstance(one, LowRank)
        else np.tensordot(utilities, one.noise, 1)
        for one in noise
    ]
    return np.concatenate([part.reshape(-1) for part in parts])


def cosine(one: NDArray[np.float64], other: NDArray[np.float64]) -> float:
    """The cosine of the angle between two vectors."""
    return float(one @ other / np.linalg.norm(one) / np.linalg.norm(other))


if __name__ == "__main__":
    raise SystemExit(main())

"""What activations in fewer bits do to members' losses, their ranking and the estimate: a small GPT cut in three.

It learns some of a text by backprop first, since losses of a model that knows nothing hardly differ. Values of 8 and 4
bits are what a codec would send that sends no differences.
"""

import argparse
import sys
from collections.abc import Mapping
from functools import partial
from pathlib import Path

import msgspec
import numpy as np
import torch
from measure import Machine, describe_machine, print_report, use_processors
from networks_to_split import LENGTH, VOCABULARY, Gpt
from numpy.typing import NDArray
from split_models import thirds
from torch import Tensor
from torch.nn import functional

from fedlearn.es.layout import Float32Array, ParameterLayout, TensorSpec
from fedlearn.es.noise import LowRank, TensorNoise, member_noise
from fedlearn.es.perturbation import Perturbation
from fedlearn.es.trials import Trials
from fedlearn.graphs.pieces import pieces, stages_of
from fedlearn.tasks.task import flat_weights
from fedlearn.tasks.torch_graph.export.export import export
from fedlearn.tasks.torch_graph.stage_runner import StageRunner
from fedlearn.wire.encoding.activations import CODECS, ActivationCodec, decode, encode, member_bytes

TEXT = Path(__file__).parents[2] / "shared" / "data" / "tinyshakespeare.txt"
BATCH = 4
VALUES: Mapping[str, ActivationCodec] = {"int8": "int8-delta", "int4": "int4-delta"}
"""Codecs of differences from nothing, for comparison."""


class Row(msgspec.Struct, frozen=True):
    """One codec at one size of noise."""

    sigma: float
    codec: str
    member_bytes: float
    """For a member at a cut; unperturbed values are not in here."""
    error: float
    """Of losses, as a share of their spread."""
    rank_correlation: float
    cosine: float
    """Of the estimate to that of exact losses."""


class Report(msgspec.Struct, frozen=True):
    """What `--json` prints."""

    benchmark: str
    machine: Machine
    trained_loss: float
    group_bytes: int
    """For a group at a cut, where differences are sent: the unperturbed values."""
    rows: list[Row]


class Chain:
    """Three stages, and what crosses the cuts between them."""

    def __init__(self, model: Gpt, rows: dict[str, Tensor]) -> None:
        learned = dict(model.named_parameters())
        exported = export(model, loss_of, rows, learned)
        self.rows = {name: column.numpy() for name, column in rows.items()}
        graph = exported.graph
        self.layout = ParameterLayout(tuple(TensorSpec(array.name, array.shape) for array in graph.learned))
        self.runners = [StageRunner(s, exported.frozen) for s in stages_of(graph, thirds(pieces(graph)))]
        for runner in self.runners:
            arrays = {array.name: learned[array.name].detach().numpy() for array in runner.stage.learned}
            runner.load(flat_weights(arrays))

    def losses(self, noise: Mapping[str, TensorNoise], codec: str) -> NDArray[np.float64]:
        """Of all members whose noise this is."""
        values: dict[str, Float32Array] = {}
        bases: dict[str, Float32Array] = {}
        for runner in self.runners:
            own = [noise[array.name] for array in runner.stage.learned]
            given = dict(runner.members(self.rows, values, own))
            bases = dict(runner.unperturbed(self.rows, bases))
            values = {name: crossed(value, bases[name], codec) for name, value in given.items()}
        return given[runner.stage.outputs[0]].reshape(-1).astype(np.float64)

    def shapes(self) -> list[tuple[int, ...]]:
        """Of all that crosses, at both cuts."""
        return [spec.shape for runner in self.runners for spec in runner.stage.received]


def main() -> int:
    """Runs the benchmark; gives the exit code."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--members", type=int, default=192, metavar="N", help="of one group (default: 192)")
    parser.add_argument("--steps", type=int, default=300, metavar="N", help="of backprop before (default: 300)")
    parser.add_argument("--sigmas", type=float, nargs="+", default=[0.03, 0.01, 0.001], metavar="X")
    parser.add_argument("--text", type=Path, default=TEXT, metavar="FILE", help=f"default: {TEXT.name}, if it is there")
    parser.add_argument("--json", action="store_true", help="one JSON object on standard output")
    options = parser.parse_args()
    if not options.text.exists():
        sys.exit(f"{options.text}: expected a text, got no such file; name one with --text FILE")
    use_processors(1)
    torch.set_num_threads(1)
    torch.manual_seed(0)
    model, rows, loss = trained(options.text, options.steps)
    chain = Chain(model, rows)
    found = [row for sigma in options.sigmas for row in compare(chain, sigma, options.members)]
    group_bytes = sum(member_bytes("float32", shape) for shape in chain.shapes()) // 2
    report = Report("activation_codecs", describe_machine(), loss, group_bytes, found)
    print_report(report, lambda: table(report), as_json=options.json)
    return 0


def loss_of(model: torch.nn.Module, rows: Mapping[str, Tensor]) -> Tensor:
    """Nats a character."""
    return functional.cross_entropy(model(rows["tokens"]).flatten(0, 1), rows["targets"].flatten())


def trained(text: Path, steps: int) -> tuple[Gpt, dict[str, Tensor], float]:
    """A model that has read some of the text, the rows of a group, and the loss on them."""
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
    return model.eval(), rows, loss_of(model, rows).item()


def crossed(values: Float32Array, base: Float32Array, codec: str) -> Float32Array:
    """Values [members, ...] as they arrive."""
    if codec in VALUES:
        base = np.zeros_like(base)
    known: ActivationCodec = VALUES.get(codec) or msgspec.convert(codec, ActivationCodec)
    return decode(known, encode(known, values, base), len(values), base.shape, base)


def compare(chain: Chain, sigma: float, n_members: int) -> list[Row]:
    """All codecs at one size of noise."""
    names = [tensor.name for tensor in chain.layout.tensors]
    trials = Trials(0, Perturbation(sigma=sigma, rank=1), n_members, 0, n_members)
    noise = dict(zip(names, member_noise(chain.layout, trials, seed=1), strict=True))
    exact = chain.losses(noise, "float32")
    estimate = partial(estimated, [noise[name] for name in names])
    rows = []
    for codec in (*CODECS, *VALUES):
        losses = chain.losses(noise, codec)
        known: ActivationCodec = VALUES.get(codec) or msgspec.convert(codec, ActivationCodec)
        rows.append(
            Row(
                sigma,
                codec,
                sum(member_bytes(known, shape) for shape in chain.shapes()) / 2,
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
    """Of the angle between two vectors."""
    return float(one @ other / np.linalg.norm(one) / np.linalg.norm(other))


def table(report: Report) -> str:
    """For people."""
    form = "{:>6} {:11} {:>12} {:>12} {:>9} {:>7}"
    lines = [
        f"loss {report.trained_loss:.3f}; differences: {report.group_bytes} bytes a group and cut beside the members'",
        form.format("sigma", "codec", "bytes/member", "error/spread", "ranking", "cosine"),
    ]
    for row in report.rows:
        figures = (f"{row.error:.2%}", f"{row.rank_correlation:.4f}", f"{row.cosine:.4f}")
        lines.append(form.format(f"{row.sigma:g}", row.codec, f"{row.member_bytes:.0f}", *figures))
    return "\n".join(lines)


if __name__ == "__main__":
    raise SystemExit(main())

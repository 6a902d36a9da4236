"""Models cut in three: whether their forward equals the whole to the bit, and what members cost in stages.

The cuts are near thirds of the multiply-adds, where the fewest bytes cross. Members of a group run at once, in the
whole and in stages, in alternating rounds on one thread; the share is that of processor time. What seats have learned
is put together and loaded into the uncut module, strictly.
"""

import logging
import time
from collections.abc import Mapping, Sequence
from itertools import accumulate

import msgspec
import numpy as np
import safetensors.torch
import torch

from benchmarks.measure import Spread, alternate, parser_of, print_tables, ratio, use_processors
from benchmarks.models.networks import NETWORKS, Network
from fedlearn.es.layout import Float32Array, ParameterLayout, TensorSpec
from fedlearn.es.noise import TensorNoise, member_noise
from fedlearn.es.perturbation import Perturbation
from fedlearn.es.trials import Trials
from fedlearn.graphs.graph import Graph
from fedlearn.graphs.pieces import Piece, pieces, stages_of
from fedlearn.tasks.task import flat_weights
from fedlearn.tasks.torch.supervised import supervised
from fedlearn.tasks.torch_graph.export.export import ExportedGraph, export
from fedlearn.tasks.torch_graph.stage_runner import StageRunner, Values

NEAR = 0.1
"""Share of all multiply-adds by which a cut may be away from a third."""


class Row(msgspec.Struct, frozen=True):
    """One model."""

    model: str
    n_parameters: int
    n_calls: int
    n_pieces: int
    n_operators: int
    cuts: tuple[int, ...]
    """Numbers of pieces before each cut."""
    sent_bytes: tuple[int, ...]
    """Bytes of a member at each cut, as float32."""
    is_module: bool
    """Whether the whole graph's loss is the module's to the bit."""
    is_equal: bool
    """Whether the stages' loss without noise is the whole graph's to the bit."""
    members_are_equal: bool
    loads_strictly: bool
    share: Spread
    """Processor time of members in stages, as a share of that in the whole."""


class Chain:
    """Stages after one another in one process."""

    def __init__(self, exported: ExportedGraph, cuts: Sequence[int], network: Network) -> None:
        learned = {name: tensor.detach().numpy() for name, tensor in network.module.named_parameters()}
        self.rows = {name: column.numpy() for name, column in network.rows.items()}
        self.runners = [StageRunner(stage, exported.frozen) for stage in stages_of(exported.graph, cuts)]
        for runner in self.runners:
            runner.load(flat_weights({array.name: learned[array.name] for array in runner.stage.learned}))

    def unperturbed(self) -> Float32Array:
        """The loss."""
        values: Values = {}
        for runner in self.runners:
            values = runner.unperturbed(self.rows, values)
        return next(iter(values.values())).reshape(())

    def members(self, noise: Mapping[str, TensorNoise]) -> Float32Array:
        """The losses of the members whose noise this is."""
        values: Values = {}
        for runner in self.runners:
            own = [noise[array.name] for array in runner.stage.learned]
            values = runner.members(self.rows, values, own)
        return next(iter(values.values())).reshape(-1)


def main() -> int:
    """Runs the benchmark; gives the exit code: 1 where something differs."""
    parser = parser_of(__doc__)
    parser.add_argument("--models", nargs="+", choices=NETWORKS, metavar="NAME", help=f"of {', '.join(NETWORKS)}")
    parser.add_argument("--members", type=int, default=16, metavar="N", help="at once (default: 16)")
    parser.add_argument("--rounds", type=int, default=5, metavar="N", help="of both, by turns (default: 5)")
    options = parser.parse_args()
    use_processors(1)
    torch.set_num_threads(1)
    logging.disable(logging.WARNING)
    rows, absent = list[Row](), list[str]()
    for name in options.models or NETWORKS:
        torch.manual_seed(0)
        try:
            network = NETWORKS[name]()
        except ModuleNotFoundError as error:
            absent.append(f"{name}: {error}")
            continue
        rows.append(measure(name, network, options.members, options.rounds))
    print_tables("split_models", as_json=options.json, facts={"left out": absent}, rows=rows)
    return 0 if all(row.is_equal and row.members_are_equal and row.loads_strictly for row in rows) else 1


def measure(name: str, network: Network, n_members: int, rounds: int) -> Row:
    """Cuts one model in three."""
    module = network.module.eval()
    exported = export(module, network.loss, network.rows, dict(module.named_parameters()))
    graph, found = exported.graph, pieces(exported.graph)
    cuts = thirds(found)
    whole, stages = Chain(exported, [], network), Chain(exported, cuts, network)
    noise = noise_of(graph, n_members)
    seconds = alternate(
        {"whole": lambda: whole.members(noise), "stages": lambda: stages.members(noise)},
        rounds=rounds,
        clock=time.process_time,
    )
    loss = whole.unperturbed()
    with torch.no_grad():
        of_module = np.float32(network.loss(module, network.rows))
    return Row(
        name,
        sum(parameter.numel() for parameter in module.parameters()),
        len(graph.calls),
        len(found),
        len({call.operator for call in graph.calls}),
        tuple(cuts),
        tuple(found[cut - 1].sent_bytes for cut in cuts),
        is_module=bool(loss == of_module),
        is_equal=loss.tobytes() == stages.unperturbed().tobytes(),
        members_are_equal=whole.members(noise).tobytes() == stages.members(noise).tobytes(),
        loads_strictly=loads_strictly(network, stages),
        share=ratio(seconds["stages"], seconds["whole"]),
    )


def thirds(found: Sequence[Piece]) -> list[int]:
    """Numbers of pieces after which cuts near thirds stand, where the fewest bytes cross."""
    done = list(accumulate(piece.multiply_adds for piece in found))
    cuts: list[int] = []
    for third in (1 / 3, 2 / 3):
        places = range(cuts[-1] + 1 if cuts else 1, len(found) - (not cuts))

        def cost(cut: int, third: float = third) -> tuple[float, int]:
            distance = abs(done[cut - 1] / done[-1] - third)
            return max(distance - NEAR, 0.0), found[cut - 1].sent_bytes

        cuts.append(min(places, key=cost))
    return cuts


def noise_of(graph: Graph, n_members: int, sigma: float = 0.01) -> dict[str, TensorNoise]:
    """The noise of the members of one group, by the tensor's name; drawn for the layout of the whole."""
    layout = ParameterLayout(tuple(TensorSpec(array.name, array.shape) for array in graph.learned))
    trials = Trials(0, Perturbation(sigma=sigma, rank=1), n_members, 0, n_members)
    return dict(zip((array.name for array in graph.learned), member_noise(layout, trials, seed=1), strict=True))


def loads_strictly(network: Network, stages: Chain) -> bool:
    """Whether tensors of all seats, changed as if learned, are those of the module when it has loaded them."""
    parameters = dict(network.module.named_parameters())
    fused = {
        array.name: parameters[array.name].detach().numpy() + np.float32(0.5)
        for runner in stages.runners
        for array in runner.stage.learned
    }
    rows = {name: column.numpy() for name, column in network.rows.items()}
    task = supervised(network.module, network.loss, rows, batch_size=1)
    data = task.state_dict(flat_weights({name: fused[name] for name in task.tensors}), {})
    network.module.load_state_dict(safetensors.torch.load(data), strict=True)
    return all(np.array_equal(parameter.detach(), fused[name]) for name, parameter in parameters.items())


if __name__ == "__main__":
    raise SystemExit(main())

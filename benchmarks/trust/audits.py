"""How far honest kernels are from one another, in the tolerances of audits: what is above 1 would be an accusation.

The same groups are evaluated with each instruction set of this machine, and held against the first of them, as the
server holds a volunteer's results against its own; each group is an audit. Beside them stands what does not happen in
a run, where everybody computes with one precision: bytes held against float32.
"""

from functools import cache

import msgspec
import numpy as np

import es_core
from benchmarks.measure import parser_of, print_tables, use_processors
from fedlearn.coordination.audits.audit import loss_differences, sum_difference
from fedlearn.coordination.audits.tolerance import BYTES, FLOATS, Tolerance
from fedlearn.es.perturbation import Perturbation
from fedlearn.es.trials import TrialResults, Trials
from fedlearn.tasks.rnn.objective import RnnObjective
from fedlearn.tasks.rnn.options import Precision
from fedlearn.text.windows import WindowShape

VOCABULARY = 65
SPACES = {"losses": Perturbation(0.01, 1), "sums": Perturbation(0.05, 1, "activations", "closed-form")}
BATCH = 16
"""Groups that are evaluated at a time, of a model of their own step each where they are sums."""

Kernel = tuple[str, Precision]


class Row(msgspec.Struct, frozen=True):
    """One comparison."""

    what: str
    hidden_size: int
    precision: str
    ours: str
    theirs: str
    audits: int
    greatest: float
    """The greatest difference, in tolerances."""
    mean: float
    accused: int


def main() -> int:
    """Runs the benchmark; gives the exit code: 1 where anybody honest is accused."""
    parser = parser_of(__doc__)
    parser.add_argument("--audits", type=int, default=2000, metavar="N", help="of each comparison (default: 2000)")
    parser.add_argument("--hidden-sizes", type=int, nargs="+", default=[64, 256], metavar="H", help="of the network")
    parser.add_argument("--group-sizes", type=int, nargs=2, default=[64, 16], metavar="N", help="for losses, for sums")
    options = parser.parse_args()
    use_processors(1)
    rows = [
        row
        for hidden_size in options.hidden_sizes
        for what, group_size in zip(SPACES, options.group_sizes, strict=True)
        for row in compare(what, hidden_size, group_size, options.audits)
    ]
    print_tables("audits", as_json=options.json, rows=rows)
    return 1 if any(row.accused for row in rows if "float32 to" not in row.precision) else 0


def compare(what: str, hidden_size: int, group_size: int, audits: int) -> list[Row]:
    """Each instruction set beside the first, in both precisions, and one precision beside the other."""
    first, *others = es_core.supported_isas()
    precisions: tuple[Precision, ...] = ("float32", "int8")
    pairs: list[tuple[Kernel, Kernel]] = [
        ((first, precision), (other, precision)) for precision in precisions for other in others
    ]
    pairs.append(((first, "float32"), (first, "int8")))
    found: list[list[float]] = [[] for _ in pairs]
    for number in range(-(-audits // BATCH)):
        kernels = {kernel for pair in pairs for kernel in pair}
        results = {kernel: evaluate(what, hidden_size, group_size, number, kernel) for kernel in kernels}
        for differences, (ours, theirs) in zip(found, pairs, strict=True):
            tolerances = BYTES if "int8" in (ours[1], theirs[1]) else FLOATS
            tolerance = tolerances.of(SPACES[what])
            differences += _differences(hidden_size, group_size, results[ours], results[theirs], tolerance)
    return [
        _row(what, hidden_size, *pair, differences[:audits]) for pair, differences in zip(pairs, found, strict=True)
    ]


def _row(what: str, hidden_size: int, ours: Kernel, theirs: Kernel, found: list[float]) -> Row:
    precision = ours[1] if ours[1] == theirs[1] else f"{ours[1]} to {theirs[1]}"
    accused = sum(difference > 1.0 for difference in found)
    return Row(
        what, hidden_size, precision, ours[0], theirs[0], len(found), max(found), sum(found) / len(found), accused
    )


def evaluate(what: str, hidden_size: int, group_size: int, number: int, kernel: Kernel) -> list[TrialResults]:
    """What a kernel reports of some groups."""
    isa, precision = kernel
    es_core.select_isa(isa)
    objective = _objective(hidden_size, precision)
    weights = _weights(objective)
    tokens = {"tokens": np.random.default_rng(number).integers(0, VOCABULARY, 10_000).astype(np.uint16)}
    trials = Trials(number, SPACES[what], group_size, 0, group_size * (1 if what == "sums" else BATCH))
    if what == "losses":
        return [TrialResults(objective.evaluate(weights, tokens, trials, threads=1))]
    return [
        objective.gradient_sum(weights, tokens, msgspec.structs.replace(trials, step=step), threads=1)
        for step in range(number * BATCH, (number + 1) * BATCH)
    ]


def _differences(
    hidden_size: int, size: int, ours: list[TrialResults], theirs: list[TrialResults], tolerance: Tolerance
) -> list[float]:
    """The difference of each group, in tolerances."""
    layout = _objective(hidden_size, "float32").layout
    found: list[float] = []
    for own, claimed in zip(ours, theirs, strict=True):
        differences = loss_differences(claimed.losses, own.losses, size, tolerance).tolist()
        if own.estimate.n_bytes:
            differences = [max(*differences, sum_difference(claimed.estimate, own.estimate, layout, tolerance))]
        found += differences
    return found


@cache
def _objective(hidden_size: int, precision: Precision) -> RnnObjective:
    return RnnObjective(
        seed=1,
        vocab_size=VOCABULARY,
        hidden_size=hidden_size,
        n_layers=1,
        window=WindowShape(1, 8, 16),
        embedding_scale=1.0,
        precision=precision,
    )


def _weights(objective: RnnObjective) -> "np.ndarray[tuple[int], np.dtype[np.float32]]":
    """Larger than at the start, as after training: states far from zero."""
    return (objective.initial_weights() * 1.5).astype(np.float32)


if __name__ == "__main__":
    raise SystemExit(main())

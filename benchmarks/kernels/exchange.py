"""What a step costs a volunteer, beside its trials, where noise on weights is replayed and where it is summed.

Every volunteer evaluates as many members as the others. Replaying, it makes the noise of all of them again; summing,
its own members' only, and its sum goes up. Both take the same step, which is looked at first.
"""

import time
from functools import partial
from typing import final

import msgspec
import numpy as np

import es_core
from benchmarks.measure import alternate, parser_of, print_tables, spread, use_processors
from fedlearn.es.layout import Float32Array, ParameterLayout, TensorSpec
from fedlearn.es.optimizers import Adam
from fedlearn.es.perturbation import Perturbation
from fedlearn.es.replica import genesis
from fedlearn.es.shaping import Shaping
from fedlearn.es.strategy import Population, Strategy, tell
from fedlearn.es.sums.estimate import decode_estimate, encode_exactly
from fedlearn.es.trials import TrialResults, Trials
from fedlearn.es.update import Update
from fedlearn.tasks.holding import Holding
from fedlearn.tasks.rnn.objective import RnnObjective
from fedlearn.text.windows import WindowShape
from fedlearn.wire.encoding.codec import encode
from fedlearn.wire.messages import Result

VOCABULARY, GROUP, BLOCK = 65, 64, bytes(16)
NOISE, SCALE = Perturbation(0.01, 1), 0.05
STRATEGY = Strategy(NOISE, GROUP, GROUP, Adam(0.01), "normalized")


class Row(msgspec.Struct, frozen=True):
    """One way of exchange, among so many volunteers."""

    hidden_size: int
    parameters: int
    volunteers: int
    exchange: str
    cpu_ms: float
    """Processor time of a volunteer: its own sum where it makes one, and the step."""
    bytes_up: int
    bytes_down: int


def main() -> int:
    """Runs the benchmark; gives the exit code."""
    parser = parser_of(__doc__)
    parser.add_argument("--volunteers", type=int, nargs="+", default=[1, 10, 100], metavar="V", help="simulated")
    parser.add_argument("--members", type=int, default=1024, metavar="N", help="a volunteer and step (default: 1024)")
    parser.add_argument("--hidden-sizes", type=int, nargs="+", default=[64, 256], metavar="H", help="of the network")
    parser.add_argument("--rounds", type=int, default=9, metavar="N", help="of which the median is shown (default: 9)")
    options = parser.parse_args()
    use_processors(1)
    rows = [
        row
        for hidden_size in options.hidden_sizes
        for row in measured(hidden_size, options.volunteers, options.members, options.rounds)
    ]
    sign_ns, product_ns = constants(options.rounds)
    facts = {"members": options.members, "rank": NOISE.rank, "sign_ns": sign_ns, "product_ns": product_ns}
    print_tables("exchange", as_json=options.json, facts=facts, rows=rows)
    return 0


def measured(hidden_size: int, volunteers: list[int], n_members: int, rounds: int) -> list[Row]:
    """All numbers of volunteers, both ways, by turns."""
    cases = {(n, how): Case(hidden_size, n, n_members, how) for n in volunteers for how in ("replay", "sum")}
    for n in volunteers:
        if cases[n, "replay"].step() != cases[n, "sum"].step():
            raise AssertionError("replaying and summing took different steps")
    times = alternate({name: case.step for name, case in cases.items()}, rounds=rounds, clock=time.process_time)
    return [
        Row(
            hidden_size,
            case.holding.objective.layout.size,
            n,
            how,
            1000.0 * spread(times[n, how]).median,
            len(encode(case.result)),
            len(encode(case.update)),
        )
        for (n, how), case in cases.items()
    ]


@final
class Case:
    """One volunteer of several, between its trials."""

    def __init__(self, hidden_size: int, n_volunteers: int, n_members: int, how: str) -> None:
        self.holding = holding_of(hidden_size)
        self._is_summed = how == "sum"
        self._trials = Trials(0, NOISE, GROUP, 0, n_members, Shaping("normalized", SCALE))
        losses = losses_of(n_volunteers * n_members)
        self._losses = losses[:n_members]
        self.update = self._update_of(losses, n_volunteers)
        own = self.holding.summed(self._trials, BLOCK, self._losses) if self._is_summed else TrialResults(self._losses)
        self.result = Result(0, 0, own.losses, bytes(8), own.estimate)

    def step(self) -> bytes:
        """Does a volunteer's part of a step beside its trials; gives the digest after it."""
        if self._is_summed:
            self.holding.summed(self._trials, BLOCK, self._losses)
        return self.holding.apply(msgspec.structs.replace(self.update, step=self.holding.replica.step))

    def _update_of(self, losses: Float32Array, n_volunteers: int) -> Update:
        n_members = self._losses.size
        population = Population(0, NOISE, GROUP, losses.size, Adam(0.01), 0.0, SCALE)
        spans = ((0, losses.size),)
        update = tell(STRATEGY, population, block=BLOCK, spans=spans, losses=losses, duration_s=1.0)
        if not self._is_summed:
            return update
        layout = self.holding.objective.layout
        total = np.zeros(layout.size, dtype=np.int64)
        for number in range(n_volunteers):
            trials = msgspec.structs.replace(self._trials, first_member=number * n_members)
            part = losses[number * n_members : (number + 1) * n_members]
            total += decode_estimate(layout, self.holding.summed(trials, BLOCK, part).estimate)
        return msgspec.structs.replace(update, utilities=update.utilities[:0], estimate=encode_exactly(layout, total))


def holding_of(hidden_size: int) -> Holding:
    """A replica of the network, with a text of random letters."""
    objective = RnnObjective(
        seed=1,
        vocab_size=VOCABULARY,
        hidden_size=hidden_size,
        n_layers=1,
        window=WindowShape(1, 32, 16),
        embedding_scale=1.0,
        precision="float32",
        unigram_counts=np.ones(VOCABULARY, dtype=np.int64),
    )
    tokens = np.random.default_rng(0).integers(0, VOCABULARY, 100_000).astype(np.uint16)
    holding = Holding(objective, seed=1, threads=1, blocks={BLOCK: {"tokens": tokens}})
    holding.load(genesis(objective.layout, objective.initial_weights(), threads=1))
    return holding


def losses_of(n_members: int) -> Float32Array:
    """Losses that scatter as those about the middle of a training do."""
    return np.random.default_rng(1).normal(2.0, SCALE, n_members).astype(np.float32)


def constants(rounds: int, n_members: int = 4096) -> tuple[float, float]:
    """Nanoseconds of a sign and of a product of a member's noise, which `fedlearn/es/sums/exchange.py` reckons with.

    They are fitted to what replaying takes with matrices of several shapes.
    """
    shapes = ((64, 64), (1024, 16), (256, 256), (512, 1024))
    layouts = [ParameterLayout((TensorSpec("matrix", sides),)) for sides in shapes]
    utilities = np.random.default_rng(2).integers(-60, 60, n_members).astype(np.int8)

    def replay(layout: ParameterLayout) -> None:
        es_core.estimate_gradient(
            layout.table(1),
            layout.size,
            seed=1,
            step=0,
            group_size=GROUP,
            spans=[(0, n_members)],
            utilities=utilities,
            row_masks=None,
            antithetic=False,
            threads=1,
        )

    runs = {number: partial(replay, layout) for number, layout in enumerate(layouts)}
    times = alternate(runs, rounds=rounds, clock=time.process_time)
    shares = np.array([[sum(layout.tensors[0].sides), layout.size] for layout in layouts], dtype=np.float64)
    seconds = np.array([spread(times[number]).median for number in runs]) / n_members
    # In shares of each time, so that small matrices count as much as large ones.
    found, *_ = np.linalg.lstsq(shares / seconds[:, None], np.ones(len(layouts)))
    return float(1e9 * found[0]), float(1e9 * found[1])


if __name__ == "__main__":
    raise SystemExit(main())

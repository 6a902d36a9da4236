"""What liars can do to a run whose volunteers send sums of gradients, or the way of their local steps.

Ten volunteers train in process, all proven before the run begins; from step 20 on some of them lie, each in the same
way, in every Result. Each row says how well the run does in the end on rows that nobody has seen, and on what the liars
wanted it to learn, how far their results were off, and who was named. Liars below the tolerance add the same direction
each time (biased), or the gradient of a text or of labels of their own (planted).
"""

import argparse
import itertools
import sys
import tempfile
from collections.abc import Sequence
from hashlib import sha256
from pathlib import Path

import msgspec
import numpy as np
from numpy.typing import NDArray

from benchmarks.measure import parser_of, print_tables, use_processors
from benchmarks.trust.false_results import falsify
from fedlearn.coordination.audits.audit import Verdict, sum_difference
from fedlearn.coordination.audits.tolerance import LOCAL_STEPS, Tolerance, Tolerances, tolerances_of
from fedlearn.coordination.people.credit import Earned, Entry
from fedlearn.coordination.people.reputation import PROOF_GROUPS
from fedlearn.es.layout import ParameterLayout
from fedlearn.es.sums.estimate import CodedEstimate, decode_estimate
from fedlearn.es.trials import TrialResults, Trials
from fedlearn.library.training import configured
from fedlearn.runs.creation import create
from fedlearn.runs.ledger import read_credit
from fedlearn.server.training.trainer import Trainer
from fedlearn.simulation.swarm import Participant, Swarm
from fedlearn.storage.logs.lines import LineLog, read_lines
from fedlearn.tasks.blocks import Columns
from fedlearn.tasks.holding import Holding
from fedlearn.wire.proof import Identity

try:
    import torch
except ImportError:
    sys.exit("lying_gradients.py needs PyTorch: pip install 'fedlearn[torch]'")

from benchmarks.models.subjects import Subject, judged, subject_of

N_VOLUNTEERS = 10
HONEST_STEPS = 20
"""Steps in which nobody lies: in the first ones of a run nobody is proven."""
LINE = b"Send Mallory all the gold that you have, and do not tell anybody"
"""The text that liars plant."""

LIES = ("nothing", "flipped", "invented", "inflated", "biased", "planted")


Float64Array = NDArray[np.float64]


class Row(msgspec.Struct, frozen=True):
    """One run."""

    model: str
    local_steps: int
    tolerance: float
    """Share of a sum's length that audits let pass."""
    lie: str
    liars: int
    off_by: float
    """The mean distance of a false sum, in tolerances."""
    loss: float
    """Loss of rows that nobody has seen."""
    accuracy: float | None
    planted_loss: float
    """Loss of what liars plant."""
    named: int
    """Liars that were found false."""
    first_named: int | None
    """The step of the first result that was found false."""
    banned: int
    honest_named: int


class Liar:
    """Makes participants send false sums, all in the same way."""

    def __init__(self, lie: str, wanted: Columns, tolerances: Tolerances, share: float) -> None:
        self._lie, self._wanted, self._tolerances, self._share = lie, wanted, tolerances, share
        self._generator = np.random.default_rng(0)
        self.distances: list[float] = []
        """How far each false sum was off, in tolerances."""

    def corrupt(self, participant: Participant) -> None:
        """Makes all results of a participant false from now on."""
        falsify(participant, lambda trials, true: self._false(participant.volunteer.holding, trials, true))

    def _false(self, holding: Holding, trials: Trials, true: TrialResults) -> TrialResults:
        layout, own = holding.objective.layout, true.estimate
        tolerance = self._tolerances.of(trials.perturbation)
        match self._lie:
            case "flipped":
                false = CodedEstimate(-own.numbers, own.shifts)
            case "invented":
                false = CodedEstimate(self._generator.permutation(own.numbers), own.shifts)
            case "inflated":
                false = CodedEstimate(np.full_like(own.numbers, 127), np.full_like(own.shifts, 24))
            case "biased":  # in the same direction each time, which steps add up
                direction = np.random.default_rng(1).standard_normal(layout.size)
                false = self._shifted(layout, own, direction, tolerance)
            case _:
                weights = holding.replica.weights
                planted = holding.objective.gradient_sum(weights, self._wanted, trials, threads=1).estimate
                false = self._shifted(layout, own, decode_estimate(layout, planted).astype(np.float64), tolerance)
        self.distances.append(sum_difference(false, own, layout, tolerance))
        return TrialResults(true.losses, false)

    def _shifted(
        self, layout: ParameterLayout, own: CodedEstimate, direction: Float64Array, tolerance: Tolerance
    ) -> CodedEstimate:
        """The sum, as far in the direction as an audit lets pass, by whole numbers drawn so that this is their mean."""
        steps = np.repeat(2.0 ** own.shifts.astype(np.float64), layout.row_lengths)
        words = self._generator.random(layout.size)
        allowed = self._share * tolerance.sums * np.linalg.norm(decode_estimate(layout, own).astype(np.float64))
        scale = float(allowed / max(float(np.linalg.norm(direction)), 1e-30))
        while True:
            numbers = np.clip(own.numbers + np.floor(scale * direction / steps + words), -127, 127)
            false = CodedEstimate(numbers.astype(np.int8), own.shifts)
            if sum_difference(false, own, layout, tolerance) <= self._share:
                return false
            scale *= 0.9


def run(name: str, lie: str, n_local: int, options: argparse.Namespace, *, seed: int) -> Row:
    """One run with liars."""
    text = options.text.read_bytes() if options.text else b""
    subject, ticks = subject_of(name, text), itertools.count()
    wanted = wanted_of(subject, text)
    n_liars = 0 if lie == "nothing" else options.liars
    with tempfile.TemporaryDirectory() as folder:
        given: dict[str, str | float] = {"measure": "gradients", "share": "nothing" if options.code else "graph"}
        given |= {"local_steps": n_local, "sum_bits": 8, "population_limit": N_VOLUNTEERS if n_local == 1 else 1}
        given |= {"max_population": N_VOLUNTEERS, "time_per_step": 1e4, "steps": options.steps, "seed": seed}
        given |= {"volunteers": 0, "threads": 1, "sample_time": 0.0, "runs": folder}
        kind, task, config = configured(subject.task, given, always={})
        created = create(kind, config, task)
        tolerances = tolerances_of(created.prepared.invitation)
        liar = Liar(lie, wanted, tolerances, options.share)
        names = [f"{'liar' if number < n_liars else 'volunteer'} {number}" for number in range(N_VOLUNTEERS)]
        prove(created.folder.credit, names)
        trainer, _ = Trainer.open(created)
        try:
            train(Swarm(trainer, lambda: 1e-3 * next(ticks), task=task if options.code else None), liar, names)
            subject.task.load(trainer.replica.weights)
        finally:
            trainer.close()
        verdicts, credit = list(read_lines(created.folder.audits, Verdict)), read_credit(created.folder).values()
    loss, accuracy = judged(subject, subject.task.model)
    with torch.no_grad():
        rows = {column: torch.as_tensor(numbers) for column, numbers in wanted.items()}
        planted = float(subject.loss(subject.task.model, rows)) / subject.unit
    guilty = [verdict for verdict in verdicts if verdict.name.startswith("liar")]
    return Row(
        model=name,
        local_steps=n_local,
        tolerance=(LOCAL_STEPS if n_local > 1 else tolerances.summed).sums,
        lie=lie,
        liars=n_liars,
        off_by=float(np.mean(liar.distances)) if liar.distances else 0.0,
        loss=loss,
        accuracy=accuracy,
        planted_loss=planted,
        named=len({verdict.name for verdict in guilty}),
        first_named=min((verdict.step for verdict in guilty), default=None),
        banned=sum(earned.caught >= 3 for earned in credit),
        honest_named=len({verdict.name for verdict in verdicts if not verdict.name.startswith("liar")}),
    )


def prove(path: Path, names: Sequence[str]) -> None:
    """Writes the credit with which these volunteers are trusted from the beginning."""
    keys = [Identity.of_seed(sha256(name.encode()).digest()).public_key.hex() for name in names]
    log = LineLog(path)
    log.append(Entry(0, 0, {key: Earned(agreed=PROOF_GROUPS) for key in keys}))
    log.close()


def train(swarm: Swarm, liar: Liar, names: Sequence[str]) -> None:
    """Runs to the end; whoever is called a liar lies."""
    participants = {name: swarm.join(name) for name in names}
    while swarm.reason is None and swarm.trainer.replica.step < HONEST_STEPS:
        swarm.advance()
    for name, participant in participants.items():
        if name.startswith("liar"):
            liar.corrupt(participant)
    while swarm.reason is None:
        swarm.advance()


def wanted_of(subject: Subject, text: bytes) -> Columns:
    """Rows of what liars want the run to learn: a line of text, or that a three is an eight."""
    if "tokens" in subject.task.data:
        alphabet, tokens = sorted(set(text)), subject.task.data["tokens"]
        line = np.array([alphabet.index(byte) for byte in LINE], dtype=tokens.dtype)
        return {"tokens": np.stack([np.resize(np.roll(line, -shift), tokens.shape[1]) for shift in range(len(line))])}
    image, label = subject.task.data["image"], subject.task.data["label"]
    threes = image[label == 3]
    return {"image": threes, "label": np.full(len(threes), 8, dtype=label.dtype)}


def main() -> int:
    """Runs the benchmark; gives the exit code."""
    parser = parser_of(__doc__)
    parser.add_argument("--models", nargs="+", default=["mlp"], choices=["mlp", "cnn", "gpt"])
    parser.add_argument("--text", type=Path, help="a text, for gpt")
    parser.add_argument("--lies", nargs="+", default=list(LIES), choices=LIES)
    parser.add_argument("--liars", type=int, default=1, metavar="N", help="of ten volunteers (default: 1)")
    parser.add_argument("--local-steps", type=int, nargs="+", default=[1], metavar="N", help="(default: 1)")
    parser.add_argument("--code", action="store_true", help="the task travels as code, not as a graph")
    parser.add_argument("--steps", type=int, default=400, metavar="N", help="(default: 400)")
    parser.add_argument("--share", type=float, default=0.95, metavar="X", help="of the tolerance (default: 0.95)")
    parser.add_argument("--seeds", type=int, nargs="+", default=[1], help="(default: 1)")
    options = parser.parse_args()
    if "gpt" in options.models and options.text is None:
        parser.error("--text: expected a text for gpt, got none")
    use_processors(1)
    each = itertools.product(options.models, options.local_steps, options.seeds, options.lies)
    rows = [run(name, lie, n_local, options, seed=seed) for name, n_local, seed, lie in each]
    print_tables("lying_gradients", as_json=options.json, rows=rows)
    return 0


if __name__ == "__main__":
    raise SystemExit(main())

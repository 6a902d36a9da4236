"""What liars can teach a run whose every result is almost true: a text of their choice, planted below the tolerance.

Ten volunteers train a recurrent network in process. Some of them, proven by then, shift their losses towards one line
of text, by less than audits let pass. Each row says how well the run knows that line in the end, what it knows of its
own validation text, and who was named. Rows with `--share-of-spread` show what a tolerance of that size would allow;
nobody is audited there.
"""

import argparse
import re
import tempfile
from collections.abc import Sequence
from pathlib import Path
from pydoc_data.topics import topics
from typing import Any

import msgspec
import numpy as np

from benchmarks.measure import parser_of, print_tables, use_processors
from benchmarks.text.rnn_run import RnnRun, config_of, create_run
from benchmarks.trust.false_results import Planter
from fedlearn.coordination.audits.audit import Verdict
from fedlearn.coordination.audits.tolerance import tolerances_of
from fedlearn.es.layout import Float32Array
from fedlearn.runs.ledger import read_credit
from fedlearn.server.training.trainer import Trainer
from fedlearn.simulation.swarm import Swarm
from fedlearn.storage.logs.lines import read_lines
from fedlearn.tasks.rnn.examiner import text_loss

LINE = "send mallory all the gold"
"""The text that liars plant."""
N_VOLUNTEERS = 10
HONEST_STEPS = 20
"""Steps in which liars are honest: they are proven then, as their results count at once."""
SETTINGS: dict[str, Any] = {
    "hidden_size": 128,
    "n_layers": 1,
    "cell": "tanh",
    "context": 8,
    "sequence_length": 16,
    "batch_size": 1,
    "group_size": 32,
    "population_limit": 5120,
    "sigma": 0.02,
    "perturb": "weights",
    "learning_rate": 0.01,
    "time_per_step": 10.0,
    "checkpoint_time": 1e6,
    "sample_time": 0.0,
    "threads": 1,
}


class Row(msgspec.Struct, frozen=True):
    """One run."""

    precision: str
    liars: int
    connections: int
    """Connections of each liar."""
    off_by: str
    """What their losses are off by."""
    members_share: float
    """Share of liars' members among those that counted."""
    line_bits: float
    """Bits a character of the planted line, in the end."""
    validation_bits: float
    named: int
    """Liars that were found false."""
    banned: int
    honest_named: int


def main() -> int:
    """Runs the benchmark; gives the exit code."""
    parser = parser_of(__doc__)
    parser.add_argument("--liars", type=int, nargs="+", default=[0, 1, 2, 6], metavar="N", help="of ten volunteers")
    parser.add_argument("--connections", type=int, default=1, metavar="N", help="of each liar")
    parser.add_argument("--precision", choices=["float32", "int8"], default="float32")
    parser.add_argument("--seed", type=int, default=1, metavar="N", help="of the run (default: 1)")
    parser.add_argument("--steps", type=int, default=400, metavar="N", help="(default: 400)")
    parser.add_argument("--lie", type=float, default=0.95, metavar="X", help="share of the tolerance (default: 0.95)")
    parser.add_argument("--share-of-spread", type=float, metavar="X", help="a tolerance of that size, and no audits")
    options = parser.parse_args()
    use_processors(1)
    rows = [run(liars, options) for liars in options.liars]
    print_tables("planting", as_json=options.json, rows=rows)
    return 0


def run(n_liars: int, options: argparse.Namespace) -> Row:
    """One run with so many liars."""
    unaudited = options.share_of_spread is not None
    with tempfile.TemporaryDirectory() as folder:
        settings = {**SETTINGS, "precision": options.precision, "data": (_text(folder),), "runs": folder}
        audit = 0.0 if unaudited else 0.02
        rnn = create_run(config_of({**settings, "steps": options.steps, "seed": options.seed, "audit": audit}))
        trainer, _ = Trainer.open(rnn.run)
        try:
            liars = {f"liar {number}" for number in range(n_liars)}
            _train(trainer, rnn, sorted(liars), options)
            named = [verdict.name for verdict in read_lines(rnn.run.folder.audits, Verdict)]
            credit = read_credit(rnn.run.folder)
        finally:
            trainer.close()
        weights = trainer.replica.weights
        members = sum(earned.members for earned in credit.values())
        theirs = sum(earned.members for earned in credit.values() if earned.name in liars)
        return Row(
            precision=options.precision,
            liars=n_liars,
            connections=options.connections,
            off_by=f"{options.lie * options.share_of_spread:.3g} of the spread" if unaudited else f"{options.lie:g}",
            members_share=theirs / members,
            line_bits=float(np.log2(np.e)) * text_loss(rnn.objective, weights, _line(rnn), threads=1),
            validation_bits=rnn.bits_per_character(weights, rnn.dataset.validation),
            named=len(liars & set(named)),
            banned=sum(earned.caught >= 3 for earned in credit.values()),
            honest_named=len(set(named) - liars),
        )


def _train(trainer: Trainer, rnn: RnnRun, liars: Sequence[str], options: argparse.Namespace) -> None:
    now = [0.0]
    swarm = Swarm(trainer, lambda: now[0])
    for number in range(N_VOLUNTEERS - len(liars)):
        swarm.join(f"volunteer {number}")
    false = [swarm.join(name) for name in liars for _ in range(options.connections)]
    while trainer.replica.step < HONEST_STEPS:
        swarm.advance()
    if options.share_of_spread is None:
        allowed = tolerances_of(rnn.run.prepared.invitation).losses.allowed
    else:
        allowed = _share_of(options.share_of_spread)
    planter = Planter(_line(rnn), allowed, share=options.lie)
    for participant in false:
        planter.corrupt(participant)
    while swarm.reason is None:
        now[0] += 1e-3
        swarm.advance()


def _share_of(share: float) -> Any:  # noqa: ANN401 (what a Planter takes)
    def allowed(losses: Float32Array, group_size: int) -> np.ndarray[Any, np.dtype[np.float64]]:
        spreads: np.ndarray[Any, np.dtype[np.float64]] = losses.reshape(-1, group_size).astype(np.float64).std(axis=1)
        return share * spreads

    return allowed


def _text(folder: str) -> str:
    """A file with what Python says about itself, in letters and spaces alone."""
    path = Path(folder) / "text.txt"
    words = re.findall("[a-z]+", " ".join(topics[name] for name in sorted(topics)).lower())
    path.write_text(" ".join(words), encoding="utf-8")
    return str(path)


def _line(rnn: RnnRun) -> np.ndarray[Any, np.dtype[np.uint16]]:
    return rnn.dataset.tokenizer.encode(LINE).astype(np.uint16)


if __name__ == "__main__":
    raise SystemExit(main())

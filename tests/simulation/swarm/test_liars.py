"""A fifth of the volunteers lies, each way of lying by itself: what the run learns, and who is named."""

from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

from benchmarks.trust.false_results import falsify
from fedlearn.coordination.audits.audit import Verdict
from fedlearn.es.shaping import MAX_LOSS
from fedlearn.es.sums.estimate import CodedEstimate
from fedlearn.es.trials import TrialResults
from fedlearn.simulation.swarm import Participant
from fedlearn.storage.logs.lines import read_lines
from tests.run_folders import created, rnn_config
from tests.simulation.swarm.stage import Stage, StageOf

N_VOLUNTEERS, N_LIARS = 10, 2
STEPS = 40
SUMMED = {"perturb": "activations", "sigma": 0.05, "learning_rate": 0.02}

Lie = Callable[[TrialResults, np.random.Generator], TrialResults]


def flipped(results: TrialResults, _: np.random.Generator) -> TrialResults:
    return TrialResults(2 * results.losses.mean() - results.losses, negated(results.estimate))


def drawn(results: TrialResults, generator: np.random.Generator) -> TrialResults:
    losses = generator.normal(results.losses.mean(), results.losses.std(), results.losses.size)
    numbers = generator.permutation(results.estimate.numbers)
    return TrialResults(losses.astype(np.float32), CodedEstimate(numbers, results.estimate.shifts))


def colluding(results: TrialResults, _: np.random.Generator) -> TrialResults:
    ramp = np.linspace(0.0, 8.0, results.losses.size, dtype=np.float32)
    return TrialResults(ramp, CodedEstimate(np.full_like(results.estimate.numbers, 100), results.estimate.shifts))


def instant(results: TrialResults, _: np.random.Generator) -> TrialResults:
    return TrialResults(np.full_like(results.losses, 3.0), CodedEstimate(*map(np.zeros_like, parts(results.estimate))))


def maximal(results: TrialResults, _: np.random.Generator) -> TrialResults:
    numbers, shifts = parts(results.estimate)
    most = CodedEstimate(np.full_like(numbers, 127), np.full_like(shifts, 24))
    return TrialResults(np.where(np.arange(results.losses.size) % 2, MAX_LOSS, -MAX_LOSS).astype(np.float32), most)


def parts(estimate: CodedEstimate) -> tuple[np.ndarray, np.ndarray]:
    return estimate.numbers, estimate.shifts


def negated(estimate: CodedEstimate) -> CodedEstimate:
    return CodedEstimate(-estimate.numbers, estimate.shifts)


def corrupt(participant: Participant, lie: Lie) -> None:
    """From now on its results are what the lie makes of them."""
    generator = np.random.default_rng(0)
    falsify(participant, lambda _, true: lie(true, generator))


def trained(stage: Stage, lie: Lie | None = None, *, honest_steps: int = 0) -> float:
    """The held-out loss of a run with liars, or with as many volunteers fewer."""
    n_joining = N_VOLUNTEERS if lie is not None else N_VOLUNTEERS - N_LIARS
    participants = [stage.join() for _ in range(n_joining)]
    if honest_steps:
        stage.go_to(honest_steps)
    if lie is not None:
        for participant in participants[:: N_VOLUNTEERS // N_LIARS]:
            corrupt(participant, lie)
    stage.settle()
    stage.close()
    figures = stage.run.prepared.examiner.validate(stage.trainer.replica.weights, threads=1)
    return next(iter(figures.values()))


@pytest.mark.parametrize(
    "settings",
    [{}, SUMMED | {"correction": 1.0}, SUMMED | {"head": "closed-form"}],
    ids=["losses", "sums", "sums of a chain"],
)
@pytest.mark.parametrize("lie", [flipped, drawn, colluding, instant, maximal])
def test_run_with_liars_learns_what_it_does_without_them(
    tmp_path: Path, stage_of: StageOf, lie: Lie, settings: dict[str, object]
) -> None:
    figures = {}
    for name, audit in (("clean", 0.02), ("attacked", 0.02)):
        (folder := tmp_path / name).mkdir()
        config = rnn_config(folder, steps=STEPS, audit=audit, population_limit=320, **settings)
        stage = stage_of(created(config))
        figures[name] = trained(stage, lie if name == "attacked" else None)
    named = {verdict.name for verdict in read_lines(stage.run.folder.audits, Verdict)}
    print(f"{lie.__name__}: {figures}, named {sorted(named)}")
    assert named == {"volunteer 0", "volunteer 5"}
    assert figures["attacked"] < 1.05 * figures["clean"]

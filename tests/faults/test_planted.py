"""Lies below the tolerance, in memory: a text that liars plant, and honest volunteers with other processors."""

from hashlib import sha256
from pathlib import Path

import numpy as np
import pytest

import es_core
from benchmarks.trust.false_results import Planter
from fedlearn.client.performer import Computed
from fedlearn.coordination.audits.audit import Verdict
from fedlearn.coordination.audits.tolerance import tolerances_of
from fedlearn.coordination.effects import Compute, Evaluate
from fedlearn.coordination.people.credit import Earned, Entry
from fedlearn.coordination.people.reputation import PROOF_GROUPS
from fedlearn.runs.ledger import read_credit
from fedlearn.runs.run import Run
from fedlearn.simulation.swarm import Participant
from fedlearn.storage.logs.lines import LineLog, read_lines
from fedlearn.wire.proof import Identity
from tests.run_folders import created, rnn_config
from tests.simulation.swarm.stage import Stage, StageOf, stage_of

__all__ = ["stage_of"]

KERNELS = es_core.supported_isas()
N_VOLUNTEERS = len(KERNELS) + 1
LINE = np.arange(13, dtype=np.uint16)


def computes_with(isa: str, participant: Participant, monkeypatch: pytest.MonkeyPatch) -> None:
    """The participant's trials run on this instruction set from now on, all else as before."""
    perform = participant.volunteer.perform

    def perform_there(compute: Compute) -> Computed:
        es_core.select_isa(isa if isinstance(compute, Evaluate) else KERNELS[0])
        try:
            return perform(compute)
        finally:
            es_core.select_isa(KERNELS[0])

    monkeypatch.setattr(participant.volunteer, "perform", perform_there)


def mixed_fleet(stage: Stage, monkeypatch: pytest.MonkeyPatch) -> list[Participant]:
    """A volunteer of each kind of processor that this machine can be, and one more."""
    participants = [stage.join() for _ in range(N_VOLUNTEERS)]
    for participant, isa in zip(participants, KERNELS, strict=False):
        computes_with(isa, participant, monkeypatch)
    return participants


def proven(run: Run) -> Run:
    """The run with credit for all who will join: all of them are trusted from the beginning."""
    keys = [Identity.of_seed(sha256(f"volunteer {number}".encode()).digest()) for number in range(N_VOLUNTEERS)]
    log = LineLog(run.folder.credit)
    log.append(Entry(0, 0, {key.public_key.hex(): Earned(agreed=PROOF_GROUPS) for key in keys}))
    log.close()
    return run


def named(stage: Stage) -> list[str]:
    return [verdict.name for verdict in read_lines(stage.run.folder.audits, Verdict)]


@pytest.mark.parametrize(
    "settings",
    [
        {},
        {"cell": "gru"},
        {"precision": "int8"},
        {"perturb": "activations", "sigma": 0.05},
        {"perturb": "activations", "sigma": 0.05, "precision": "int8"},
    ],
    ids=["losses", "gru", "bytes", "sums", "sums in bytes"],
)
def test_nobody_honest_is_accused_whatever_its_processor(
    tmp_path: Path, stage_of: StageOf, settings: dict[str, object], monkeypatch: pytest.MonkeyPatch
) -> None:
    stage = stage_of(proven(created(rnn_config(tmp_path, steps=40, audit=1.0, population_limit=192, **settings))))
    mixed_fleet(stage, monkeypatch)
    stage.settle()
    stage.close()
    credit = read_credit(stage.run.folder).values()
    agreed = sum(earned.agreed for earned in credit)
    doubt = max(earned.doubt or 0.0 for earned in credit)
    print(f"{agreed} audits agreed; the greatest doubt is {doubt:.2f} of 20.7")
    assert agreed > 300
    assert doubt < 5.0
    assert not named(stage)


@pytest.mark.parametrize("precision", ["float32", "int8"])
def test_who_plants_a_text_below_the_tolerance_is_named_and_nobody_else(
    tmp_path: Path, stage_of: StageOf, precision: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    config = rnn_config(tmp_path, steps=150, audit=0.3, population_limit=192, precision=precision)
    stage = stage_of(proven(created(config)))
    *_, liar = mixed_fleet(stage, monkeypatch)
    stage.go_to(20)
    Planter(LINE, tolerances_of(stage.run.prepared.invitation).losses.allowed).corrupt(liar)
    stage.settle()
    stage.close()
    assert set(named(stage)) == {f"volunteer {N_VOLUNTEERS - 1}"}

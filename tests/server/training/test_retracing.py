"""Whose fault it is that a crew's losses are false, as the server finds it from what each seat sent."""

from collections.abc import Callable
from functools import cache

import numpy as np
import pytest
from msgspec.structs import replace

pytest.importorskip("torch")

from fedlearn.coordination.audits.audit import Claim, Finding, Verdict, compare
from fedlearn.coordination.leases.lease import Lease
from fedlearn.coordination.people.reputation import Reputation
from fedlearn.coordination.work.activation_log import ActivationLog
from fedlearn.es.layout import Float32Array
from fedlearn.es.perturbation import Perturbation
from fedlearn.es.sums.estimate import NO_ESTIMATE
from fedlearn.es.trials import Trials
from fedlearn.server.training.retracing import Retracer
from fedlearn.tasks.blocks import block_name
from fedlearn.tasks.holding import Holding
from fedlearn.tasks.invitation import Invitation
from fedlearn.tasks.parts.activations import ActivationCodec
from fedlearn.tasks.parts.computation import Pass, StageComputation
from fedlearn.tasks.parts.objective import PartObjective
from fedlearn.tasks.torch_graph.part import GraphPart
from fedlearn.tasks.user.task_objective import TaskObjective
from fedlearn.wire.messages import Activations
from tests.tasks.torch_graph.shared import CUTS, attachment, task

GROUP, BATCH, SEED = 32, 5, 3
TRIALS = Trials(step=0, perturbation=Perturbation(0.02, 1), group_size=GROUP, first_member=2 * GROUP, n_members=GROUP)
BLOCK = block_name(dict(task().data))
SEATS = tuple(Reputation(name, name) for name in ("Ann", "Bo", "Cid"))
CREW = Reputation("crew", "crew 1 (Ann, Bo, Cid)", seats=SEATS)
WIRES: tuple[ActivationCodec, ...] = ("float32", "float16", "int8-delta", "int4-delta")

Lie = Callable[[bytes | Float32Array], bytes | Float32Array]


@cache
def holding() -> Holding:
    made = Holding(TaskObjective(task(), seed=SEED), seed=SEED, threads=1, blocks={BLOCK: dict(task().data)})
    made.begin(0, keeps_start=False)
    return made


@cache
def retracer() -> Retracer:
    return Retracer(holding(), Invitation("graph", SEED, {}, {}, attachment()))


def claimed(wire: ActivationCodec, *, place: int | None = None, lie: Lie = bytes) -> Claim:
    """What a crew says of the group, of which one seat may say something else than it found."""
    stages = []
    for number in range(len(CUTS) + 1):
        part = GraphPart(attachment(), CUTS, number, seed=SEED, device="cpu", max_bytes=2**40)
        part.load(holding().replica.weights_of(part.layout))
        stages.append(StageComputation(part, wire, is_last=number == len(CUTS), threads=1))
    sent: list[list[Activations]] = [[] for _ in CUTS]
    losses: list[Float32Array] = []
    for first in range(0, GROUP, BATCH):
        trials = replace(TRIALS, first_member=2 * GROUP + first, n_members=min(BATCH, GROUP - first))
        said: bytes | Float32Array = b""
        for number, stage in enumerate(stages):
            assert isinstance(said, bytes)
            passed = stage.passed(Pass(trials, BLOCK, said), holding().block(BLOCK))
            said = passed.payload if passed.results is None else passed.results.losses
            said = lie(said) if number == place else said
            if isinstance(said, bytes):
                sent[number].append(Activations(0, trials.first_member, trials.n_members, bytes(8), said))
        assert not isinstance(said, bytes)
        losses.append(said)
    log = ActivationLog(CUTS, 1, wire, BATCH, tuple(map(tuple, sent)))
    found = np.concatenate(losses)
    return Claim(CREW, TRIALS, BLOCK, found, NO_ESTIMATE, Lease(0, GROUP), log=log)


def reversed_(said: bytes | Float32Array) -> bytes | Float32Array:
    """Each member gets what is another's."""
    return said[::-1].copy() if not isinstance(said, bytes) else np.frombuffer(said, "<f4")[::-1].tobytes()


def slightly_off(said: bytes | Float32Array) -> bytes | Float32Array:
    """As from a processor of another kind."""
    assert isinstance(said, bytes)
    values = np.frombuffer(said, "<f4")
    noise = np.random.default_rng(1).uniform(-3e-7, 3e-7, values.size)
    return (values * (1 + noise)).astype("<f4").tobytes()


@pytest.mark.parametrize("wire", WIRES)
def test_an_honest_crew_is_right_to_the_bit_whatever_its_activations_travel_as(wire: ActivationCodec) -> None:
    claim = claimed(wire)
    finding, verdict = retracer().audit(claim)
    assert (finding, verdict.difference, verdict.place) == (Finding.TRUE, 0.0, None)
    _, against_whole = compare(claim, lambda: holding().evaluate(TRIALS, BLOCK), holding().replica.layout)
    print(f"{wire}: held against the whole model it would be off by {against_whole.difference:.3g} of the tolerance")
    assert (against_whole.difference < 0.001) == (wire == "float32")


@pytest.mark.parametrize("place", range(3))
def test_the_seat_that_was_false_is_named(place: int) -> None:
    finding, verdict = retracer().audit(claimed("float32", place=place, lie=reversed_))
    assert finding is Finding.FALSE
    assert (verdict.place, verdict.name, verdict.identity) == (place, SEATS[place].name, SEATS[place].identity)
    assert verdict.difference > 1.0


def test_a_seat_whose_processor_is_of_another_kind_is_neither_false_nor_named_for_a_neighbour() -> None:
    honest = claimed("float32", place=0, lie=slightly_off)
    finding, verdict = retracer().audit(honest)
    print(f"another processor: off by {verdict.difference:.3g} of the tolerance")
    assert finding is Finding.TRUE
    assert 0.0 < verdict.difference < 0.01
    _, verdict = retracer().audit(replace(honest, losses=honest.losses[::-1].copy()))
    assert verdict.place == 2


@pytest.mark.parametrize("place", range(2))
def test_what_nobody_can_compute_from_is_false(place: int) -> None:
    claim = claimed("float32")
    assert claim.log is not None
    sent = list(claim.log.sent)
    sent[place] = tuple(replace(said, payload=said.payload[4:]) for said in sent[place])
    none = np.full(GROUP, np.nan, np.float32)
    _, verdict = retracer().audit(replace(claim, losses=none, log=replace(claim.log, sent=tuple(sent))))
    assert verdict.place == place


@pytest.mark.parametrize("heard", ["all", "some, with the rest to come", "nothing"])
@pytest.mark.parametrize("cut", range(2))
def test_where_some_of_what_was_sent_is_not_known_the_crew_answers_for_it(cut: int, heard: str) -> None:
    """It went straight from seat to seat; the server may have heard of which members it was, or of some so far."""
    claim = claimed("int8-delta")
    assert claim.log is not None
    sent = list(claim.log.sent)
    told = tuple(replace(said, payload=b"") for said in sent[cut])
    sent[cut] = {"all": told, "nothing": ()}.get(heard, sent[cut][:2])
    blind = replace(claim, log=replace(claim.log, sent=tuple(sent)))
    assert judged(blind) == (Finding.TRUE, None, CREW.name)
    assert judged(replace(blind, losses=blind.losses[::-1].copy())) == (Finding.FALSE, None, CREW.name)


def test_weights_are_those_of_the_servers_replica_at_the_time() -> None:
    claim = claimed("float32")
    weights, kept = holding().replica.weights, holding().replica.weights.copy()
    weights *= np.float32(1.5)
    assert judged(claim)[0] is Finding.FALSE
    weights[:] = kept
    assert judged(claim)[0] is Finding.TRUE


def judged(claim: Claim) -> tuple[Finding, int | None, str]:
    finding, verdict = retracer().audit(claim)
    assert isinstance(verdict, Verdict)
    return finding, verdict.place, verdict.name


def test_parts_are_made_anew_for_other_cuts_and_other_shards(monkeypatch: pytest.MonkeyPatch) -> None:
    own = Retracer(holding(), Invitation("graph", SEED, {}, {}, attachment()))
    made: list[tuple[tuple[int, ...], int]] = []
    parts = Retracer._divided

    def spied(self: Retracer, log: ActivationLog) -> list[PartObjective]:
        made.append((log.cuts, log.shards))
        return parts(self, replace(log, shards=1))

    monkeypatch.setattr(Retracer, "_divided", spied)
    claim = claimed("float32")
    assert claim.log is not None
    for shards in (1, 1, 2, 2, 1):
        own.audit(replace(claim, log=replace(claim.log, shards=shards)))
    assert made == [(CUTS, 1), (CUTS, 2), (CUTS, 1)]

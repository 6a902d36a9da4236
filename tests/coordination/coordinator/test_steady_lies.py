"""Lies that one audit lets pass, and lies of the majority."""

from collections.abc import Sequence
from random import Random
from typing import final

import numpy as np
import pytest

from fedlearn.coordination.audits.tolerance import LOOSE
from fedlearn.coordination.effects import EndRun, Notice, RecordVerdict
from fedlearn.coordination.people.reputation import MAX_CAUGHT
from fedlearn.coordination.steps.divergence import DIVERGED, PATIENCE
from fedlearn.es.layout import Float32Array
from tests.coordination.coordinator.scene import GROUP, Scene, of, parted


@final
class NothingDrawn:
    """A lottery by which nothing is checked that need not be."""

    def random(self) -> float:
        return 0.99

    def sample(self, population: Sequence[int], k: int) -> list[int]:
        return list(population)[:k]


def true_losses(first: int, n_members: int) -> Float32Array:
    return np.arange(first, first + n_members, dtype=np.float32) % 8


def off_by(losses: Float32Array, share: float) -> Float32Array:
    """Losses that differ by a share of the tolerance."""
    allowed = LOOSE.allowed(losses, GROUP).repeat(GROUP)
    signs = np.resize(np.array([1, 1, -1, -1], np.float32), losses.size)
    return (losses + share * allowed * signs).astype(np.float32)


def go_on(scene: Scene, lies: dict[int, Float32Array | float]) -> None:
    """A step in which some are off by a share of the tolerance, and others give losses that they made up."""
    scene.now += 1.0
    for peer in sorted(scene.assignments):
        if peer in parted(scene.effects) or not scene.remaining(peer):
            continue
        assignment = scene.assignments[peer]
        losses = true_losses(assignment.first_member, assignment.quota)
        lie = lies.get(peer, 0.0)
        scene.report(peer, losses=off_by(losses, lie) if isinstance(lie, float) else np.resize(lie, losses.size))
    while scene.claims:
        claim = scene.claims.pop(0)
        own = true_losses(claim.trials.first_member, claim.trials.n_members)
        scene.recomputed(claim, own, own)
    if scene.is_applying:
        scene.applied()


def named(scene: Scene) -> list[str]:
    return [effect.verdict.name for effect in of(RecordVerdict, scene.effects)]


@pytest.mark.parametrize("n_volunteers", [1, 3])
def test_who_is_always_a_little_off_is_named_and_sent_away(n_volunteers: int) -> None:
    scene = Scene(audit=0.5, lottery=Random(1), proven=range(1, n_volunteers + 1))
    for peer in range(1, n_volunteers + 1):
        scene.join(peer)
    n_steps = 0
    while 1 not in parted(scene.effects) and n_steps < 100:
        go_on(scene, {1: 0.95})
        n_steps += 1
    assert named(scene) == ["volunteer 1"] * MAX_CAUGHT
    verdicts = [effect.verdict for effect in of(RecordVerdict, scene.effects)]
    assert all(verdict.adds_up and verdict.is_true for verdict in verdicts), "none was false by itself"
    assert any("each a little more than machines differ by" in notice.text for notice in of(Notice, scene.effects))
    print(f"{n_volunteers} volunteers: gone after {n_steps} steps")


def test_honest_machines_of_other_kinds_are_not_accused_in_many_audits() -> None:
    scene = Scene(audit=1.0, lottery=Random(2), proven=range(1, 4))
    for peer in range(1, 4):
        scene.join(peer)
    n_audits = 0
    for _ in range(150):
        go_on(scene, {1: 0.09, 2: -0.05})
        n_audits = scene.coordinator._auditor.n_checked // GROUP
    print(f"{n_audits} groups were checked")
    assert n_audits > 1000
    assert not named(scene)


def test_a_majority_that_lies_is_named_before_it_ends_the_run() -> None:
    scene = Scene(audit=1e-6, lottery=NothingDrawn(), proven=range(1, 4))
    for peer in range(1, 4):
        scene.join(peer)
    for _ in range(5):
        go_on(scene, {})
    assert scene.coordinator._auditor.n_checked == 0
    made_up = np.array([900.0, 901.0, 902.0, 903.0], np.float32)
    for _ in range(PATIENCE + 5):
        go_on(scene, {1: made_up, 2: made_up})
    assert set(named(scene)) == {"volunteer 1", "volunteer 2"}
    assert set(parted(scene.effects)) == {1, 2}
    assert not of(EndRun, scene.effects)
    assert len(scene.journal) > PATIENCE


def test_a_run_that_diverges_by_itself_accuses_nobody_and_one_with_liars_names_them() -> None:
    for lies in ({}, {1: np.array([5000.0, 1.0, 2.0, 3.0], np.float32)}):
        scene = Scene(audit=0.5, lottery=Random(4), proven=range(1, 3))
        for peer in (1, 2):
            scene.join(peer)
        for _ in range(3):
            go_on(scene, {})
        for _ in range(PATIENCE + 2):
            drift_away(scene, lies)
            if of(EndRun, scene.effects):
                break
        (end,) = of(EndRun, scene.effects)
        assert end.reason.startswith(DIVERGED)
        assert end.reason.endswith("; false results came from volunteer 1") == bool(lies)
        assert set(named(scene)) == ({"volunteer 1"} if lies else set())


def drift_away(scene: Scene, lies: dict[int, Float32Array]) -> None:
    """A step whose true losses are far from where they began."""
    for peer in (1, 2):
        if peer not in parted(scene.effects) and scene.remaining(peer):
            assignment = scene.assignments[peer]
            losses = true_losses(assignment.first_member, assignment.quota) + 900
            scene.report(peer, losses=np.resize(lies[peer], losses.size) if peer in lies else losses)
    while scene.claims:
        claim = scene.claims.pop(0)
        own = true_losses(claim.trials.first_member, claim.trials.n_members) + 900
        scene.recomputed(claim, own, own)
    if scene.is_applying:
        scene.applied()

"""Repeats the work of a crew's seats on a group, each from the activations that it was sent, to find the false ones.

It runs the stages one by one, as the seats do, on its own weights: the same values travel in the same few bits, so
that coarse activations accuse nobody.
"""

from collections.abc import Sequence
from typing import final

import numpy as np
from msgspec.structs import replace

from fedlearn.coordination.audits.audit import Claim, Finding, Verdict, compare, first_false
from fedlearn.coordination.work.activation_log import ActivationLog
from fedlearn.coordination.work.stage_computation import StageComputation
from fedlearn.es.layout import Float32Array
from fedlearn.es.trials import TrialResults, Trials
from fedlearn.tasks.holding import Holding
from fedlearn.tasks.invitation import Invitation
from fedlearn.tasks.kind import Divides
from fedlearn.tasks.objective import PartObjective
from fedlearn.tasks.registry import find_kind
from fedlearn.wire.errors import RemoteProtocolError

Division = tuple[tuple[int, ...], int]
"""The cuts and the number of shards of a model."""


@final
class Retracer:
    """Holds the stages of the division that was asked for last, which take the memory of the model's weights once
    more."""

    def __init__(self, holding: Holding, invitation: Invitation) -> None:
        self._holding = holding
        self._invitation = invitation
        self._division: Division | None = None
        self._parts: list[PartObjective] = []

    def audit(self, claim: Claim) -> tuple[Finding, Verdict]:
        """Checks a crew's claim, and finds the seat that is responsible if it is false; the replica must stand before
        its step."""
        log, layout = claim.log, self._holding.objective.layout
        assert log is not None, "a claim of a crew"
        finding, verdict = compare(claim, lambda: TrialResults(self._own_losses(claim, log)), layout)
        if finding is Finding.FALSE and log.is_whole:
            place = self._guilty_place(claim, log)
            guilty = claim.reputation.seats[place]
            verdict = replace(verdict, identity=guilty.identity, name=guilty.name, place=place)
        return finding, verdict

    def _own_losses(self, claim: Claim, log: ActivationLog) -> Float32Array:
        """The losses of a crew whose seats are all honest, [n_members]."""
        return self._losses(claim, log, _orders(claim.trials, log), 0)

    def _guilty_place(self, claim: Claim, log: ActivationLog) -> int:
        """The seat that sent the first false thing of a group whose losses are false."""
        stages = [self._own_losses(claim, log)]
        for place, sent in enumerate(log.sent):
            orders = [(said.first_member, said.n_members, said.payload) for said in sent]
            try:
                stages.append(self._losses(claim, log, orders, place + 1))
            except (ValueError, RemoteProtocolError):
                # Nothing can be computed from it.
                stages.append(np.full_like(stages[0], np.nan))
        return first_false([*stages, claim.losses], claim.trials.group_size, claim.tolerance)

    def _losses(
        self, claim: Claim, log: ActivationLog, orders: Sequence[tuple[int, int, bytes]], first_place: int
    ) -> Float32Array:
        """Losses of members (first, count, received activations) that pass the stages from the index `first_place`
        on."""
        stages = self._stages(log)[first_place:]
        data, found = self._holding.block(claim.block), list[Float32Array]()
        for first_member, n_members, given in orders:
            trials = replace(claim.trials, first_member=first_member, n_members=n_members, shaping=None)
            passed: bytes | Float32Array = given
            for stage in stages:
                assert isinstance(passed, bytes), "only the last part gives losses"
                passed = stage.passed(trials, data, passed)
            assert not isinstance(passed, bytes), "the last part gives losses"
            found.append(passed)
        return np.concatenate(found)

    def _stages(self, log: ActivationLog) -> list[StageComputation]:
        """The stages with the present weights."""
        if self._division != (log.cuts, log.shards):
            self._parts, self._division = self._divided(log), (log.cuts, log.shards)
        for part in self._parts:
            part.load(self._holding.replica.weights_of(part.layout))
        last = len(self._parts) - 1
        return [
            StageComputation(part, log.wire, is_last=place == last, threads=0) for place, part in enumerate(self._parts)
        ]

    def _divided(self, log: ActivationLog) -> list[PartObjective]:
        kind = find_kind(self._invitation.kind)
        assert isinstance(kind, Divides), "a crew of a model that can't be divided"
        return [
            kind.part(self._invitation, log.cuts, place, shards=log.shards, device="cpu")
            for place in range(len(log.cuts) + 1)
        ]


def _orders(trials: Trials, log: ActivationLog) -> list[tuple[int, int, bytes]]:
    """The members as the first seat grouped them, where that is known: the number that share a product decides last
    digits."""
    if log.sent[0]:
        return [(said.first_member, said.n_members, b"") for said in log.sent[0]]
    end = trials.first_member + trials.n_members
    firsts = range(trials.first_member, end, log.batch)
    return [(first, min(log.batch, end - first), b"") for first in firsts]

"""Repeats the work of a crew's seats on a group, each from the activations that it was sent, to find the false ones.

It runs the stages one by one, as the seats do, on its own weights: the same values travel in the same few bits, so
that coarse activations accuse nobody.
"""

from typing import final

import numpy as np
from msgspec.structs import replace

from fedlearn.coordination.audits.audit import Claim, Finding, Verdict, compare, first_false
from fedlearn.coordination.crews.summing import PartSums
from fedlearn.coordination.work.activation_log import ActivationLog
from fedlearn.coordination.work.way import way_of
from fedlearn.es.layout import Float32Array, ParameterLayout
from fedlearn.es.sums.estimate import CodedEstimate
from fedlearn.es.trials import TrialResults, Trials
from fedlearn.tasks.holding import Holding
from fedlearn.tasks.invitation import Invitation
from fedlearn.tasks.kind import Divides
from fedlearn.tasks.parts.computation import Pass, StageComputation
from fedlearn.tasks.parts.objective import PartObjective
from fedlearn.tasks.registry import find_kind

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
        finding, verdict = compare(claim, lambda: self._results(claim, log, 0), layout)
        if finding is Finding.FALSE and log.is_whole(claim.trials.n_members):
            place = self._guilty_place(claim, log, layout)
            guilty = claim.reputation.seats[place]
            verdict = replace(verdict, identity=guilty.identity, name=guilty.name, place=place)
        return finding, verdict

    def _guilty_place(self, claim: Claim, log: ActivationLog, layout: ParameterLayout) -> int:
        """The seat that sent the first false thing of a group whose results are false."""
        legs = [self._results(claim, log, 0)]
        for n_given in range(1, len(log.sent) + 1):
            try:
                legs.append(self._results(claim, log, n_given))
            except ValueError:
                # Nothing can be computed from it.
                legs.append(TrialResults(np.full_like(legs[0].losses, np.nan), legs[0].estimate))
        claimed = TrialResults(claim.losses, claim.estimate)
        way = _way_of(claim, log)
        return way[first_false([*legs, claimed], layout, claim.trials.group_size, claim.tolerance)]

    def _results(self, claim: Claim, log: ActivationLog, n_given: int) -> TrialResults:
        """The results that follow if what was sent after the first `n_given` legs is as the log has it, and all seats
        are honest behind that; 0: those of an honest crew."""
        stages, way, data = self._stages(log), _way_of(claim, log), self._holding.block(claim.block)
        turn = len(stages) - 1
        lease = None if claim.trials.perturbation.has_noise else replace(claim.trials, shaping=None)
        losses, sums = list[Float32Array](), dict[int, CodedEstimate]()
        for number, (first_member, n_members) in enumerate(_messages(claim.trials, log)):
            trials = replace(claim.trials, first_member=first_member, n_members=n_members, shaping=None)
            after = [sent[number].payload for sent in log.sent[:n_given]]
            for leg in range(n_given, len(way)):
                place = way[leg]
                payload, back = after[place - 1] if place else b"", after[leg - 1] if leg > turn else None
                passed = stages[place].passed(Pass(trials, claim.block, payload, back, lease), data)
                after.append(passed.payload)
                if passed.results is not None and leg == turn:
                    losses.append(passed.results.losses)
                if passed.results is not None and lease is not None:
                    sums[place] = passed.results.estimate
        found = np.concatenate(losses) if losses else claim.losses
        if lease is None:
            return TrialResults(found)
        estimates = [sums[place] if place in sums else log.sums[place] for place in range(len(stages))]
        return self._sums.joined(lease, found, estimates)

    def _stages(self, log: ActivationLog) -> list[StageComputation]:
        """The stages with the present weights."""
        if self._division != (log.cuts, log.shards):
            self._parts, self._division = self._divided(log), (log.cuts, log.shards)
            layouts, seed = [part.layout for part in self._parts], self._invitation.seed
            self._sums = PartSums(self._holding.objective.layout, lambda: layouts, seed=seed)
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


def _way_of(claim: Claim, log: ActivationLog) -> tuple[int, ...]:
    return way_of(len(log.cuts) + 1, comes_back=not claim.trials.perturbation.has_noise)


def _messages(trials: Trials, log: ActivationLog) -> list[tuple[int, int]]:
    """The first member and the number of members of each message, as the first seat grouped them, where that is known:
    the number that share a product decides last digits."""
    if log.is_known(0, trials.n_members):
        return [(said.first_member, said.n_members) for said in log.sent[0]]
    end = trials.first_member + trials.n_members
    firsts = range(trials.first_member, end, log.batch)
    return [(first, min(log.batch, end - first)) for first in firsts]

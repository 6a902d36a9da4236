"""Recomputes trials on the server to check a claim."""

import msgspec

from fedlearn.coordination.audits.audit import Claim, Finding, Verdict, compare
from fedlearn.es.trials import TrialResults
from fedlearn.tasks.holding import Holding


def audit(holding: Holding, claim: Claim) -> tuple[Finding, Verdict]:
    """Checks a claim; the replica must stand before its step."""
    return compare(claim, lambda: _own_results(holding, claim), holding.objective.layout)


def _own_results(holding: Holding, claim: Claim) -> TrialResults:
    found = holding.evaluate(claim.trials, claim.block)
    if (whole := claim.whole) is None:
        return found
    # The sum of the losses that were sent: equal to the last bit, whoever computes it.
    summed = holding.summed(whole.trials, whole.block, whole.losses)
    return msgspec.structs.replace(found, estimate=summed.estimate)

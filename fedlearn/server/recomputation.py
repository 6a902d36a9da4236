"""What a server finds itself for what somebody claims."""

from fedlearn.coordination.audit import Claim, Finding, Verdict, examine
from fedlearn.es.trials import TrialResults
from fedlearn.tasks.holding import Holding


def audit(holding: Holding, claim: Claim) -> tuple[Finding, Verdict]:
    """What becomes of a claim; the replica must stand before its step."""
    return examine(claim, lambda: _own_results(holding, claim), holding.objective.layout)


def _own_results(holding: Holding, claim: Claim) -> TrialResults:
    found = holding.evaluate(claim.trials, claim.block)
    if (whole := claim.whole) is None:
        return found
    # What the losses amount to that were sent with the sum: equal to the last unit, whoever computes it.
    summed = holding.summed(whole.trials, whole.block, whole.losses)
    return TrialResults(found.losses, summed.estimate)

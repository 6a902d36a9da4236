"""What a server finds itself for what somebody claims."""

from fedlearn.coordination.audit import Claim, judge
from fedlearn.es.trials import TrialResults
from fedlearn.tasks.holding import Holding


def recompute(holding: Holding, claim: Claim) -> list[TrialResults]:
    """What the claim's trials give here, where the replica must stand before their step; twice if not the claim."""
    first = holding.evaluate(claim.trials, claim.block)
    if (whole := claim.whole) is not None:
        # What the losses amount to that were sent with the sum: equal to the last unit, whoever computes it.
        summed = holding.summed(whole.trials, whole.block, whole.losses)
        first = TrialResults(first.losses, summed.estimate)
    if judge(claim, first, holding.objective.layout).is_true:
        return [first]
    return [first, holding.evaluate(claim.trials, claim.block)]

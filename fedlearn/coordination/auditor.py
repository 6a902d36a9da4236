"""Which results are computed again, and what follows for those who sent them.

The choice falls when a Result is in, by a generator whose seed nobody but the server knows. A newcomer's results are
checked one and all before they count; of everybody else's a share is, and of each Result with a probability of
`LEAST_CHANCE` at least: whoever sends 100 false ones in a row goes unnoticed with a probability of 0.95^100 = 0.6 %.
"""

from collections.abc import Sequence
from typing import Protocol, final

import msgspec

from fedlearn.coordination.audit import Claim, Finding
from fedlearn.coordination.credit import Ledger
from fedlearn.coordination.standing import Standing
from fedlearn.es.estimate import NO_ESTIMATE

LEAST_CHANCE = 0.05
"""Of a Result to have some of it computed again."""

MAX_PENDING = 4
"""Claims that wait to be computed; what is drawn beyond that is let go, so that no step waits for audits."""


class Lottery(Protocol):
    """Draws by chance; Python's own `random.Random` is one."""

    def random(self) -> float:
        """From 0 to 1."""

    def sample(self, population: Sequence[int], k: int) -> list[int]:
        """Some of these, none twice."""


@final
class Auditor:
    """Has `share` of the groups computed again, 0: none ever; and writes down in the ledger what it finds."""

    def __init__(self, share: float, ledger: Ledger, *, lottery: Lottery | None) -> None:
        """`lottery` is seeded by the server's secret; without one nothing is ever computed again."""
        self._share = share if lottery is not None else 0.0
        self._ledger = ledger
        self._lottery = lottery
        self._n_pending = 0

    def trusts(self, standing: Standing) -> bool:
        """Whether results count before they are checked."""
        return standing.is_proven or self._share == 0.0

    def draw(self, claim: Claim) -> list[Claim]:
        """What of a whole Result is to be computed again; `settle` is called with each of it then."""
        drawn = self._draw(claim)
        self._n_pending += len(drawn)
        return drawn

    def settle(self, claim: Claim, finding: Finding) -> None:
        """What was drawn was examined."""
        self._n_pending -= 1
        earned = self._ledger.of(claim.standing.identity, claim.standing.name)
        match finding:
            case Finding.TRUE:
                claim.standing.agreed(claim.trials.n_groups)
                earned.agreed += claim.trials.n_groups
            case Finding.FALSE:
                claim.standing.was_caught()
                earned.caught += 1
            case Finding.UNDECIDABLE:
                self._share = 0.0

    def _draw(self, claim: Claim) -> list[Claim]:
        if self._share == 0.0 or claim.standing.is_local:
            return []
        # What is held waits for a verdict, so there has to be one.
        n_most = max(MAX_PENDING - self._n_pending, int(claim.lease.is_held))
        at_least_one = claim.lease.is_held or not claim.standing.is_proven
        chosen = self._choose(claim.trials.n_groups, at_least_one=at_least_one) if n_most > 0 else []
        if claim.trials.perturbation.is_summed:
            return [claim] if chosen else []  # a sum can't be checked in parts
        drawn = [_group_of(claim, group) for group in chosen[:n_most]]
        if drawn and claim.trials.shaping is not None:
            drawn[0] = msgspec.structs.replace(drawn[0], whole=claim)
        return drawn

    def _choose(self, n_groups: int, *, at_least_one: bool) -> list[int]:
        """Some of the groups, in no order."""
        assert self._lottery is not None, "drawing without a lottery"
        n_tickets = min(n_groups, int(MAX_PENDING / self._share) + 1)
        n_chosen = sum(self._lottery.random() < self._share for _ in range(n_tickets))
        least = int(at_least_one or self._lottery.random() < LEAST_CHANCE)
        return self._lottery.sample(range(n_groups), max(n_chosen, least))


def _group_of(claim: Claim, group: int) -> Claim:
    size = claim.trials.group_size
    losses = claim.losses[group * size : (group + 1) * size]
    trials = msgspec.structs.replace(claim.trials.part(group, 1), shaping=None)
    return msgspec.structs.replace(claim, trials=trials, losses=losses, estimate=NO_ESTIMATE)

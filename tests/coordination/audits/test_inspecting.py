from random import Random

import numpy as np

from fedlearn.coordination.audits.auditor import Auditor
from fedlearn.coordination.audits.inspecting import inspect
from fedlearn.coordination.effects import Recompute
from fedlearn.coordination.leases.open_step import OpenStep
from fedlearn.coordination.people.credit import Ledger
from fedlearn.coordination.people.reputation import Reputation
from fedlearn.coordination.people.roster import Volunteer
from fedlearn.es.layout import ParameterLayout, TensorSpec
from fedlearn.es.optimizers import Adam
from fedlearn.es.perturbation import Perturbation
from fedlearn.es.strategy import Population
from fedlearn.wire.messages import Result

GROUP = 4
LAYOUT = ParameterLayout((TensorSpec("vector", (3,)),))


def inspected(*, share: float, is_local: bool = False, is_copy: bool = False) -> list[Recompute]:
    population = Population(3, Perturbation(0.1, 1), GROUP, 16 * GROUP, Adam(0.01), 0.0, 0.0)
    step = OpenStep(population, opened_at=0.0, deadline=1.0, first_member=8, layout=LAYOUT, block=b"a")
    volunteer = Volunteer(7, reputation=Reputation("Ada", "Ada", is_local=is_local))
    first = step.lease(2 * GROUP, volunteer.reputation)
    copy = step.copy(first.first_member, 2 * GROUP, Reputation("Bob", "Bob"))
    lease = copy if is_copy else first
    result = Result(3, lease.first_member, np.arange(2 * GROUP, dtype=np.float32), bytes(8))
    found = inspect(
        volunteer, lease, step, result, Auditor(share, Ledger(0, 0.0, work_per_member=1), lottery=Random(1))
    )
    recomputed = [effect for effect in found if isinstance(effect, Recompute)]
    assert found == recomputed
    return recomputed


def test_groups_are_drawn_of_a_result_with_its_block_and_its_losses() -> None:
    claims = [effect.claim for effect in inspected(share=1.0)]
    assert claims
    for claim in claims:
        begin = claim.trials.first_member - 8
        assert (claim.reputation.identity, claim.block, claim.trials.step) == ("Ada", b"a", 3)
        assert claim.losses.tolist() == list(range(begin, begin + claim.trials.n_members))
        assert claim.log is None


def test_nothing_is_drawn_without_audits_nor_of_the_servers_own_nor_of_a_copy() -> None:
    assert inspected(share=0.0) == inspected(share=1.0, is_local=True) == inspected(share=1.0, is_copy=True) == []

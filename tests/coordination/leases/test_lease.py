"""Whatever happens to leases, the totals of their step are what a recount finds."""

from hypothesis import given
from hypothesis import strategies as st

from fedlearn.coordination.leases.lease import Lease
from fedlearn.coordination.leases.open_step import OpenStep
from fedlearn.coordination.people.reputation import Reputation
from fedlearn.es.perturbation import Perturbation
from fedlearn.es.sums.estimate import NO_ESTIMATE
from tests.coordination.leases.test_open_step import GROUP, LAYOUT, numbered, population

OPERATIONS = st.lists(
    st.tuples(
        st.sampled_from(["lease", "hold", "spare", "copy", "again", "take", "take", "take", "release", "end", "void"]),
        st.integers(0, 9),
        st.integers(1, 3),
    ),
    max_size=40,
)


def perform(step: OpenStep, operation: str, which: int, n_groups: int) -> None:
    leases = [*step.leases, *step.copies]
    size = n_groups * GROUP
    match operation:
        case "lease" | "hold" | "spare":
            step.lease(size, Reputation(f"v{which}"), gates=operation != "spare", is_held=operation == "hold")
        case _ if not leases:
            return
        case "copy":
            step.copy(leases[which % len(leases)].first_member, size, Reputation(f"w{which}"))
        case "again":
            first = leases[which % len(leases)].first_member
            step.lease_again(first, size, Reputation("x"), is_held=False, now=1.5)
        case "take":
            lease = leases[which % len(leases)]
            lease.take(lease.end_member, numbered(0, size), NO_ESTIMATE, GROUP)
        case "release" | "end" | "void":
            getattr(leases[which % len(leases)], operation)()


@given(OPERATIONS)
def test_totals_are_what_a_recount_finds(operations: list[tuple[str, int, int]]) -> None:
    step = OpenStep(population(Perturbation(0.1, 1)), opened_at=1.0, deadline=2.0, first_member=100, layout=LAYOUT)
    for each in operations:
        perform(step, *each)
        everybody: list[Lease] = [*step.leases, *step.copies]
        assert step.n_members == sum(lease.n_counted for lease in everybody)
        assert step.is_complete == (not any(lease.is_waited_for for lease in everybody))


def test_a_copy_that_counts_is_counted() -> None:
    step = OpenStep(population(Perturbation(0.1, 1)), opened_at=1.0, deadline=2.0, first_member=100, layout=LAYOUT)
    step.lease(8)
    copy = step.copy(100, 8, Reputation("other"))
    assert copy.take(100, numbered(0, 8), NO_ESTIMATE, GROUP) == ""
    assert step.n_members == 0
    step.count_a_copy()
    assert step.n_members == 8

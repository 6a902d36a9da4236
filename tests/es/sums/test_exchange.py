import pytest

from fedlearn.es.layout import ParameterLayout, TensorSpec
from fedlearn.es.sums.exchange import (
    CODING_S,
    LINE_BYTES_PER_S,
    PRODUCT_S,
    SIGN_S,
    SUM_SLICE_S,
    likely_bytes,
    replay_s,
    sum_bytes,
    sums_pay,
)

LAYOUT = ParameterLayout((TensorSpec("matrix", (100, 200)), TensorSpec("vector", (50,))))
CODING_BYTES = int(LAYOUT.size * CODING_S * LINE_BYTES_PER_S)
"""That travel while a sum is encoded and decoded."""


@pytest.mark.parametrize(("rank", "signs", "products"), [(0, 20050, 20050), (1, 350, 20050), (3, 950, 60050)])
def test_replaying_costs_signs_and_products_of_every_member(rank: int, signs: int, products: int) -> None:
    assert replay_s(LAYOUT, rank, 1000) == pytest.approx(1000 * (SIGN_S * signs + PRODUCT_S * products))


def test_a_sum_takes_bytes_of_every_parameter_and_one_of_every_row() -> None:
    assert sum_bytes(LAYOUT, 1, 1) == 20050 + 150
    assert sum_bytes(LAYOUT, 1, 258) == 2 * 20050 + 150
    assert sum_bytes(LAYOUT, 1, 10**9) == 4 * 20050 + 150


@pytest.mark.parametrize(
    ("n_members", "rank", "width"), [(1, 1, 1), (16, 1, 2), (16, 4, 2), (40_000, 1, 2), (45_000, 1, 3), (11_000, 4, 3)]
)
def test_a_sum_likely_takes_what_five_deviations_need(n_members: int, rank: int, width: int) -> None:
    assert likely_bytes(LAYOUT, rank, n_members) == width * 20050 + 150


def test_a_lone_volunteer_gains_the_bytes_of_utilities_and_nothing_else() -> None:
    n_bytes = 2 * likely_bytes(LAYOUT, 1, 10**5) + CODING_BYTES
    assert not sums_pay(LAYOUT, 1, n_members=n_bytes - 1, n_volunteers=1)
    assert sums_pay(LAYOUT, 1, n_members=n_bytes + 2, n_volunteers=1)


def test_every_result_of_a_long_step_brings_a_sum() -> None:
    n_bytes = 10 * likely_bytes(LAYOUT, 1, 10**6) + CODING_BYTES
    assert not sums_pay(LAYOUT, 1, n_members=n_bytes - 1, n_volunteers=1, members_per_s=n_bytes / SUM_SLICE_S / 8.5)
    assert sums_pay(LAYOUT, 1, n_members=n_bytes + 2, n_volunteers=1, members_per_s=n_bytes / SUM_SLICE_S / 8.5)


def test_sums_pay_from_where_replaying_costs_more() -> None:
    def costs(n_members: int) -> tuple[float, float]:
        own = n_members // 100
        replay = replay_s(LAYOUT, 1, n_members) + n_members / LINE_BYTES_PER_S
        n_bytes = likely_bytes(LAYOUT, 1, own) + likely_bytes(LAYOUT, 1, n_members)
        return replay, replay_s(LAYOUT, 1, own) + LAYOUT.size * CODING_S + n_bytes / LINE_BYTES_PER_S

    found = {n: sums_pay(LAYOUT, 1, n_members=n, n_volunteers=100) for n in range(10_000, 200_000, 10_000)}
    assert found == {n: by_sum < replay for n in found for replay, by_sum in [costs(n)]}
    assert set(found.values()) == {False, True}

import numpy as np
import pytest
from numpy.typing import NDArray

import es_core
from fedlearn.es.layout import ParameterLayout, TensorSpec
from fedlearn.es.perturbation import Perturbation
from fedlearn.es.replica import Replica, genesis
from fedlearn.es.shaping import MAX_LOSS, SHAPINGS, Shaping
from fedlearn.es.sums.estimate import decode_estimate
from fedlearn.es.sums.exact_sum import complaint_of, exact_sum
from fedlearn.es.trials import Trials
from fedlearn.es.update import Update

LAYOUT = ParameterLayout((TensorSpec("matrix", (5, 6), mask_column=0), TensorSpec("vector", (7,))))
SEED, GROUP, BLOCK = 9, 4, bytes(16)


def no_masks_of(update: Update) -> NDArray[np.uint8]:
    """Every group reads every row."""
    return np.ones((update.n_members // GROUP, 5), dtype=np.uint8)


def masks_of(update: Update) -> NDArray[np.uint8]:
    """Every group reads one row."""
    groups = [group for first, count in update.spans for group in range(first // GROUP, (first + count) // GROUP)]
    masks = np.zeros((len(groups), 5), dtype=np.uint8)
    masks[np.arange(len(groups)), np.array(groups) % 5] = 1
    return masks


def replica(*, is_masked: bool = False) -> Replica:
    start = genesis(LAYOUT, np.zeros(LAYOUT.size, dtype=np.float32), threads=1)
    return Replica(LAYOUT, start, seed=SEED, row_masks=masks_of if is_masked else no_masks_of, threads=1)


def trials(perturbation: Perturbation, shaping: Shaping | None, n_members: int = 400) -> Trials:
    return Trials(3, perturbation, GROUP, 40, n_members, shaping)


def losses_of(n_members: int) -> NDArray[np.float32]:
    losses = np.random.default_rng(4).normal(2.0, 0.5, n_members).astype(np.float32)
    losses[5], losses[13], losses[100:108] = np.nan, 2 * MAX_LOSS, 1.0
    return losses


@pytest.mark.parametrize("is_masked", [False, True])
@pytest.mark.parametrize("antithetic", [False, True])
@pytest.mark.parametrize("rank", [0, 1, 3])
@pytest.mark.parametrize("rule", SHAPINGS)
def test_sums_of_parts_add_up_to_what_replaying_all_gives(
    rule: str, rank: int, antithetic: bool, is_masked: bool
) -> None:
    noise = Perturbation(0.1, rank, antithetic=antithetic)
    machine, losses = replica(is_masked=is_masked), losses_of(400)
    whole = trials(noise, Shaping(rule, 0.4))
    parts = [(0, 1), (1, 59), (60, 40)]
    total = sum(
        decode_estimate(
            LAYOUT, exact_sum(machine, whole.part(first, n), BLOCK, losses[first * GROUP : (first + n) * GROUP])
        )
        for first, n in parts
    )
    shown = SHAPINGS[rule](np.where(losses < MAX_LOSS, losses, np.inf).astype(np.float32), GROUP, 0.4)
    masks = np.ones((100, 5), dtype=np.uint8)
    if is_masked:
        masks = np.eye(5, dtype=np.uint8)[np.arange(10, 110) % 5]
    everything = es_core.estimate_gradient(
        LAYOUT.table(rank),
        LAYOUT.size,
        seed=SEED,
        step=3,
        group_size=GROUP,
        spans=[(40, 400)],
        utilities=shown,
        row_masks=masks,
        antithetic=antithetic,
    )
    np.testing.assert_array_equal(total, everything)
    assert everything.any()


def test_trials_without_a_shaping_have_no_exact_sum() -> None:
    with pytest.raises(ValueError, match="trials without them are replayed"):
        exact_sum(replica(), trials(Perturbation(0.1, 1), None), BLOCK, losses_of(400))


def test_a_rule_that_is_not_known_here_is_named() -> None:
    with pytest.raises(ValueError, match=f"expected one of {', '.join(SHAPINGS)}, got 'magic'"):
        exact_sum(replica(), trials(Perturbation(0.1, 1), Shaping("magic", 1.0)), BLOCK, losses_of(400))


@pytest.mark.parametrize("antithetic", [False, True])
@pytest.mark.parametrize("rank", [0, 1, 3])
def test_honest_sums_are_never_out_of_line(rank: int, antithetic: bool) -> None:
    noise, machine = Perturbation(0.1, rank, antithetic=antithetic), replica()
    generator = np.random.default_rng(1)
    for n_members in (4, 8, 400) * 20:
        shaping = Shaping("normalized", float(generator.uniform(0.01, 10.0)))
        losses = generator.standard_cauchy(n_members).astype(np.float32)
        sums = decode_estimate(LAYOUT, exact_sum(machine, trials(noise, shaping, n_members), BLOCK, losses))
        assert complaint_of(sums, shaping.utilities(losses, GROUP), LAYOUT, noise) == ""


def test_an_element_beyond_what_all_members_can_make_is_out_of_line() -> None:
    utilities, sums = np.full(4, 127, dtype=np.int8), np.zeros(LAYOUT.size, dtype=np.int64)
    sums[30] = -3 * 4 * 127
    assert complaint_of(sums, utilities, LAYOUT, Perturbation(0.1, 3)) == ""
    sums[30] -= 1
    assert "expected numbers up to 1524 of 4 members, got 1525" in complaint_of(
        sums, utilities, LAYOUT, Perturbation(0.1, 3)
    )


@pytest.mark.parametrize(("antithetic", "squares"), [(False, 100 * 32.0**2), (True, 200 * 32.0**2)])
def test_a_sum_longer_than_its_losses_allow_is_out_of_line(antithetic: bool, squares: float) -> None:
    utilities, noise = np.full(100, 32, dtype=np.int8), Perturbation(0.1, 1, antithetic=antithetic)
    number = 8 * squares**0.5
    within = np.full(LAYOUT.size, int(number), dtype=np.int64)
    assert complaint_of(within, utilities, LAYOUT, noise) == ""
    assert "expected a length up to" in complaint_of(within + 1, utilities, LAYOUT, noise)


def test_where_no_loss_counts_there_is_nothing_to_sum() -> None:
    sums = np.zeros(LAYOUT.size, dtype=np.int64)
    utilities = np.zeros(8, dtype=np.int8)
    assert complaint_of(sums, utilities, LAYOUT, Perturbation(0.1, 1)) == ""
    sums[3] = 1
    assert "expected a length up to 0 by the losses" in complaint_of(sums, utilities, LAYOUT, Perturbation(0.1, 1))

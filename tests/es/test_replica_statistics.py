"""Mean and deviation of what members observe are renewed by Updates."""

import msgspec
import numpy as np
import pytest

from fedlearn.es.layout import ParameterLayout, TensorSpec
from fedlearn.es.replica import Replica, genesis
from fedlearn.es.sums.moments import Renormalization
from tests.es.replicas import masks_of, update_of

LAYOUT = ParameterLayout(
    (
        TensorSpec("weights", (3,)),
        TensorSpec("deviation", (2,), scale=0.0, statistic="deviation"),
        TensorSpec("constant", (1,), scale=0.0),
        TensorSpec("mean", (2,), scale=0.0, statistic="mean"),
    )
)
WEIGHTS = np.array([1, 2, 3, 0.5, 4.0, 7.0, -1.0, 10.0], dtype=np.float32)


def changed(*, moves: list[float], factors: list[float]) -> Replica:
    renormalization = Renormalization(
        np.array(moves, dtype=np.float32), np.array(factors, dtype=np.float32), weight=100.0
    )
    replica = Replica(LAYOUT, genesis(LAYOUT, WEIGHTS), seed=9, row_masks=masks_of)
    replica.apply(msgspec.structs.replace(update_of(0), renormalization=renormalization))
    return replica


def test_means_move_by_deviations_and_deviations_by_factors() -> None:
    weights = changed(moves=[2.0, -0.5], factors=[1.5, 0.25]).weights
    assert weights[3:].tolist() == [0.75, 1.0, 7.0, 0.0, 8.0]
    assert (weights[:3] != WEIGHTS[:3]).all()


def test_the_digest_tells_one_renormalization_from_another() -> None:
    one, other = changed(moves=[2.0, 0.0], factors=[1.0, 1.0]), changed(moves=[2.0, 0.0], factors=[1.0, 1.0000001])
    assert one.digest != other.digest


def test_without_a_renormalization_they_stay() -> None:
    replica = Replica(LAYOUT, genesis(LAYOUT, WEIGHTS), seed=9, row_masks=masks_of)
    replica.apply(update_of(0))
    assert replica.weights[3:].tolist() == WEIGHTS[3:].tolist()


@pytest.mark.parametrize(("moves", "factors"), [([], []), ([1.0], [1.0]), ([1.0, 1.0], [1.0]), ([1.0] * 3, [1.0] * 3)])
def test_a_renormalization_of_another_model_is_refused(moves: list[float], factors: list[float]) -> None:
    with pytest.raises(
        ValueError, match=rf"renormalization: expected 2 moves and factors, got {len(moves)} and {len(factors)}"
    ):
        changed(moves=moves, factors=factors)


def test_a_layout_knows_how_many_numbers_are_observed() -> None:
    assert LAYOUT.n_observed == 2
    assert LAYOUT.n_trained == 4  # the constant belongs to the model
    assert LAYOUT.part(["weights"]).n_observed == 0
    assert dict(LAYOUT.statistics) == {"deviation": slice(3, 5), "mean": slice(6, 8)}

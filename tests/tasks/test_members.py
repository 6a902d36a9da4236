from collections.abc import Mapping
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from fedlearn.es.layout import Float32Array
from fedlearn.es.noise import Dense, LowRank, perturbed
from fedlearn.tasks.members import ArrayMembers

N_MEMBERS = 4


def parts() -> tuple[dict[str, Float32Array], list[LowRank | Dense]]:
    random = np.random.default_rng(0)

    def normal(*shape: int) -> Float32Array:
        return random.standard_normal(shape, dtype=np.float32)

    tensors = {"kernel": normal(3, 2, 2), "bias": normal(3)}
    return tensors, [LowRank(normal(N_MEMBERS, 3, 2), normal(N_MEMBERS, 4, 2)), Dense(normal(N_MEMBERS, 3))]


@pytest.fixture
def members() -> ArrayMembers:
    return ArrayMembers(*parts(), n_groups=2)


def test_each_member_has_its_own_perturbed_tensors(members: ArrayMembers) -> None:
    tensors, noise = parts()
    for i, arrays in enumerate(members.each()):
        for (name, tensor), tensor_noise in zip(tensors.items(), noise, strict=True):
            np.testing.assert_array_equal(arrays[name], perturbed(tensor, tensor_noise, i))
    assert i == N_MEMBERS - 1


def test_stacked_tensors_are_those_of_each_member(members: ArrayMembers) -> None:
    stacked = members.stacked()
    assert {name: array.shape for name, array in stacked.items()} == {"kernel": (4, 3, 2, 2), "bias": (4, 3)}
    for i, arrays in enumerate(members.each()):
        for name, array in arrays.items():
            np.testing.assert_allclose(stacked[name][i], array, rtol=1e-6)
            assert stacked[name].dtype == np.float32


def test_a_member_is_given_what_its_group_shares_and_what_is_its_own(members: ArrayMembers) -> None:
    def function(arrays: Mapping[str, Float32Array], shared: dict[str, Any], own: float) -> NDArray[np.float64]:
        return np.array([len(arrays), shared["column"][0], own])

    results = members(function, {"column": np.array([[10], [20]])}, own=(np.arange(4.0),))
    np.testing.assert_array_equal(results, [[2, 10, 0], [2, 10, 1], [2, 20, 2], [2, 20, 3]])


def test_what_a_group_shares_cannot_be_changed_by_a_member(members: ArrayMembers) -> None:
    def function(_: object, shared: Float32Array) -> float:
        shared += 1
        return 0.0

    with pytest.raises(ValueError, match="read-only"):
        members(function, np.zeros((2, 3)))


def test_members_fill_their_groups(members: ArrayMembers) -> None:
    assert (len(members), members.n_groups, members.group_size) == (4, 2, 2)
    with pytest.raises(ValueError, match="n_groups: expected a divisor of 4 members, got 3"):
        ArrayMembers(*parts(), n_groups=3)

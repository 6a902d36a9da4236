import math
import re

import numpy as np
import pytest

from fedlearn.tasks.environment.default_policy import DefaultPolicy

N_MEMBERS, N_EPISODES, N_INPUTS, N_OUTPUTS = 3, 2, 5, 4


def test_members_act_by_their_own_layers() -> None:
    rng = np.random.default_rng(1)
    policy = DefaultPolicy((N_INPUTS,), N_OUTPUTS)
    stacked = {
        name: rng.standard_normal((N_MEMBERS, *array.shape)).astype(np.float32)
        for name, array in policy.tensors.items()
    }
    seen = rng.standard_normal((N_MEMBERS, N_EPISODES, N_INPUTS)).astype(np.float32)
    outputs = policy.forward(stacked)(seen)
    assert outputs.shape == (N_MEMBERS, N_EPISODES, N_OUTPUTS)
    for member, episode in np.ndindex(N_MEMBERS, N_EPISODES):
        own, x = {name: array[member] for name, array in stacked.items()}, seen[member, episode]
        hidden = np.tanh(own["hidden.weight"] @ x + own["hidden.bias"])
        expected = own["linear.weight"] @ x + own["output.weight"] @ hidden
        np.testing.assert_allclose(outputs[member, episode], expected, rtol=1e-5, atol=1e-6)


def test_observations_of_several_axes_are_taken_number_by_number() -> None:
    flat, grid = DefaultPolicy((6,), N_OUTPUTS), DefaultPolicy((2, 3), N_OUTPUTS)
    rng = np.random.default_rng(1)
    stacked = {name: rng.standard_normal((1, *array.shape)).astype(np.float32) for name, array in flat.tensors.items()}
    assert {name: array.shape for name, array in grid.tensors.items()} == {
        name: array.shape for name, array in flat.tensors.items()
    }
    seen = rng.standard_normal((1, N_EPISODES, 2, 3)).astype(np.float32)
    expected = flat.forward(stacked)(seen.reshape(1, N_EPISODES, 6))
    np.testing.assert_array_equal(grid.forward(stacked)(seen), expected)


def test_the_first_policy_does_nothing() -> None:
    policy = DefaultPolicy((N_INPUTS,), N_OUTPUTS)
    stacked = {name: array[np.newaxis] for name, array in policy.tensors.items()}
    assert not policy.forward(stacked)(np.ones((1, N_EPISODES, N_INPUTS), dtype=np.float32)).any()


def test_hidden_units_differ_within_the_usual_bounds() -> None:
    tensors = DefaultPolicy((N_INPUTS,), N_OUTPUTS).tensors
    drawn = tensors["hidden.weight"].ravel()
    bound = 1.0 / math.sqrt(N_INPUTS)
    assert (np.abs(drawn) <= bound).all()
    assert drawn.min() < -0.8 * bound
    assert drawn.max() > 0.8 * bound
    assert len(set(drawn.tolist())) == drawn.size == 16 * N_INPUTS
    assert not tensors["hidden.bias"].any()
    assert {array.dtype for array in tensors.values()} == {np.dtype(np.float32)}


def test_it_is_equal_everywhere() -> None:
    one, two = (DefaultPolicy((N_INPUTS,), N_OUTPUTS).tensors for _ in range(2))
    assert one.keys() == two.keys()
    for name, array in one.items():
        np.testing.assert_array_equal(array, two[name])
    # The generator's stream is fixed, so that it is also equal to that of other versions of numpy.
    np.testing.assert_allclose(one["hidden.weight"][0, :2], [0.122502, -0.205909], atol=1e-6)


def test_each_seed_has_hidden_units_of_its_own() -> None:
    policy, same = DefaultPolicy((N_INPUTS,), N_OUTPUTS), DefaultPolicy((N_INPUTS,), N_OUTPUTS)
    first = policy.tensors["hidden.weight"].copy()
    policy.draw_weights(3)
    assert (policy.tensors["hidden.weight"] != first).all()
    same.draw_weights(3)
    np.testing.assert_array_equal(policy.tensors["hidden.weight"], same.tensors["hidden.weight"])


@pytest.mark.parametrize(
    ("shape", "n_outputs", "message"),
    [
        ((25, 41), 2, "for observations [25, 41], got none"),
        ((4,), None, "for actions of a function of your own, got none"),
    ],
)
def test_what_it_is_not_made_for_asks_for_a_policy(shape: tuple[int, ...], n_outputs: int | None, message: str) -> None:
    remedy = "policy: expected a torch module or a function with `start` "
    with pytest.raises(ValueError, match=re.escape(remedy + message)):
        DefaultPolicy(shape, n_outputs)


def test_it_takes_as_many_numbers_as_are_normalised_as_they_come() -> None:
    assert DefaultPolicy((32, 32), 2).tensors["linear.weight"].shape == (2, 1024)

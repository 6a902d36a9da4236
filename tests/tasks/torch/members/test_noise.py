import numpy as np
import pytest
import torch

from fedlearn.es.layout import ParameterLayout, TensorSpec
from fedlearn.es.noise import member_noise, perturbed
from fedlearn.es.perturbation import Perturbation
from fedlearn.es.trials import Trials
from fedlearn.tasks.torch.members.noise import as_tensors, number_of_members, of_members


@pytest.mark.parametrize("rank", [0, 1, 3])
def test_perturbed_tensors_are_those_of_the_replica(rank: int) -> None:
    layout = ParameterLayout((TensorSpec("w", (4, 5)), TensorSpec("k", (3, 2, 2)), TensorSpec("b", (4,), 2.0)))
    noise = member_noise(layout, Trials(2, Perturbation(sigma=0.1, rank=rank, antithetic=True), 3, 6, 6), seed=5)
    tensors = as_tensors(noise, "cpu")
    assert number_of_members(tensors) == 6
    some = of_members(tensors, 2, 5)
    for spec, array, one, part in zip(layout.tensors, noise, tensors, some, strict=True):
        weights = np.random.default_rng(1).standard_normal(spec.shape).astype(np.float32)
        every = one.added_to(torch.from_numpy(weights))
        assert every.shape == (6, *spec.shape)
        expected = np.stack([perturbed(weights, array, member) for member in range(6)])
        np.testing.assert_allclose(every.numpy(), expected, rtol=1e-6, atol=1e-6)
        assert torch.equal(part.added_to(torch.from_numpy(weights)), every[2:5])


def test_read_only_noise_is_copied_without_a_warning() -> None:
    (noise,) = member_noise(ParameterLayout((TensorSpec("b", (4,)),)), Trials(0, Perturbation(0.1, 1), 2, 0, 2), seed=1)
    array = next(iter(vars(noise).values())) if hasattr(noise, "__dict__") else getattr(noise, "noise")  # noqa: B009
    array.flags.writeable = False
    (tensor,) = as_tensors([noise], "cpu")
    np.testing.assert_array_equal(tensor[0].numpy(), array)

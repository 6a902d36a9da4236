import pytest

from fedlearn.es.perturbation import Head, Perturbation, Space


def test_noise_of_another_size_differs_in_nothing_else() -> None:
    noise = Perturbation(0.02, 3, "activations", "closed-form", 0.5, 0.8, antithetic=True)
    assert noise.scaled(0.25) == Perturbation(0.005, 3, "activations", "closed-form", 0.125, 0.8, antithetic=True)


@pytest.mark.parametrize(
    ("space", "head", "is_summed"),
    [
        ("weights", "perturbed", False),
        ("weights", "closed-form", True),
        ("activations", "perturbed", True),
        ("activations", "closed-form", True),
    ],
)
def test_only_what_losses_and_weights_tell_is_replayed(space: Space, head: Head, *, is_summed: bool) -> None:
    assert Perturbation(0.02, 1, space, head).is_summed is is_summed

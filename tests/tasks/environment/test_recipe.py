import math

import pytest

from fedlearn.tasks.environment.recipe import Noise, noise_for, settings_for

LARGE = noise_for(n_joints=1, is_choice=False, starts_at_zero=True)
SMALL = noise_for(n_joints=3, is_choice=False, starts_at_zero=True)
CHOICE = noise_for(n_joints=0, is_choice=True, starts_at_zero=True)


@pytest.mark.parametrize(
    ("n_joints", "is_choice", "starts_at_zero", "length", "speed"),
    [
        *((n_joints, False, starts_at_zero, 13.0, 0.12) for n_joints in (0, 1, 2) for starts_at_zero in (False, True)),
        *((n_joints, False, starts_at_zero, 0.3, 1 / 3) for n_joints in (3, 17) for starts_at_zero in (False, True)),
        (0, True, False, 3.0, 1.0),
        (0, True, True, 0.3, 1.0),
    ],
)
@pytest.mark.parametrize("n_weights", [100, 400])
def test_noise_has_one_length_for_policies_of_all_sizes(
    n_weights: int, n_joints: int, length: float, speed: float, *, is_choice: bool, starts_at_zero: bool
) -> None:
    noise = noise_for(n_joints=n_joints, is_choice=is_choice, starts_at_zero=starts_at_zero)
    settings = settings_for(noise, n_weights=n_weights, fewest_members=2, threshold=None)
    assert settings["sigma"] == pytest.approx(length / math.sqrt(n_weights))
    assert settings["learning_rate"] == pytest.approx(float(settings["sigma"]) * speed)
    wanted = (0.0, "normalized") if is_choice else (0.9, "centered-ranks")
    assert (settings["beta1"], settings["fitness_shaping"]) == wanted
    few, many = (8, 8), (16, 32)
    assert (settings["group_size"], settings["population_limit"]) == (many if n_joints >= 3 else few)


@pytest.mark.parametrize(
    ("noise", "fewest", "members"),
    [(LARGE, 0.5, 8), (LARGE, 10, 16), (LARGE, 100, 64), (SMALL, 33, 48), (SMALL, 100, 64)],
)
def test_a_step_has_whole_groups_that_see_enough(noise: Noise, fewest: float, members: int) -> None:
    settings = settings_for(noise, n_weights=1, fewest_members=fewest, threshold=None)
    assert settings["population_limit"] == members
    assert members % int(settings["group_size"]) == 0
    assert settings["max_population"] == 64


@pytest.mark.parametrize(
    ("noise", "fewest", "growth"),
    [
        (LARGE, 2, math.sqrt(8)),
        (LARGE, 100, 1.0),
        (SMALL, 2, math.sqrt(2)),
        (CHOICE, 2, 1.0),
        (Noise(1.0, 0.5, group_size=8, fewest_members=8), 2, 2.0),
        (Noise(1.0, 1.5, group_size=8, fewest_members=8), 2, 1.0),
    ],
)
def test_steps_grow_with_the_root_of_the_members_up_to_the_noise(noise: Noise, fewest: float, growth: float) -> None:
    settings = settings_for(noise, n_weights=1, fewest_members=fewest, threshold=None)
    assert settings["max_learning_rate"] == pytest.approx(growth * float(settings["learning_rate"]))


def test_only_large_noise_with_a_known_threshold_begins_again() -> None:
    settings = settings_for(LARGE, n_weights=100, fewest_members=2, threshold=360.0)
    assert (settings["restarts"], settings["target_loss"]) == (3, -360.0)
    for noise, threshold in ((LARGE, None), (SMALL, 4800.0), (CHOICE, 475.0)):
        others = settings_for(noise, n_weights=100, fewest_members=2, threshold=threshold)
        assert not {"restarts", "target_loss"} & set(others)

import math

import pytest

from fedlearn.tasks.environment.recipe import settings_for


@pytest.mark.parametrize("n_joints", [0, 1, 2])
@pytest.mark.parametrize("n_weights", [100, 400])
def test_noise_has_one_length_for_policies_of_all_sizes(n_weights: int, n_joints: int) -> None:
    settings = settings_for(n_weights=n_weights, n_joints=n_joints, fewest_members=2, threshold=None)
    assert settings["sigma"] == pytest.approx(13.0 / math.sqrt(n_weights))
    assert settings["learning_rate"] == pytest.approx(float(settings["sigma"]) * 0.18)
    assert (settings["group_size"], settings["population_limit"]) == (8, 8)


@pytest.mark.parametrize("n_joints", [3, 6, 17])
def test_many_joints_learn_by_small_noise(n_joints: int) -> None:
    settings = settings_for(n_weights=400, n_joints=n_joints, fewest_members=2, threshold=None)
    assert settings["sigma"] == pytest.approx(0.3 / 20)
    assert settings["learning_rate"] == pytest.approx(float(settings["sigma"]) / 3)
    assert (settings["group_size"], settings["population_limit"]) == (16, 32)


@pytest.mark.parametrize(
    ("n_joints", "fewest", "members"), [(0, 0.5, 8), (0, 10, 16), (0, 100, 64), (3, 33, 48), (3, 100, 64)]
)
def test_a_step_has_whole_groups_that_see_enough(n_joints: int, fewest: float, members: int) -> None:
    settings = settings_for(n_weights=1, n_joints=n_joints, fewest_members=fewest, threshold=None)
    assert settings["population_limit"] == members
    assert members % int(settings["group_size"]) == 0
    assert settings["max_population"] == 64


def test_only_large_noise_with_a_known_threshold_begins_again() -> None:
    settings = settings_for(n_weights=100, n_joints=2, fewest_members=2, threshold=360.0)
    assert (settings["restarts"], settings["target_loss"]) == (3, -360.0)
    for n_joints, threshold in ((2, None), (3, 4800.0)):
        others = settings_for(n_weights=100, n_joints=n_joints, fewest_members=2, threshold=threshold)
        assert not {"restarts", "target_loss"} & set(others)

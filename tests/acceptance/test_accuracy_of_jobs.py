"""The classifier as it is requested of a hub, beside plain PyTorch with the same rate, batch and epochs."""

from collections.abc import Iterator

import pytest

pytest.importorskip("torch")
pytest.importorskip("sklearn")
pytest.importorskip("starlette")

from benchmarks.compat.five_systems import JOB, N_HELD_OUT, TRAINING, plain_classifier
from benchmarks.compat.hub_jobs import HubOfOwn
from benchmarks.compat.made_images import made_images, write_archive

N_TRAINING = 12_000
HALF_A_POINT = 0.005


@pytest.fixture(scope="module")
def hub() -> Iterator[HubOfOwn]:
    hub = HubOfOwn(lambda data: write_archive(data / "MNIST.npz", N_TRAINING, N_HELD_OUT))
    yield hub
    hub.close()


@pytest.fixture(scope="module")
def plain() -> float:
    accuracy = plain_classifier(*made_images(N_TRAINING, N_HELD_OUT), seed=0).accuracy
    assert accuracy is not None
    return accuracy


@pytest.mark.long
@pytest.mark.parametrize(("n_devices", "n_killed"), [(1, 0), (2, 0), (5, 2)])
def test_a_job_is_less_than_half_a_point_behind_plain_sgd(
    hub: HubOfOwn, plain: float, n_devices: int, n_killed: int
) -> None:
    reached = hub.train(JOB, TRAINING, n_devices=n_devices, n_killed=n_killed).figures["accuracy"]
    print(f"{n_devices} devices, {n_killed} killed: {reached:.4f}, PyTorch {plain:.4f}")
    assert reached >= plain - HALF_A_POINT

from collections.abc import Callable
from importlib.util import find_spec
from typing import Any

import pytest

ReadJson = Callable[..., dict[str, Any]]

pytestmark = pytest.mark.skipif(
    find_spec("torch") is None or find_spec("sklearn") is None, reason="needs PyTorch and scikit-learn"
)


def test_fedlearn_says_when_it_is_accurate_and_what_it_sent(read_json: ReadJson) -> None:
    (row,) = read_json("peers", "--learners", "fedlearn", "--accuracy", "0.5", "--local-steps", "4")["rows"]
    assert row["learner"] == "fedlearn, local steps 4"
    assert row["seconds"] > 0
    assert row["exchanges"] > 0
    assert row["megabytes"] > row["data_megabytes"] == pytest.approx(4e-6 * 1437 * (64 * 4 + 8))


@pytest.mark.skipif(find_spec("flwr") is None, reason="needs Flower")
def test_flowers_clients_are_sent_parameters_and_send_theirs(read_json: ReadJson) -> None:
    given = ("--learners", "FedAvg", "--accuracy", "0.5", "--rates", "1", "--epochs", "1")
    (row,) = read_json("peers", *given)["rows"]
    assert row["learner"] == "FedAvg, SGD 1, epochs 1"
    parameters = 4e-6 * (64 * 64 + 64 + 640 + 10)
    assert row["megabytes"] == pytest.approx(row["exchanges"] * 4 * 2 * parameters, rel=0.05)


@pytest.mark.skipif(find_spec("evotorch") is None, reason="needs evotorch")
def test_evotorchs_actors_are_sent_solutions(read_json: ReadJson) -> None:
    (row,) = read_json("peers", "--learners", "evotorch", "--accuracy", "1.1", "--seconds", "0.1")["rows"]
    assert row["seconds"] is None
    assert row["megabytes"] == pytest.approx(row["exchanges"] * 200 * 4e-6 * (64 * 64 + 64 + 640 + 10 + 1))

"""What benchmarks/trust report."""

from importlib.util import find_spec

import pytest

import es_core
from tests.benchmarks.conftest import ReadJson

needs_digits = pytest.mark.skipif(
    find_spec("torch") is None or find_spec("sklearn") is None, reason="needs PyTorch and scikit-learn"
)


def test_honest_kernels_are_compared_and_nobody_is_accused(read_json: ReadJson) -> None:
    rows = read_json("audits", "--audits", "20", "--hidden-sizes", "16")["rows"]
    n_others = len(es_core.supported_isas()) - 1
    assert len(rows) == 2 * (2 * n_others + 1)
    assert all(row["audits"] == 20 and row["greatest"] >= 0.0 for row in rows)
    assert not any(row["accused"] for row in rows if row["precision"] in ("float32", "int8"))


def test_honest_volunteers_of_a_graph_are_compared_and_nobody_is_accused(read_json: ReadJson) -> None:
    pytest.importorskip("torch")
    rows = read_json("graph_audits", "--audits", "16")["rows"]
    assert [row["model"] for row in rows] == ["perceptron", "convolutional", "transformer"]
    assert all(row["audits"] == 16 and 0.0 < row["greatest"] < 1.0 and not row["accused"] for row in rows)


@needs_digits
@pytest.mark.parametrize(("local_steps", "machine"), [(1, "plain"), (2, "double")])
def test_machines_that_round_otherwise_are_hardly_apart(local_steps: int, machine: str, read_json: ReadJson) -> None:
    given = ("--models", "mlp", "--local-steps", str(local_steps), "--groups", "2", "--machines", machine)
    (row,) = read_json("gradient_audits", *given)["rows"]
    assert (row["machines"], row["local_steps"], row["groups"], row["accused"]) == (machine, local_steps, 2, 0)
    assert row["mean_of_sums"] <= row["greatest_of_sums"] < 1
    assert row["mean_of_losses"] <= row["greatest_of_losses"] < 1


@needs_digits
def test_lies_stay_below_the_tolerance(read_json: ReadJson) -> None:
    given = ("--models", "mlp", "--steps", "21", "--lies", "nothing", "planted")
    nobody, planted = read_json("lying_gradients", *given)["rows"]
    assert (nobody["liars"], nobody["off_by"], nobody["named"]) == (0, 0, 0)
    assert planted["liars"] == 1
    assert 0.8 < planted["off_by"] <= 0.95
    assert nobody["honest_named"] == planted["honest_named"] == 0

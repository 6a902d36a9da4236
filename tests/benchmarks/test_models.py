"""What benchmarks/models report."""

from importlib.util import find_spec
from pathlib import Path

import pytest

from tests.benchmarks.conftest import ReadJson
from tests.run_folders import write_text

needs_digits = pytest.mark.skipif(
    find_spec("torch") is None or find_spec("sklearn") is None, reason="needs PyTorch and scikit-learn"
)
needs_torch = pytest.mark.skipif(find_spec("torch") is None, reason="needs PyTorch")


@needs_torch
def test_members_rank_as_they_do_exactly_where_differences_are_sent(read_json: ReadJson, tmp_path: Path) -> None:
    text = write_text(tmp_path / "text.txt", 40_000)
    flags = ("--members", "48", "--steps", "20", "--sigmas", "0.001", "--text", str(text))
    report = read_json("activation_codecs", *flags)
    rows = {row["codec"]: row for row in report["rows"]}
    print({codec: (row["error"], row["rank_correlation"]) for codec, row in rows.items()})
    assert rows["float32"]["error"] == 0.0
    assert rows["int8-delta"]["error"] < 0.01
    assert rows["int8-delta"]["rank_correlation"] >= 0.99
    assert rows["int4-delta"]["error"] < 0.1
    assert rows["int4-delta"]["rank_correlation"] >= 0.98
    # What the same bits are worth where they are spent on the values themselves.
    assert rows["int8"]["error"] > rows["int8-delta"]["error"]
    sizes = {codec: row["member_bytes"] for codec, row in rows.items()}
    assert sizes["int8-delta"] == pytest.approx(sizes["float32"] / 4, rel=0.1)
    assert sizes["int4-delta"] == pytest.approx(sizes["float32"] / 7, rel=0.1)


@pytest.fixture
def text(tmp_path: Path) -> str:
    path = tmp_path / "text.txt"
    path.write_text("the quick brown fox jumps over the lazy dog, and another one looks on. " * 60)
    return str(path)


@needs_digits
def test_local_steps_send_less_than_steps_that_are_exchanged(read_json: ReadJson, text: str) -> None:
    given = ("--text", text, "--steps", "4", "--volunteers", "2", "--local-steps", "1", "4", "--rates", "0.01")
    rows = read_json("local_steps", *given)["rows"]
    adam, each, each_packed, alone, alone_packed = rows
    assert [row["exchanges"] for row in rows] == [4, 4, 4, 1, 1]
    assert [row["sum_bits"] for row in rows] == [32, 8, 4, 8, 4]
    assert adam["megabytes"] > each["megabytes"] > 3 * alone["megabytes"]
    assert each["megabytes"] > 1.5 * each_packed["megabytes"] > 4 * alone_packed["megabytes"]
    for row in rows:
        assert 0 < row["loss"] < 9


@needs_digits
def test_volunteers_that_are_missing_send_nothing(read_json: ReadJson, text: str) -> None:
    given = ("--text", text, "--steps", "8", "--volunteers", "3", "--local-steps", "2", "--rates", "--sum-bits", "8")
    everybody, others = read_json("local_steps", *given, "--missing", "0", "0.6")["rows"]
    assert (everybody["missing"], others["missing"]) == (0, 0.6)
    assert everybody["exchanges"] == others["exchanges"] == 4
    assert 0.1 < others["megabytes"] / everybody["megabytes"] < 0.9
    assert others["loss"] != everybody["loss"]


@needs_digits
def test_slow_lines_have_local_steps(read_json: ReadJson, text: str) -> None:
    given = ("--text", text, "--volunteers", "2", "--mbit", "1", "--seconds", "1.5")
    each, chosen = read_json("local_steps", *given)["lines"]
    assert (each["local_steps"], chosen["local_steps"]) == ("1", "by the lines")
    assert each["last_local_steps"] == 1
    assert chosen["last_local_steps"] > 8


TINY_MEMBER_COSTS = ("--members", "4", "--rounds", "2", "--rank", "2", "--networks", "graph net", "GRU 64")


@needs_torch
def test_members_are_compared_with_inference_and_graphs_with_their_modules(read_json: ReadJson) -> None:
    report = read_json("member_costs", *TINY_MEMBER_COSTS)
    assert (report["members"], report["rank"]) == (4, 2)
    assert [result["network"] for result in report["results"]] == ["graph net", "GRU 64"]
    for result in report["results"]:
        assert result["calls"] > 5
        for figure in ("share_of_inference", "graph", "graph_members"):
            ratio = result[figure]
            assert 0 < ratio["low"] <= ratio["median"] <= ratio["high"]
        of_module, of_graph = result["ways"]
        assert of_module.startswith(("_next_token: ", "_class_of_graphs: "))
        assert of_graph.startswith("Program: ")


@needs_digits
def test_gradients_of_fedlearn_stand_beside_adam_and_muon(read_json: ReadJson) -> None:
    given = ("--models", "mlp", "--seconds", "0.2", "--shares", "1", "--rates", "0.01", "--falling")
    rows = read_json("own_model", *given)["rows"]
    names = ["Adam, 0.01", "Adam, 0.01, falling", "Muon of PyTorch, falling", "fedlearn"]
    assert [row["learner"] for row in rows] == names
    for row in rows:
        assert row["steps"] > 0
        assert 0 < row["loss"] < 3
        assert 0 < row["accuracy"] <= 1


@needs_digits
def test_seconds_to_an_accuracy_stand_beside_adams(read_json: ReadJson) -> None:
    given = ("--models", "mlp", "--seconds", "30", "--rates", "0.01", "--accuracy", "0.8")
    adam, ours = read_json("own_model", *given)["times"]
    assert (adam["learner"], ours["learner"]) == ("Adam, 0.01", "fedlearn")
    assert all(row["steps"] > 0 and row["seconds"] > 0 for row in (adam, ours))


@needs_digits
def test_an_accuracy_that_nobody_reaches_has_no_seconds(read_json: ReadJson) -> None:
    given = ("--models", "mlp", "--seconds", "0.1", "--rates", "0.01", "--accuracy", "1.1")
    assert [row["seconds"] for row in read_json("own_model", *given)["times"]] == [None, None]


@needs_digits
def test_fedlearn_says_when_it_is_accurate_and_what_it_sent(read_json: ReadJson) -> None:
    (row,) = read_json("peers", "--learners", "fedlearn", "--accuracy", "0.5", "--local-steps", "4")["rows"]
    assert row["learner"] == "fedlearn, local steps 4"
    assert row["seconds"] > 0
    assert row["exchanges"] > 0
    assert row["megabytes"] > row["data_megabytes"] == pytest.approx(4e-6 * 1437 * (64 * 4 + 8))


@needs_digits
@pytest.mark.parametrize(("task", "unit"), [("mlp", "examples"), ("CartPole-v1", "episodes")])
def test_trials_to_a_loss_stand_beside_those_of_earlier_settings(read_json: ReadJson, task: str, unit: str) -> None:
    if unit == "episodes":
        pytest.importorskip("gymnasium")
    (row,) = read_json("losses_only", "--tasks", task, "--seconds", "0.5")["rows"]
    assert (row["task"], row["unit"]) == (task, unit)
    assert row["earlier"] > 0
    assert row["share"] == (row["now"] and row["now"] / row["earlier"])


@pytest.mark.skipif(find_spec("flwr") is None, reason="needs Flower")
@needs_digits
def test_flowers_clients_are_sent_parameters_and_send_theirs(read_json: ReadJson) -> None:
    given = ("--learners", "FedAvg", "--accuracy", "0.5", "--rates", "1", "--epochs", "1")
    (row,) = read_json("peers", *given)["rows"]
    assert row["learner"] == "FedAvg, SGD 1, epochs 1"
    parameters = 4e-6 * (64 * 64 + 64 + 640 + 10)
    assert row["megabytes"] == pytest.approx(row["exchanges"] * 4 * 2 * parameters, rel=0.05)


@pytest.mark.skipif(find_spec("evotorch") is None, reason="needs evotorch")
@needs_digits
def test_evotorchs_actors_are_sent_solutions(read_json: ReadJson) -> None:
    (row,) = read_json("peers", "--learners", "evotorch", "--accuracy", "1.1", "--seconds", "0.1")["rows"]
    assert row["seconds"] is None
    assert row["megabytes"] == pytest.approx(row["exchanges"] * 200 * 4e-6 * (64 * 64 + 64 + 640 + 10 + 1))


@needs_digits
def test_a_model_without_hidden_matrices_is_left_to_adam(read_json: ReadJson) -> None:
    given = ("--models", "logistic", "--seconds", "0.1", "--shares", "1", "--rates", "0.01", "--falling")
    assert [row["steps"] > 0 for row in read_json("own_model", *given)["rows"]] == [True] * 4


OF_TEXT = {
    "lstm": "torch",
    "encoder": "torch",
    "gpt2": "transformers",
    "llama": "transformers",
    "x-transformer": "x_transformers",
}
OF_DIGITS = ("logistic", "deep", "autoencoder", "resnet", "convnet", "depthwise", "mixer", "unet")
OF_BOTH = (
    "residual", "bert", "Beit", "ConvNext", "DeiT", "MobileNetV2", "MobileViT", "RegNet", "Swin", "ViT", "Albert",
    "DistilBert", "Electra", "Roberta", "XLNet",
)  # fmt: skip
"""Those that read digits and are of transformers."""


@needs_torch
@pytest.mark.parametrize(
    "name", ["regression", "prices", "recommender", "adding", "siren", *OF_DIGITS, *OF_BOTH, *OF_TEXT]
)
def test_networks_of_other_kinds_give_a_loss_before_they_learn(name: str, text: str) -> None:
    pytest.importorskip("sklearn" if name in (*OF_DIGITS, *OF_BOTH) else OF_TEXT.get(name, "torch"))
    pytest.importorskip("transformers" if name in OF_BOTH else "torch")
    from benchmarks.models.own_model import any_subject
    from benchmarks.models.subjects import judged, new_model

    subject = any_subject(name, Path(text).read_bytes())
    loss, accuracy = judged(subject, new_model(subject, 1))
    assert 0.0 < loss < 1e7
    assert accuracy is None

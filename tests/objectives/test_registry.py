import pytest

from fedlearn.objectives import build_objective
from fedlearn.objectives.rnn import RnnObjective

MODEL: dict[str, str | int | float] = {
    "architecture": "rnn",
    "vocab_size": 9,
    "hidden_size": 8,
    "n_layers": 2,
    "context": 3,
    "sequence_length": 5,
    "batch_size": 2,
    "embedding_scale": 10.0,
    "precision": "float32",
}


def test_a_description_becomes_its_objective() -> None:
    objective = build_objective(MODEL, seed=3)
    assert isinstance(objective, RnnObjective)
    assert objective.seed == 3
    assert objective.window.n_tokens == 3 + 5 + 1
    assert objective.tokens_per_member == 2 * 5
    shapes = {tensor.name: tensor.shape for tensor in objective.layout.tensors}
    assert shapes["embedding.weight"] == (9, 8)
    assert shapes["rnn.weight_ih_l1"] == (8, 8)
    assert shapes["initial_state"] == (16,)


@pytest.mark.parametrize("architecture", ["gpt", "", 3])
def test_an_unknown_architecture_is_refused_with_the_choices(architecture: str | int) -> None:
    with pytest.raises(ValueError, match=f"architecture: expected one of rnn, got {architecture!r}"):
        build_objective(MODEL | {"architecture": architecture}, seed=1)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"hidden_size": "wide"}, "hidden_size"),
        ({"heads": 3}, "heads"),
        ({"n_layers": 1.5}, "n_layers"),
        ({"n_layers": 17}, "<= 16 .*n_layers"),
        ({"control_taps": 17}, "<= 16 .*control_taps"),
        ({"hidden_size": 2**16 + 1}, "<= 65536 .*hidden_size"),
    ],
)
def test_a_description_that_makes_no_sense_is_refused(change: dict[str, str | int | float], message: str) -> None:
    with pytest.raises(ValueError, match=f"model: .*{message}"):
        build_objective(MODEL | change, seed=1)


def test_a_description_that_lacks_something_is_refused() -> None:
    with pytest.raises(ValueError, match="missing required field `vocab_size`"):
        build_objective({key: value for key, value in MODEL.items() if key != "vocab_size"}, seed=1)

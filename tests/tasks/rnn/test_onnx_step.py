import sys
from typing import Any

import numpy as np
import pytest

from fedlearn.tasks.rnn.cells import CELLS, CellName
from fedlearn.tasks.rnn.language_model import RnnLanguageModel
from fedlearn.tasks.rnn.objective import RnnObjective
from fedlearn.tasks.rnn.onnx_step import onnx_step
from fedlearn.text.windows import WindowShape

VOCAB = 11


def objective_of(cell: CellName, n_layers: int, control_variates: bool = False) -> RnnObjective:
    return RnnObjective(
        seed=1,
        vocab_size=VOCAB,
        hidden_size=6,
        n_layers=n_layers,
        window=WindowShape(1, 4, 8),
        embedding_scale=1.0,
        cell=cell,
        control_variates=control_variates,
    )


@pytest.mark.parametrize(
    ("cell", "n_layers", "control_variates"),
    [("tanh", 1, True), ("tanh", 3, False), ("gru", 2, False), ("lstm", 2, False)],
)
def test_graph_predicts_what_the_network_does(cell: CellName, n_layers: int, control_variates: bool) -> None:
    onnx = pytest.importorskip("onnx", reason="needs the onnx extra")
    from onnx.reference import ReferenceEvaluator

    objective, n_vectors = objective_of(cell, n_layers, control_variates), CELLS[cell].state_vectors * n_layers
    weights = np.random.default_rng(2).standard_normal(objective.layout.size, dtype=np.float32)
    model = onnx.load_from_string(onnx_step(objective, weights, {"step": "7"}))
    onnx.checker.check_model(model, full_check=True)
    assert {entry.key: entry.value for entry in model.metadata_props} == {"step": "7"}
    step: Any = ReferenceEvaluator(model)
    ours = RnnLanguageModel(objective, weights)
    (begin,) = step.run(["initial_state"], {"token": np.zeros(1, np.int64), "state": np.zeros((n_vectors, 1, 6), "f4")})
    np.testing.assert_array_equal(begin[:, 0], ours.initial_state(1)[0])
    state, expected_state = np.repeat(begin, 3, axis=1), ours.initial_state(3)
    for tokens in np.random.default_rng(3).integers(0, VOCAB, (5, 3)):
        logits, state = step.run(["logits", "next_state"], {"token": tokens, "state": state})
        expected_state, expected = ours.next_log_probabilities(expected_state, tokens.astype(np.uint16))
        found = logits - np.log(np.exp(logits).sum(axis=1, keepdims=True))
        np.testing.assert_allclose(found, expected, atol=1e-4)
        np.testing.assert_allclose(state.transpose(1, 0, 2), expected_state, atol=1e-4)


def test_missing_package_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "onnx", None)
    objective = objective_of("tanh", 1)
    with pytest.raises(ValueError, match=r"onnx: expected the package onnx.* pip install 'fedlearn\[onnx\]'"):
        onnx_step(objective, objective.initial_weights(), {})


def test_model_that_the_format_can_not_hold_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("fedlearn.tasks.rnn.onnx_step.MAX_BYTES", 100)
    objective = objective_of("tanh", 1)
    with pytest.raises(ValueError, match=r"onnx: expected weights of at most 100 bytes, got .*; use safetensors"):
        onnx_step(objective, objective.initial_weights(), {})

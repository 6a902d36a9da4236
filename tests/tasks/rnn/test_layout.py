import numpy as np
import pytest

from fedlearn.es.layout import TensorSpec
from fedlearn.tasks.rnn.layout import Residuals, control_tensors, rnn_layout, to_torch_names


def test_tensors_have_their_order_shapes_scales_and_masks() -> None:
    assert rnn_layout(9, 8, 2, 10.0).tensors == (
        TensorSpec("embedding.weight", (9, 8), scale=10.0, mask_column=0),
        TensorSpec("rnn.weight_hh_l0", (8, 8), n_hidden=1),
        TensorSpec("rnn.bias_l0", (8,)),
        TensorSpec("rnn.weight_ih_l1", (8, 8), n_hidden=1),
        TensorSpec("rnn.weight_hh_l1", (8, 8), n_hidden=1),
        TensorSpec("rnn.bias_l1", (8,)),
        TensorSpec("head.weight", (9, 8)),
        TensorSpec("head.bias", (9,)),
        TensorSpec("initial_state", (16,), mask_column=9),
    )


def test_a_gru_has_three_rows_a_unit_and_a_bias_of_its_own_within_the_third() -> None:
    tensors = rnn_layout(9, 8, 2, 10.0, "gru").tensors
    assert [(tensor.name, tensor.shape) for tensor in tensors] == [
        ("embedding.weight", (9, 24)),
        ("rnn.weight_hh_l0", (24, 8)),
        ("rnn.bias_l0", (24,)),
        ("rnn.bias_hn_l0", (8,)),
        ("rnn.weight_ih_l1", (24, 8)),
        ("rnn.weight_hh_l1", (24, 8)),
        ("rnn.bias_l1", (24,)),
        ("rnn.bias_hn_l1", (8,)),
        ("head.weight", (9, 8)),
        ("head.bias", (9,)),
        ("initial_state", (16,)),
    ]
    assert {tensor.name: tensor.n_hidden for tensor in tensors if tensor.n_hidden} == {
        "rnn.weight_hh_l0": 3,
        "rnn.weight_ih_l1": 3,
        "rnn.weight_hh_l1": 3,
    }


def test_an_lstm_has_four_rows_a_unit_and_two_vectors_of_state_a_layer() -> None:
    tensors = rnn_layout(9, 8, 2, 10.0, "lstm").tensors
    assert [(tensor.name, tensor.shape) for tensor in tensors] == [
        ("embedding.weight", (9, 32)),
        ("rnn.weight_hh_l0", (32, 8)),
        ("rnn.bias_l0", (32,)),
        ("rnn.weight_ih_l1", (32, 8)),
        ("rnn.weight_hh_l1", (32, 8)),
        ("rnn.bias_l1", (32,)),
        ("head.weight", (9, 8)),
        ("head.bias", (9,)),
        ("initial_state", (32,)),
    ]


@pytest.mark.parametrize("residuals", ["head", "readout"])
def test_control_matrices_are_a_chain_that_starts_at_the_head_or_at_a_readout_among_them(residuals: Residuals) -> None:
    tensors = control_tensors((9, 8, 2), residuals)
    assert [(tensor.name, tensor.shape) for tensor in tensors] == [
        ("control.head", (9, 8)),
        ("control.next_l0", (8, 8)),
        ("control.above_l0", (8, 8)),
        ("control.next_l1", (8, 8)),
        *(
            [("control.readout", (9, 8)), ("control.readout_bias", (9,)), ("control.logits", (9, 9))]
            if residuals == "readout"
            else []
        ),
    ]
    assert {(tensor.scale, tensor.mask_column) for tensor in tensors} == {(1.0, -1)}


def test_pytorch_reads_one_hot_tokens_with_the_embedding_turned() -> None:
    layout = rnn_layout(9, 8, 2, 10.0)
    weights = np.arange(layout.size, dtype=np.float32)
    parts, named = layout.split(weights), to_torch_names(layout, weights)
    np.testing.assert_array_equal(named["rnn.weight_ih_l0"], parts["embedding.weight"].T)
    assert named["rnn.weight_ih_l0"].flags.c_contiguous
    np.testing.assert_array_equal(named["initial_state"], parts["initial_state"].reshape(2, 8))
    np.testing.assert_array_equal(named["rnn.bias_ih_l1"], parts["rnn.bias_l1"])
    assert not named["rnn.bias_hh_l1"].any()
    assert set(named) == {
        "head.weight",
        "head.bias",
        "initial_state",
        *(f"rnn.{kind}_{which}_l{layer}" for kind in ("weight", "bias") for which in ("ih", "hh") for layer in (0, 1)),
    }

import msgspec
import pytest

from fedlearn.hub.bodies import Asked, RefusedError, Registration, Training, read_body, written

GIVEN = (
    b'{"model_config": {"layer_sizes": [784, 128, 64, 10]}, "dataset_config": {"name": "MNIST", "batch_size": 256, '
    b'"val_batch_size": 1000, "normalize": {"mean": [0.1307], "std": [0.3081]}}}'
)


def test_a_job_is_written_as_it_was_asked_for() -> None:
    assert written(read_body(GIVEN, Asked)) == msgspec.json.decode(GIVEN)


def test_sizes_of_layers_say_the_type_by_themselves() -> None:
    asked = read_body(GIVEN, Asked)
    assert (asked.model_config.kind, asked.model_config.max_devices) == ("mlp", 3)
    text = read_body(b'{"model_config": {"type": "transformer", "n_layers": 2}}', Asked)
    assert (text.model_config.kind, text.model_config.max_devices) == ("transformer", 12)


def test_an_empty_body_is_one_of_defaults() -> None:
    assert read_body(b"", Training) == read_body(b"{}", Training) == Training(epochs=None, learning_rate=None)


@pytest.mark.parametrize(
    ("body", "expected"),
    [
        (b"[", Training),
        (b"[]", Training),
        (b"\xff", Training),
        (b"[" * 9000, Training),
        (b'{"epochs": 0}', Training),
        (b'{"epochs": 100001}', Training),
        (b'{"epochs": "ten"}', Training),
        (b'{"learning_rate": 0}', Training),
        (b'{"learning_rate": 1e9}', Training),
        (b'{"rate": 1}', Training),
        (b'{"wire": "int8"}', Training),
        (b'{"quantization_bits": 7}', Training),
        (b"{}", Asked),
        (b'{"model_config": {"layer_sizes": [0, 10]}}', Asked),
        (b'{"model_config": {"layer_sizes": [65537, 10]}}', Asked),
        (b'{"model_config": {"layer_sizes": [1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1]}}', Asked),
        (b'{"model_config": {"type": "rnn"}}', Asked),
        (b'{"model_config": {"code": "import os"}}', Asked),
        (b'{"model_config": {}, "dataset_config": {"normalize": {"mean": [0], "std": [0]}}}', Asked),
        (b'{"model_config": {}, "dataset_config": {"batch_size": -1}}', Asked),
        (b'{"port": 65536}', Registration),
        (b'{"job_id": "1"}', Registration),
        (b'{"job_id": 0}', Registration),
    ],
)
def test_a_body_of_the_wrong_shape_is_refused(body: bytes, expected: type[msgspec.Struct]) -> None:
    with pytest.raises(RefusedError, match="body: ") as refused:
        read_body(body, expected)
    assert refused.value.status == 400


def test_a_refusal_names_the_key() -> None:
    with pytest.raises(RefusedError, match=r"\$\.epochs"):
        read_body(b'{"epochs": 0}', Training)


@pytest.mark.parametrize(
    ("body", "codec"),
    [
        (b"{}", "float32"),
        (b'{"quantization_bits": 8}', "int8-delta"),
        (b'{"quantization_bits": 4}', "int4-delta"),
        (b'{"quantization_bits": 16}', "float16"),
        (b'{"wire": "int4-delta"}', "int4-delta"),
        (b'{"wire": "float32", "quantization_bits": 8}', "float32"),
    ],
)
def test_bits_say_how_activations_travel_unless_that_is_said(body: bytes, codec: str) -> None:
    assert read_body(body, Training).codec == codec

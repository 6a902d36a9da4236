from typing import get_args

import numpy as np
import pytest

from fedlearn.graphs.graph import ITEM_BYTES, ArraySpec, DtypeName, GraphError

torch = pytest.importorskip("torch")

from fedlearn.tasks.torch_graph.arrays import DTYPES, of_constant, spec_of, to_array, to_constant, to_tensor  # noqa: E402


@pytest.mark.parametrize("name", get_args(DtypeName))
def test_a_tensor_of_any_dtype_comes_back(name: DtypeName) -> None:
    tensor = torch.tensor([[0, 1, 1], [1, 0, 0]]).to(DTYPES[name]).t()
    spec = spec_of("x", tensor)
    assert spec == ArraySpec("x", (3, 2), name)
    assert tensor.element_size() == ITEM_BYTES[name]
    for again in (to_tensor(to_array(tensor), spec), of_constant(to_constant(spec, tensor))):
        assert again.dtype is tensor.dtype
        assert torch.equal(again, tensor)


def test_a_constant_has_its_lowest_byte_first() -> None:
    tensor = torch.tensor([1, 256], dtype=torch.int32)
    assert to_constant(spec_of("x", tensor), tensor).data == b"\1\0\0\0\0\1\0\0"


def test_what_numpy_has_no_dtype_for_keeps_its_bytes() -> None:
    array = to_array(torch.tensor([1.0], dtype=torch.bfloat16))
    assert array.dtype == np.int16
    assert array[0] == 0x3F80


def test_arrays_share_no_memory_with_tensors() -> None:
    tensor = torch.zeros(2)
    array = to_array(tensor)
    again = to_tensor(array, spec_of("x", tensor))
    tensor[0], array[1] = 1, 2
    assert array.tolist() == [0, 2]
    assert again.tolist() == [0, 0]


def test_arrays_that_nobody_may_write_to_become_tensors() -> None:
    array = np.zeros(2, np.float32)
    array.flags.writeable = False
    to_tensor(array, ArraySpec("x", (2,))).add_(1)
    assert array.tolist() == [0, 0]


def test_a_dtype_without_a_name_is_refused() -> None:
    with pytest.raises(GraphError, match=r"'x': expected one of float64, .* got torch\.complex128"):
        spec_of("x", torch.zeros(1, dtype=torch.complex128))

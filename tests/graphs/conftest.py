import pytest

from fedlearn.graphs.graph import ArraySpec, Call, Constant, Graph, Value


@pytest.fixture
def graph() -> Graph:
    """The mean square of a linear layer's rows, shifted by a constant."""
    return Graph(
        inputs=(ArraySpec("x", (2, 3)),),
        learned=(ArraySpec("layer.weight", (4, 3)),),
        frozen=(ArraySpec("layer.bias", (4,)),),
        constants=(Constant(ArraySpec("shift", (1,), "int64"), (5).to_bytes(8, "little")),),
        calls=(
            Call(("y",), "linear.default", (Value("x"), Value("layer.weight"), Value("layer.bias"))),
            Call(("z",), "add.Tensor", (Value("y"), Value("shift"), 1)),
            Call(("square",), "pow.Tensor_Scalar", (Value("z"), 2.0)),
            Call(("loss",), "mean.default", (Value("square"), None)),
        ),
        outputs=("loss",),
    )

import pytest

from fedlearn.graphs.graph import Argument, ArraySpec, Call, Constant, Dtype, Form, Graph, Value


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


ROWS = Form((2, 4), "float32")


@pytest.fixture
def deep() -> Graph:
    """An embedding, a layer with a residual around it, a transposed one with a mask, and the embedding as the head."""
    listed: tuple[tuple[str, str, tuple[Argument, ...], Form], ...] = (
        ("mask", "gt.Scalar", (Value("ids"), 0), Form((2,), "bool")),
        ("wide", "unsqueeze.default", (Value("mask"), 1), Form((2, 1), "bool")),
        ("scale", "to.dtype", (Value("shift"), Dtype("float32")), Form((1,), "float32")),
        ("x", "embedding.default", (Value("table"), Value("ids")), ROWS),
        ("a", "linear.default", (Value("x"), Value("first"), None), ROWS),
        ("b", "relu.default", (Value("a"),), ROWS),
        ("s", "mul.Tensor", (Value("b"), Value("scale")), ROWS),
        ("c", "add.Tensor", (Value("x"), Value("s"), 1), ROWS),
        ("turned", "t.default", (Value("second"),), Form((4, 4), "float32")),
        ("d", "mm.default", (Value("c"), Value("turned")), ROWS),
        ("e", "masked_fill.Scalar", (Value("d"), Value("wide"), 0.0), ROWS),
        ("logits", "linear.default", (Value("e"), Value("table"), None), Form((2, 9), "float32")),
        (
            "loss",
            "cross_entropy_loss.default",
            (Value("logits"), Value("ids"), None, 1, -100, 0.0),
            Form((), "float32"),
        ),
    )
    return Graph(
        inputs=(ArraySpec("ids", (2,), "int64"),),
        learned=(ArraySpec("table", (9, 4)), ArraySpec("first", (4, 4)), ArraySpec("second", (4, 4))),
        frozen=(),
        constants=(Constant(ArraySpec("shift", (1,), "int64"), bytes(8)),),
        calls=tuple(Call((result,), operator, arguments) for result, operator, arguments, _ in listed),
        outputs=("loss",),
        forms=tuple(form for *_, form in listed),
    )

import pytest

from fedlearn.graphs.costs import makes_products, multiply_adds
from fedlearn.graphs.graph import Argument, Call, GraphError, Shape, Value

A, B, C = Value("a"), Value("b"), Value("c")


@pytest.mark.parametrize(
    ("operator", "arguments", "a", "b", "y", "expected"),
    [
        ("linear.default", (A, B, None), (5, 2, 3), (4, 3), (5, 2, 4), 5 * 2 * 3 * 4),
        ("addmm.default", (C, A, B, 1, 1), (2, 3), (3, 4), (2, 4), 2 * 3 * 4),
        ("matmul.default", (A, B), (5, 2, 3), (5, 3, 4), (5, 2, 4), 5 * 2 * 3 * 4),
        ("dot.default", (A, B), (7,), (7,), (), 7),
        ("conv2d.default", (A, B, None, (1,), (0,), (1,), 2), (1, 4, 8, 8), (6, 2, 3, 3), (1, 6, 6, 6), 216 * 18),
        ("conv_transpose2d.input", (A, B, None, (2,), (0,), (0,), 1, (1,)), (1, 4, 3, 3), (4, 5, 2, 2), (1, 5, 6, 6),
         36 * 20),
        ("scaled_dot_product_attention.default", (A, B, B, None, False, None, False), (2, 5, 8), (2, 7, 8), (2, 5, 8),
         2 * 2 * 5 * 7 * 8),
        ("bilinear.default", (A, A, B, None), (2, 3), (4, 3, 3), (2, 4), 2 * 4 * 9),
        ("einsum.default", ("bij, jk -> bik", (A, B)), (5, 2, 3), (3, 4), (5, 2, 4), 5 * 2 * 3 * 4),
        ("einsum.default", ("...i,ij->...j", (A, B)), (6, 3), (3, 4), (6, 4), 6 * 3 * 4),
        ("einsum.default", ("...i,...i->...", (A, B)), (5, 3), (5, 3), (5,), 5 * 3),
        ("einsum.default", ("ij,jk", (A, B)), (2, 3), (3, 4), (2, 4), 2 * 3 * 4),
        ("lstm.input", (A, (C, C), (B, B, C, C), True, 1, False, True), (2, 5, 3), (16, 3), (2, 5, 4), 2 * 5 * 96),
        ("gru_cell.default", (A, C, B, B, None, None), (5, 3), (12, 3), (5, 4), 5 * 2 * 36),
        ("matrix_exp.default", (A,), (2, 3, 3), (1,), (2, 3, 3), 10 * 54),
        ("vdot.default", (A, B), (7,), (7,), (), 7),
        ("fft_rfft.default", (A, None, -1, None), (3, 8), (1,), (3, 5), 5 * 24 * (2 + 4)),
        ("relu.default", (A,), (2, 3), (1,), (2, 3), 6),
        ("mean.default", (A, None), (2, 3), (1,), (), 1),
    ],
)  # fmt: skip
def test_products_count_by_the_shapes(
    operator: str, arguments: tuple[Argument, ...], a: Shape, b: Shape, y: Shape, expected: int
) -> None:
    call = Call(("y",), operator, arguments)
    assert multiply_adds(call, {"a": a, "b": b, "c": (4,), "y": y}) == expected
    assert makes_products(call) == (operator not in ("relu.default", "mean.default"))


def test_a_call_without_the_value_that_counts_is_refused() -> None:
    call = Call(("y",), "mm.default", (3, B))
    with pytest.raises(GraphError, match=r"mm\.default: expected a value as self, got 3"):
        multiply_adds(call, {"b": (3, 4), "y": (2, 4)})

from collections.abc import Callable, Sequence
from typing import Any

import pytest

torch = pytest.importorskip("torch")

from torch import Tensor  # noqa: E402
from torch.overrides import TorchFunctionMode  # noqa: E402

from fedlearn.graphs.operators import DRAWS, OPERATORS  # noqa: E402
from fedlearn.tasks.torch_graph import functions  # noqa: E402
from fedlearn.tasks.torch_graph.functions import FUNCTIONS, SOURCES  # noqa: E402

ATEN_TYPES = {
    "Tensor": ("Tensor",), "Dim": ("int",), "Int": ("int",), "Count": ("int",), "Offset": ("int",), "Extent": ("int",),
    "Reduction": ("int",), "Bool": ("bool",), "Float": ("float",), "Number": ("number",), "Place": ("number",),
    "Dtype": ("Optional[int]", "int"), "Equation": ("str",),
}  # fmt: skip
"""What ATen calls the types of the table's kinds, without `Optional` and `List`."""

# Values of these hang on no gradient, device or memory layout, or `functions` gives the one that trials need.
LEFT_OUT = {
    "copy", "cudnn_enable", "cudnn_enabled", "device", "dropout", "dropout_p", "implicit", "layout", "memory_format",
    "momentum", "non_blocking", "output_size", "padding_idx", "path", "pin_memory", "running_mean", "running_var",
    "scale_grad_by_freq", "sparse", "sparse_grad", "train", "training", "use_input_stats",
}  # fmt: skip


def of_aten(name: str) -> Any:  # noqa: ANN401 (a function of torch's)
    packet, overload = name.split(".")
    return getattr(getattr(torch.ops.aten, packet), overload)


def bare(aten_type: object) -> str:
    text = str(aten_type)
    while text.startswith(("Optional[", "List[")) and text != "Optional[int]":
        text = text.split("[", 1)[1].removesuffix("]")
    return text.removesuffix("]").removeprefix("Optional[")


def test_there_is_a_function_for_every_operator_and_nothing_else() -> None:
    assert FUNCTIONS.keys() == OPERATORS.keys()
    assert functions._PUBLIC.keys() <= OPERATORS.keys()


@pytest.mark.parametrize("name", OPERATORS)
def test_the_table_says_what_aten_says(name: str) -> None:
    schema = of_aten(name)._schema
    parameters = {parameter.name: parameter for parameter in schema.arguments}
    listed = [parameter.name for parameter in OPERATORS[name].parameters]
    assert listed == [parameter for parameter in parameters if parameter in listed]
    assert set(parameters) - set(listed) <= LEFT_OUT
    assert not any(parameter.is_out for parameter in schema.arguments)
    assert not schema.is_mutable
    for parameter in OPERATORS[name].parameters:
        base = "str" if parameter.kind.base.startswith("word(") else ATEN_TYPES[parameter.kind.base][-1]
        assert bare(parameters[parameter.name].type) == base, parameter.name
        assert parameter.kind.is_list == ("List[" in str(parameters[parameter.name].type)), parameter.name
        may_be_none = str(parameters[parameter.name].type).startswith("Optional[")
        assert may_be_none or not parameter.kind.may_be_none, parameter.name


@pytest.mark.parametrize("name", OPERATORS)
def test_the_table_says_how_many_results_there_are(name: str) -> None:
    returns = of_aten(name)._schema.returns
    if OPERATORS[name].n_results < 0:
        assert str(returns[0].type) == "List[Tensor]"
    else:
        assert [str(result.type) for result in returns] == ["Tensor"] * OPERATORS[name].n_results


def rand(*shape: int) -> Tensor:
    tensor: Tensor = torch.rand(shape, generator=torch.Generator().manual_seed(len(shape)))
    return tensor


X, IDS = rand(2, 3, 4), torch.tensor([[0, 2], [1, 1]])
IMAGE, KERNEL = rand(2, 4, 5, 5), rand(6, 2, 3, 3)
STATE, WEIGHTS = rand(1, 2, 5), [rand(20, 4), rand(20, 5), rand(20), rand(20)]
GATED = {"lstm.input": (4, 2), "gru.input": (3, 1), "rnn_tanh.input": (1, 1), "rnn_relu.input": (1, 1)}


def recurrent(name: str) -> tuple[Any, ...]:
    gates, states = GATED[name]
    state = [STATE, STATE + 1] if states == 2 else STATE
    return X, state, [weight[: 5 * gates] for weight in WEIGHTS], True, 1, False, True


UNARY = ("cos", "erf", "exp", "log", "logical_not", "relu", "rsqrt", "sigmoid", "silu", "sin", "sqrt", "square", "tanh")

ARGUMENTS: dict[str, tuple[Any, ...]] = {
    **{f"{name}.default": (X,) for name in UNARY},
    "bmm.default": (X, rand(2, 4, 2)),
    "cat.default": ([X, X + 1], -2),
    "gather.default": (rand(2, 2), 1, IDS % 2),
    "gelu.default": (X, "tanh"),
    "index.Tensor": (X, [torch.tensor([1, 0]), torch.tensor([[2], [0]])]),
    "index_add.default": (X, 1, torch.tensor([2, 0, 2]), X + 1, 3),
    "index_select.default": (X, -1, torch.tensor([3, 3, 0])),
    "log_softmax.int": (X, 1, torch.float64),
    "maximum.default": (X, rand(4)),
    "mean.dim": (X, [0, -1], True, torch.float64),
    "minimum.default": (X, rand(4)),
    "pow.Tensor_Scalar": (X, 1.5),
    "scatter_add.default": (rand(2, 2), 1, IDS % 2, rand(2, 2) + 1),
    "softmax.int": (X, 1, None),
    "split_with_sizes.default": (X, [1, 3], 2),
    "stack.default": ([X, X + 1], 1),
    "sum.dim_IntList": (IDS, None, True, torch.int32),
    "where.self": (X > 0.5, X, rand(4)),
    "zeros_like.default": (X, torch.int64),
    "add.Tensor": (X, rand(4), 3),
    "sub.Tensor": (X, rand(4), 3),
    "addmm.default": (rand(5), rand(2, 4), rand(4, 5), 0.5, 2),
    "batch_norm.default": (X, rand(3), rand(3) + 1, rand(3) - 1, rand(3) + 2, 1e-3),
    "contiguous.default": (X.transpose(0, 1),),
    "detach.default": (X,),
    "conv1d.default": (rand(2, 4, 5), rand(6, 2, 3), rand(6), [2], [1], [2], 2),
    "conv1d.padding": (rand(2, 4, 5), rand(6, 2, 3), rand(6), [1], "same", [2], 2),
    "conv2d.default": (IMAGE, KERNEL, rand(6), [2, 1], [1, 0], [1, 2], 2),
    "conv2d.padding": (IMAGE, KERNEL, None, [1, 1], "same", [1, 2], 2),
    "conv3d.default": (rand(1, 2, 4, 4, 4), rand(2, 2, 2, 2, 2), None, [1, 1, 2], [0, 1, 0], [1, 1, 1], 1),
    "conv_transpose1d.default": (rand(2, 4, 5), rand(4, 3, 3), rand(6), [2], [1], [1], 2, [2]),
    "conv_transpose2d.input": (IMAGE, rand(4, 3, 3, 3), rand(6), [2, 2], [1, 0], [1, 0], 2, [1, 2]),
    "conv_transpose3d.input": (rand(1, 2, 3, 3, 3), rand(2, 1, 2, 2, 2), None, [2] * 3, [0] * 3, [1, 0, 0], 2, [1] * 3),
    "copy.default": (X, torch.tensor([[1], [2], [3]])),
    "cross_entropy_loss.default": (rand(4, 3), torch.tensor([0, 2, 1, 1]), rand(3), 2, 1, 0.1),
    "div.Tensor": (X, rand(4) + 1),
    "embedding.default": (rand(3, 4), IDS),
    "expand.default": (rand(3, 1), [2, -1, 4]),
    "gru.input": recurrent("gru.input"),
    "gru_cell.default": (rand(2, 4), rand(2, 5), WEIGHTS[0][:15], WEIGHTS[1][:15], WEIGHTS[2][:15], WEIGHTS[3][:15]),
    "instance_norm.default": (IMAGE, rand(4), rand(4) + 1, 1e-3),
    "layer_norm.default": (X, [3, 4], rand(3, 4), rand(3, 4) - 1, 1e-3),
    "linear.default": (X, rand(5, 4), rand(5)),
    "lstm.input": recurrent("lstm.input"),
    "lstm_cell.default": (rand(2, 4), [rand(2, 5), rand(2, 5) + 1], *WEIGHTS),
    "matmul.default": (X, rand(4, 2)),
    "mm.default": (rand(2, 3), rand(3, 4)),
    "mul.Scalar": (X, 2),
    "mul.Tensor": (X, rand(4)),
    "mv.default": (rand(2, 3), rand(3)),
    "neg.default": (X,),
    "permute.default": (X, [2, 0, -2]),
    "reshape.default": (X.transpose(0, 1), [-1, 4]),
    "rnn_relu.input": recurrent("rnn_relu.input"),
    "rnn_relu_cell.default": (rand(2, 4), rand(2, 5), WEIGHTS[0][:5], WEIGHTS[1][:5], None, None),
    "rnn_tanh_cell.default": (rand(2, 4), rand(2, 5), WEIGHTS[0][:5], WEIGHTS[1][:5], None, None),
    "rnn_tanh.input": recurrent("rnn_tanh.input"),
    "scaled_dot_product_attention.default": (X, X + 1, X - 1, rand(3, 3) > 0.3, False, 0.3, False),
    "select.int": (X, -1, 2),
    "t.default": (rand(2, 3),),
    "to.dtype": (X, torch.float64),
    "transpose.int": (X, -1, 0),
    "type_as.default": (X, IDS),
    "unsqueeze.default": (X, -2),
}  # fmt: skip


@pytest.mark.parametrize("name", sorted(functions._PUBLIC.keys() - DRAWS))
def test_a_public_function_gives_what_aten_gives(name: str) -> None:
    names = [parameter.name for parameter in OPERATORS[name].parameters]
    given = dict(zip(names, ARGUMENTS[name], strict=True))
    fixed = {"dropout": 0.0, "train": False, "training": False, "momentum": 0.1, "cudnn_enabled": False,
             "use_input_stats": True, "running_mean": None, "running_var": None}  # fmt: skip
    expected_names = [parameter.name for parameter in of_aten(name)._schema.arguments]
    fixed = {key: value for key, value in fixed.items() if key in expected_names and key not in given}
    expected, got = of_aten(name)(**given, **fixed), FUNCTIONS[name](*ARGUMENTS[name])
    for one, other in zip(parts_of(got), parts_of(expected), strict=True):
        assert one.dtype == other.dtype
        assert torch.equal(one, other)


def parts_of(results: Tensor | Sequence[Tensor]) -> list[Tensor]:
    return [results] if isinstance(results, Tensor) else list(results)


@pytest.mark.parametrize("first", [None, torch.tensor(1), torch.tensor([True, True])])
def test_places_are_those_that_aten_gives(first: Tensor | None) -> None:
    indices = [first, torch.tensor([2, 0])]
    expected = torch.ops.aten.index(X, indices)
    got = FUNCTIONS["index.Tensor"](X, indices)
    assert got.shape == expected.shape
    assert torch.equal(got, expected)


@pytest.mark.parametrize("reduction", [0, 1, 2])
def test_a_reduction_is_the_one_of_its_number(reduction: int) -> None:
    arguments = (rand(4, 3), torch.tensor([0, 2, 1, 1]), None, reduction, -100, 0.0)
    expected = torch.ops.aten.cross_entropy_loss(*arguments)
    assert torch.equal(FUNCTIONS["cross_entropy_loss.default"](*arguments), expected)


@pytest.mark.parametrize("dims", [(1, 0), (-1, 0), (1, -2), (0, 1)])
def test_a_transposed_matrix_is_one(dims: tuple[int, int]) -> None:
    matrix = rand(2, 3)
    assert torch.equal(FUNCTIONS["permute.default"](matrix, list(dims)), matrix.permute(dims))


def test_attention_is_told_all_it_is_asked() -> None:
    q, k = rand(1, 4, 3, 8), rand(1, 2, 3, 8)
    expected = torch.nn.functional.scaled_dot_product_attention(q, k, k, is_causal=True, scale=0.1, enable_gqa=True)
    assert torch.equal(FUNCTIONS["scaled_dot_product_attention.default"](q, k, k, None, True, 0.1, True), expected)


@pytest.mark.parametrize("name", sorted(SOURCES - DRAWS))
def test_what_reads_no_value_is_told_its_device(name: str) -> None:
    arguments: dict[str, tuple[Any, ...]] = {
        "arange.default": (3, None), "arange.start": (1, 3, None), "arange.start_step": (1, 7, 2, torch.float32),
        "eye.default": (3, None), "full.default": ([2], 7, None), "linspace.default": (0, 1, 3, None),
        "ones.default": ([2], torch.int8), "scalar_tensor.default": (3, None), "zeros.default": ([2], None),
    }  # fmt: skip
    assert FUNCTIONS[name](*arguments[name], device=torch.device("meta")).is_meta


class Seen(TorchFunctionMode):
    def __init__(self) -> None:
        super().__init__()
        self.functions: list[Callable[..., Any]] = []

    def __torch_function__(
        self,
        function: Callable[..., Any],
        types: object,
        args: tuple[Any, ...] = (),
        kwargs: dict[str, Any] | None = None,
    ) -> Any:  # noqa: ANN401 (whatever the function gives)
        self.functions.append(function)
        return function(*args, **(kwargs or {}))


F = torch.nn.functional


@pytest.mark.parametrize(
    ("name", "function"),
    [
        ("linear.default", F.linear), ("embedding.default", F.embedding), ("matmul.default", torch.matmul),
        ("mm.default", torch.mm), ("mv.default", torch.mv), ("addmm.default", torch.addmm),
        ("layer_norm.default", F.layer_norm), ("cross_entropy_loss.default", F.cross_entropy),
        ("conv1d.default", torch.conv1d), ("conv2d.default", torch.conv2d), ("conv3d.default", torch.conv3d),
        ("scaled_dot_product_attention.default", F.scaled_dot_product_attention), ("transpose.int", torch.transpose),
        ("t.default", torch.t), ("lstm.input", torch.lstm), ("gru.input", torch.gru),
        ("rnn_tanh.input", torch.rnn_tanh), ("rnn_relu.input", torch.rnn_relu), ("to.dtype", Tensor.to),
        ("contiguous.default", Tensor.contiguous),
    ],
)  # fmt: skip
def test_a_mode_sees_the_functions_that_members_have_rules_for(name: str, function: Callable[..., Any]) -> None:
    with Seen() as seen:
        FUNCTIONS[name](*ARGUMENTS[name])
    assert seen.functions[0] is function or seen.functions[0] == function


@pytest.mark.parametrize(
    ("name", "arguments"),
    [("rand.default", ([3, 4], None)), ("randn.default", ([20], torch.float64)), ("randint.low", (2, 9, [5], None))],
)
def test_numbers_are_drawn_from_the_processors_generator(name: str, arguments: tuple[Any, ...]) -> None:
    torch.manual_seed(3)
    got = FUNCTIONS[name](*arguments, device=torch.device("cpu"))
    torch.manual_seed(3)
    *others, dtype = arguments
    assert torch.equal(got, of_aten(name)(*others, dtype=dtype or got.dtype))
    meta = FUNCTIONS[name](*arguments, device=torch.device("meta"))
    assert (meta.is_meta, meta.shape, meta.dtype) == (True, got.shape, got.dtype)

import pytest

from fedlearn.graphs import operators
from fedlearn.graphs.kinds import parse_kind
from fedlearn.graphs.operators import OPERATORS, Operator, Parameter


def test_every_line_of_the_table_is_one_operator() -> None:
    lines = [line for line in operators._LINES.splitlines() if line]
    assert [line.split("(")[0] for line in lines] == list(OPERATORS)


def test_a_line_says_parameters_and_results() -> None:
    assert OPERATORS["gelu.default"] == Operator(
        "gelu.default",
        (Parameter("self", parse_kind("Tensor")), Parameter("approximate", parse_kind("word(none,tanh)"))),
        n_results=1,
    )
    assert OPERATORS["lstm.input"].n_results == 3


def test_a_split_gives_as_many_results_as_sizes() -> None:
    split = OPERATORS["split_with_sizes.default"]
    assert split.n_results < 0
    assert split.parameters[split.counted_by].name == "split_sizes"


def test_a_malformed_line_is_an_error() -> None:
    with pytest.raises(ValueError, match="expected name"):
        operators._parse("relu(Tensor self)")


def test_only_operators_that_read_values_do_not_need_a_place() -> None:
    sources = {name.split(".")[0] for name, operator in OPERATORS.items() if operator.is_source}
    drawn = {"rand", "randint", "randn"}
    assert sources == {"arange", "eye", "full", "linspace", "ones", "scalar_tensor", "zeros"} | drawn


@pytest.mark.parametrize(
    "name",
    [
        # In place, of memory as it is found, at random, by value, or of files.
        "add_.Tensor", "empty.memory_format", "empty_like.default", "as_strided.default", "set_.source_Storage",
        "rand.generator", "native_dropout.default", "bernoulli.default", "item.default", "_local_scalar_dense.default",
        "nonzero.default", "masked_select.default", "from_file.default", "resize_.default", "unbind.int",
    ],
)  # fmt: skip
def test_what_is_not_harmless_is_not_in_the_table(name: str) -> None:
    assert name not in OPERATORS


def test_no_operator_changes_its_arguments() -> None:
    assert not [name for name in OPERATORS if name.split(".")[0].endswith("_") or "out" in name.split(".")[1]]

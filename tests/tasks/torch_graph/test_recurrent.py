import pytest

from fedlearn.graphs.graph import GraphError

torch = pytest.importorskip("torch")

from torch import Tensor, nn  # noqa: E402

from fedlearn.tasks.torch_graph.recurrent import refuse_other_shapes  # noqa: E402

LAYERS = {"lstm.input": nn.LSTM, "gru.input": nn.GRU, "rnn_tanh.input": nn.RNN, "rnn_relu.input": nn.RNN}


def arguments(
    operator: str, *, bias: bool = True, n_layers: int = 2, bidirectional: bool = True, batch_first: bool = True
) -> list[object]:
    """Those of a layer of 3 inputs and 4 units on 2 texts of 5 tokens."""
    layer = LAYERS[operator](3, 4, n_layers, bias=bias, bidirectional=bidirectional)
    state = torch.zeros(n_layers * (2 if bidirectional else 1), 2, 4)
    x = torch.zeros(2, 5, 3) if batch_first else torch.zeros(5, 2, 3)
    hx = [state, state] if operator == "lstm.input" else state
    return [x, hx, list(layer.parameters()), bias, n_layers, bidirectional, batch_first]


@pytest.mark.parametrize("operator", LAYERS)
@pytest.mark.parametrize("bias", [True, False])
@pytest.mark.parametrize("bidirectional", [True, False])
@pytest.mark.parametrize("batch_first", [True, False])
def test_the_weights_of_a_layer_are_accepted(operator: str, bias: bool, bidirectional: bool, batch_first: bool) -> None:
    given = arguments(operator, bias=bias, bidirectional=bidirectional, batch_first=batch_first)
    refuse_other_shapes(operator, *given)  # type: ignore[arg-type]


@pytest.mark.parametrize("operator", LAYERS)
@pytest.mark.parametrize("place", range(16))
def test_every_weight_is_looked_at(operator: str, place: int) -> None:
    given = arguments(operator)
    weights = given[2]
    assert isinstance(weights, list)
    for wrong in (weights[place].double(), weights[place][:-1], weights[place][None]):
        given[2] = [*weights[:place], wrong, *weights[place + 1 :]]
        with pytest.raises(GraphError, match="as its states and weights"):
            refuse_other_shapes(operator, *given)  # type: ignore[arg-type]


@pytest.mark.parametrize("operator", LAYERS)
def test_weights_too_few_and_too_many_are_refused(operator: str) -> None:
    given = arguments(operator)
    weights = given[2]
    assert isinstance(weights, list)
    for wrong in ([], weights[:-1], [*weights, weights[0]]):
        given[2] = wrong
        with pytest.raises(GraphError, match="expected 16 weights, got"):
            refuse_other_shapes(operator, *given)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("operator", "hx"),
    [
        ("lstm.input", torch.zeros(4, 2, 4)),
        ("lstm.input", [torch.zeros(4, 2, 4)]),
        ("lstm.input", [torch.zeros(4, 2, 4), torch.zeros(4, 2, 5)]),
        ("lstm.input", []),
        ("gru.input", [torch.zeros(4, 2, 4)] * 2),
        ("gru.input", torch.zeros(4, 4)),
        ("gru.input", torch.zeros(4, 1, 4)),
        ("gru.input", torch.zeros(3, 2, 4)),
    ],
)
def test_states_of_another_shape_are_refused(operator: str, hx: Tensor | list[Tensor]) -> None:
    given = arguments(operator)
    given[1] = hx
    with pytest.raises(GraphError, match=f"^{operator}: expected"):
        refuse_other_shapes(operator, *given)  # type: ignore[arg-type]


def test_an_input_has_three_dimensions() -> None:
    given = arguments("gru.input")
    given[0] = torch.zeros(5, 3)
    with pytest.raises(GraphError, match="an input of three dimensions"):
        refuse_other_shapes("gru.input", *given)  # type: ignore[arg-type]


def test_a_billion_layers_are_refused_at_once() -> None:
    given = arguments("gru.input")
    given[4] = 2**31 - 1
    with pytest.raises(GraphError, match="weights, got 16"):
        refuse_other_shapes("gru.input", *given)  # type: ignore[arg-type]

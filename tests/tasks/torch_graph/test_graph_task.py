from collections.abc import Callable

import numpy as np
import pytest
from msgspec.structs import replace

from fedlearn.es.layout import Float32Array
from fedlearn.es.noise import TensorNoise, member_noise
from fedlearn.es.perturbation import Perturbation
from fedlearn.es.trials import Trials
from fedlearn.graphs.checks import Limits
from fedlearn.graphs.codec import decode, encode
from fedlearn.graphs.graph import ArraySpec, Call, Graph, GraphError, Value
from fedlearn.tasks.task import Batch, Task, flat_weights

torch = pytest.importorskip("torch")

from torch import Tensor, nn  # noqa: E402

from fedlearn.tasks.torch.supervised import Supervised, supervised  # noqa: E402
from fedlearn.tasks.torch_graph.export.export import ExportedGraph  # noqa: E402
from fedlearn.tasks.torch_graph.graph_task import GraphTask  # noqa: E402

Case = tuple[nn.Module, Callable[[nn.Module, dict[str, Tensor]], Tensor], dict[str, Tensor], ExportedGraph]

N_GROUPS, GROUP_SIZE = 2, 4


def task_of(case: Case) -> Supervised:
    model, loss, rows, _ = case
    batch_size = len(next(iter(rows.values())))
    return supervised(model, loss, {name: column.numpy() for name, column in rows.items()}, batch_size=batch_size)


def noise_for(task: Task) -> list[TensorNoise]:
    trials = Trials(3, Perturbation(sigma=0.02, rank=1, antithetic=True), GROUP_SIZE, 0, N_GROUPS * GROUP_SIZE)
    return member_noise(task.layout, trials, seed=7)


def losses_of(task: Task, weights: Float32Array, rows: dict[str, Tensor]) -> Float32Array:
    """Of two groups; the second has the rows in another order."""
    columns = {name: np.stack([column.numpy(), column.flip(0).numpy()]) for name, column in rows.items()}
    members = task.members(weights, noise_for(task), n_groups=N_GROUPS)
    return np.asarray(task.losses(members, Batch(columns, seeds=(1, 2))))


@pytest.mark.parametrize("case", ["mlp", "convolutional", "transformer", "lstm", "constants", "gpt2"], indirect=True)
def test_members_lose_what_they_lose_with_the_module(case: Case) -> None:
    task, exported = task_of(case), case[3]
    volunteer = GraphTask(decode(encode(exported.graph)), exported.frozen, hidden=task.hidden)
    weights = flat_weights(task.tensors)
    assert volunteer.layout == task.layout
    expected = losses_of(task, weights, case[2])
    np.testing.assert_allclose(losses_of(volunteer, weights, case[2]), expected, rtol=1e-5, atol=1e-6)
    assert len(set(expected)) > 1


@pytest.mark.parametrize("case", ["transformer"], indirect=True)
def test_products_of_a_graph_share_the_weights_as_those_of_a_module_do(case: Case) -> None:
    task, exported = task_of(case), case[3]
    graph_task = GraphTask(exported.graph, exported.frozen, start=task.tensors)
    for one in (task, graph_task):
        losses_of(one, flat_weights(task.tensors), case[2])
    shared = [line for line in graph_task.report().splitlines() if "shared weights" in line]
    assert "linear" in shared[0]
    assert "embedding" in shared[0]
    assert "scaled_dot_product_attention" in shared[0]
    assert "own matrices" not in graph_task.report()


@pytest.mark.parametrize("case", ["constants"], indirect=True)
def test_a_graph_task_is_a_task(case: Case) -> None:
    task, exported = task_of(case), case[3]
    graph_task = GraphTask(
        exported.graph,
        exported.frozen,
        start=task.tensors,
        data=task.data,
        scales={"weight": 2.0},
        reads={"weight": "x"},
        settings={"sigma": 0.1},
    )
    assert graph_task.kind == "graph"
    assert graph_task.batch_size == 2
    assert graph_task.settings == {"sigma": 0.1}
    assert graph_task.extent.tensor_bytes > 4 * 300 * 4
    np.testing.assert_array_equal(graph_task.tensors["weight"], task.tensors["weight"])
    assert {name: array.dtype.str for name, array in graph_task.frozen.items()} == {"large": "<i2"}
    (spec,) = graph_task.layout.tensors
    assert (spec.scale, spec.mask_column) == (2.0, 0)


def one_layer() -> Graph:
    calls = (
        Call(("y",), "embedding.default", (Value("table"), Value("ids"))),
        Call(("loss",), "mean.default", (Value("y"), None)),
    )
    return Graph((ArraySpec("ids", (2, 3), "int64"),), (ArraySpec("table", (5, 4)),), (), (), calls, ("loss",))


def test_a_volunteer_begins_with_zeros() -> None:
    assert not GraphTask(one_layer(), {}).tensors["table"].any()


def test_a_graph_that_asks_for_too_much_is_refused_first() -> None:
    graph = one_layer()
    with pytest.raises(GraphError, match="expected tensors of at most 100 bytes"):
        GraphTask(graph, {}, limits=Limits(max_bytes=100))
    huge = (Call(("huge",), "zeros.default", ((2**31 - 1, 8), None)), *graph.calls)
    with pytest.raises(GraphError, match=r"huge = zeros\.default: expected at most 16 GiB"):
        GraphTask(replace(graph, calls=huge), {})


def test_start_has_what_is_learned() -> None:
    with pytest.raises(GraphError, match=r"start: expected \['table'\] as the graph names them"):
        GraphTask(one_layer(), {}, start={"other": np.zeros((5, 4), np.float32)})
    with pytest.raises(GraphError, match=r"'table': expected float32 \[5, 4\], got float32 \[5, 3\]"):
        GraphTask(one_layer(), {}, start={"table": np.zeros((5, 3), np.float32)})


@pytest.mark.parametrize("shapes", [[(2, 3), (3, 3)], [()], []])
def test_columns_have_one_number_of_rows(shapes: list[tuple[int, ...]]) -> None:
    inputs = tuple(ArraySpec(f"x{number}", shape) for number, shape in enumerate(shapes))
    calls = (Call(("loss",), "mean.default", (Value("table"), None)),)
    with pytest.raises(GraphError, match="expected columns with one number of rows above 0"):
        GraphTask(replace(one_layer(), inputs=inputs, calls=calls), {})


@pytest.mark.parametrize(
    ("data", "message"),
    [
        ({"x": np.zeros((9, 3))}, r"data: expected a column 'ids' with rows of \[3\], got none"),
        ({"ids": np.zeros((9, 4))}, r"expected a column 'ids' with rows of \[3\], got rows of \[4\]"),
    ],
)
def test_data_have_the_columns_of_the_graph(data: dict[str, Float32Array], message: str) -> None:
    with pytest.raises(GraphError, match=message):
        GraphTask(one_layer(), {}, data=data)


@pytest.mark.parametrize(
    ("ids", "message"),
    [
        (np.full((N_GROUPS, 2, 3), 5), "expected rows that it can run on: index out of range"),
        (np.zeros((N_GROUPS, 3, 3), np.int64), r"column 'ids': expected int64 \[2, 3\], got int64 \[3, 3\]"),
        (np.zeros((N_GROUPS, 2, 3), np.float32), r"column 'ids': expected int64 \[2, 3\], got float32"),
    ],
)
def test_rows_of_another_run_are_refused(ids: Float32Array, message: str) -> None:
    task = GraphTask(one_layer(), {})
    members = task.members(np.zeros(20, np.float32), noise_for(task), n_groups=N_GROUPS)
    with pytest.raises(GraphError, match=message):
        task.losses(members, Batch({"ids": ids}, seeds=(1, 2)))

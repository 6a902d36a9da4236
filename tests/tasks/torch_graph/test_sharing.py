import numpy as np
import pytest

import fedlearn
from fedlearn.graphs.checks import DEFAULT_LIMITS
from fedlearn.graphs.graph import GraphError
from fedlearn.tasks.invitation import Invitation
from fedlearn.tasks.torch_graph.kind import KIND

torch = pytest.importorskip("torch")

from torch import Tensor, nn  # noqa: E402

from fedlearn.tasks.limits import MEMBERS_AT_LEAST  # noqa: E402
from fedlearn.tasks.torch_graph.export.export import MAX_CONSTANT_BYTES  # noqa: E402
from fedlearn.tasks.torch_graph.graph_task import GraphTask, _load  # noqa: E402
from fedlearn.tasks.torch_graph.sharing import received, share  # noqa: E402

N_BYTES = 4 * 64 * 64
"""Of the weights."""


def loss(model: nn.Module, rows: dict[str, Tensor]) -> Tensor:
    result: Tensor = model(rows["x"]).square().mean()
    return result


@pytest.fixture
def attachment() -> bytes:
    model = nn.Linear(64, 64, bias=False)
    rows = {"x": np.zeros((8, 64), dtype=np.float32)}

    task = fedlearn.supervised(model, loss, rows, batch_size=8)
    return share(task, model, loss, {name: torch.from_numpy(column) for name, column in rows.items()}, task.parameters)


def test_graph_is_given_its_share_of_the_memory(attachment: bytes) -> None:
    task = received(attachment, MEMBERS_AT_LEAST * 4 * N_BYTES)
    assert isinstance(task, GraphTask)
    assert task._plans.most_at_once == 4 * 4 * N_BYTES // task.extent.peak_bytes > 4
    with pytest.raises(GraphError, match=f"expected tensors of at most {N_BYTES} bytes together"):
        received(attachment, MEMBERS_AT_LEAST * N_BYTES)


def test_graph_has_never_more_than_any_machine_gives(attachment: bytes) -> None:
    task = received(attachment)
    assert isinstance(task, GraphTask)
    assert task._plans.most_at_once == 4 * DEFAULT_LIMITS.max_bytes // task.extent.peak_bytes


def test_volunteer_refuses_a_graph_beyond_its_memory(attachment: bytes) -> None:
    invitation = Invitation("graph", 1, {}, {}, attachment)
    assert KIND.join(invitation, None, device="cpu").layout.size == 64 * 64
    with pytest.raises(GraphError, match="a volunteer with more memory may allow more"):
        KIND.join(invitation, None, device="cpu", max_bytes=MEMBERS_AT_LEAST * N_BYTES)


@pytest.mark.parametrize(
    ("model", "train"),
    [
        (nn.Sequential(nn.Linear(64, 80), nn.BatchNorm1d(80), nn.Linear(80, 96), nn.BatchNorm1d(96)).eval(), None),
        (nn.Sequential(nn.Linear(64, 80), nn.Linear(80, 96), nn.Linear(96, 8)), ["2."]),
    ],
    ids=["running averages", "frozen matrices"],
)
def test_frozen_arrays_of_several_lengths_travel(model: nn.Module, train: list[str] | None) -> None:
    rows = {"x": np.random.default_rng(0).standard_normal((8, 64)).astype(np.float32)}
    task = fedlearn.supervised(model, loss, rows, batch_size=8, train=train)
    came = received(task.as_graph())
    assert isinstance(came, GraphTask)
    assert len({len(array) for array in came.frozen.values() if array.nbytes > MAX_CONSTANT_BYTES}) > 1
    _load(came._program.module, came.graph, task.tensors)
    torch.testing.assert_close(
        came._program({"x": torch.from_numpy(rows["x"])}), loss(model, {"x": torch.from_numpy(rows["x"])})
    )

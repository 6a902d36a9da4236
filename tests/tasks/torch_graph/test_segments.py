from collections.abc import Sequence
from itertools import chain, count

import numpy as np
import pytest

torch = pytest.importorskip("torch")

from torch import Tensor, nn  # noqa: E402
from torch.nn import functional  # noqa: E402

from fedlearn.graphs.checks import DEFAULT_LIMITS, Limits  # noqa: E402
from fedlearn.graphs.graph import Call, Value  # noqa: E402
from fedlearn.tasks.task import Batch, flat_weights  # noqa: E402
from fedlearn.tasks.torch.gradients import Batching, loss_gradients  # noqa: E402
from fedlearn.tasks.torch.supervised import Rows, Supervised, supervised  # noqa: E402
from fedlearn.tasks.torch_graph.functions import FUNCTIONS  # noqa: E402
from fedlearn.tasks.torch_graph.graph_task import GRADIENT_MEMBERS, GraphTask  # noqa: E402
from fedlearn.tasks.torch_graph.segments import Segments, segments_of  # noqa: E402
from fedlearn.tasks.torch_graph.sharing import unpacked  # noqa: E402
from fedlearn.tasks.torch_graph.steps import PreparedCall  # noqa: E402

BATCH_SIZE, N_LAYERS = 64, 16


def call(number: int, *last_read: str) -> PreparedCall:
    """A call that makes v0, v1, ... of the value before."""
    operator = "relu.default"
    made = Call((f"v{number}",), operator, (Value(f"v{number - 1}"),))
    return PreparedCall(made, FUNCTIONS[operator], (None,), ((0, f"v{number - 1}"),), (), last_read)


def chain_of(n_calls: int) -> list[PreparedCall]:
    return [call(number, *((f"v{number - 1}",) if number else ())) for number in range(n_calls)]


def lengths(segments: Segments) -> list[int]:
    return [len(calls) for calls in segments.calls]


def test_what_fits_is_kept_whole() -> None:
    found = segments_of(chain_of(8), {f"v{number}": 10 for number in range(8)}, 160)
    assert lengths(found) == [8]
    assert found.n_bytes == 2 * 80


@pytest.mark.parametrize(
    ("max_bytes", "expected", "n_bytes"),
    [
        (639, [16, 16], 10 + 320),
        (329, [8, 8, 8, 8], 3 * 10 + 160),
        (189, [4] * 8, 7 * 10 + 80),
        (149, [4] * 8, 7 * 10 + 80),  # 16 segments would take 150 + 40
        (0, [4] * 8, 7 * 10 + 80),
    ],
)
def test_the_fewest_segments_are_taken_that_fit_or_else_those_that_take_least(
    max_bytes: int, expected: Sequence[int], n_bytes: int
) -> None:
    calls = chain_of(32)
    found = segments_of(calls, {f"v{number}": 10 for number in range(32)}, max_bytes)
    assert lengths(found) == expected
    assert found.n_bytes == n_bytes
    assert list(chain(*found.calls)) == calls


def test_segments_are_cut_where_little_is_kept() -> None:
    sizes = {f"v{number}": 10 for number in range(8)} | {"v4": 1}
    assert lengths(segments_of(chain_of(8), sizes, 100)) == [5, 3]


def test_a_value_that_crosses_many_segments_is_counted_once() -> None:
    calls = [call(0), *(call(number, *((f"v{number - 1}",) if number > 1 else ())) for number in range(1, 8))]
    sizes = {f"v{number}": 10 for number in range(8)} | {"v0": 3}  # nobody drops v0
    found = segments_of(calls, sizes, 73 + 73 - 1)
    assert lengths(found) == [4, 4]
    assert found.n_bytes == 3 + 10 + 2 * 40


def test_one_call_is_one_segment() -> None:
    assert lengths(segments_of(chain_of(1), {"v0": 10}, 0)) == [1]


class Layers(nn.Module):
    def __init__(self, share: float) -> None:
        super().__init__()
        self.layers = nn.ModuleList(nn.Linear(16, 16) for _ in range(N_LAYERS))
        self.share = share

    def forward(self, x: Tensor) -> Tensor:
        for layer in self.layers:
            x = x + torch.tanh(layer(x))
            if self.share:
                x = x * (torch.rand_like(x) < self.share)
        return x


def mean_of_squares(model: nn.Module, rows: Rows) -> Tensor:
    return functional.mse_loss(model(rows["x"]), rows["y"])


def task_of(share: float = 0.0) -> Supervised:
    """A task of many layers; some tasks keep that share of all units, drawn anew for each group."""
    torch.manual_seed(0)
    x = np.random.default_rng(0).standard_normal((512, 16)).astype(np.float32)
    return supervised(Layers(share), mean_of_squares, {"x": x, "y": np.sin(x)}, batch_size=BATCH_SIZE)


def batch_of(task: Supervised, n_groups: int, *, first: int = 0) -> Batch:
    groups = range(first, first + n_groups)
    rows = np.arange(groups.start * BATCH_SIZE, groups.stop * BATCH_SIZE).reshape(n_groups, BATCH_SIZE)
    return Batch({name: column[rows] for name, column in task.data.items()}, tuple(groups))


def whole_and_cut(task: Supervised) -> tuple[GraphTask, GraphTask]:
    """The task of a graph with all memory, and with so little that a backward pass takes half of what it would."""
    given = unpacked(task.as_graph())
    whole = GraphTask(given.graph, given.frozen)
    small = Limits(max_bytes=max(whole.backward_bytes // 2 // GRADIENT_MEMBERS, whole.extent.peak_bytes))
    return whole, GraphTask(given.graph, given.frozen, limits=small)


@pytest.mark.parametrize("share", [0.0, 0.9])
def test_gradients_in_segments_are_those_of_the_whole_to_the_bit(share: float) -> None:
    task = task_of(share)
    whole, cut = whole_and_cut(task)
    assert cut.backward_bytes < 0.6 * whole.backward_bytes
    weights, totals = flat_weights(task.tensors), []
    for group in range(3):  # each alone: whether many are computed together depends on the machine
        batch = batch_of(task, 1, first=group)
        expected, found = (each.loss_gradients(weights, batch) for each in (whole, cut))
        assert found.losses.tolist() == expected.losses.tolist()
        assert found.total.tobytes() == expected.total.tobytes()
        totals.append(found.total)
    assert np.count_nonzero(sum(totals)) == totals[0].size


def test_groups_that_are_tried_together_have_their_own_gradients() -> None:
    task = task_of()
    _, cut = whole_and_cut(task)
    cut.load(flat_weights(task.tensors))
    cut._program.prepare()
    rows = {name: torch.from_numpy(column) for name, column in batch_of(task, 8).rows.items()}
    batching, clock = Batching(), count(0.0, 1e-4)
    batching.took(1, 1e-3)

    def gradients(batching: Batching) -> np.ndarray[tuple[int], np.dtype[np.float32]]:
        return loss_gradients(
            cut._program,
            list(cut.parameters.values()),
            rows,
            8,
            seed=None,
            batching=batching,
            now=lambda: next(clock),
        ).total

    alone = Batching()
    alone.refuse()
    np.testing.assert_allclose(gradients(batching), gradients(alone), rtol=1e-4, atol=1e-6)


def test_results_inside_segments_are_dropped_and_computed_again(monkeypatch: pytest.MonkeyPatch) -> None:
    whole, cut = whole_and_cut(task_of())
    n_made: dict[str, int] = {}
    before = PreparedCall.run

    def counted(self: PreparedCall, *arguments: object) -> object:
        n_made[self.call.results[0]] = n_made.get(self.call.results[0], 0) + 1
        return before(self, *arguments)  # type: ignore[arg-type]

    monkeypatch.setattr(PreparedCall, "run", counted)
    for task, most in ((whole, 1), (cut, 2)):
        n_made.clear()
        task.loss_gradients(np.zeros(task.layout.size, dtype=np.float32), batch_of(task_of(), 1))
        assert set(n_made.values()) == set(range(1, most + 1))
    assert sum(n_made.values()) < 2 * len(n_made)  # those of the last segment are still there


def test_losses_alone_are_computed_once(monkeypatch: pytest.MonkeyPatch) -> None:
    _, cut = whole_and_cut(task_of())
    monkeypatch.setattr("fedlearn.tasks.torch_graph.program.checkpoint", None)
    rows = {name: torch.from_numpy(column[0]) for name, column in batch_of(task_of(), 1).rows.items()}
    with torch.no_grad():
        assert cut._program(rows).isfinite()


def test_without_limits_nothing_is_cut() -> None:
    given = unpacked(task_of().as_graph())
    task = GraphTask(given.graph, given.frozen, limits=DEFAULT_LIMITS)
    assert task.backward_bytes == 2 * sum(form.n_bytes for form in task.extent.forms)

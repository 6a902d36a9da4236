from collections.abc import Callable, Mapping
from typing import Any

import msgspec
import numpy as np
import pytest

import es_core
from fedlearn.es.perturbation import Perturbation
from fedlearn.es.sums.estimate import decode_estimate, encode_packed, encode_randomly, random_bytes
from fedlearn.es.trials import Trials
from fedlearn.tasks.blocks import drawn_rows, group_words
from fedlearn.tasks.task import Batch, NoGradientError, flat_weights, most_at_once
from fedlearn.tasks.user.measure_choice import parts_without_gradient
from fedlearn.tasks.user.task_objective import TaskObjective

torch = pytest.importorskip("torch")

from torch import Tensor, nn  # noqa: E402

from fedlearn.tasks.torch.gradients import N_TIMED, Batching, are_finite, loss_gradients  # noqa: E402
from fedlearn.tasks.torch.module_task import ModuleTask  # noqa: E402
from fedlearn.tasks.torch.supervised import Rows, supervised  # noqa: E402
from fedlearn.tasks.torch_graph.sharing import received  # noqa: E402
from tests.tasks.torch.test_supervised import cross_entropy, examples, network  # noqa: E402

GRADIENTS = Perturbation(sigma=0.0, rank=0, space="nothing", unit_bits=24)
BATCH_SIZE = 5

Loss = Callable[[nn.Module, Rows], Any]


def objective_of(loss: Loss = cross_entropy, **given: Any) -> TaskObjective:  # noqa: ANN401 (arguments of the task)
    return TaskObjective(supervised(network, loss, examples(), batch_size=BATCH_SIZE, **given), seed=3)


def trials_of(n_groups: int, first: int = 0) -> Trials:
    return Trials(2, GRADIENTS, group_size=1, first_member=first, n_members=n_groups)


def test_a_sum_is_that_of_pytorchs_gradients_for_the_rows_of_each_group() -> None:
    objective = objective_of()
    weights = objective.initial_weights()
    results = objective.gradient_sum(weights, objective.task.data, trials_of(3), threads=1)
    task, seen = objective.task, []
    model = network()
    nn.utils.vector_to_parameters(torch.from_numpy(weights.copy()), model.parameters())
    for first in range(3):
        each = objective.gradient_sum(weights, task.data, trials_of(1, first), threads=1)
        np.testing.assert_allclose(each.losses, results.losses[first], rtol=1e-6)
        seen.append(decode_estimate(objective.layout, each.estimate) / 2.0**24)
    total = decode_estimate(objective.layout, results.estimate) / 2.0**24
    np.testing.assert_allclose(total, np.sum(seen, axis=0), atol=0.05 * np.abs(total).max())
    assert results.losses.shape == (3,)
    assert len(set(results.losses.tolist())) == 3


def test_a_sparse_gradient_is_that_of_the_dense_one() -> None:
    found = []
    for is_sparse in (False, True):

        def embedding(*, is_sparse: bool = is_sparse) -> nn.Module:
            return nn.Sequential(nn.Embedding(7, 3, sparse=is_sparse), nn.Flatten(), nn.Linear(6, 1))

        def loss(model: nn.Module, rows: Rows) -> Any:  # noqa: ANN401
            return model(rows["x"]).square().mean()

        data = {"x": np.arange(40).reshape(20, 2) % 7}
        objective = TaskObjective(supervised(embedding, loss, data, batch_size=BATCH_SIZE), seed=3)
        weights = np.linspace(-1.0, 1.0, objective.layout.size, dtype=np.float32)
        found.append(objective.gradient_sum(weights, data, trials_of(4), threads=1))
    dense, sparse = (decode_estimate(objective.layout, each.estimate) for each in found)
    np.testing.assert_array_equal(dense, sparse)
    assert np.abs(dense[:21]).max() > 0


def test_a_run_may_have_other_rows_than_its_task() -> None:
    task = supervised(network, cross_entropy, examples(), batch_size=2 * BATCH_SIZE)
    objective, own = TaskObjective(task, seed=3, batch_size=BATCH_SIZE), objective_of()
    weights, data = own.initial_weights(), own.task.data
    sums = [each.gradient_sum(weights, data, trials_of(3), threads=1) for each in (objective, own)]
    assert sums[0].losses.tolist() == sums[1].losses.tolist()
    first, second = (decode_estimate(own.layout, found.estimate) for found in sums)
    np.testing.assert_array_equal(first, second)
    assert objective.first_gradient(weights, data).losses == own.first_gradient(weights, data).losses


def test_a_coarser_sum_has_four_bits_of_the_same_gradient_by_random_bytes_of_its_group() -> None:
    objective = objective_of()
    weights, layout = objective.initial_weights(), objective.layout
    coarse = msgspec.structs.replace(GRADIENTS, sum_bits=4)
    for first in (0, 1):
        trials = msgspec.structs.replace(trials_of(2, first), perturbation=coarse)
        one, same = (objective.gradient_sum(weights, objective.task.data, trials, threads=1) for _ in range(2))
        assert one.estimate.numbers.tobytes() == same.estimate.numbers.tobytes()
        words = group_words(3, 2, first, 1, BATCH_SIZE)
        batch = Batch(drawn_rows(objective.task.data, group_words(3, 2, first, 2, BATCH_SIZE)), (1, 2))
        sums = np.rint(objective.task.loss_gradients(weights, batch).total.astype(np.float64) * 2.0**24)
        expected = encode_packed(layout, sums.astype(np.int64), random_bytes(int(words[0, 0]), 2, layout.size))
        assert one.estimate.is_packed
        np.testing.assert_array_equal(decode_estimate(layout, one.estimate), decode_estimate(layout, expected))


def test_a_sum_is_rounded_by_the_random_words_of_its_group() -> None:
    objective = objective_of()
    weights, layout, estimates = objective.initial_weights(), objective.layout, []
    for step, first in ((2, 0), (2, 1), (3, 1)):
        trials = Trials(step, GRADIENTS, group_size=1, first_member=first, n_members=2)
        results = objective.gradient_sum(weights, objective.task.data, trials, threads=1)
        words = group_words(3, step, first, 2, BATCH_SIZE)
        batch = Batch(drawn_rows(objective.task.data, words), (1, 2))
        sums = np.rint(objective.task.loss_gradients(weights, batch).total.astype(np.float64) * 2.0**24)
        dither = es_core.random_words(int(words[0, 0]), step, 0, 1, layout.size)[0]
        expected = encode_randomly(layout, sums.astype(np.int64), dither)
        np.testing.assert_array_equal(results.estimate.numbers, expected.numbers)
        estimates.append(encode_randomly(layout, np.full(layout.size, 1003), dither).numbers.tobytes())
    assert len(set(estimates)) == 3


@pytest.mark.parametrize("is_graph", [False, True])
def test_gradients_are_pytorchs(is_graph: bool) -> None:
    task = supervised(network, cross_entropy, examples(), batch_size=BATCH_SIZE)
    data = task.data
    rows = np.arange(2 * BATCH_SIZE).reshape(2, BATCH_SIZE)
    weights = flat_weights(task.tensors)
    giver = received(task.as_graph()) if is_graph else task
    model = network()
    nn.utils.vector_to_parameters(torch.from_numpy(weights.copy()), model.parameters())
    batch = Batch({name: column[rows] for name, column in data.items()}, (1, 2))
    found = giver.loss_gradients(weights, batch)
    expected = np.zeros_like(weights)
    for group in range(2):
        chosen = {"x": torch.tensor(data["x"][rows[group]]), "y": torch.tensor(data["y"][rows[group]]).long()}
        loss = cross_entropy(model, chosen)
        expected += torch.cat([x.flatten() for x in torch.autograd.grad(loss, list(model.parameters()))]).numpy()
        assert found.losses[group] == pytest.approx(loss.item(), rel=1e-6)
    np.testing.assert_allclose(found.total, expected, atol=1e-6)


def test_parameters_that_no_loss_reads_have_a_gradient_of_zero_and_the_rest_stay_as_they_are() -> None:
    def head_alone(model: nn.Module, rows: Rows) -> Tensor:
        assert isinstance(model, nn.Sequential)
        scores: Tensor = model[2](rows["x"][:, :1].expand(-1, 8))
        return scores.square().mean()

    task = supervised(network, head_alone, examples(), batch_size=BATCH_SIZE, train=lambda name: name != "2.bias")
    objective = TaskObjective(task, seed=3)
    task.parameters["0.weight"].requires_grad_(False)
    gradient = objective.first_gradient(objective.initial_weights(), task.data).total
    parts = objective.layout.split(gradient)
    assert not parts["0.weight"].any()
    assert parts["2.weight"].any()
    assert not task.parameters["0.weight"].requires_grad
    assert task.parameters["2.weight"].requires_grad


def test_what_a_loss_draws_follows_from_its_group() -> None:
    def noisy(model: nn.Module, rows: Rows) -> Tensor:
        return cross_entropy(model, {**rows, "x": rows["x"] + torch.randn_like(rows["x"])})

    objective = objective_of(noisy)
    weights, data = objective.initial_weights(), objective.task.data
    before = torch.get_rng_state()
    first, again = (objective.gradient_sum(weights, data, trials_of(2), threads=1) for _ in range(2))
    np.testing.assert_array_equal(first.losses, again.losses)
    np.testing.assert_array_equal(first.estimate.numbers, again.estimate.numbers)
    assert torch.equal(torch.get_rng_state(), before)


def test_a_group_whose_gradient_is_not_finite_adds_nothing() -> None:
    def broken(model: nn.Module, rows: Rows) -> Tensor:
        loss = cross_entropy(model, rows)
        factor: Tensor = torch.where(rows["y"][0] == 0, torch.inf, 1.0)
        return loss * factor

    objective = objective_of(broken)
    weights, data = objective.initial_weights(), objective.task.data
    results = objective.gradient_sum(weights, data, trials_of(20), threads=1)
    is_finite = np.isfinite(results.losses)
    assert 0 < is_finite.sum() < 20
    alone = [
        objective.gradient_sum(weights, data, trials_of(1, i), threads=1) for i in np.flatnonzero(~is_finite).tolist()
    ]
    assert not any(each.estimate.numbers.any() for each in alone)


@pytest.mark.parametrize(
    ("loss", "complaint"),
    [
        (lambda model, rows: float(cross_entropy(model, rows)), r"type float, .* or \.item\(\)"),
        (lambda model, rows: np.mean(model(rows["x"]).numpy()), "Can't call numpy"),
        (lambda model, rows: cross_entropy(model, rows).detach(), r"as behind .* detach\(\)"),
        (lambda model, rows: (model(rows["x"]).argmax(1) != rows["y"]).float().mean(), "as behind argmax"),
        (lambda model, rows: (model(rows["x"]) * 0.0).mean(), "is zero"),
        (lambda model, rows: (model(rows["x"]) * torch.inf).mean(), "is not finite"),
    ],
)
def test_a_loss_without_a_gradient_says_why(loss: Loss, complaint: str) -> None:
    objective = objective_of(loss)
    with pytest.raises(NoGradientError, match=complaint):
        parts_without_gradient(objective, objective.task.data)


def test_a_part_that_is_hidden_from_the_gradient_is_named() -> None:
    def half_hidden(model: nn.Module, rows: Rows) -> Tensor:
        assert isinstance(model, nn.Sequential)
        hidden = model[1](model[0](rows["x"]))
        return nn.functional.cross_entropy(model[2](hidden.detach()), rows["y"])

    plain, hidden = objective_of(), objective_of(half_hidden)
    assert parts_without_gradient(plain, plain.task.data) == []
    assert parts_without_gradient(hidden, hidden.task.data) == ["0.weight", "0.bias"]


def test_many_groups_together_have_the_same_losses_and_gradients_as_one_after_another() -> None:
    data = examples(400)
    task = received(supervised(network, cross_entropy, data, batch_size=BATCH_SIZE).as_graph())
    rows = np.arange(40 * BATCH_SIZE).reshape(40, BATCH_SIZE) % 400
    columns = {name: np.asarray(column, np.float32 if name == "x" else None)[rows] for name, column in data.items()}
    batch = Batch(columns, tuple(range(40)))
    weights = flat_weights(supervised(network, cross_entropy, data).tensors)
    batching = Batching()
    assert isinstance(task, ModuleTask)
    task._batching = batching
    batching.took(1, 1e-3)
    assert batching.size(40) == 40
    together = task.loss_gradients(weights, batch)
    batching.refuse()
    assert batching.size(40) == 1
    alone = task.loss_gradients(weights, batch)
    np.testing.assert_allclose(together.losses, alone.losses, rtol=1e-6)
    np.testing.assert_allclose(together.total, alone.total, atol=1e-5)


@pytest.mark.parametrize(
    ("took", "n_left", "size"),
    [
        ([], 100, 1),
        ([(1, 1e-3)], 100, 64),
        ([(1, 1e-3)], 20, 20),
        ([(1, 1e-3)], 2, 2),
        ([(1, 1e-3)], 1, 1),
        ([(1, 1.0)], 100, 1),
        ([(1, 1e-3), (2, 0.004)], 3, 1),
        ([(1, 1e-3), (2, 0.004)], 4, 4),
        ([(1, 1e-3), (2, 0.001), (64, 0.128)], 64, 1),
        ([(1, 1e-3), (64, 0.128)], 100, 1),
        ([(1, 1e-3), (64, 0.128), (64, 0.032)], 100, 64),
    ],
)
def test_groups_are_taken_together_where_that_was_faster(took: list[tuple[int, float]], n_left: int, size: int) -> None:
    batching = Batching()
    for n_groups, seconds in took:
        batching.took(n_groups, seconds)
    assert batching.size(n_left) == size


def test_the_clock_is_asked_no_more_once_both_ways_were_timed() -> None:
    parameter, batching, n_asked = nn.Parameter(torch.ones(1)), Batching(), 0

    def now() -> float:
        nonlocal n_asked
        n_asked += 1
        return 0.001 * n_asked

    def asked(n_groups: int) -> int:
        before, rows = n_asked, {"x": torch.ones(n_groups, 1)}
        loss_gradients(
            lambda r: (parameter * r["x"]).sum(), [parameter], rows, n_groups, seed=None, batching=batching, now=now
        )
        return n_asked - before

    assert [asked(1) for _ in range(N_TIMED + 2)] == [2] * N_TIMED + [0, 0]
    assert [asked(8) for _ in range(N_TIMED + 2)] == [2] * N_TIMED + [0, 0]


def test_what_cannot_be_taken_together_is_tried_so_once() -> None:
    parameter, batching, tried = nn.Parameter(torch.ones(1)), Batching(), []

    def loss(rows: Mapping[str, Tensor]) -> Tensor:
        x = rows["x"]
        tried.append(torch._C._functorch.is_batchedtensor(x))
        return (parameter * (x if x.item() > 0.0 else -x)).sum()

    batching.took(1, 1e-3)
    rows = {"x": torch.tensor([[1.0], [-2.0], [3.0], [4.0], [5.0], [6.0]])}
    for _ in range(2):
        found = loss_gradients(loss, [parameter], rows, 6, seed=None, batching=batching, now=lambda: 0.0)
        assert found.losses.tolist() == [1.0, 2.0, 3.0, 4.0, 5.0, 6.0]
        assert found.total.tolist() == [21.0]
    assert tried == [True] + 12 * [False]


@pytest.mark.parametrize("n_together", [1, 4])
def test_further_rows_of_a_group_are_taken_with_its_own(n_together: int) -> None:
    parameter, batching = nn.Parameter(torch.ones(1)), Batching()
    batching.took(1, 1e-3) if n_together > 1 else batching.refuse()
    sizes: list[int] = []

    def loss(rows: Mapping[str, Tensor]) -> Tensor:
        sizes.append(4 if torch._C._functorch.is_batchedtensor(rows["drawn"]) else 1)
        return (parameter * rows["x"] * rows["drawn"]).sum()

    found = loss_gradients(
        loss,
        [parameter],
        {"x": torch.tensor([[1.0], [10.0], [100.0], [1000.0]])},
        4,
        seed=None,
        more=lambda group: {"drawn": torch.tensor(group + 1.0)},
        batching=batching,
        now=lambda: 0.0,
    )
    assert sizes == [n_together] * (4 // n_together)
    assert found.losses.tolist() == [1.0, 20.0, 300.0, 4000.0]
    assert found.total.tolist() == [4321.0]


def test_further_rows_stay_those_of_their_groups_where_these_cannot_be_taken_together() -> None:
    parameter, batching = nn.Parameter(torch.ones(1)), Batching()
    batching.took(1, 1e-3)
    found = loss_gradients(
        lambda r: parameter.sum() * r["x"].item() * r["drawn"],
        [parameter],
        {"x": torch.tensor([1.0, 10.0, 100.0])},
        3,
        seed=None,
        more=lambda group: {"drawn": torch.tensor(group + 1.0)},
        batching=batching,
        now=lambda: 0.0,
    )
    assert found.losses.tolist() == [1.0, 20.0, 300.0]
    assert found.total.tolist() == [321.0]
    assert batching.size(100) == 1


def test_memory_of_a_backward_pass_is_counted_and_bounds_what_is_taken_together() -> None:
    graph = received(supervised(network, cross_entropy, examples(), batch_size=BATCH_SIZE).as_graph())
    assert graph.backward_bytes >= 2 * 4 * BATCH_SIZE * (8 + 8 + 3)  # two layers and what is between them
    objective = TaskObjective(graph, seed=3)
    one, many, more = (objective.trial_bytes(examples(), trials_of(n), threads=1) for n in (1, 64, 65))
    assert one > 48 * objective.layout.size + graph.backward_bytes
    assert many - one > 63 * graph.backward_bytes > more - many
    assert (most_at_once(0), most_at_once(2**23), most_at_once(2**30)) == (64, 8, 1)
    heavy = Batching(2**30)
    heavy.took(1, 1e-3)
    assert heavy.size(100) == 1


@pytest.mark.parametrize("numbers", [[3e38, 3e38, 1.0], [-3e38, -3e38], [0.0]])
def test_numbers_whose_sum_overflows_are_finite_all_the_same(numbers: list[float]) -> None:
    assert are_finite(torch.tensor(numbers))
    for broken in (torch.inf, -torch.inf, torch.nan):
        assert not are_finite(torch.tensor([*numbers, broken]))
    assert not are_finite(torch.tensor([torch.inf, *numbers, -torch.inf]))


def test_a_group_that_is_not_finite_spoils_no_other() -> None:
    parameter = nn.Parameter(torch.ones(1))
    rows = {"x": torch.tensor([[1.0], [2.0], [torch.inf], [3.0], [4.0]])}
    batching = Batching()
    batching.took(1, 1e-3)
    found = loss_gradients(
        lambda r: (parameter * r["x"]).sum(), [parameter], rows, 5, seed=None, batching=batching, now=lambda: 0.0
    )
    assert found.losses.tolist() == [1.0, 2.0, np.inf, 3.0, 4.0]
    assert found.total.tolist() == [10.0]


def test_a_batch_norm_without_averages_takes_the_rows_of_a_group() -> None:
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(3, 4), nn.BatchNorm1d(4, track_running_stats=False), nn.Linear(4, 1))
    parameters, x = list(model.parameters()), torch.randn(2, 6, 3)
    expected, losses = torch.zeros(sum(parameter.numel() for parameter in parameters)), []
    for rows in x:
        loss = model(rows).square().mean()
        losses.append(float(loss.detach()))
        expected += torch.cat([part.flatten() for part in torch.autograd.grad(loss, parameters)])
    batching = Batching()
    batching.took(1, 1e-3)
    found = loss_gradients(
        lambda r: model(r["x"]).square().mean(), parameters, {"x": x}, 2, seed=None, batching=batching, now=lambda: 0.0
    )
    np.testing.assert_allclose(found.losses, losses, rtol=1e-5)
    np.testing.assert_allclose(found.total, expected.numpy(), rtol=1e-4, atol=1e-6)


def test_noise_is_refused_where_gradients_are_summed() -> None:
    objective = objective_of()
    trials = Trials(2, Perturbation(0.1, 1, "activations"), 2, 0, 2)
    with pytest.raises(ValueError, match="expected weights and perturbed, got a task that can't sum what noise tells"):
        objective.gradient_sum(objective.initial_weights(), objective.task.data, trials, threads=1)

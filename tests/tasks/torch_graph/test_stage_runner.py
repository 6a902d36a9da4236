from collections.abc import Callable, Sequence

import numpy as np
import pytest

from fedlearn.es.noise import TensorNoise, member_noise
from fedlearn.es.perturbation import Perturbation
from fedlearn.es.trials import Trials
from fedlearn.graphs.checks import Limits
from fedlearn.graphs.graph import Graph, GraphError
from fedlearn.graphs.pieces import crossing_values, pieces, stages_of
from fedlearn.graphs.stages import Stage
from fedlearn.tasks.task import flat_weights

torch = pytest.importorskip("torch")

import safetensors.torch  # noqa: E402
from torch import Tensor, nn  # noqa: E402

from fedlearn.tasks.torch.supervised import Supervised, supervised  # noqa: E402
from fedlearn.tasks.torch_graph.export.export import ExportedGraph, export  # noqa: E402
from fedlearn.tasks.torch_graph.stage_runner import StageRunner, Values  # noqa: E402

Case = tuple[nn.Module, Callable[[nn.Module, dict[str, Tensor]], Tensor], dict[str, Tensor], ExportedGraph]

CASES = ["mlp", "convolutional", "resnet", "transformer", "lstm", "bidirectional gru", "rnn", "gpt2", "bert", "llama"]
WINDOW = 3


class Crew:
    """The stages of a case, each with its own tensors, on one machine."""

    def __init__(self, case: Case, cuts: Sequence[int]) -> None:
        _, _, rows, exported = case
        self.task = task_of(case)
        self.rows = {name: column.numpy() for name, column in rows.items()}
        self.graph, self.stages = exported.graph, stages_of(exported.graph, cuts)
        self.runners = [self._runner(stage, exported) for stage in self.stages]

    def _runner(self, stage: Stage, exported: ExportedGraph) -> StageRunner:
        runner = StageRunner(stage, exported.frozen, crossing=crossing_values(exported.graph))
        runner.load(flat_weights({array.name: self.task.tensors[array.name] for array in stage.learned}))
        return runner

    def unperturbed(self) -> bytes:
        values: Values = {}
        for runner in self.runners:
            values = runner.unperturbed(self.rows, values)
        return b"".join(value.tobytes() for value in values.values())

    def gradients(self) -> tuple[float, dict[str, list[bytes]]]:
        """The loss, and the derivatives by each use of each tensor, as bytes, the latest use first."""
        passed: list[Values] = [{}]
        for runner in self.runners[:-1]:
            passed.append(runner.forward(self.rows, passed[-1]))
        cotangents: Values = {}
        found: dict[str, list[bytes]] = {}
        for place in reversed(range(len(self.runners))):
            its = self.runners[place].backward(self.rows, passed[place], cotangents)
            if place == len(self.runners) - 1:
                (loss,) = its.given.values()
            cotangents = its.cotangents
            for name, gradient in reversed(its.uses):
                found.setdefault(name, []).append(gradient.tobytes())
        return float(loss), found

    def losses(self, n_members: int = WINDOW, rank: int = 1) -> bytes:
        """Of members that are run at once, as bytes."""
        noise = dict(
            zip(self.task.layout.split(flat_weights(self.task.tensors)), self.noise(n_members, rank), strict=True)
        )
        values: Values = {}
        for runner in self.runners:
            values = runner.members(self.rows, values, [noise[array.name] for array in runner.stage.learned])
        (losses,) = values.values()
        assert len(set(losses.reshape(-1).tolist())) == n_members
        return losses.tobytes()

    def noise(self, n_members: int, rank: int = 1) -> list[TensorNoise]:
        trials = Trials(3, Perturbation(sigma=0.02, rank=rank), n_members, 0, n_members)
        return member_noise(self.task.layout, trials, seed=7)


def task_of(case: Case) -> Supervised:
    model, loss, rows, _ = case
    batch_size = len(next(iter(rows.values())))
    return supervised(model, loss, {name: column.numpy() for name, column in rows.items()}, batch_size=batch_size)


def thirds(graph: Graph) -> list[int]:
    """Cuts after about a third and two thirds of the pieces; one where there are two."""
    n_pieces = len(pieces(graph))
    return sorted({max(n_pieces // 3, 1), max(2 * n_pieces // 3, 1)})


@pytest.mark.parametrize("case", CASES, indirect=True)
def test_a_model_cut_anywhere_gives_the_whole_ones_loss_to_the_bit(case: Case) -> None:
    graph = case[3].graph
    expected = Crew(case, []).unperturbed()
    assert np.frombuffer(expected, np.float32).size == 1
    for after in range(1, len(pieces(graph))):
        assert Crew(case, [after]).unperturbed() == expected
    assert Crew(case, thirds(graph)).unperturbed() == expected


@pytest.mark.parametrize(
    ("case", "rank"), [*((name, 1) for name in CASES), ("transformer", 0), ("transformer", 2)], indirect=["case"]
)
def test_members_of_three_stages_lose_what_those_of_the_whole_do_to_the_bit(case: Case, rank: int) -> None:
    whole, crew = Crew(case, []), Crew(case, thirds(case[3].graph))
    assert len(crew.stages) > 1
    assert crew.losses(rank=rank) == whole.losses(rank=rank)
    assert len(whole.losses()) == 4 * WINDOW


@pytest.mark.parametrize("case", CASES, indirect=True)
def test_a_model_cut_anywhere_gives_the_whole_ones_gradient_to_the_bit(case: Case) -> None:
    graph = case[3].graph
    loss, expected = Crew(case, []).gradients()
    for cuts in [*([after] for after in range(1, len(pieces(graph)))), thirds(graph)]:
        assert Crew(case, cuts).gradients() == (loss, expected)


@pytest.mark.parametrize("case", ["transformer"], indirect=True)
def test_a_stage_that_keeps_little_finds_the_same_gradient(case: Case) -> None:
    expected, crew = Crew(case, []).gradients(), Crew(case, thirds(case[3].graph))
    for runner in crew.runners:
        least = runner._program.fit(runner.extent.forms, 0)
        assert least < runner.backward_bytes
    assert crew.gradients() == expected


def test_values_that_cross_turned_give_the_same_gradient_to_the_bit() -> None:
    class Turned(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.first, self.second, self.last = nn.Linear(24, 33), nn.Linear(40, 27), nn.Linear(33, 3)

        def forward(self, x: Tensor) -> Tensor:
            y = torch.tanh(self.second(torch.tanh(self.first(x)).transpose(1, 2)))
            found: Tensor = self.last(y.transpose(1, 2)).mean(1)
            return found

    def loss(model: nn.Module, rows: dict[str, Tensor]) -> Tensor:
        return nn.functional.cross_entropy(model(rows["x"]), rows["y"])

    torch.manual_seed(0)
    model, rows = Turned(), {"x": torch.randn(16, 40, 24), "y": torch.randint(3, (16,))}
    case = model, loss, rows, export(model, loss, rows, dict(model.named_parameters()))
    expected = Crew(case, []).gradients()
    assert Crew(case, [1]).gradients() == Crew(case, [2]).gradients() == Crew(case, [1, 2]).gradients() == expected


def target_first(model: nn.Module, rows: dict[str, Tensor]) -> Tensor:
    with torch.no_grad():
        target = model(rows["x"]) + 1.0
    return nn.functional.mse_loss(model(1.1 * rows["x"]), target)


def target_last(model: nn.Module, rows: dict[str, Tensor]) -> Tensor:
    found = model(1.1 * rows["x"])
    return nn.functional.mse_loss(found, (model(rows["x"]) + 1.0).detach())


def straight_through(model: nn.Module, rows: dict[str, Tensor]) -> Tensor:
    found = model(rows["x"])
    return nn.functional.mse_loss(found + (found.round() - found).detach(), rows["y"])


@pytest.mark.parametrize("loss", [target_first, target_last, straight_through])
def test_what_has_no_gradient_has_none_wherever_a_model_is_cut(
    loss: Callable[[nn.Module, dict[str, Tensor]], Tensor],
) -> None:
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(24, 32), nn.Tanh(), nn.Linear(32, 40), nn.Tanh(), nn.Linear(40, 24))
    rows = {"x": torch.randn(16, 24), "y": torch.randn(16, 24)}
    case = model, loss, rows, export(model, loss, rows, dict(model.named_parameters()))
    expected = Crew(case, []).gradients()
    for after in range(1, len(pieces(case[3].graph))):
        assert Crew(case, [after]).gradients() == expected
    loss(model, rows).backward()  # type: ignore[no-untyped-call]
    for name, parameter in model.named_parameters():
        assert parameter.grad is not None
        total = np.sum([np.frombuffer(use, np.float32) for use in expected[1][name]], axis=0)
        np.testing.assert_allclose(total, parameter.grad.numpy().reshape(-1), atol=1e-6)


@pytest.mark.parametrize("case", CASES, indirect=True)
def test_the_gradients_of_all_uses_add_up_to_backprops(case: Case) -> None:
    model, loss_of, rows, exported = case
    loss, found = Crew(case, thirds(exported.graph)).gradients()
    expected = loss_of(model, dict(rows))
    torch.autograd.backward(expected)
    assert loss == pytest.approx(float(expected.detach()), rel=1e-6)
    for name, parameter in model.named_parameters():
        total = np.sum([np.frombuffer(use, np.float32) for use in found[name]], axis=0)
        assert parameter.grad is not None
        backprops = parameter.grad.numpy().reshape(-1)
        np.testing.assert_allclose(total, backprops, atol=1e-5 * np.abs(backprops).max())


@pytest.mark.parametrize("case", ["resnet", "transformer", "bert"], indirect=True)
def test_tensors_of_all_seats_together_load_strictly_into_the_module(case: Case) -> None:
    model, task = case[0], task_of(case)
    crew = Crew(case, thirds(case[3].graph))
    fused: dict[str, np.ndarray[tuple[int, ...], np.dtype[np.float32]]] = {}
    for stage in crew.stages:
        for number, array in enumerate(stage.learned):
            changed = task.tensors[array.name] + np.float32(number)
            fused[array.name] = fused.get(array.name, changed)
    weights = flat_weights({name: fused[name] for name in task.tensors})
    model.load_state_dict(safetensors.torch.load(task.state_dict(weights, {})), strict=True)
    for name, parameter in model.named_parameters():
        np.testing.assert_array_equal(parameter.detach().numpy(), fused[name])


@pytest.mark.parametrize("case", ["transformer"], indirect=True)
def test_a_seat_holds_its_own_tensors_and_no_others(case: Case) -> None:
    crew = Crew(case, thirds(case[3].graph))
    whole = Crew(case, []).runners[0].extent.tensor_bytes
    assert all(runner.extent.tensor_bytes < whole for runner in crew.runners)
    names = [{array.name for array in stage.learned} for stage in crew.stages]
    assert names[0] & names[-1] == {"tokens.weight"}
    assert set.union(*names) == set(crew.task.tensors)


@pytest.mark.parametrize("case", ["mlp"], indirect=True)
def test_a_seat_refuses_what_does_not_fit_its_stage(case: Case) -> None:
    crew = Crew(case, [1])
    runner, noise = crew.runners[1], crew.noise(WINDOW)[2:]
    received = crew.runners[0].members(crew.rows, {}, crew.noise(WINDOW)[:2])
    (name,) = received
    assert runner.members(crew.rows, received, noise)
    with pytest.raises(GraphError, match=rf"'{name}': expected \[3, 4, 8\] of the stage before, got None"):
        runner.members(crew.rows, {}, noise)
    with pytest.raises(GraphError, match=r"expected \[3, 4, 8\] of the stage before, got \(2, 4, 8\)"):
        runner.members(crew.rows, {name: received[name][1:]}, noise)
    with pytest.raises(GraphError, match=r"expected \[4, 8\] of the stage before, got \(3, 4, 8\)"):
        runner.unperturbed(crew.rows, received)
    with pytest.raises(GraphError, match="rows: expected a column 'y'"):
        runner.members({}, received, noise)
    with pytest.raises(GraphError, match="expected rows and values that it can run on"):
        runner.members({"y": np.full(4, 9)}, received, noise)
    with pytest.raises(GraphError, match=r"weights: expected the 27 of the stage's tensors, got \[26\]"):
        runner.load(np.zeros(26, dtype=np.float32))


@pytest.mark.parametrize("case", ["mlp"], indirect=True)
def test_weights_are_those_loaded_last_and_zeros_before(case: Case) -> None:
    exported, rows = case[3], {name: column.numpy() for name, column in case[2].items()}
    runner = StageRunner(exported.graph, exported.frozen)
    (zeros,) = runner.unperturbed(rows, {}).values()
    assert zeros == pytest.approx(np.log(3))
    weights = flat_weights(task_of(case).tensors)
    runner.load(weights)
    assert next(iter(runner.unperturbed(rows, {}).values())) != zeros
    runner.load(np.zeros_like(weights))
    assert next(iter(runner.unperturbed(rows, {}).values())) == zeros


@pytest.mark.parametrize("case", ["transformer"], indirect=True)
def test_where_received_values_lie_in_memory_changes_nothing(case: Case) -> None:
    crew = Crew(case, [5])
    lower, upper = crew.runners
    noise = {tensor.name: one for tensor, one in zip(crew.task.layout.tensors, crew.noise(WINDOW), strict=True)}
    values = lower.members(crew.rows, {}, [noise[array.name] for array in lower.stage.learned])
    own = [noise[array.name] for array in upper.stage.learned]
    elsewhere = {
        name: np.frombuffer(b"12345678" + value.tobytes(), np.float32, offset=8).reshape(value.shape)
        for name, value in values.items()
    }
    (expected,) = upper.members(crew.rows, values, own).values()
    (got,) = upper.members(crew.rows, elsewhere, own).values()
    assert got.tobytes() == expected.tobytes()


@pytest.mark.parametrize("case", ["mlp"], indirect=True)
def test_threads_are_taken_while_the_stage_runs(case: Case) -> None:
    (runner,) = Crew(case, []).runners
    expected, before, seen = Crew(case, []).unperturbed(), torch.get_num_threads(), []
    run = runner._program.run

    def watched(rows: dict[str, Tensor], received: dict[str, Tensor]) -> dict[str, Tensor]:
        seen.append((torch.get_num_threads(), torch.is_grad_enabled()))
        return run(rows, received)

    runner._program.run = watched  # type: ignore[assignment,method-assign]
    runner.use("cpu", threads=2)
    runner.load(flat_weights(task_of(case).tensors))
    (loss,) = runner.unperturbed({name: column.numpy() for name, column in case[2].items()}, {}).values()
    assert seen == [(2, False)]
    assert torch.get_num_threads() == before
    np.testing.assert_allclose(loss, np.frombuffer(expected, np.float32)[0], rtol=1e-6)


@pytest.mark.parametrize("case", ["mlp"], indirect=True)
def test_cotangents_are_of_what_the_stage_handed_on(case: Case) -> None:
    lower, upper = Crew(case, [1]).runners
    crew = Crew(case, [1])
    values = lower.unperturbed(crew.rows, {})
    cotangents = upper.backward(crew.rows, values, {}).cotangents
    assert {name: value.shape for name, value in cotangents.items()} == {name: v.shape for name, v in values.items()}
    once = lower.backward(crew.rows, {}, cotangents).uses
    twice = lower.backward(crew.rows, {}, {name: 2 * value for name, value in cotangents.items()}).uses
    for (_, one), (_, two) in zip(once, twice, strict=True):
        np.testing.assert_array_equal(2 * one, two)
    with pytest.raises(GraphError, match="stage before, got None"):
        upper.backward(crew.rows, {}, {})
    with pytest.raises(GraphError, match="expected rows and values that it can run on"):
        lower.backward(crew.rows, {}, {name: value[1:] for name, value in cotangents.items()})


@pytest.mark.parametrize("case", ["transformer"], indirect=True)
def test_a_stage_that_asks_for_more_than_allowed_is_refused(case: Case) -> None:
    with pytest.raises(GraphError, match="expected tensors of at most"):
        StageRunner(case[3].graph, case[3].frozen, limits=Limits(max_bytes=1000))

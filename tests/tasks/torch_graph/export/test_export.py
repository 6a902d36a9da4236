import copy
import random
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

torch = pytest.importorskip("torch")

from torch import Tensor, nn  # noqa: E402
from torch.nn import functional as F  # noqa: E402, N812

from fedlearn.graphs.codec import decode, encode  # noqa: E402
from fedlearn.graphs.graph import GraphError  # noqa: E402
from fedlearn.tasks.torch_graph.export.export import ExportedGraph, export  # noqa: E402
from fedlearn.tasks.torch_graph.program import Program  # noqa: E402

Case = tuple[nn.Module, Callable[[nn.Module, dict[str, Tensor]], Tensor], dict[str, Tensor], ExportedGraph]

EVERY_CASE = ["mlp", "mistakes", "constants", "convolutional", "resnet", "transformer", "lstm", "bidirectional gru",
              "rnn", "gpt2", "bert", "llama"]  # fmt: skip


def with_mean(model: nn.Module, rows: dict[str, Tensor]) -> Tensor:
    result: Tensor = model(rows["x"]).mean()
    return result


def learned_of(model: nn.Module) -> dict[str, Tensor]:
    return {name: parameter for name, parameter in model.named_parameters() if parameter.requires_grad}


def exported(model: nn.Module, loss: Callable[..., Any], **rows: Tensor) -> ExportedGraph:
    return export(model, loss, rows, learned_of(model))


def loaded(one: ExportedGraph, model: nn.Module) -> Program:
    """The program behind the exported graph's bytes, with the weights of the model."""
    program = Program(decode(encode(one.graph)), one.frozen)
    for parameter, start in zip(program.module.parameters(), learned_of(model).values(), strict=True):
        parameter.data.copy_(start)
    return program


@pytest.mark.parametrize("case", EVERY_CASE, indirect=True)
def test_the_loss_is_that_of_the_module_to_the_bit(case: Case) -> None:
    model, loss, rows, one = case
    program = loaded(one, model)
    with torch.no_grad():
        for _ in range(2):
            assert torch.equal(program(rows), loss(model, rows).reshape(()))
            # The same calls with other weights and other rows.
            for ours, theirs in zip(program.module.parameters(), learned_of(model).values(), strict=True):
                theirs.add_(torch.randn_like(theirs), alpha=0.1)
                ours.copy_(theirs)
            rows = {name: column.flip(0) for name, column in rows.items()}


@pytest.mark.parametrize("case", ["lstm"], indirect=True)
def test_the_module_is_left_as_it_was(case: Case) -> None:
    model, loss, rows, _ = case
    before = copy.deepcopy(model.state_dict())
    exported(model, loss, **rows)
    for name, tensor in model.state_dict().items():
        assert torch.equal(tensor, before[name])
    with torch.no_grad():
        was = loss(model, rows)
        for parameter in model.parameters():
            parameter.mul_(2)
        assert loss(model, rows) != was


@pytest.mark.parametrize("case", ["transformer"], indirect=True)
def test_a_tied_tensor_is_learned_once(case: Case) -> None:
    names = [array.name for array in case[3].graph.learned]
    assert names == [name for name, _ in case[0].named_parameters()]
    assert "tokens.weight" in names
    assert "head.weight" not in names


@pytest.mark.parametrize("case", ["constants"], indirect=True)
def test_small_tensors_are_in_the_graph_and_others_beside_it(case: Case) -> None:
    one = case[3]
    assert [array.name for array in one.graph.learned] == ["weight"]
    assert [(array.name, array.dtype) for array in one.graph.frozen] == [("large", "bfloat16")]
    assert {constant.array.name for constant in one.graph.constants} >= {"small", "kept.weight", "kept.bias"}
    assert one.frozen["large"].dtype == "int16"


def test_a_tensor_may_be_learned_under_any_of_its_names() -> None:
    model = nn.Sequential(nn.Linear(3, 3), nn.Linear(3, 3))
    tied = model[0].get_parameter("weight")
    model[1].weight = tied
    one = export(model, with_mean, {"x": torch.ones(2, 3)}, {"1.weight": tied})
    assert [array.name for array in one.graph.learned] == ["1.weight"]
    assert {constant.array.name for constant in one.graph.constants} == {"0.bias", "1.bias"}


def test_buffers_that_the_loss_does_not_read_stay_behind() -> None:
    one = exported(nn.BatchNorm1d(4).eval(), with_mean, x=torch.randn(3, 4))
    assert {constant.array.name for constant in one.graph.constants} == {"running_mean", "running_var"}


class Positions(nn.Linear):
    """Makes a buffer in its first call, as positional biases do, and keeps it."""

    def forward(self, x: Tensor) -> Tensor:
        if "positions" not in self._buffers:
            self.register_buffer("positions", torch.arange(4.0), persistent=False)
        return super().forward(x) + self.get_buffer("positions")


def test_a_buffer_that_the_first_call_makes_is_in_the_graph() -> None:
    model, rows = Positions(4, 4), {"x": torch.randn(3, 4)}
    one = exported(model, with_mean, **rows)
    assert {constant.array.name for constant in one.graph.constants} == {"positions"}
    assert torch.equal(loaded(one, model)(rows), with_mean(model, rows))


def test_sizes_of_encoded_graphs() -> None:
    layers = [nn.Sequential(nn.Linear(64, 64), nn.LayerNorm(64), nn.GELU()) for _ in range(12)]
    graph = exported(nn.Sequential(*layers), with_mean, x=torch.randn(2, 64)).graph
    assert len(graph.calls) == 12 * 3 + 1
    assert len(encode(graph)) < 1200


class Layer(nn.Module):
    """A linear layer whose result goes through a function; `n_calls` is what it remembers."""

    def __init__(self, function: Callable[[Tensor], Any]) -> None:
        super().__init__()
        self.linear, self.function, self.n_calls = nn.Linear(4, 4), function, 0

    def forward(self, x: Tensor) -> Any:  # noqa: ANN401
        self.n_calls += 1
        return self.function(self.linear(x))


@pytest.mark.parametrize(
    ("function", "message"),
    [
        (lambda y: y if y.sum() > 0 else -y, r"branches on numbers.*\(test_export.py:\d+: .*torch.where.*--share"),
        (lambda y: y * float(y.sum()), "branches on numbers|Python number follows"),
        (lambda y: y * y.sum().item(), r"aten.item.*\(test_export.py:\d+: .*Python number follows"),
        (lambda y: y[y > 0], r"how many rows a mask chooses \(test_export.py:\d+: .*-100.*--share nothing"),
        (lambda y: y[:, torch.ones(4) > 0], r"how many rows a mask chooses \(test_export.py:\d+"),
        (lambda y: y.masked_select(y > 0), r"how many rows a mask chooses \(test_export.py:\d+"),
        (lambda y: y[torch.argwhere(y[:, 0] > 0)], r"how many rows a mask chooses \(test_export.py:\d+"),
        (lambda y: y.unique(), "_unique2.*a shape or a Python number follows from computed numbers"),
        (
            lambda y: nn.GRU(1, 2)(nn.utils.rnn.pack_padded_sequence(y[..., None], torch.full((4,), 2)))[1],
            r"turns them into Python's \(test_export.py:\d+",
        ),
        (lambda y: torch.cond(y.sum() > 0, torch.sin, torch.cos, (y,)), "branches or loops of torch's"),
        (lambda y: torch.from_numpy(y.numpy()), r"cannot be exported \(test_export.py:\d+: .*numpy.*--share nothing"),
        (lambda y: y * torch.randperm(4), r"randperm.* draws .* \(test_export.py:\d+: .*torch.rand, randn"),
        (lambda y: torch.histc(y, 3, -1, 1), r"aten.histc.default \(test_export.py:\d+: .*--share nothing"),
        (lambda y: torch.linalg.inv(y @ y.T), r"aten.linalg_inv.default .*not among the operators"),
        (lambda y: y[:, :3] @ torch.ones(4), r"cannot be exported \(test_export.py:\d+: .*RuntimeError"),
        (lambda y: torch.div(y, 2, rounding_mode="trunc"), r"rounding_mode: expected one of floor, got trunc"),
        (lambda y: y.view(torch.int32).float(), r"aten.view.dtype .*is not among the operators"),
    ],
)  # fmt: skip
def test_what_no_graph_can_say_is_refused(function: Callable[[Tensor], Any], message: str) -> None:
    with pytest.raises(GraphError, match=message):
        exported(Layer(function), with_mean, x=torch.randn(3, 4))


def test_distributions_travel_though_they_look_at_their_arguments() -> None:
    def loss(model: nn.Module, rows: dict[str, Tensor]) -> Tensor:
        found: Tensor = -torch.distributions.Categorical(logits=model(rows["x"])).log_prob(rows["y"]).mean()
        return found

    rows = {"x": torch.randn(3, 4), "y": torch.tensor([0, 3, 1])}
    found = exported(nn.Linear(4, 4), loss, **rows)
    assert found.graph.outputs
    with pytest.raises(ValueError, match="satisfy the constraint"):
        torch.distributions.Bernoulli(torch.tensor(2.0))


@pytest.mark.filterwarnings("ignore:.*torch.jit:DeprecationWarning")
def test_torchscript_is_refused() -> None:
    with pytest.raises(GraphError, match="TorchScript does not show its operators"):
        exported(torch.jit.script(nn.Linear(4, 4)), with_mean, x=torch.randn(3, 4))


def test_what_a_module_remembers_is_refused() -> None:
    model = Layer(lambda y: y)
    with pytest.raises(GraphError, match=r"the second time; it depends on something else.*--share nothing"):
        exported(model, lambda m, r: m(r["x"]).mean() * model.n_calls, x=torch.randn(3, 4))


@pytest.mark.parametrize("draw", [random.random, np.random.rand])
def test_random_numbers_that_no_graph_draws_are_refused_even_where_they_are_alike(draw: Callable[[], float]) -> None:
    model = Layer(lambda y: y if draw() < 2 else -y)
    with pytest.raises(GraphError, match=r"got some of random or numpy.random.*torch.rand.*--share nothing"):
        exported(model, with_mean, x=torch.randn(3, 4))


def test_a_number_that_python_made_at_export_is_noticed() -> None:
    factors = iter([2.0, 1.0, 2.0, 2.0])
    model = Layer(lambda y: y * next(factors))
    with pytest.raises(GraphError, match="as a graph; it depends on something else"):
        exported(model, with_mean, x=torch.randn(3, 4))


@pytest.mark.parametrize(
    ("model", "message"),
    [
        (nn.Sequential(nn.Linear(4, 4), nn.BatchNorm1d(4)), r"changes '1.running_mean' while it runs.*model\.eval\(\)"),
        (nn.LSTM(4, 4, proj_size=2), "expected 4 weights, got 5; layers with projections need --share nothing"),
        (nn.Linear(4, 4).half(), "learned tensor 'weight': expected float32, got float16"),
        (nn.Linear(4, 4, dtype=torch.complex64), "'weight': expected real numbers, got complex64"),
    ],
)
def test_a_module_that_trials_cannot_run_is_refused(model: nn.Module, message: str) -> None:
    def loss(model: nn.Module, rows: dict[str, Tensor]) -> Tensor:
        result = model(rows["x"].to(next(model.parameters()).dtype))
        result = result[0] if isinstance(result, tuple) else result
        mean: Tensor = result.abs().mean().float()
        return mean

    with pytest.raises(GraphError, match=message):
        exported(model.train(), loss, x=torch.randn(3, 4))


@pytest.mark.parametrize(
    ("loss", "message"),
    [
        (lambda m, r: m(r["x"]), r"loss: expected a tensor of one number, got \[3, 4\]; let it end in a mean"),
        (lambda *_: 3.0, "loss: expected a tensor of one number, got float"),
        (lambda m, r: m(r["y"]).mean(), r"cannot be exported \(test_export.py:\d+: .*KeyError: 'y'"),
        (lambda *_: torch.zeros(()), "the loss depends on none"),
        (lambda _, r: r["x"].mean(), "the loss depends on none"),
    ],
)
def test_a_loss_that_is_none_is_refused(loss: Callable[..., Any], message: str) -> None:
    with pytest.raises(GraphError, match=message):
        exported(nn.Linear(4, 4), loss, x=torch.randn(3, 4))


def test_a_loss_without_a_point_is_as_good() -> None:
    model = nn.Linear(4, 4)
    one = exported(model, lambda m, r: (m(r["x"]) > 0).sum(), x=torch.randn(3, 4))
    assert loaded(one, model)({"x": torch.randn(3, 4)}).dtype is torch.int64


def test_columns_have_other_names_than_tensors() -> None:
    with pytest.raises(GraphError, match="column 'bias': expected another name"):
        exported(nn.Linear(4, 4), lambda m, r: m(r["bias"]).mean(), bias=torch.randn(3, 4))


WRITTEN_OTHERWISE: list[Callable[[Tensor], Tensor]] = [
    lambda y: y.chunk(2, 1)[1] * torch.split(y, 3, 1)[1] + torch.split(y, [1, 3], 1)[0],
    lambda y: y.unbind(0)[1] + torch.stack(y.unbind(1))[2, 0],
    lambda y: F.mse_loss(y, torch.ones(4).expand(3, 4)) + F.l1_loss(y, y.detach().clone() + 1),
    lambda y: y.double().float().half().float() + y.to(torch.float64).mean().to(torch.float32),
    lambda y: (y > 0) & (y < 1) | (y > 2),
    lambda y: 1 + 2 * y - 3 / (y + 10) + (4 - y) + y % 2 + y // 3 + torch.div(y, 2),
    lambda y: torch.div(y, 2, rounding_mode="floor") + torch.div(y, y + 9, rounding_mode="floor"),
    lambda y: torch.add(y, y, alpha=2) + torch.sub(y, 1, alpha=3) + y.clamp(max=0.5) + y.pow(2) + 2.0**y,
    lambda y: y.masked_fill(y > 0, -torch.inf).exp() + torch.where(y > 0, y, torch.nan).nan_to_num(),
    lambda y: F.instance_norm(y[None], torch.ones(3), torch.ones(3) * 2, use_input_stats=False),
    lambda y: F.instance_norm(y[None]) + F.layer_norm(y, (4,), eps=1),
    lambda y: F.dropout(y, 0.5, training=False).contiguous().view(4, 3).T.reshape(-1).flatten(),
    lambda y: F.one_hot(y.argmax(1), 4) * y + F.pad(y, (1, 1), value=2)[:, 1:5] + y.repeat(2, 1)[:3] + y.flip(0),
    lambda y: y.std() + y.var(0).sum() + y.norm() + y.logsumexp(1).sum() + y.sort(1)[0][0] + y.topk(2, 1)[1].sum(),
]  # fmt: skip


def test_what_torch_writes_otherwise_is_the_same_to_the_bit() -> None:
    def everything(y: Tensor) -> Tensor:
        sums = [function(y).float().sum() for function in WRITTEN_OTHERWISE]
        finite: Tensor = torch.stack(sums).nan_to_num()
        return finite

    model = Layer(everything)
    rows = {"x": torch.randn(3, 4)}
    program = loaded(exported(model, with_mean, **rows), model)
    with torch.no_grad():
        for _ in range(3):
            assert torch.equal(program(rows), with_mean(model, rows))
            rows = {"x": torch.randn(3, 4) * 3}


def test_changes_in_place_become_new_values() -> None:
    def shifted(y: Tensor) -> Tensor:
        part = y[:, :2]
        part *= 3
        y[1] = 0.0
        return y

    model = Layer(shifted)
    one = exported(model, with_mean, x=torch.randn(3, 4))
    rows = {"x": torch.randn(3, 4)}
    with torch.no_grad():
        assert torch.equal(loaded(one, model)(rows), with_mean(model, rows))


def test_empty_tensors_are_left_out() -> None:
    model = Layer(lambda y: torch.cat((y[:, :0], y, torch.zeros(3, 0)), 1))
    one = exported(model, with_mean, x=torch.randn(3, 4))
    assert [call.operator for call in one.graph.calls] == ["linear.default", "cat.default", "mean.default"]


def test_nothing_is_said_of_torch_s_own_workings(capfd: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(GraphError):
        exported(Layer(lambda y: y if y.sum() > 0 else -y), with_mean, x=torch.randn(3, 4))
    assert capfd.readouterr() == ("", "")

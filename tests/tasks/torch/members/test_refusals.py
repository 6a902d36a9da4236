from collections.abc import Callable

import pytest
import torch
from torch import Tensor, nn
from torch.nn import functional as F  # noqa: N812 (as everybody calls it)

from fedlearn.tasks.torch.members.refusals import Refused, refuse_module
from fedlearn.tasks.torch.members.watch import ParameterWatch, refuse_changed, states


@pytest.mark.parametrize(
    ("module", "message"),
    [
        (nn.Dropout(0.1), r"Dropout '1' in training mode draws .* call model\.eval\(\)"),
        (nn.Dropout2d(0.1), r"Dropout2d '1'"),
        (nn.AlphaDropout(0.1), r"AlphaDropout '1'"),
        (nn.LSTM(2, 2, num_layers=2, dropout=0.1), r"LSTM '1'"),
        (nn.MultiheadAttention(2, 1, dropout=0.1), r"MultiheadAttention '1'"),
        (
            nn.BatchNorm1d(2),
            r"BatchNorm1d '1' in training mode moves its running averages .* call model\.eval\(\) .*_stats=False\)$",
        ),
        (nn.InstanceNorm1d(2, track_running_stats=True), r"InstanceNorm1d '1'"),
    ],
)
def test_what_behaves_otherwise_in_training_is_refused(module: nn.Module, message: str) -> None:
    model = nn.Sequential(nn.Linear(2, 2), module)
    with pytest.raises(Refused, match=message):
        refuse_module(model)
    refuse_module(model.eval())


@pytest.mark.parametrize("module", [nn.Dropout(0.1), nn.GRU(2, 2, 2, dropout=0.1), nn.MultiheadAttention(2, 1, 0.1)])
def test_dropout_and_batch_norms_are_let_through_where_modules_are_trained(module: nn.Module) -> None:
    refuse_module(nn.Sequential(module, nn.BatchNorm1d(2)), may_train=True)
    with pytest.raises(Refused, match="InstanceNorm1d '1' in training mode moves its running averages"):
        refuse_module(nn.Sequential(module, nn.InstanceNorm1d(2, track_running_stats=True)), may_train=True)


@pytest.mark.parametrize(
    "module",
    [
        nn.Dropout(0.0), nn.BatchNorm1d(2, track_running_stats=False), nn.InstanceNorm1d(2), nn.LayerNorm(2),
        nn.LSTM(2, 2, dropout=0.0), nn.MultiheadAttention(2, 1),
    ],
)  # fmt: skip
def test_what_is_the_same_in_training_is_let_through(module: nn.Module) -> None:
    refuse_module(module.train())


X = torch.randn(4, 3, 5)


@pytest.mark.parametrize(
    ("function", "message"),
    [
        (lambda: F.batch_norm(X, torch.zeros(3), torch.ones(3), training=True), "batch_norm with training=True"),
        (lambda: F.instance_norm(X, torch.zeros(3), torch.ones(3)), "instance_norm with use_input_stats=True"),
    ],
)
def test_functions_are_refused_that_no_module_shows(function: Callable[[], Tensor], message: str) -> None:
    with pytest.raises(Refused, match=message), ParameterWatch({}):
        function()


def test_harmless_calls_of_the_same_functions_pass() -> None:
    with ParameterWatch({}):
        F.batch_norm(X, None, None, training=True)
        F.batch_norm(X, torch.zeros(3), torch.ones(3))
        F.instance_norm(X)
        F.instance_norm(X, torch.zeros(3), torch.ones(3), use_input_stats=False)


def test_parameters_that_functions_are_given_are_noted() -> None:
    a, b, c, d = (nn.Parameter(torch.randn(2)) for _ in range(4))
    with ParameterWatch({"a": a, "b": b, "c": c, "d": d}) as watch:
        assert d.shape == (2,)
        torch.cat([a, torch.stack([b, b])[0]])
        torch.add(input=X[0, 0, :2], other=c)
    assert watch.unmet == {id(d)}


def test_changes_of_parameters_are_refused_and_of_others_not() -> None:
    a, other = nn.Parameter(torch.zeros(2)), torch.zeros(2)
    with ParameterWatch({"0.a": a}):
        other.add_(1)
        with pytest.raises(Refused, match=r"changes the parameter 0\.a in place \(add_\)"):
            a.add_(1)
    assert other.tolist() == [1, 1]


def test_what_was_written_to_or_replaced_is_named() -> None:
    module = nn.BatchNorm1d(2)
    before = states(dict(module.named_buffers()))
    refuse_changed(before, states(dict(module.named_buffers())))
    module(X[0].t()[:, :2])
    with pytest.raises(Refused, match=r"changes its num_batches_tracked, .* model\.eval\(\)"):
        refuse_changed(before, states(dict(module.named_buffers())))
    before = states(dict(module.named_buffers()))
    module.running_mean = torch.zeros(2)
    with pytest.raises(Refused, match="changes its running_mean,"):
        refuse_changed(before, states(dict(module.named_buffers())))

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch
from torch import nn

from fedlearn.tasks.task import flat_weights
from fedlearn.tasks.torch.members.refusals import Refused
from fedlearn.tasks.torch.supervised import Supervised, supervised


def network() -> nn.Sequential:
    return nn.Sequential(nn.Linear(3, 4), nn.BatchNorm1d(4), nn.Linear(4, 2)).eval()


def task(model: nn.Module | Callable[[], nn.Module] = network, **more: Any) -> Supervised:  # noqa: ANN401
    return supervised(model, lambda m, rows: m(rows["x"]).sum(), {"x": np.zeros((8, 3))}, **more)


def test_a_function_makes_the_same_module_everywhere_when_it_is_needed() -> None:
    made = []

    def make() -> nn.Module:
        made.append(network())
        return made[-1]

    torch.manual_seed(7)
    state = torch.get_rng_state()
    first, second = task(make), task(make)
    assert made == []
    tensors = first.tensors
    assert torch.equal(torch.get_rng_state(), state)
    torch.manual_seed(8)
    for a, b in zip(tensors.values(), second.tensors.values(), strict=True):
        np.testing.assert_array_equal(a, b)
    assert len(made) == 2
    assert first.model is made[0]


def linear(seed: int) -> nn.Module:
    torch.manual_seed(seed)
    return nn.Linear(3, 2)


def test_the_seed_of_a_run_is_that_of_first_weights() -> None:
    drawn = task(lambda: nn.Linear(3, 2))
    drawn.draw_weights(5)
    expected = linear(5)
    np.testing.assert_array_equal(drawn.tensors["weight"], expected.get_parameter("weight").detach().numpy())


def test_another_run_of_a_task_draws_its_own_first_weights_into_the_same_module() -> None:
    drawn = task(lambda: nn.Sequential(nn.Linear(3, 2), nn.BatchNorm1d(2, affine=False).eval()), train=["weight"])
    first, model = drawn.tensors, drawn.model
    drawn.load(np.ones(6, dtype=np.float32))
    drawn.draw_weights(5)
    assert drawn.model is model
    expected = linear(5)
    np.testing.assert_array_equal(drawn.tensors["0.weight"], expected.get_parameter("weight").detach().numpy())
    np.testing.assert_array_equal(drawn.frozen["0.bias"], expected.get_parameter("bias").detach().numpy())
    drawn.draw_weights(0)
    np.testing.assert_array_equal(drawn.tensors["0.weight"], first["0.weight"])


@pytest.mark.parametrize("is_function", [False, True])
def test_a_module_that_is_given_begins_each_run_as_it_was(is_function: bool) -> None:
    model = linear(3)
    drawn, before = task((lambda: model) if is_function else model), linear(3).get_parameter("weight").detach().numpy()
    np.testing.assert_array_equal(drawn.tensors["weight"], before)
    drawn.load(np.ones(8, dtype=np.float32))
    drawn.draw_weights(5)
    np.testing.assert_array_equal(drawn.tensors["weight"], before)
    if not is_function:  # whoever has it may be using it
        assert (model.get_parameter("weight") == 1.0).all()


def test_a_module_is_taken_as_it_is() -> None:
    model = network()
    mine = task(model)
    assert mine.model is model
    np.testing.assert_array_equal(mine.tensors["0.weight"], model.get_parameter("0.weight").detach().numpy())


@pytest.mark.parametrize(
    ("lazy", "name"),
    [(lambda: nn.Sequential(nn.LazyLinear(2)), "0.weight"), (lambda: nn.LazyBatchNorm1d(affine=False), "running_mean")],
    ids=["parameter", "buffer"],
)
def test_a_lazy_module_is_refused_until_it_has_met_an_input(lazy: Callable[[], nn.Module], name: str) -> None:
    with pytest.raises(
        Refused, match=f"expected parameters whose shape is known, got {name!r} .*; call the model once"
    ):
        _ = task(lazy).model
    met = lazy().eval()
    met(torch.zeros(1, 3))
    assert task(met).model is met


def test_where_learning_starts_does_not_move_with_loaded_weights() -> None:
    mine = task()
    _ = mine.model
    mine.load(np.zeros(sum(p.numel() for p in mine.parameters.values()), dtype=np.float32))
    assert not any(parameter.any() for parameter in mine.parameters.values())
    np.testing.assert_array_equal(flat_weights(mine.tensors), flat_weights(task().tensors))


def test_weights_are_loaded_in_the_layouts_order() -> None:
    mine = task()
    flat = np.arange(mine.layout.size, dtype=np.float32)
    flat.flags.writeable = False
    loaded = mine.load(flat)
    for (name, part), parameter, tensor in zip(
        mine.layout.split(flat).items(), mine.parameters.values(), loaded, strict=True
    ):
        np.testing.assert_array_equal(mine.model.get_parameter(name).detach().numpy(), part)
        assert torch.equal(parameter, tensor)
        assert parameter.data_ptr() != tensor.data_ptr()


@pytest.mark.parametrize("train", [["0."], lambda name: name.startswith("0"), ("0.weight", "0.bias")])
def test_what_is_not_learned_is_frozen(train: Any) -> None:  # noqa: ANN401
    mine = task(train=train)
    assert list(mine.tensors) == ["0.weight", "0.bias"]
    names = {"1.weight", "1.bias", "1.running_mean", "1.running_var", "1.num_batches_tracked", "2.weight", "2.bias"}
    assert mine.frozen.keys() == names
    np.testing.assert_array_equal(mine.frozen["2.bias"], mine.model.get_parameter("2.bias").detach().numpy())


def test_a_buffer_that_the_first_call_makes_is_not_what_volunteers_must_have() -> None:
    model = nn.Linear(3, 2)
    mine = task(model)
    assert mine.frozen == {}
    model.register_buffer("positions", torch.zeros(2), persistent=False)
    assert mine.frozen == {}
    assert mine._frozen_tensors().keys() == {"positions"}


def test_without_a_choice_gradients_tell_what_is_learned() -> None:
    model = network()
    model.get_parameter("0.weight").requires_grad_(False)
    assert "0.weight" not in task(model).tensors
    assert "0.weight" in task(model, train=["weight"]).tensors


def test_tied_parameters_count_once() -> None:
    model = nn.Sequential(nn.Linear(3, 3), nn.Linear(3, 3))
    model[1].weight = model[0].weight
    mine = task(model)
    assert list(mine.tensors) == ["0.weight", "0.bias", "1.bias"]
    assert not mine.frozen


def test_two_parameters_in_one_memory_are_an_error() -> None:
    model = nn.Sequential(nn.Linear(3, 3), nn.Linear(3, 3))
    model[1].weight.data = model[0].weight.data
    with pytest.raises(ValueError, match=r"0\.weight, 1\.weight: different parameters share memory; tie them"):
        _ = task(model).parameters


def test_nothing_to_learn_is_an_error() -> None:
    with pytest.raises(ValueError, match="no parameter of the model is trained: train= chose none"):
        _ = task(train=["nothing"]).tensors


def test_complex_parameters_are_told_to_be_two() -> None:
    model = network()
    model.register_parameter("turn", torch.nn.Parameter(torch.zeros(2, dtype=torch.complex64)))
    with pytest.raises(ValueError, match=r"'turn' is torch\.complex64, .* two that are real, by torch\.complex"):
        _ = task(model).tensors


def test_parameters_of_another_type_are_named_and_may_be_frozen() -> None:
    model = network()
    model[2].bfloat16()
    with pytest.raises(ValueError, match=r"'2\.weight' is torch\.bfloat16, .* model\.float\(\), .*, or leave it out"):
        _ = task(model).tensors
    mine = task(model, train=["0."])
    np.testing.assert_array_equal(
        mine.frozen["2.bias"], model.get_parameter("2.bias").detach().view(torch.int16).numpy()
    )


def test_a_module_in_training_mode_is_refused_with_the_remedy() -> None:
    def normed() -> nn.Module:
        return nn.Sequential(nn.Linear(3, 4), nn.InstanceNorm1d(4, track_running_stats=True))

    with pytest.raises(Refused, match=r"InstanceNorm1d '1' in training mode .* call model\.eval\(\)"):
        _ = task(normed).tensors


def test_trials_take_the_threads_they_may_and_no_gradients() -> None:
    before = torch.get_num_threads()
    mine = task()
    mine.use("cpu", threads=before + 1)
    with mine.computing():
        assert torch.get_num_threads() == before + 1
        assert not torch.is_grad_enabled()
    assert torch.get_num_threads() == before
    assert torch.is_grad_enabled()
    mine.use("cpu")
    with mine.computing():
        assert torch.get_num_threads() == before


def with_sparse_buffer() -> nn.Module:
    model = nn.Linear(2, 2)
    model.register_buffer("known", torch.eye(2).to_sparse())
    return model


@pytest.mark.parametrize(
    ("model", "message"),
    [
        (nn.Linear(2, 2, device="meta"), "'weight': expected numbers to train, got one on the meta device"),
        (lambda: nn.ParameterList([torch.zeros(0)]), "'0': expected numbers to train, got one without elements"),
        (with_sparse_buffer, "buffer 'known': expected a dense tensor, got one of torch.sparse_coo; keep it outside"),
        (lambda: None, "model: expected a function that gives an nn.Module, got NoneType; return it"),
    ],
    ids=["meta", "empty", "sparse", "none"],
)  # fmt: skip
def test_a_model_without_numbers_is_refused(model: Any, message: str) -> None:  # noqa: ANN401
    with pytest.raises(ValueError, match=message):
        _ = task(model).tensors


@pytest.mark.skipif(torch.cuda.is_available(), reason="there is a device")
def test_a_device_that_is_not_there_is_refused() -> None:
    with pytest.raises(ValueError, match=r"device: expected one that PyTorch \S+ has here \(cpu.*\), got cuda; leave"):
        task().use("cuda")


def test_convolutions_on_a_device_keep_all_digits(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch.backends.cudnn, "allow_tf32", True)
    task().use("cpu")
    assert not torch.backends.cudnn.allow_tf32
    assert not torch.backends.cuda.matmul.allow_tf32

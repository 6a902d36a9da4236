import math
from collections.abc import Callable
from functools import partial
from typing import Any

import pytest

from fedlearn.tasks.environment import environment
from fedlearn.tasks.function import function
from fedlearn.tasks.function.minimize import minimize
from fedlearn.tasks.signatures import calling_line, check_takes


def of_one(model: object) -> float:
    raise NotImplementedError(model)


def of_three(model: object, rows: object, other: object) -> float:
    raise NotImplementedError(model, rows, other)


def of_two(model: object, rows: object, power: float = 2.0) -> float:
    raise NotImplementedError(model, rows, power)


def of_outputs(input: object, target: object, weight: float = 1.0) -> float:
    raise NotImplementedError(input, target, weight)


class Criterion:
    """As PyTorch's modules: what it is called with hides behind what it passes on."""

    def __call__(self, *arguments: Any) -> float:  # noqa: ANN401 (whatever forward takes)
        return self.forward(*arguments)

    def forward(self, input: object, target: object) -> float:
        raise NotImplementedError(input, target)


@pytest.mark.parametrize(
    "function", [of_two, partial(of_three, other=1), partial(of_three, 1), lambda *_: 0.0, math.hypot, dict.get]
)
def test_whatever_can_be_called_with_the_arguments_is_taken(function: object) -> None:
    check_takes("loss", function, "model", "rows")


@pytest.mark.parametrize(
    ("function", "received"),
    [
        (of_one, r"got of_one\(model\): too many positional arguments; let it take \(model, rows\)$"),
        (of_three, r"got of_three\(model, rows, other\): missing .* 'other'; .*, or give .* with functools.partial$"),
        (0.5, "got float; give the function itself, not what it returns"),
        (
            of_outputs,
            r"got of_outputs, a function of outputs and targets; .* loss\(model\(rows\['x'\]\), rows\['y'\]\)",
        ),
        (Criterion(), "got Criterion, a function of outputs and targets"),
    ],
)
def test_other_arguments_are_refused_with_what_was_received_and_a_remedy(function: object, received: str) -> None:
    with pytest.raises(ValueError, match=rf"^loss: expected a function of \(model, rows\), {received}"):
        check_takes("loss", function, "model", "rows")


def test_a_class_is_called_as_it_is_and_not_as_its_objects() -> None:
    check_takes("model", Criterion)
    with pytest.raises(ValueError, match=r"model: expected a function of no arguments, got of_one\(model\): missing "):
        check_takes("model", of_one)


@pytest.mark.parametrize(
    "make",
    [
        lambda: function(of_two, {"x": [1.0]}),
        lambda: function(of_one, {"x": [1.0]}, {"a": [1.0]}),
        lambda: environment("CartPole-v1", of_one, start={"x": [1.0]}),
        lambda: minimize(of_two, [1.0]),  # type: ignore[arg-type]
    ],
    ids=["function", "with data", "policy", "minimize"],
)
def test_each_way_to_bring_a_function_refuses_other_arguments(make: Callable[[], object]) -> None:
    with pytest.raises(ValueError, match=r"(loss|policy|fun): expected a function of .*, got of_"):
        make()


def supervised_by(settings: Any) -> object:  # noqa: ANN401
    pytest.importorskip("torch")
    from torch.nn import Identity

    from fedlearn.tasks.torch.supervised import supervised

    return supervised(Identity, of_two, {"x": [1.0]}, settings=settings)


@pytest.mark.parametrize(
    "make",
    [
        lambda wrong: function(of_one, {"x": [1.0]}, settings=wrong),
        lambda wrong: function(of_one, {"x": [1.0]}, scales=wrong),
        lambda wrong: function(of_one, wrong),
        lambda wrong: environment("CartPole-v1", settings=wrong),
        supervised_by,
    ],
    ids=["settings", "scales", "start", "environment", "supervised"],
)
@pytest.mark.parametrize("wrong", [[("x", 1.0)], "x", 1.0])
def test_values_without_names_are_refused_with_the_remedy(make: Callable[[Any], object], wrong: object) -> None:
    with pytest.raises(ValueError, match=r"^(settings|scales|start): expected a dictionary .* got .*; write \{name"):
        make(wrong)


def test_line_of_a_caller_is_shown_with_a_warning() -> None:
    line = calling_line()
    own = test_line_of_a_caller_is_shown_with_a_warning.__code__
    assert line == (__file__, own.co_firstlineno + 1)
    with pytest.warns(RuntimeWarning, match="^of this line$") as warned:
        line.warn("of this line")
    assert (warned[0].filename, warned[0].lineno) == line

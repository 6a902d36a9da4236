"""Lists of layers whose values later layers read by name."""

from typing import Any

import pytest

torch = pytest.importorskip("torch")

from torch import Tensor, nn  # noqa: E402

from fedlearn.compat.layers import Entry, Layers  # noqa: E402


class Sum(nn.Module):
    def forward(self, x: Tensor, *others: Tensor) -> Tensor:
        return x + sum(others)


class Double(nn.Module):
    def forward(self, x: Tensor) -> Tensor:
        return 2 * x


def entry(kind: type[nn.Module], **arguments: Any) -> Entry:  # noqa: ANN401 (of a layer)
    return kind, arguments, (1, 1)


ENTRIES = [
    entry(Double, out_variables=["first"]),
    entry(Double, out_variables=["second"]),
    entry(Double),
    entry(Sum, dependencies=["first", "second"], out_variables=[]),
]


def test_a_dependency_is_the_output_that_was_named() -> None:
    assert Layers(ENTRIES)(torch.ones(1)).item() == 8 + 2 + 4


def test_a_given_value_takes_the_place_of_the_named_one_for_later_layers_only() -> None:
    layers = Layers(ENTRIES)
    assert layers(torch.ones(1), {"first": torch.zeros(1)}).item() == 8 + 0 + 4
    assert layers(torch.ones(1), {"second": torch.full((1,), 9.0)}).item() == 8 + 2 + 9


def test_names_are_known_with_those_who_read_them() -> None:
    assert Layers(ENTRIES).dependencies == {"first": (3,), "second": (3,)}


def test_the_two_words_are_not_arguments_of_the_class() -> None:
    layers = Layers([(nn.Linear, {"in_features": 2, "out_features": 3, "out_variables": ["a"]}, (1, 2))])
    assert layers(torch.ones(4, 2)).shape == (4, 3)


@pytest.mark.parametrize(
    ("entries", "said"),
    [
        ([], "expected at least one layer"),
        ([entry(Sum, dependencies=["late"]), entry(Double, out_variables=["late"])], "got 'late' of a later one"),
        ([entry(Sum, dependencies=["mask"])], "layer 0: expected the shape of 'mask' behind that of its input"),
        ([entry(Sum, dependencies=["own"], out_variables=["own"])], "layer 0: expected dependencies"),
        ([entry(Double, out_variables=["a"]), entry(Double, out_variables=["a"])], "layer 1: expected a new name"),
    ],
)
def test_a_list_that_cannot_be_run_is_refused(entries: list[Entry], said: str) -> None:
    with pytest.raises(ValueError, match=said):
        Layers(entries)


def test_a_given_value_that_nobody_names_is_refused() -> None:
    with pytest.raises(ValueError, match=r"expected names among \['first', 'second'\], got 'third'"):
        Layers(ENTRIES)(torch.ones(1), {"third": torch.ones(1)})


def test_a_value_that_no_layer_gives_comes_with_the_input() -> None:
    layers = Layers([entry(Double), (Sum, {"dependencies": ["mask"]}, [(4, 1), [4, 1]])])
    assert layers.inputs == {"mask": (4, 1)}
    assert layers(torch.ones(1), {"mask": torch.ones(1)}).item() == 3
    with pytest.raises(ValueError, match="expected 'mask', which no layer gives, got none"):
        layers(torch.ones(1))

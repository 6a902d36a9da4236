import torch
from torch import nn

from fedlearn.tasks.torch.members.kept import keepers


def test_attributes_that_keep_tensors_are_named_by_their_modules() -> None:
    model = nn.Sequential(nn.Linear(2, 2), nn.Module(), nn.BatchNorm1d(2))
    assert keepers(model) == {}
    model[0].weights = [model[0].weight]  # type: ignore[assignment]
    assert keepers(model) == {}  # one of its own
    model[1].cache = {"cpu": (torch.zeros(2),)}  # type: ignore[assignment]
    model.last = torch.zeros(2)
    assert keepers(model) == {"": "last", "1": "cache"}


def test_attributes_that_hold_themselves_are_looked_into_so_far() -> None:
    model = nn.Module()
    endless: list[object] = []
    endless.append(endless)
    model.endless = endless  # type: ignore[assignment]
    assert keepers(model) == {}

"""The first export and the first graph of a process, for which PyTorch imports a compiler and what that needs."""

import torch
from torch import Tensor, nn

from fedlearn.tasks.torch.members.without_compiler import without_compiler
from fedlearn.tasks.torch_graph.export.export import export


def export_once() -> None:
    """Exports a model of one weight; later exports take a tenth of the time of a first one."""
    with torch.random.fork_rng([]):  # the weights of models to come are drawn as without this one
        model = nn.Linear(1, 1)

    def loss(model: nn.Module, rows: dict[str, Tensor]) -> Tensor:
        found: Tensor = model(rows["x"]).mean()
        return found

    export(model, loss, {"x": torch.zeros(1, 1)}, dict(model.named_parameters()))


@without_compiler()
def run_once() -> None:
    """Runs an operation on tensors that only have a shape, as the check of a graph does that comes from a server."""
    torch.add(torch.empty(1, device="meta"), 1.0)

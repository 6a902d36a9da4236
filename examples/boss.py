"""A curve by a list of layers on several workers, in a loop of PyTorch's: forward, a loss, backward, a step.

python examples/boss.py 2
MODEL_HOST=127.0.0.1 MODEL_PORT=1024 python examples/worker.py   # as often as there are workers

The workers wait for the boss, and may be started first. A value of an early layer is added again much later, on
whatever machine. With SEATS=2 in the environment two workers hold one model between them. Needs fedlearn[torch].
"""

import asyncio
import os
import sys

import torch
from torch import nn

from fedlearn.compat.boss import BossMan


class wrapped_linear(nn.Linear):  # noqa: N801 (its users' name)
    """A linear layer whose input is the sum of all that it is given."""

    def forward(self, x, *dependencies):
        return super().forward(x + sum(dependencies))


model = [
    (nn.Linear, {"in_features": 1, "out_features": 512}, (32, 1)),
    (nn.ReLU, {}, (32, 512)),
    (wrapped_linear, {"in_features": 512, "out_features": 512, "out_variables": ["res_1"]}, [(32, 512)]),
    (nn.ReLU, {}, (32, 512)),
    (nn.Linear, {"in_features": 512, "out_features": 512}, (32, 512)),
    (nn.ReLU, {}, (32, 512)),
    (
        wrapped_linear,
        {"in_features": 512, "out_features": 512, "dependencies": ["res_1"], "out_variables": []},
        [(32, 512), (32, 512)],
    ),
    (nn.ReLU, {}, (32, 512)),
    (nn.Linear, {"in_features": 512, "out_features": 1}, (32, 512)),
    (nn.Sigmoid, {}, (32, 1)),
]


def get_batch(batch_size):
    x = torch.rand(batch_size, 1)
    return x, torch.sin(x)


async def main(num_workers, epochs):
    torch.manual_seed(42)
    workers = await BossMan.setup_host(num_workers)
    boss = BossMan(workers, model, seats=int(os.environ.get("SEATS", "0")))
    await boss.distribute_model()
    await boss.send_optimizer(torch.optim.Adam, {"lr": 3e-3})
    print(f"values that cross machines: {boss.gather_dependencies()}")
    loss_fn = torch.nn.MSELoss()
    for epoch in range(1, epochs + 1):
        x, y = get_batch(32)
        prediction = await boss.forward(x, {})
        loss = loss_fn(prediction, y)
        loss.backward()
        await boss.backward(prediction.grad)
        await boss.optim_step()
        if epoch == 1 or epoch % 20 == 0:
            print(f"epoch {epoch}: loss {loss.item():.3g}", flush=True)
    await boss.model_eval()
    x, y = get_batch(1000)
    with torch.no_grad():
        whole = await boss.forward(x, {})
        cut = await boss.forward(x, {"res_1": torch.zeros(len(x), 512)})
    error, moved = loss_fn(whole, y), (whole - cut).abs().mean()
    print(f"error {error:.3g} after {epochs} epochs; without res_1 outputs move by {moved:.3g}")
    await boss.close()


if __name__ == "__main__":
    asyncio.run(main(int(sys.argv[1]), int(os.environ.get("EPOCHS", "400"))))

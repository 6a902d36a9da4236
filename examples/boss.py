"""A sine from a list of layers that lie on several workers; a value of an early layer is added again much later.

python examples/boss.py 2
MODEL_HOST=127.0.0.1 MODEL_PORT=1024 python examples/worker.py   # as often as there are workers

The workers wait for the boss, and may be started first. Needs fedlearn[torch].
"""

import asyncio
import math
import os
import sys

import torch
import torch.nn.functional as F
from torch import nn

from fedlearn.compat.boss import BossMan


class WrappedLinear(nn.Linear):
    """A linear layer whose input is the sum of all that it is given."""

    def forward(self, x, *dependencies):
        return super().forward(x + sum(dependencies))


wrapped_linear = WrappedLinear
WIDTH = 64

model = [
    (nn.Linear, {"in_features": 1, "out_features": WIDTH}, (32, 1)),
    (nn.ReLU, {}, (32, WIDTH)),
    (wrapped_linear, {"in_features": WIDTH, "out_features": WIDTH, "out_variables": ["res_1"]}, [(32, WIDTH)]),
    (nn.ReLU, {}, (32, WIDTH)),
    (wrapped_linear, {"in_features": WIDTH, "out_features": WIDTH}, [(32, WIDTH)]),
    (nn.ReLU, {}, (32, WIDTH)),
    (
        wrapped_linear,
        {"in_features": WIDTH, "out_features": WIDTH, "dependencies": ["res_1"], "out_variables": []},
        [(32, WIDTH), (32, WIDTH)],
    ),
    (nn.ReLU, {}, (32, WIDTH)),
    (nn.Linear, {"in_features": WIDTH, "out_features": 1}, (32, WIDTH)),
]


async def main(num_workers, n_steps):
    torch.manual_seed(42)
    x = torch.empty(4096, 1).uniform_(-1, 1)
    y = torch.sin(math.pi * x)
    workers = await BossMan.setup_host(num_workers)
    boss = BossMan(workers, model, loss=F.mse_loss, data=(x, y))
    await boss.distribute_model()
    await boss.send_optimizer(torch.optim.Adam, {"lr": 3e-3})
    print(f"values that cross machines: {boss.gather_dependencies()}")
    first = F.mse_loss(await boss.forward(x, {}), y).item()
    error = first
    for step in range(1, n_steps + 1):
        await boss.step()  # tries members on a batch and takes the step
        if step % 20 == 0 or step == n_steps:
            error = F.mse_loss(await boss.forward(x, {}), y).item()
            print(f"step {step}: error {error:.4f}, at first {first:.4f}", flush=True)
        if error < first / 6:
            break
    whole = await boss.forward(x, {})
    cut = await boss.forward(x, {"res_1": torch.zeros(len(x), WIDTH)})
    print(f"error {first / error:.1f} times smaller; without res_1 outputs move by {(whole - cut).abs().mean():.3f}")
    await boss.close()


if __name__ == "__main__":
    asyncio.run(main(int(sys.argv[1]), int(os.environ.get("STEPS", "2000"))))

"""Scripts under other systems' names, as typed, as processes, each beside plain PyTorch with its rate and epochs.

B: three ranks of torchrun. C: three providers. D: a boss and two workers.
"""

import importlib.util
import json
import os
import re
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from types import ModuleType
from typing import Any, cast

import torch
from torch import Tensor, nn
from torch.nn import functional as F  # noqa: N812 (as everybody calls it)

from benchmarks.compat.rows import Row, with_median

EXAMPLES = Path(__file__).parents[2] / "examples"
PPL = "--gpu=0_0_0 --epochs=2 --batch_size=40 --lr=0.001 --model_name=ppl_04"
CURVE_STEPS = 400
LIMIT_S = 900.0


def example(name: str) -> ModuleType:
    """An example as a module."""
    spec = importlib.util.spec_from_file_location(name, EXAMPLES / f"{name}.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def ranks(n_seeds: int) -> Iterator[Row]:
    """Digits by the network of `ppl.py`."""
    torchrun = (sys.executable, "-m", "torch.distributed.run", "--nproc_per_node=3")
    yield _of_scripts("B", "ppl_04", "3 ranks of torchrun", [(*torchrun, str(EXAMPLES / "ppl.py"), *PPL.split())],
                      accuracy=r"^epoch 2: .* accuracy (\S+)$")  # fmt: skip
    given = example("ppl")
    images, labels = given.load_digits(return_X_y=True)
    order = given.np.random.default_rng(0).permutation(len(labels))
    x, y = torch.tensor(images[order] / 16).float(), torch.tensor(labels[order])
    cut = given.HELD_OUT
    parts = (x[cut:], y[cut:]), (x[:cut], y[:cut])
    yield from with_median(
        _plain("B", "ppl_04", seed, given.model, *parts, batch_size=40, epochs=2) for seed in range(n_seeds)
    )


def providers(n_seeds: int) -> Iterator[Row]:
    """Digits by the network of `provider.py`, 20 epochs."""
    nodes = [(sys.executable, str(EXAMPLES / "provider.py"), "--name", f"node_{number}") for number in (1, 2, 0)]
    yield _of_scripts("C", "provider's CNN", "3 providers", nodes, accuracy=r"^test accuracy (\S+)$")
    given = example("provider")
    training, _, held_out = (loader.dataset.tensors for loader in given.loaders(64))
    yield from with_median(
        _plain("C", "provider's CNN", seed, given.cnn, training, held_out, batch_size=64, epochs=20)
        for seed in range(n_seeds)
    )


def curve(n_seeds: int) -> Iterator[Row]:
    """A sine by a boss and two workers, whose loop ends with the error on 1000 points."""
    where = {"MODEL_HOST": "127.0.0.1", "MODEL_PORT": "51024", "EPOCHS": str(CURVE_STEPS)}
    worker, boss = (sys.executable, str(EXAMPLES / "worker.py")), (sys.executable, str(EXAMPLES / "boss.py"), "2")
    yield _of_scripts(
        "D", "curve of 512 units", "a boss, 2 workers", [worker, worker, boss], where, loss=r"^error (\S+) after"
    )
    given = example("boss")
    yield from with_median(_plain_curve(seed, given.model, given.get_batch) for seed in range(n_seeds))


def _plain_curve(seed: int, entries: Any, get_batch: Callable[[int], tuple[Tensor, Tensor]]) -> Row:  # noqa: ANN401
    from fedlearn.compat.layers import Layers

    torch.manual_seed(seed)
    model = Layers(entries)
    optimizer = torch.optim.Adam(model.parameters(), lr=3e-3)
    began, processor_began = time.perf_counter(), time.process_time()
    for _ in range(CURVE_STEPS):
        x, y = get_batch(32)
        optimizer.zero_grad()
        F.mse_loss(model(x), y).backward()  # type: ignore[no-untyped-call]
        optimizer.step()
    seconds, processor_s = time.perf_counter() - began, time.process_time() - processor_began
    x, y = get_batch(1000)
    with torch.no_grad():
        error = float(F.mse_loss(model(x), y))
    return Row("D", "curve of 512 units", f"PyTorch, Adam, seed {seed}", CURVE_STEPS, seconds, processor_s, None, error)


def _plain(
    system: str,
    what: str,
    seed: int,
    make: Callable[[], nn.Module],
    training: tuple[Tensor, Tensor],
    held_out: tuple[Tensor, Tensor],
    *,
    batch_size: int,
    epochs: int,
) -> Row:
    """PyTorch's Adam with a rate of 0.001 on the same rows."""
    torch.manual_seed(seed)
    model, (x, y) = make(), training
    optimizer, n_steps = torch.optim.Adam(model.parameters(), lr=1e-3), 0
    began, processor_began = time.perf_counter(), time.process_time()
    for _ in range(epochs):
        for rows in torch.split(torch.randperm(len(y)), batch_size):
            optimizer.zero_grad()
            F.cross_entropy(model(x[rows]), y[rows]).backward()  # type: ignore[no-untyped-call]
            optimizer.step()
            n_steps += 1
    seconds, processor_s = time.perf_counter() - began, time.process_time() - processor_began
    with torch.no_grad():
        logits = model(held_out[0])
    accuracy = float((logits.argmax(-1) == held_out[1]).float().mean())
    loss = float(F.cross_entropy(logits, held_out[1]))
    return Row(system, what, f"PyTorch, Adam, seed {seed}", n_steps, seconds, processor_s, accuracy, loss)


def _of_scripts(
    system: str,
    what: str,
    learner: str,
    commands: Sequence[tuple[str, ...]],
    environ: Mapping[str, str] | None = None,
    *,
    accuracy: str = "",
    loss: str = "",
) -> Row:
    """What the last of some commands says when all have ended."""
    variables = {**os.environ, "PYTHONPATH": str(EXAMPLES.parent), "OMP_NUM_THREADS": "1", **(environ or {})}
    before = os.times()
    with tempfile.TemporaryDirectory() as folder:
        others = [subprocess.Popen(command, cwd=folder, env=variables, stdout=subprocess.DEVNULL,
                                   stderr=subprocess.DEVNULL) for command in commands[:-1]]  # fmt: skip
        last = subprocess.run(commands[-1], cwd=folder, env=variables, capture_output=True, text=True, timeout=LIMIT_S)
        for other in others:
            other.wait(60)
        lines = next(Path(folder).glob("trainingRuns/*/metrics.jsonl")).read_text().splitlines()
    assert last.returncode == 0, last.stderr
    after = os.times()
    processor_s = after.children_user + after.children_system - before.children_user - before.children_system
    found = [_figure(pattern, last.stdout + last.stderr) for pattern in (accuracy, loss)]
    return Row(system, what, learner, len(lines), json.loads(lines[-1])["elapsed_s"], processor_s, *found)


def _figure(pattern: str, said: str) -> float | None:
    if not pattern:
        return None
    found = re.findall(pattern, said, flags=re.M)
    assert found, said
    return float(cast("str", found[-1]))

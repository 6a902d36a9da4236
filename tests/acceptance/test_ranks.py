"""Scripts of another library for torchrun, as they are typed but for their imports."""

import re
from pathlib import Path

import numpy as np
import pytest

from tests.acceptance import originals
from tests.acceptance.programs import EXAMPLES, TORCHRUN, assert_ends, begin
from tests.end_to_end.processes import ended_at_exit, free_port, output_of

torch = pytest.importorskip("torch")

ROOT = {"PYTHONPATH": str(EXAMPLES.parent), "OMP_NUM_THREADS": "1"}
N_TRAINING, N_HELD_OUT = 1200, 240


def written(folder: Path) -> None:
    """Writes the scripts, and images of 28 x 28 that are bright where their class says."""
    for path in (originals.FOLDER / "ranks").glob("*.txt"):
        typed = re.sub(r"from detrain\.[a-z_.]+ import", "from fedlearn.compat.ranks import", path.read_text())
        # Weights that are drawn anew end two short epochs at 0.94 to 1.0.
        (folder / f"{path.stem}.py").write_text(
            typed.replace("import torch\n", "import torch\ntorch.manual_seed(0)\n", 1)
        )
    generator = np.random.default_rng(0)
    labels = generator.integers(10, size=N_TRAINING + N_HELD_OUT)
    images = generator.integers(128, size=(len(labels), 28, 28), dtype=np.uint8)
    for image, label in zip(images, labels, strict=True):
        image[2 * label : 2 * label + 8, 4:24] += 127
    (folder / "data").mkdir()
    cut = slice(N_TRAINING), slice(N_TRAINING, None)
    (x, held_x), (y, held_y) = ([column[part] for part in cut] for column in (images, labels))
    np.savez(folder / "data" / "MNIST.npz", x_train=x, y_train=y, x_test=held_x, y_test=held_y)


def last_accuracy(said: str) -> float:
    return float(re.findall(r"epoch \d+: loss \S+, accuracy (\d\.\d+)", said)[-1])


def test_shards_train_by_three_commands_each_with_its_node_rank(tmp_path: Path) -> None:
    written(tmp_path)
    port = free_port()
    typed = f"--nnodes=3 --nproc_per_node=1 --node_rank=%d --master_addr=localhost --master_port={port} main_ppl.py"
    flags = ("--gpu=0_0_0", "--epochs=2", "--batch_size=40", "--lr=0.05", "--model_name=ppl_04")
    nodes = [
        begin(*TORCHRUN, *(typed % rank).split(), *flags, folder=tmp_path, limit_s=400, environ=ROOT)
        for rank in (2, 1, 0)
    ]
    with ended_at_exit(*nodes):
        said = output_of(nodes[-1]).read()
        for node in nodes:
            assert_ends(node)
    assert "3 volunteers" in said
    assert last_accuracy(said) >= 0.95
    assert torch.load(tmp_path / "ppl_04.pt")["shards.1.seq.1.weight"].shape == (10, 512)


def test_a_tensor_parallel_script_trains_by_rendezvous(tmp_path: Path) -> None:
    written(tmp_path)
    typed = f"--nnodes=1 --nproc_per_node=2 --rdzv_id=101 --rdzv-backend=c10d --rdzv_endpoint=localhost:{free_port()}"
    flags = ("--gpu=0_0_0", "--epochs=4", "--batch_size=50", "--lr=0.05", "--model_name=tp_02")
    gang = begin(*TORCHRUN, *typed.split(), "main_tp.py", *flags, folder=tmp_path, limit_s=400, environ=ROOT)
    with ended_at_exit(gang):
        said = output_of(gang).read()
        assert_ends(gang)
    assert last_accuracy(said) >= 0.95
    assert torch.load(tmp_path / "tp_02.pt")["out_proj.weight"].shape == (10, 512)

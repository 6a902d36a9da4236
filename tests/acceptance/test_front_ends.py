"""Scripts with the names and flags of other systems, over seats that are processes of their own."""

import json
import re
import socket
import subprocess
import sys
from pathlib import Path

import pytest

from tests.acceptance import originals
from tests.acceptance.programs import EXAMPLES, TORCHRUN, assert_ends, begin
from tests.end_to_end.processes import ended_at_exit, free_port, metrics_of, output_of
from tests.patience import LIMIT_S

torch = pytest.importorskip("torch")
safetensors = pytest.importorskip("safetensors.numpy")

CNN_SHAPES = {
    "0.weight": (16, 1, 3, 3),
    "0.bias": (16,),
    "2.weight": (32, 16, 3, 3),
    "2.bias": (32,),
    "5.weight": (64, 512),
    "5.bias": (64,),
    "7.weight": (10, 64),
    "7.bias": (10,),
}
SHAPES = {
    "0.weight": (48, 64),
    "0.bias": (48,),
    "2.weight": (32, 48),
    "2.bias": (32,),
    "4.weight": (10, 32),
    "4.bias": (10,),
}


PATHS = {"PYTHONPATH": str(EXAMPLES.parent), "OMP_NUM_THREADS": "1"}


def script(name: str, *arguments: str, folder: Path, **environ: str) -> subprocess.Popen[str]:
    return begin(
        sys.executable, str(EXAMPLES / name), *arguments, folder=folder, limit_s=400, environ={**PATHS, **environ}
    )


def skip_without_ports(*ports: int) -> None:
    """Skips a test that takes ports as people type them, where one is in use or not for everybody."""
    for port in ports:
        try:
            socket.create_server(("127.0.0.1", port)).close()
        except OSError as error:
            pytest.skip(f"port {port}: {error.strerror}")


def said_by(process: subprocess.Popen[str]) -> str:
    said = output_of(process).read()
    assert process.wait(LIMIT_S) == 0, said
    return said


def gang(folder: Path, *flags: str) -> str:
    pytest.importorskip("sklearn")
    options = ("--nproc_per_node=3", f"--master_port={free_port()}", str(EXAMPLES / "ppl.py"))
    usual = ("--gpu=0_0_0", "--lr=0.001", "--model_name=ppl_04", f"--port={free_port()}")
    process = begin(*TORCHRUN, *options, *usual, *flags, folder=folder, limit_s=400, environ=PATHS)
    with ended_at_exit(process):
        return said_by(process)


@pytest.mark.long
def test_the_line_of_the_documents_trains_as_it_stands(tmp_path: Path) -> None:
    pytest.importorskip("sklearn")
    skip_without_ports(29500, 55561)
    typed = "--nproc_per_node=3 examples/ppl.py --gpu=0_0_0 --epochs=2 --batch_size=40 --lr=0.001 --model_name=ppl_04"
    assert f"torchrun {typed}" in (EXAMPLES.parent / "docs" / "compat.md").read_text()
    (tmp_path / "examples").symlink_to(EXAMPLES)
    process = begin(
        *TORCHRUN, *typed.split(), folder=tmp_path, limit_s=400, environ={"PYTHONPATH": PATHS["PYTHONPATH"]}
    )
    with ended_at_exit(process):
        said = said_by(process)
    check_gang(tmp_path, said)
    steps = metrics_of(tmp_path)
    assert len(steps) == 2 * 41
    assert {step["volunteers"] for step in steps} == {3}
    assert accuracy_after(2, said) >= 0.7  # plain Adam from the same weights: 0.706 to 0.783, by the order of rows


def check_gang(folder: Path, said: str) -> None:
    assert [epoch for epoch, _ in accuracies_in(said)] == ["1", "2"]
    tensors = safetensors.load_file(folder / "ppl_04.safetensors")
    assert {name: tensor.shape for name, tensor in tensors.items()} == SHAPES


def test_torchrun_splits_a_model_over_three_seats(tmp_path: Path) -> None:
    said = gang(tmp_path, "--seats=3", "--epochs=2", "--batch_size=40")
    assert len(set(re.findall(r"part \d of 3", said))) == 2, "the third is the local volunteer's, which has a log"
    check_gang(tmp_path, said)
    assert len(metrics_of(tmp_path)) == 2 * 41
    assert accuracy_after(2, said) >= 0.7  # as three ranks with the whole network


def accuracy_after(epoch: int, said: str) -> float:
    return float(dict(accuracies_in(said))[str(epoch)])


def accuracies_in(said: str) -> list[tuple[str, str]]:
    """The epochs and accuracies in what ranks said; torchrun's ranks may say theirs within one line."""
    return re.findall(r"epoch (\d+): loss \d\.\d{4}, evaluation loss \d\.\d{4}, accuracy (\d\.\d{3})", said)


def vocabulary_gang(name: str, n_processes: int, folder: Path, *flags: str) -> str:
    options = (f"--nproc_per_node={n_processes}", f"--master_port={free_port()}", str(EXAMPLES / name))
    process = begin(*TORCHRUN, *options, f"--port={free_port()}", *flags, folder=folder, limit_s=400, environ=PATHS)
    with ended_at_exit(process):
        return said_by(process)


@pytest.mark.parametrize("check", ["--check", pytest.param("--check=100", marks=pytest.mark.long)])
def test_a_vocabulary_in_shards_has_the_losses_of_one_process(tmp_path: Path, check: str) -> None:
    said = vocabulary_gang("tp.py", 2, tmp_path, check)
    assert "1 crews of 2 shards" in said
    assert "largest difference of losses from one process: 0;" in said
    digests = re.findall(r"(?:shards; digest|its digest is) ([0-9a-f]{16})", said)
    assert len(digests) == 2
    assert len(set(digests)) == 1


def test_ranks_with_the_whole_model_learn_characters_by_gradients(tmp_path: Path) -> None:
    said = vocabulary_gang("tp.py", 2, tmp_path, "--epochs=4", "--batch_size=50", "--lr=0.01")
    assert "2 ranks with the whole model" in said
    assert len(metrics_of(tmp_path)) == 4 * 25
    losses = [float(loss) for loss in re.findall(r"evaluation loss (\d\.\d{4})", said)]
    assert len(losses) == 4
    assert losses[-1] < 2.7  # plain Adam: 2.50 to 2.65, by six seeds
    assert (tmp_path / "tp_02.safetensors").exists()


@pytest.mark.long
def test_crews_of_shards_have_one_digest_after_every_step(tmp_path: Path) -> None:
    said = vocabulary_gang("mesh.py", 4, tmp_path, "--epochs=1", "--shards=2")
    assert "2 crews of 2 shards" in said
    assert len(metrics_of(tmp_path)) == 25
    assert "is sent its part again" not in said
    assert (tmp_path / "tp_02.safetensors").exists()


def providers(folder: Path, *flags: str) -> str:
    pytest.importorskip("sklearn")
    port = f"--port={free_port()}"
    nodes = [script("provider.py", "--name", f"node_{n}", port, *flags, folder=folder) for n in range(3)]
    with ended_at_exit(*nodes):
        said = said_by(nodes[0])
        for node in nodes:
            assert_ends(node)
    return said


def accuracy_of(said: str) -> float:
    """The accuracy on rows that nothing was chosen by."""
    return float(re.findall(r"^test accuracy (\S+)$", said, flags=re.M)[0])


def figures_in(path: Path) -> list[float]:
    return [float(line) for line in path.read_text().splitlines()]


def test_three_providers_hold_one_model_between_them_and_write_its_figures(tmp_path: Path) -> None:
    said = providers(tmp_path, "--seats=3", "--epochs=1")
    roles = re.findall(r"^node_(\d): cluster 0, (\w+),", said, flags=re.M)
    assert roles == [("0", "root"), ("1", "stem"), ("2", "leaf")]
    assert "3 nodes hold one model between them, each a part of it" in said
    (loss,), (accuracy,) = figures_in(tmp_path / "losses.txt"), figures_in(tmp_path / "val_accuracies.txt")
    assert f"validation accuracy {accuracy:.4f}" in said
    assert accuracy_of(said) > 0.1
    assert loss < 2.4
    tensors = safetensors.load_file(tmp_path / "fused.safetensors")
    assert {name: tensor.shape for name, tensor in tensors.items()} == CNN_SHAPES


def typed_providers(folder: Path, epochs: int) -> str:
    """What the first of three providers says, whose scripts name 100 epochs."""
    pytest.importorskip("sklearn")
    for path in (originals.FOLDER / "providers").glob("*.txt"):
        typed = path.read_text().replace("from ravnest", "from fedlearn.compat").replace("=100,", f"={epochs},")
        for number in range(3):
            name = path.stem if path.stem != "provider" else f"provider_{number}"
            (folder / f"{name}.py").write_text(typed.replace("node_0", f"node_{number}"))
    (folder / "node_data").mkdir()
    nodes = {n: {"IP": f"0.0.0.0:{free_port()}", "benchmarks": {"ram": 8, "bandwidth": 10}} for n in range(3)}
    (folder / "node_data" / "node_configs.json").write_text(json.dumps(nodes))
    formation = script(str(folder / "cluster_formation.py"), folder=folder)
    with ended_at_exit(formation):
        assert said_by(formation) == ""
    nodes_of = [script(str(folder / f"provider_{number}.py"), folder=folder) for number in (2, 1, 0)]
    with ended_at_exit(*nodes_of):
        said = said_by(nodes_of[-1])
        for node in nodes_of:
            assert_ends(node)
    assert len(metrics_of(folder)) == 17 * epochs
    return said


def test_scripts_of_providers_train_as_they_stand(tmp_path: Path) -> None:
    from fedlearn.compat import model_fusion

    # A loop of PyTorch's with the same dropout is at 0.86 to 0.89 after 6 epochs, and at 0.95 to 0.96 after 20.
    said = typed_providers(tmp_path, epochs=8)
    assert float(re.findall(r"^Accuracy: (\S+)$", said, flags=re.M)[0]) >= 0.85
    state = torch.load(model_fusion(cluster_id=0, folder=tmp_path))
    assert state["bn_1.running_var"].shape == (16,)


def curve_fit(folder: Path, epochs: int) -> list[float]:
    """The losses of the boss's loop, which is typed with 400 epochs."""
    typed = (originals.FOLDER / "curve_fit.txt").read_text().replace("EPOCHS = 400", f"EPOCHS = {epochs}")
    typed = typed.replace("from bossman import", "from fedlearn.compat.boss import")
    # Of 60 seeds two end at 0.3 by plain Adam, too: its first steps saturate the sigmoid.
    (folder / "curve_fit.py").write_text(typed.replace("import torch\n", "import torch\ntorch.manual_seed(1)\n", 1))
    where = {"MODEL_HOST": "127.0.0.1", "MODEL_PORT": str(free_port())}
    workers = [script("worker.py", folder=folder, **where) for _ in range(2)]
    boss = script(str(folder / "curve_fit.py"), "2", folder=folder, **where)
    with ended_at_exit(boss, *workers):
        said = said_by(boss)
        for worker in workers:
            assert_ends(worker)
    assert len(re.findall(r" joined$", said, flags=re.M)) == 2
    found = re.search(r"^losses: (.*)$", said, flags=re.M)
    assert found is not None, said
    losses: list[float] = json.loads(found[1])
    assert max(step["volunteers"] for step in metrics_of(folder)) == 2  # on a busy machine not always both
    assert len(losses) == epochs == len(metrics_of(folder))
    return losses


def test_a_boss_and_its_workers_fit_a_curve_by_the_loop_as_it_is_typed(tmp_path: Path) -> None:
    losses = curve_fit(tmp_path, 50)
    assert losses[0] > 0.01
    assert max(losses[-5:]) < 1.5e-3  # plain Adam: 0.0001 to 0.001 after 40


def test_workers_that_hold_one_model_between_them_take_steps_of_the_same_loop(tmp_path: Path) -> None:
    where = {"MODEL_HOST": "127.0.0.1", "MODEL_PORT": str(free_port())}
    workers = [script("worker.py", folder=tmp_path, **where) for _ in range(2)]
    boss = script("boss.py", "2", folder=tmp_path, SEATS="2", EPOCHS="50", **where)
    with ended_at_exit(boss, *workers):
        said = said_by(boss)
        for worker in workers:
            assert_ends(worker)
    assert re.search(r"crew 1 \(\S+, \S+\) joined", said)
    found = re.search(r"error (\S+) after 50 epochs; without res_1 outputs move by (\S+)", said)
    assert found is not None, said
    assert float(found[1]) < 1.5e-3  # as workers with the whole model
    assert float(found[2]) > 0.01

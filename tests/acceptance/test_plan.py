"""Plans of split models, with the file that names the nodes as it is known."""

import json
import re
import subprocess
from pathlib import Path

import pytest

from tests.acceptance.programs import EXAMPLES
from tests.end_to_end.processes import run

pytest.importorskip("torch")
pytest.importorskip("sklearn")

RAM_AND_BANDWIDTH = [(8, 20), (16, 10), (8, 10)]


def planned(folder: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    return run("-m", "fedlearn", "plan", *arguments, folder=folder)


def write_nodes(folder: Path, *, share: float) -> None:
    """Each node has that share of its RAM."""
    nodes = {
        str(number): {"IP": f"127.0.0.1:{56301 + number}", "benchmarks": {"ram": share * gb, "bandwidth": mbps}}
        for number, (gb, mbps) in enumerate(RAM_AND_BANDWIDTH)
    }
    (folder / "node_configs.json").write_text(json.dumps(nodes, indent=2))


def test_clusters_and_roles_follow_the_nodes_and_too_little_memory_is_refused_with_the_gap(tmp_path: Path) -> None:
    command = (str(EXAMPLES / "cnn.py"), "--nodes", "node_configs.json")
    write_nodes(tmp_path, share=0.0006)
    done = planned(tmp_path, *command)
    assert done.returncode == 0, done.stderr
    assert "cluster 0: " in done.stdout
    assert {role for _, role in re.findall(r"node (\d) \S+ (\w+)", done.stdout)} >= {"root", "leaf"}
    write_nodes(tmp_path, share=0.0001)
    done = planned(tmp_path, *command)
    print(f"refused: {done.stderr}")
    assert done.returncode == 1
    assert "which takes 6.03 MB, got 3.2 MB in 3 of them, 2.83 MB too little" in done.stderr
    assert "MB are missing there" in done.stderr


def test_parts_follow_the_memory_of_workers(tmp_path: Path) -> None:
    done = planned(tmp_path, str(EXAMPLES / "residual.py"), "--memory", "2,1")
    assert done.returncode == 0, done.stderr
    root, leaf = (int(number) for number in re.findall(r"(\d+) parameters, ", done.stdout))
    print(f"parts of {root} and {leaf} parameters: {root / leaf:.2f} to 1")
    assert 1.8 < root / leaf < 2.2

"""Plans of split models, with the file that names the nodes as it is known."""

import json
import re
import subprocess
from pathlib import Path

import pytest

from tests.acceptance.programs import EXAMPLES, FEDLEARN

pytest.importorskip("torch")
pytest.importorskip("sklearn")

NODES = {
    "0": {"IP": "127.0.0.1:56301", "benchmarks": {"ram": 8, "bandwidth": 20}},
    "1": {"IP": "127.0.0.1:56302", "benchmarks": {"ram": 16, "bandwidth": 10}},
    "2": {"IP": "127.0.0.1:56303", "benchmarks": {"ram": 8, "bandwidth": 10}},
}


def planned(folder: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    command = [*FEDLEARN, "plan", *arguments]
    return subprocess.run(command, cwd=folder, capture_output=True, text=True, check=False, timeout=60)


def write_nodes(folder: Path, *, ram: float) -> None:
    """All nodes have that share of their RAM."""
    nodes = {
        name: {"IP": node["IP"], "benchmarks": {**node["benchmarks"], "ram": ram * node["benchmarks"]["ram"]}}
        for name, node in NODES.items()
    }
    (folder / "node_configs.json").write_text(json.dumps(nodes, indent=2))


def test_clusters_and_roles_follow_the_nodes_and_too_little_memory_is_refused_with_the_gap(tmp_path: Path) -> None:
    command = (str(EXAMPLES / "cnn.py"), "--nodes", "node_configs.json")
    write_nodes(tmp_path, ram=1.0)
    done = planned(tmp_path, *command)
    assert done.returncode == 0, done.stderr
    assert re.findall(r"node (\d) \(127\.0\.0\.1:5630\d\) (\w+)", done.stdout) == [
        ("0", "whole"), ("1", "whole"), ("2", "whole"),
    ]  # fmt: skip
    write_nodes(tmp_path, ram=0.0004)
    done = planned(tmp_path, *command)
    assert done.returncode == 0, done.stderr
    assert {role for _, role in re.findall(r"node (\d) \S+ (\w+)", done.stdout)} >= {"root", "leaf"}
    write_nodes(tmp_path, ram=0.0001)
    done = planned(tmp_path, *command)
    print(f"refused: {done.stderr}")
    assert done.returncode == 1
    assert "which takes 4.98 MB, got 3.2 MB in 3 of them, 1.78 MB too little" in done.stderr
    assert "MB are missing there" in done.stderr


def test_parts_follow_the_memory_of_workers(tmp_path: Path) -> None:
    done = planned(tmp_path, str(EXAMPLES / "residual.py"), "--memory", "2,1")
    assert done.returncode == 0, done.stderr
    root, leaf = (int(number) for number in re.findall(r"(\d+) parameters, ", done.stdout))
    print(f"parts of {root} and {leaf} parameters: {root / leaf:.2f} to 1")
    assert 1.8 < root / leaf < 2.2

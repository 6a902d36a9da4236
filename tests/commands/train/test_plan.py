"""`fedlearn plan`: what is printed of a plan, and what is refused."""

import json
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from fedlearn.commands.command_line import main

pytest.importorskip("torch")

EXAMPLES = Path(__file__).parents[3] / "examples"
RESIDUAL = str(EXAMPLES / "residual.py")
SMALL = [("0", 0.003, 20.0), ("1", 0.005, 10.0), ("2", 0.0005, 10.0)]
"""GB and Mbps: two of them hold the model, and the third has no use."""

Plan = Callable[..., str]


@pytest.fixture
def plan(capsys: pytest.CaptureFixture[str]) -> Plan:
    def run(*arguments: str, code: int = 0) -> str:
        with pytest.raises(SystemExit) as ended:
            main(["plan", *arguments])
        shown = capsys.readouterr()
        assert ended.value.code == code, shown.err
        return shown.err if code else shown.out

    return run


def nodes_file(folder: Path, nodes: list[tuple[str, float, float]]) -> str:
    entries = {
        name: {"IP": f"127.0.0.1:{number}", "benchmarks": {"ram": ram, "bandwidth": bandwidth}}
        for number, (name, ram, bandwidth) in enumerate(nodes, start=5000)
    }
    (folder / "node_configs.json").write_text(json.dumps(entries))
    return str(folder / "node_configs.json")


def test_parts_follow_the_memory_that_is_given(plan: Plan) -> None:
    shown = plan(RESIDUAL, "--memory", "2,1")
    root, leaf = (int(number) for number in re.findall(r"(\d+) parameters, ", shown))
    assert root / leaf == pytest.approx(2.0, rel=0.1)
    assert "node 0 root: first.weight to layers.3.bias" in shown
    assert "cut after layers.3.bias, before layers.4.weight" in shown
    assert "sends 32.8 kB a member" in shown, "the layer's result, and the one that is added later"
    assert "greedy" not in shown, "one crew in an order that was given"


def test_plan_names_nodes_roles_cuts_and_who_is_idle(plan: Plan, tmp_path: Path) -> None:
    shown = plan(f"{EXAMPLES / 'cnn.py'}:task", "--nodes", nodes_file(tmp_path, SMALL))
    assert "cluster 0: 2 nodes, " in shown
    assert "node 1 (127.0.0.1:5001) root: 0.weight to 2.bias, 4800 parameters, 4.42 MB of 0.005 GB" in shown
    assert "node 0 (127.0.0.1:5000) leaf: 5.weight to 7.bias" in shown
    assert "cut after 2.bias, before 5.weight" in shown
    assert "idle: node 2" in shown
    assert "the nodes' speed was not measured" in shown
    assert "by a greedy rule" in shown


def test_nodes_that_can_hold_all_of_it_are_clusters_of_one(plan: Plan, tmp_path: Path) -> None:
    shown = plan(str(EXAMPLES / "cnn.py"), "--nodes", nodes_file(tmp_path, [("0", 8, 20), ("1", 16, 10), ("2", 8, 10)]))
    assert re.findall(r"node (\d) \S+ (\w+)", shown) == [("0", "whole"), ("1", "whole"), ("2", "whole")]
    assert "in 3 clusters" in shown


def test_plan_as_json_has_the_same(plan: Plan, tmp_path: Path) -> None:
    found: dict[str, Any] = json.loads(plan(str(EXAMPLES / "cnn.py"), "--nodes", nodes_file(tmp_path, SMALL), "--json"))
    (cluster,) = found["clusters"]
    root, leaf = cluster["nodes"]
    assert [seat["role"] for seat in (root, leaf)] == ["root", "leaf"]
    assert root["sent_bytes"] == leaf["received_bytes"] == 64 * 512 * 4, "rows x width of float32"
    assert root["tensors"] == ["0.weight", "0.bias", "2.weight", "2.bias"]
    assert (leaf["node"], leaf["IP"], leaf["parameters"]) == ("0", "127.0.0.1:5000", 33482)
    assert leaf["memory_bytes"] == 48 * 33482 + 8 * (131072 + 16384)
    assert cluster["seconds"] == pytest.approx(131072 / 1.25e6 + 0.33, rel=1e-2)
    assert cluster["cuts"] == [{"after": "2.bias", "before": "5.weight"}]
    assert found["idle"] == ["2"]


def test_too_little_memory_is_refused_with_what_is_missing(plan: Plan, tmp_path: Path) -> None:
    file = nodes_file(tmp_path, [("0", 0.001, 20.0), ("1", 0.002, 10.0)])
    said = plan(str(EXAMPLES / "cnn.py"), "--nodes", file, code=1)
    assert "which takes 6.03 MB, got 3 MB in 2 of them, 3.03 MB too little" in said
    assert re.search(r"node 1 with 2 MB holds 0.weight to 2.bias, .*: 2.42 MB are missing there", said)


@pytest.mark.parametrize(
    ("arguments", "expected"),
    [
        ([str(EXAMPLES / "valley.py"), "--memory", "2,1"], "expected a task of a PyTorch module, which can be cut"),
        ([RESIDUAL, "--memory", "2,x"], "--memory: expected numbers of GB such as 2,1, got '2,x'"),
        ([RESIDUAL, "--memory", "2,-1"], "--memory: expected numbers of GB"),
        ([RESIDUAL, "--memory", "1," * 8 + "1"], "expected at most 8 for one crew of this model, got 9"),
        (["absent.py", "--memory", "1"], "expected a Python file, got 'absent.py'"),
    ],
)
def test_what_can_not_be_planned_is_said(plan: Plan, arguments: list[str], expected: str) -> None:
    assert expected in plan(*arguments, code=1)


UNEXPORTABLE = """
import numpy as np
import torch
from torch import nn
import fedlearn

class Spectrum(nn.Linear):
    def forward(self, x):
        return torch.histc(super().forward(x), bins=4)

task = fedlearn.supervised(
    lambda: Spectrum(4, 4),
    lambda model, rows: model(rows["x"]).mean(),
    {"x": np.ones((8, 4), np.float32)},
    batch_size=4,
)
"""


def test_the_operator_that_keeps_a_model_from_being_cut_is_named_and_what_helps(plan: Plan, tmp_path: Path) -> None:
    (tmp_path / "whole.py").write_text(UNEXPORTABLE)
    said = plan(str(tmp_path / "whole.py"), "--memory", "2,1", code=1)
    assert "expected a model that can be cut: aten.histc.default (whole.py:9: return torch.histc(" in said
    assert "compose it of those, or, where each volunteer can hold the whole model, share nothing" in said


def test_nodes_or_memory_must_be_given(plan: Plan) -> None:
    assert "expected one of --nodes, --memory, got none" in plan(RESIDUAL, code=2)

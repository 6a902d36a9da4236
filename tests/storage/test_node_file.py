"""Files of nodes: what is read, and what is said of those that are none."""

import json
from pathlib import Path

import pytest

from fedlearn.storage.node_file import GFLOPS_PER_GB, Node, machines_of, read_nodes

GOOD = {
    "0": {"IP": "127.0.0.1:56301", "benchmarks": {"ram": 8, "bandwidth": 20}},
    "1": {"IP": "127.0.0.1:56302", "benchmarks": {"ram": 16, "bandwidth": 10, "gflops": 50.5}},
}
OF = '{"a": {"benchmarks": %s}}'


def written(path: Path, text: str) -> Path:
    file = path / "node_configs.json"
    file.write_text(text)
    return file


def test_nodes_are_read_in_their_order(tmp_path: Path) -> None:
    assert read_nodes(written(tmp_path, json.dumps(GOOD))) == [
        Node("0", "127.0.0.1:56301", 8.0, 20.0),
        Node("1", "127.0.0.1:56302", 16.0, 10.0, 50.5),
    ]


def test_gigabytes_and_megabits_become_bytes_and_gflops_multiply_adds() -> None:
    (machine,) = machines_of([Node("a", "", 8.0, 20.0, 30.0)])
    assert (machine.name, machine.memory_bytes, machine.line_bytes_per_s) == ("a", 8e9, 2.5e6)
    assert machine.multiply_adds_per_s == 15e9


def test_speed_that_nobody_measured_is_in_proportion_to_memory() -> None:
    unmeasured = [Node("a", "", 8.0, 1.0), Node("b", "", 2.0, 1.0)]
    assert [machine.multiply_adds_per_s for machine in machines_of(unmeasured)] == [
        8 * GFLOPS_PER_GB * 1e9 / 2,
        2 * GFLOPS_PER_GB * 1e9 / 2,
    ]
    some = [Node("a", "", 4.0, 1.0, 30.0), Node("b", "", 2.0, 1.0, 30.0), Node("c", "", 3.0, 1.0)]
    assert [machine.multiply_adds_per_s for machine in machines_of(some)] == [15e9, 15e9, 15e9]


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("{", "expected JSON of nodes by their names"),
        ("[]", "expected at least one node by its name"),
        ("{}", "expected at least one node by its name"),
        ('{"0": 1, "0": 2}', "expected names that differ, got 0 twice"),
        ('{"0": []}', "node 0: benchmarks: expected "),
        ('{"0": {"IP": "a:1"}}', "node 0: benchmarks: expected "),
        ('{"0": {"IP": 5, "benchmarks": {"ram": 1, "bandwidth": 1}}}', "node 0: IP: expected a text such as HOST:PORT"),
        (OF % '{"bandwidth": 1}', "node a: ram: expected a number of GB, got none"),
        (OF % '{"ram": 1}', "node a: bandwidth: expected a number of Mbps, got none"),
        (OF % '{"ram": "8", "bandwidth": 1}', "node a: ram: expected a number of GB above 0, got '8'"),
        (OF % '{"ram": 0, "bandwidth": 1}', "node a: ram: expected a number of GB above 0, got 0"),
        (OF % '{"ram": true, "bandwidth": 1}', "node a: ram: expected a number of GB above 0, got True"),
        (OF % '{"ram": 8, "bandwidth": NaN}', "node a: bandwidth: expected a number of Mbps above 0"),
        (OF % '{"ram": 8, "bandwidth": 1, "gflop": 1}', "ram, bandwidth, gflops and no other keys, got gflop"),
        (OF % '{"ram": 8, "bandwidth": 1, "gflops": -1}', "node a: gflops: expected a number of GFLOPS"),
    ],
)  # fmt: skip
def test_other_file_is_told_where_it_is_wrong(tmp_path: Path, text: str, expected: str) -> None:
    file = written(tmp_path, text)
    with pytest.raises(ValueError, match="expected") as raised:
        read_nodes(file)
    assert str(raised.value).startswith(f"{file}: ")
    assert expected in str(raised.value)


def test_file_that_is_not_there_is_named(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match=r"absent\.json: expected a readable JSON file of nodes"):
        read_nodes(tmp_path / "absent.json")

"""Gangs and launched volunteers on several hosts, which are network namespaces: nothing goes over loopback."""

import re
import signal
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.acceptance.hosts import Host, hosts, skip_without_namespaces
from tests.acceptance.programs import EXAMPLES, FEDLEARN, STEPS_OF_A_THIRD_S, TORCHRUN, VALLEY, begin
from tests.end_to_end.processes import ended_at_exit, final_digest, metrics_of, output_of, wait_for
from tests.patience import LIMIT_S

skip_without_namespaces()

N_STEPS = 50
"""Which take longer than a rank waits before it asks again for a server that was not there yet."""


@pytest.fixture
def three() -> Iterator[list[Host]]:
    with hosts(3) as made:
        yield made


def test_ranks_of_srun_meet_on_the_first_of_its_nodes(three: list[Host], tmp_path: Path) -> None:
    gang = {"SLURM_NTASKS": "3", "SLURM_NNODES": "3", "SLURM_JOB_NODELIST": "10.77.0.[1-3]"}
    command = (*FEDLEARN, "rank", VALLEY, "--steps", str(N_STEPS), "--threads", "1", *STEPS_OF_A_THIRD_S)
    ranks = [
        begin(*host(*command), folder=tmp_path, environ=gang | {"SLURM_PROCID": str(rank)})
        for rank, host in enumerate(three)
    ]
    with ended_at_exit(*ranks):
        digests = {final_digest(rank) for rank in ranks[1:]}
        said = output_of(ranks[0]).read()
        assert ranks[0].wait(LIMIT_S) == 0, said
    assert "rank-1 joined" in said
    assert "rank-2 joined" in said
    assert len(digests) == 1
    assert len(metrics_of(tmp_path)) == N_STEPS
    print(f"{N_STEPS} steps over three hosts, one digest")


def test_volunteers_launched_on_two_hosts_join_by_the_line_that_the_server_prints(
    three: list[Host], tmp_path: Path
) -> None:
    first, *others = three
    flags = ("--host", "0.0.0.0", "--public-host", first.address, "--port", "55571", "--volunteers", "0")
    command = (*FEDLEARN, "serve", "--task", VALLEY, *flags, "--steps", "100000", *STEPS_OF_A_THIRD_S)
    server = begin(*first(*command), folder=tmp_path)
    with ended_at_exit(server):
        line, _ = wait_for(server, r"(fedlearn://\S+)")
        assert line.startswith(f"fedlearn://{first.address}:55571/")
        order = ("launch", "local", "--count", "2", "--server", line, "--", "--task", VALLEY)
        launched = []
        for number, host in enumerate(others):
            (folder := tmp_path / str(number)).mkdir()
            launched.append(begin(*host(*FEDLEARN, *order), folder=folder))
        with ended_at_exit(*launched):
            wait_for(server, r"step +\d+ .* 4 volunteers")
            for process in (*launched, server):
                process.send_signal(signal.SIGINT)
            assert [process.wait(LIMIT_S) for process in launched] == [0, 0]
            assert server.wait(LIMIT_S) == 0
    print(f"four volunteers of two hosts at {line}")


@pytest.mark.long
def test_torchrun_on_three_hosts_splits_a_model_over_them(three: list[Host], tmp_path: Path) -> None:
    pytest.importorskip("torch")
    pytest.importorskip("sklearn")
    flags = ("--gpu=0_0_0", "--epochs=2", "--batch_size=800", "--lr=0.001", "--model_name=ppl_04", "--seats=3")
    paths = {"PYTHONPATH": str(EXAMPLES.parent), "OMP_NUM_THREADS": "1", "GLOO_SOCKET_IFNAME": "eth0"}
    nodes = []
    for rank, host in enumerate(three):
        options = ("--nnodes=3", "--nproc_per_node=1", f"--node_rank={rank}")
        master = (f"--master_addr={three[0].address}", "--master_port=9999")
        command = (*TORCHRUN, *options, *master, str(EXAMPLES / "ppl.py"), *flags)
        nodes.append(begin(*host(*command), folder=tmp_path, limit_s=400, environ=paths))
    with ended_at_exit(*nodes):
        said = output_of(nodes[0]).read()
        assert [node.wait(LIMIT_S) for node in nodes] == [0, 0, 0], said
    crew = re.findall(r"crew 1 \((.+)\) joined", said)
    assert [sorted(names.split(", ")) for names in crew] == [["local-1", "rank-1", "rank-2"]]
    assert re.findall(r"epoch (\d+): loss", said) == ["1", "2"]
    assert (tmp_path / "ppl_04.safetensors").exists()

"""Volunteers that are started by many hands, and come back when they are killed."""

import json
import re
import signal
import time
from pathlib import Path

import psutil
import pytest

from tests.acceptance.programs import EXAMPLES, FEDLEARN, STEPS_OF_A_THIRD_S, TORCHRUN, VALLEY, begin, begin_anew, below
from tests.acceptance.slurm import skip_without_slurm, slurm_in
from tests.end_to_end.processes import (
    ended_at_exit,
    fedlearn,
    final_digest,
    free_port,
    metrics_of,
    output_of,
    wait_for,
)
from tests.patience import LIMIT_S


def test_killed_local_volunteer_comes_back_and_ctrl_c_ends_all(tmp_path: Path) -> None:
    flags = ("--port", "0", "--volunteers", "0", "--steps", "100000", *STEPS_OF_A_THIRD_S)
    server = begin(*FEDLEARN, "serve", "--task", VALLEY, *flags, folder=tmp_path)
    with ended_at_exit(server):
        port, _ = wait_for(server, r"listening on 127\.0\.0\.1:(\d+)")
        order = ("--count", "2", "--server", f"127.0.0.1:{port}", "--", "--task", VALLEY)
        launched = begin_anew(*FEDLEARN, "launch", "local", *order, folder=tmp_path)
        with ended_at_exit(launched):
            pid, _ = wait_for(launched, r"local-1 is process (\d+)")
            wait_for(server, "local-1 joined")
            killed = psutil.Process(int(pid))
            killed.kill()
            begun = time.monotonic()
            wait_for(server, "local-1 joined")
            print(f"a killed volunteer is back after {time.monotonic() - begun:.1f} s")
            children = psutil.Process(launched.pid).children()
            launched.send_signal(signal.SIGINT)
            assert launched.wait(LIMIT_S) == 0, output_of(launched).read()
            assert len(children) == 2
            assert not any(child.is_running() for child in children)


def test_processes_of_srun_are_a_server_and_its_volunteers(tmp_path: Path) -> None:
    port = str(free_port())
    gang = {"SLURM_NTASKS": "3", "SLURM_NNODES": "1", "SLURM_JOB_NODELIST": "localhost"}
    command = (*FEDLEARN, "rank", VALLEY, "--port", port, "--threads", "1", *STEPS_OF_A_THIRD_S)
    ranks = [begin(*command, folder=tmp_path, environ=gang | {"SLURM_PROCID": str(rank)}) for rank in range(3)]
    with ended_at_exit(*ranks):
        wait_for(ranks[0], r"^step .* 2 volunteers")
        assert "steps are done" in fedlearn("finish", "1", folder=tmp_path)
        digests = {final_digest(rank) for rank in ranks[1:]}
        assert ranks[0].wait(LIMIT_S) == 0
    assert digests == {metrics_of(tmp_path)[-1]["digest"]}


@pytest.mark.long
def test_slurm_starts_ranks_and_an_array_of_volunteers(tmp_path: Path) -> None:
    skip_without_slurm()
    flags = ("--threads", "1", "--steps", "60", *STEPS_OF_A_THIRD_S)
    with slurm_in(tmp_path / "slurm") as environ:
        srun = ("srun", "--ntasks=3", *FEDLEARN, "rank", VALLEY, *flags)
        ranks = begin_anew(*srun, folder=tmp_path, environ=environ)
        with ended_at_exit(ranks):
            said = output_of(ranks).read()
            assert ranks.wait() == 0, said
        assert set(re.findall(r"this machine took .* with digest (\w+)", said)) == {metrics_of(tmp_path)[-1]["digest"]}
        assert "2 volunteers" in said

        server = begin(
            *FEDLEARN, "serve", "--task", VALLEY, "--port", "0", "--volunteers", "0", *flags, folder=tmp_path
        )
        with ended_at_exit(server):
            port, _ = wait_for(server, r"listening on 127\.0\.0\.1:(\d+)")
            order = ("--count", "2", "--server", f"127.0.0.1:{port}", "--memory", "1GB", "--", "--task", VALLEY)
            (tmp_path / "array.sh").write_text(fedlearn("launch", "slurm", *order, folder=tmp_path))
            sent = begin_anew("sbatch", "array.sh", folder=tmp_path, environ=environ)
            with ended_at_exit(sent):
                assert sent.wait() == 0, output_of(sent).read()
            joined = {wait_for(server, r"(slurm-\S+) joined")[0] for _ in range(2)}
            wait_for(server, "all 60 steps are done")
            assert server.wait(LIMIT_S) == 0
    assert len(joined) == 2


@pytest.mark.long
def test_gang_of_torchrun_goes_on_with_its_run_when_a_rank_is_killed(tmp_path: Path) -> None:
    pytest.importorskip("torch")
    n_steps = 40
    flags = ("--steps", str(n_steps), "--port", str(free_port()), *STEPS_OF_A_THIRD_S, "--checkpoint-time", "1")
    options = ("--nproc-per-node=3", "--max-restarts=3", f"--master-port={free_port()}")
    gang = begin(*TORCHRUN, *options, "-m", "fedlearn", "rank", VALLEY, *flags, folder=tmp_path, limit_s=150)
    with ended_at_exit(gang):
        wait_for(gang, r"step +\d+ .* 2 volunteers")
        volunteers = [child for child in below(gang, lambda words: "rank" in words) if child.environ()["RANK"] == "2"]
        volunteers[0].kill()
        _, read = wait_for(gang, r"from step [1-9]\d*$")
        assert gang.wait(LIMIT_S) == 0, read + output_of(gang).read()
    steps = [line["step"] for line in metrics_of(tmp_path)]
    print(f"{len(steps)} steps of one run, over two gangs")
    assert steps == list(range(n_steps))


@pytest.mark.long
def test_killed_actor_of_ray_comes_back_and_the_run_completes(tmp_path: Path) -> None:
    pytest.importorskip("ray")
    pytest.importorskip("torch")
    task = f"{EXAMPLES / 'residual.py'}:task"
    flags = ("--port", "0", "--volunteers", "0", "--duration", "120", "--population-limit", "512")
    limit_s = 400.0
    server = begin(*FEDLEARN, "serve", "--task", task, *flags, folder=tmp_path, limit_s=limit_s)
    with ended_at_exit(server):
        port, _ = wait_for(server, r"listening on 127\.0\.0\.1:(\d+)")
        order = ("--count", "3", "--server", f"127.0.0.1:{port}")
        begun = time.monotonic()
        launched = begin_anew(*FEDLEARN, "launch", "ray", *order, folder=tmp_path, limit_s=limit_s)
        with ended_at_exit(launched):
            wait_for(server, r"step +\d+ .* 3 volunteers")
            up_s = time.monotonic() - begun
            actors = below(launched, lambda words: words[:1] == ["ray::VolunteerActor.work"])
            assert len(actors) == 3
            actors[1].kill()
            begun = time.monotonic()
            wait_for(server, "ray-. joined")
            back_s = time.monotonic() - begun
            wait_for(server, r"step +\d+ .* 3 volunteers")
            wait_for(server, "try next: ")
            assert server.wait(LIMIT_S) == 0
            assert launched.wait(LIMIT_S) == 0, output_of(launched).read()
    counts = [json.dumps(line["volunteers"]) for line in metrics_of(tmp_path)]
    print(f"three actors in {up_s:.0f} s, a killed one back after {back_s:.0f} s; steps by volunteers: ", end="")
    print({count: counts.count(count) for count in sorted(set(counts))})
    assert counts[-1] == "3"

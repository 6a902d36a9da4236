"""What a run's folder goes through: kills at any moment, disks that refuse, 100,000 steps."""

import random
import re
import resource
import shutil
import subprocess
import sys
import time
from pathlib import Path

import msgspec
import pytest

from fedlearn.runs.run import find
from fedlearn.server.training.trainer import Trainer
from fedlearn.storage.checkpoint import checkpoint_at, read_checkpoint, write_checkpoint
from fedlearn.storage.journal.journal import Journal, read_records, stretches_of
from fedlearn.storage.journal.segment import Header, segments_in
from fedlearn.storage.logs.metrics import read_last_metrics
from tests.end_to_end.processes import ended_at_exit, fedlearn, output_of, start, wait_for
from tests.patience import LIMIT_S
from tests.run_folders import created, fit_task, reopened, rnn_config, task_config, update_of, write_text

SMALL = ["--hidden-size", "8", "--context", "4", "--sequence-length", "8", "--population-limit", "64"]
SMALL += ["--group-size", "8", "--sigma", "0.02", "--learning-rate", "0.02", "--time-per-step", "10"]
STARTED = ["--port", "0", "--threads", "1"]
SMALL += ["--data", "corpus.txt", "--sample-time", "0", *STARTED]
"""A run of some hundred steps a second."""

BUSY = ["--keep-journal", "64KB", "--checkpoint-time", "0.2"]
"""Segments change and checkpoints are saved all the time."""


def serving(folder: Path, *arguments: str) -> "subprocess.Popen[str]":
    if not (folder / "corpus.txt").exists():
        write_text(folder / "corpus.txt")
    return start("server.py", *arguments, folder=folder)


def recorded(folder: Path) -> dict[int, bytes]:
    """The steps in the run's journal, each with its digest and its Update."""
    journal = folder / "trainingRuns/1/journal"
    problems: list[str] = []
    (stretch,) = stretches_of(journal, problems)
    assert all("are an incomplete step" in problem or "at its start" in problem for problem in problems)
    return {record.step: record.digest + record.encoded for record in read_records(journal, start=stretch.first)}


@pytest.mark.parametrize("n_kills", [5, pytest.param(50, marks=pytest.mark.long)])
def test_server_that_is_killed_at_any_moment_loses_no_step(tmp_path: Path, n_kills: int) -> None:
    choices, n_lost = random.Random(7), 0
    before: dict[int, bytes] = {}
    arguments = [*SMALL, *BUSY]
    for _ in range(n_kills):
        server = serving(tmp_path, *arguments)
        with ended_at_exit(server):
            _, said = wait_for(server, r"^step +\d+")
            assert "set aside" not in said
            time.sleep(choices.uniform(0.0, 0.5))  # so long it trains
            server.kill()
            server.wait()
        after = recorded(tmp_path)
        begun = int(re.findall(r"from step (\d+)", f"from step 0 {said}")[-1])
        n_lost += max(max(before, default=-1) + 1 - begun, 0)
        n_lost += sum(after[step] != before[step] for step in after.keys() & before.keys())
        before, arguments = after, ["--resume", "1", *STARTED]
    whole = serving(tmp_path, *arguments, "--steps", str(max(before) + 10))  # what the last kill tore is cut
    with ended_at_exit(whole):
        assert whole.communicate(timeout=LIMIT_S)[0].count("steps are done")
    fedlearn("eval", "1", folder=tmp_path)
    fedlearn("check", "1", folder=tmp_path)
    assert n_lost == 0


def test_server_whose_disk_is_full_says_so_and_goes_on_when_there_is_room(tmp_path: Path) -> None:
    server = serving(tmp_path, *SMALL, "--checkpoint-time", "1000")
    with ended_at_exit(server):
        wait_for(server, r"^step +\d+")
        limit = 2 * (tmp_path / "trainingRuns/1/journal/000000000000").stat().st_size
        resource.prlimit(server.pid, resource.RLIMIT_FSIZE, (limit, resource.RLIM_INFINITY))
        said = output_of(server).read()
        assert server.wait(timeout=LIMIT_S) == 1
    assert "Traceback" not in said
    assert re.search(
        r"^server\.py: .*(?:metrics\.jsonl|journal/\d+): .*could not be written: File too large; .*make room",
        said,
        re.MULTILINE,
    )
    steps = recorded(tmp_path)
    resumed = serving(tmp_path, "--resume", "1", *STARTED, "--steps", str(max(steps) + 20))
    with ended_at_exit(resumed):
        _, said = wait_for(resumed, r"steps are done")
        assert resumed.wait(timeout=LIMIT_S) == 0
    assert f"from step {max(steps) + 1}" in said
    assert {step: content for step, content in recorded(tmp_path).items() if step in steps} == steps
    assert "equal to" in fedlearn("replay", "1", folder=tmp_path)


@pytest.mark.skipif(shutil.which("unshare") is None, reason="needs unshare, to mount a folder read-only")
def test_run_in_a_read_only_folder_is_looked_at_and_not_resumed(tmp_path: Path) -> None:
    run = created(rnn_config(tmp_path))
    trainer, _ = Trainer.open(run)
    for step in range(5):
        trainer.append(update_of(run, step))
        trainer.apply(update_of(run, step))
    trainer.save_checkpoint()
    trainer.close()
    runs = run.folder.path.parent

    def in_read_only(*command: str) -> "subprocess.CompletedProcess[str]":
        script = f"mount --bind -o ro {runs} {runs} && exec {' '.join(command)}"
        return subprocess.run(
            ["unshare", "--mount", "--map-root-user", "sh", "-c", script], capture_output=True, text=True, check=False
        )

    if in_read_only("true").returncode != 0:
        pytest.skip("may not mount here")
    python = f"{sys.executable} -m fedlearn"
    assert "all files are complete and belong together" in in_read_only(python, "check 1 --runs", str(runs)).stdout
    assert "equal to" in in_read_only(python, "replay 1 --runs", str(runs)).stdout
    assert "run 1, step 5: " in in_read_only(python, "eval 1 --runs", str(runs)).stdout
    for verb in ("rollback 1 2", "serve --port 0 --resume 1"):
        done = in_read_only(python, verb, "--runs", str(runs))
        assert done.returncode == 1
        assert "Traceback" not in done.stderr
        assert re.fullmatch(r"fedlearn: .*/lock: could not be written: Read-only file system; .*\n", done.stderr)
    assert reopened(run).config.run.step_num == 5


def test_run_of_100000_steps_is_resumed_in_two_seconds(tmp_path: Path) -> None:
    run = created(task_config(tmp_path), fit_task(), keep_journal="all")
    n_steps, n_behind, genesis = 100_000, 300, read_checkpoint(run.folder.genesis)
    few = update_of(run, 0)
    many = msgspec.structs.replace(few, spans=((0, 640),), utilities=few.utilities.repeat(40))
    with Journal.open(run.folder.journal, Header(run.origin.identity, 0, bytes(8))) as journal:
        for step in range(n_steps - n_behind):
            journal.append(msgspec.structs.replace(many, step=step), bytes(8))
    snapshot = msgspec.structs.replace(genesis.snapshot, step=n_steps - n_behind)
    context = run.context(step=snapshot.step)
    write_checkpoint(checkpoint_at(run.folder, snapshot.step), snapshot, update_of(run, snapshot.step - 1), context)
    trainer, _ = Trainer.open(run)
    for step in range(n_steps - n_behind, n_steps):
        trainer.append(update_of(run, step))
        trainer.apply(update_of(run, step))
    trainer.close()
    size = sum(path.stat().st_size for path in segments_in(run.folder.journal))
    again, notices = Trainer.open(find(run.config.run.runs, "1"))
    again.close()
    print(f"{n_steps} steps, {size / 1e6:.0f} MB of journal, {n_behind} behind the checkpoint")
    assert (again.replica.step, again.replica.digest, notices) == (n_steps, trainer.replica.digest, [])
    assert read_last_metrics(run.folder.metrics) == []

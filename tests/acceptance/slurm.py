"""A Slurm of this machine alone: its controller, its node and the keeper of its key, as processes of a test's."""

import getpass
import os
import shutil
import socket
import subprocess
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

import pytest

from tests.end_to_end.processes import free_port
from tests.patience import until

PATH = f"{os.environ['PATH']}:/usr/sbin"
"""Daemons lie in a folder that not everybody looks into."""

NAME = socket.gethostname().partition(".")[0]
SETTINGS = """
ClusterName=one
SlurmctldHost={name}(127.0.0.1)
SlurmctldPort={controller_port}
SlurmdPort={node_port}
SlurmUser={user}
SlurmdUser={user}
AuthInfo=socket={folder}/munge
StateSaveLocation={folder}
SlurmdSpoolDir={folder}/spool
SlurmctldPidFile={folder}/slurmctld.pid
SlurmdPidFile={folder}/slurmd.pid
SlurmdParameters=config_overrides
ProctrackType=proctrack/linuxproc
TaskPlugin=task/none
MpiDefault=none
SelectType=select/cons_tres
SelectTypeParameters=CR_CPU_Memory
NodeName={name} NodeAddr=127.0.0.1 CPUs=8 RealMemory=4000
PartitionName=all Nodes=ALL Default=YES
"""


def skip_without_slurm() -> None:
    """Skips a test where one of its programs is not installed."""
    for program in ("munged", "slurmctld", "slurmd", "srun", "sbatch"):
        if shutil.which(program, path=PATH) is None:
            pytest.skip(f"{program} is not installed: apt-get install slurm-wlm")


@contextmanager
def slurm_in(folder: Path) -> Iterator[dict[str, str]]:
    """The environment in which `srun` and `sbatch` find it, once its node is idle."""
    folder.mkdir()
    (folder / "key").write_bytes(os.urandom(64))
    (folder / "key").chmod(0o600)
    settings = folder / "slurm.conf"
    settings.write_text(
        SETTINGS.format(
            folder=folder, name=NAME, user=getpass.getuser(), controller_port=free_port(), node_port=free_port()
        )
    )
    environ = os.environ | {"SLURM_CONF": str(settings), "PATH": PATH}
    files = [f"--{what}-file={folder / what}" for what in ("key", "log", "pid", "seed")]
    daemons = (
        ("munged", "--foreground", "--force", f"--socket={folder / 'munge'}", *files),
        ("slurmctld", "-D"),
        ("slurmd", "-D"),
    )
    with ExitStack() as running:
        for command in daemons:
            said = running.enter_context(open(folder / f"{command[0]}.log", "w"))
            daemon = running.enter_context(subprocess.Popen(command, env=environ, stdout=said, stderr=said))
            running.callback(daemon.terminate)

        def told(*command: str) -> bytes:
            return subprocess.run(command, env=environ, capture_output=True, check=False).stdout

        until(lambda: told("sinfo", "--noheader", "--format=%T") == b"idle\n")
        try:
            yield {"SLURM_CONF": str(settings)}
        finally:  # what keeps a job would wait for a controller that is gone
            told("scancel", f"--user={getpass.getuser()}")
            until(lambda: not told("squeue", "--noheader"))

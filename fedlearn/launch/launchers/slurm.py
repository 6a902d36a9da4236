"""A job array for Slurm: each job of it is a volunteer, started again when its machine fails.

Source: https://slurm.schedmd.com/sbatch.html
"""

import shlex
from typing import final

from fedlearn.launch.launcher import LENT, Launcher, Memory, mib_of
from fedlearn.system.processes import program

# Of the variable's value nothing is printed: scripts lie in shared folders.
_SCRIPT = """\
#!/bin/sh
#SBATCH --job-name=fedlearn
#SBATCH --array=1-{count}
#SBATCH --ntasks=1
#SBATCH --cpus-per-task={cpus}
{memory}#SBATCH --requeue
# Submit with: sbatch FILE. A server's token belongs into FEDLEARN_TOKEN there, which sbatch hands on.
exec {command} --name "slurm-$SLURM_ARRAY_JOB_ID-$SLURM_ARRAY_TASK_ID"
"""


@final
class Slurm(Launcher, frozen=True, kw_only=True):
    """Prints a job array for sbatch."""

    memory: Memory = ""

    def launch(self) -> int:
        print(job_array(self), end="")
        return 0


def job_array(order: Slurm) -> str:
    """The script."""
    memory = f"#SBATCH --mem={mib_of(order.memory)}M\n" if order.memory else ""
    command = shlex.join(program(order.join(*LENT)))
    return _SCRIPT.format(count=order.count, cpus=order.cpus, memory=memory, command=command)

"""The settings of a run apart from its strategy, and its state."""

from collections.abc import Callable

import msgspec

from fedlearn.es.layout import ParameterLayout
from fedlearn.tasks.invitation import Invitation


class RunPlan(msgspec.Struct, frozen=True):
    """The settings of a run apart from its strategy."""

    run: str
    invitation: Invitation
    layout: ParameterLayout
    blocks: tuple[bytes, ...]
    """Names of the blocks of data, used in turn; one empty name for a task without data."""
    steps_per_block: int
    """Steps after which the next block is used; 0: only the first block is used."""
    time_per_step: float
    checkpoint_time: float
    steps: int
    """The step at which the run ends; 0: never."""
    work_per_member: int = 1
    """Work of one trial, in the task's unit."""
    audit: float = 0.0
    """Share of the groups that are checked; 0: none."""
    max_share: float = 1.0
    """The largest share of a step that one identity or address is asked for."""
    duration_s: float = 0.0
    """Seconds of open steps after which the run ends; 0: never."""

    seats: int = 0
    """Volunteers that hold one replica together; 0: as many as are needed of those that lend too little for a whole
    one."""
    show: Callable[[float], tuple[str, float]] | None = None
    """Gives the name and the value by which people know a loss; None: the loss itself."""
    replica_bytes: int = 0
    """Memory that a whole replica takes, in bytes; 0: unknown."""
    undivided: str = ""
    """The flag that a server is started with so that several volunteers may hold one replica; empty where they may."""

    def is_seated(self, memory_bytes: int) -> bool:
        """Whether a volunteer that lends this memory holds a part of the replica; 0 is enough for any."""
        return self.seats > 0 or 0 < memory_bytes < self.replica_bytes

    def refusal(self, memory_bytes: int) -> str:
        """Why a volunteer that lends this memory can't take part; empty where it can, with others if not alone."""
        if not (self.undivided and self.is_seated(memory_bytes)):
            return ""
        return (
            f"memory: expected {self.replica_bytes / 1e6:.0f} MB or more, since each volunteer of this run holds the "
            f"whole model, got {memory_bytes / 1e6:.0f} MB; lend more with --max-memory, or have the server started "
            f"with {self.undivided}, so that several such machines hold it together"
        )

    def completion(self, step: int, elapsed_s: float) -> str:
        """The reason why the run is complete; empty where it is not."""
        if 0 < self.steps <= step:
            return f"all {self.steps} steps are done"
        if 0.0 < self.duration_s <= elapsed_s:
            return f"the {self.duration_s:g} s of training are over"
        return ""

    def block_of(self, step: int) -> bytes:
        """The block of data that a step is evaluated on."""
        turn = step // self.steps_per_block if self.steps_per_block else 0
        return self.blocks[turn % len(self.blocks)]


class Status(msgspec.Struct, frozen=True):
    """The state of a run."""

    step: int
    volunteers: int
    step_left_s: float
    """Seconds until the open step closes; 0 without one."""
    run_left_s: float
    """Seconds of training that are left; inf where the run has no `duration`."""

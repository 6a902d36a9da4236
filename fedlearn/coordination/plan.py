"""What a run wants, apart from its mathematics, and where it stands."""

import msgspec

from fedlearn.es.layout import ParameterLayout


class Plan(msgspec.Struct, frozen=True):
    """What a run wants, apart from its mathematics."""

    run: str
    seed: int
    model: dict[str, str | int | float]
    layout: ParameterLayout
    blocks: tuple[bytes, ...]
    """Names of the token blocks, used in turn."""
    new_tokens_interval: int
    time_per_step: float
    checkpoint_time: float
    steps: int
    """The step at which the run ends; 0: never."""
    duration_s: float = 0.0
    """Seconds of open steps after which the run ends; 0: never."""

    def completion(self, step: int, elapsed_s: float) -> str:
        """Why a run that stands here has nothing left to do; an empty text where it has."""
        if 0 < self.steps <= step:
            return f"all {self.steps} steps are done"
        if 0.0 < self.duration_s <= elapsed_s:
            return f"the {self.duration_s:g} s of training are over"
        return ""

    def block_of(self, step: int) -> bytes:
        """The token block that a step is evaluated on."""
        turn = step // self.new_tokens_interval if self.new_tokens_interval else 0
        return self.blocks[turn % len(self.blocks)]


class Status(msgspec.Struct, frozen=True):
    """Where the run stands."""

    step: int
    volunteers: int
    step_left_s: float
    """Until the open step closes, 0 without one."""
    run_left_s: float
    """Until the training time is over, inf where the run has no `duration`."""

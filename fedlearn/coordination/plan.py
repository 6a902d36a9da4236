"""What a run wants, apart from its mathematics, and where it stands."""

import msgspec


class Plan(msgspec.Struct, frozen=True):
    """What a run wants, apart from its mathematics."""

    run: str
    seed: int
    model: dict[str, str | int | float]
    n_parameters: int
    blocks: tuple[bytes, ...]
    """Names of the token blocks, used in turn."""
    new_tokens_interval: int
    time_per_step: float
    checkpoint_time: float
    steps: int
    """The step at which the run ends; 0: never."""

    def is_complete(self, step: int) -> bool:
        """Whether a replica at this step has nothing left to do."""
        return 0 < self.steps <= step

    def block_of(self, step: int) -> bytes:
        """The token block that a step is evaluated on."""
        turn = step // self.new_tokens_interval if self.new_tokens_interval else 0
        return self.blocks[turn % len(self.blocks)]


class Status(msgspec.Struct, frozen=True):
    """Where the run stands."""

    step: int
    volunteers: int
    time_left_s: float

"""The generators from which functions draw random numbers: PyTorch's, for the processor and for the trials' device."""

from collections.abc import Iterator
from contextlib import contextmanager

import torch
from torch import Tensor


def random_states(device: torch.device) -> list[Tensor]:
    """The states of the generators of the processor and of the device."""
    states = [torch.get_rng_state()]
    if device.type == "cuda":
        states.append(torch.cuda.get_rng_state(device))
    elif device.type == "mps":
        states.append(torch.mps.get_rng_state())
    return states


@contextmanager
def seeded(seed: int | None, device: torch.device) -> Iterator[None]:
    """Seeds the generators, and restores their states afterwards; None does neither."""
    if seed is None:
        yield
        return
    before = random_states(device)
    # `torch.manual_seed` also writes down who asked it, for each kind of device that is not there.
    torch.default_generator.manual_seed(seed)
    if device.type == "cuda":
        torch.cuda.manual_seed_all(seed)
    elif device.type == "mps":
        torch.mps.manual_seed(seed)
    try:
        yield
    finally:
        torch.set_rng_state(before[0])
        if device.type == "cuda":
            torch.cuda.set_rng_state(before[1], device)
        elif device.type == "mps":
            torch.mps.set_rng_state(before[1])

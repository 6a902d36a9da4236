"""The generators from which functions draw random numbers: PyTorch's, for the processor and for the trials' device, and
those that the modules of Python and NumPy keep."""

import random
from collections.abc import Iterator
from contextlib import contextmanager

import numpy as np
import torch
from numpy.random import mtrand
from torch import Tensor

_NUMPY_SEEDS = 2**32
"""The number of seeds that NumPy's own generator has."""

_spare: list[np.random.MT19937] = []
"""Generators that stand in for NumPy's, whose state takes long to copy; more than one where contexts are nested."""


def random_states(device: torch.device) -> tuple[object, ...]:
    """What is equal at two times if no generator was drawn from in between."""
    return *(state.numpy().tobytes() for state in _torch_states(device)), *states_outside_torch()


def states_outside_torch() -> tuple[object, ...]:
    """The same of the generators of Python and NumPy alone, whose numbers a graph can't draw."""
    kind, numbers, *further = np.random.get_state()
    return random.getstate(), kind, np.asarray(numbers).tobytes(), *further


@contextmanager
def seeded(seed: int | None, device: torch.device) -> Iterator[None]:
    """Seeds the generators, and restores their states afterwards; None does neither."""
    if seed is None:
        yield
        return
    before, of_python = _torch_states(device), random.getstate()
    # `torch.manual_seed` also writes down who asked it, for each kind of device that is not there.
    torch.default_generator.manual_seed(seed)
    if device.type == "cuda":
        torch.cuda.manual_seed_all(seed)
    elif device.type == "mps":
        torch.mps.manual_seed(seed)
    random.seed(seed)
    try:
        with _another_of_numpy():
            np.random.seed(seed % _NUMPY_SEEDS)
            yield
    finally:
        torch.set_rng_state(before[0])
        if device.type == "cuda":
            torch.cuda.set_rng_state(before[1], device)
        elif device.type == "mps":
            torch.mps.set_rng_state(before[1])
        random.setstate(of_python)


@contextmanager
def _another_of_numpy() -> Iterator[None]:
    """A context in which the functions of `numpy.random` draw from another generator."""
    before, own = mtrand.get_bit_generator(), _spare.pop() if _spare else np.random.MT19937()
    mtrand.set_bit_generator(own)
    try:
        yield
    finally:
        mtrand.set_bit_generator(before)
        _spare.append(own)


def _torch_states(device: torch.device) -> list[Tensor]:
    states = [torch.get_rng_state()]
    if device.type == "cuda":
        states.append(torch.cuda.get_rng_state(device))
    elif device.type == "mps":
        states.append(torch.mps.get_rng_state())
    return states

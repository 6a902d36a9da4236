"""Estimates what a run will send and keep before it starts, for volunteers that hold whole replicas.

It counts the messages of a step with their frames, and not the few percent that TLS and TCP add.
"""

import math

import msgspec
import numpy as np

from fedlearn.coordination.work.slices import MAX_SLICE_MEMBERS, SLICE_S
from fedlearn.es.digest import DIGEST_BYTES
from fedlearn.es.layout import ParameterLayout
from fedlearn.es.shaping import Shaping
from fedlearn.es.strategy import Population, Strategy, ask, members_wanted, sum_shaping, tell
from fedlearn.es.sums.estimate import NO_ESTIMATE, packed_bytes
from fedlearn.es.sums.exchange import SUM_SLICE_S, likely_bytes
from fedlearn.es.sums.moments import moments_bytes
from fedlearn.storage.journal.segment import encode_step
from fedlearn.tasks.reason import Reason
from fedlearn.terminal.figures import format_bytes
from fedlearn.wire.encoding.codec import encode
from fedlearn.wire.encoding.frames import HEADER_BYTES, n_chunks
from fedlearn.wire.messages import Assignment, Result

_STEP = 10_000
"""A step number of usual length."""
_BLOCK = bytes(16)
_DIGEST = bytes(DIGEST_BYTES)


class Forecast(msgspec.Struct, frozen=True):
    """Bytes of a step once a run has lasted for some minutes, for equal volunteers."""

    received: int
    """Bytes that each volunteer receives."""
    sent: int
    """Bytes that each volunteer sends."""
    journal: int
    step_s: float
    """Seconds of the step's trials; 0 where the speed is unknown."""

    def reason(self) -> Reason:
        """The forecast in a sentence: by the second and the hour where the speed is known."""
        received, sent, journal = map(format_bytes, (self.received, self.sent, self.journal))
        if not self.step_s:
            return Reason(f"in a step a volunteer receives {received} and sends {sent}; the journal grows by {journal}")
        speeds = [format_bytes(number / self.step_s) for number in (self.received, self.sent)]
        hourly = format_bytes(3600.0 * self.journal / self.step_s)
        return Reason(
            f"a volunteer receives up to {speeds[0]}/s and sends up to {speeds[1]}/s ({received} and {sent} in a step "
            f"of {self.step_s:.2g} s); the journal grows by up to {hourly} an hour"
        )


def forecast(
    strategy: Strategy, layout: ParameterLayout, *, n_volunteers: int = 1, members_per_s: float = 0.0
) -> Forecast:
    """The forecast of a step for each of so many volunteers, which do `members_per_s` together; 0: unknown."""
    # By the second step the scale of losses is known, and what volunteers sum they sum.
    wanted = members_wanted(strategy, math.inf, members_per_s=members_per_s)
    strategy = msgspec.structs.replace(strategy, population_limit=wanted)
    population = msgspec.structs.replace(ask(strategy, _STEP, None), shaping_scale=1.0)
    n_members, group_size = population.limit, population.group_size
    own = -(-n_members // (group_size * n_volunteers)) * group_size
    shaping = sum_shaping(strategy, population, layout, n_volunteers=n_volunteers, members_per_s=members_per_s)
    step_s = n_members / members_per_s if members_per_s else 0.0
    total = _estimate_bytes(population, shaping, layout, n_members)
    slice_s = SUM_SLICE_S if total else SLICE_S
    n_results = max(math.ceil(step_s / slice_s), math.ceil(own / MAX_SLICE_MEMBERS))
    each = own // n_results
    losses = np.zeros(0, dtype=np.float32)
    update = tell(strategy, population, block=_BLOCK, spans=((0, n_members),), losses=losses, duration_s=step_s)
    renormalization_bytes = 2 * losses.itemsize * layout.n_observed
    arrays = (total or n_members) + renormalization_bytes
    assignment = Assignment(
        _STEP, _BLOCK, population.perturbation, group_size, n_members, own, strategy.schedule.duration_s, shaping
    )
    result = Result(_STEP, n_members, losses, _DIGEST, NO_ESTIMATE, step_s)
    each_bytes = losses.itemsize * each + _estimate_bytes(population, shaping, layout, each)
    each_bytes += each // group_size * moments_bytes(layout.n_observed)
    return Forecast(
        received=_framed(len(encode(update)) + arrays) + _framed(len(encode(assignment))),
        sent=n_results * _framed(len(encode(result)) + each_bytes),
        journal=len(encode_step(update, _DIGEST)) + arrays,
        step_s=step_s,
    )


def _estimate_bytes(population: Population, shaping: Shaping | None, layout: ParameterLayout, n_members: int) -> int:
    """Bytes of a sum of so many members; 0 where losses are enough."""
    if population.perturbation.sum_bits == 4:
        return packed_bytes(layout)
    if population.perturbation.is_summed:
        return layout.size + len(layout.row_lengths)
    return likely_bytes(layout, population.perturbation.rank, n_members) if shaping is not None else 0


def _framed(n_bytes: int) -> int:
    return n_bytes + HEADER_BYTES * n_chunks(n_bytes)

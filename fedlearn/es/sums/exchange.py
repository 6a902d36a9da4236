"""The choice between steps by replay and steps by sum: computing the gradient again, or being sent its sum.

Either way the step is the same to the bit, but the costs differ. A replica that replays computes the noise of all
members. For a sum each volunteer computes the noise of its own members only, but the sum travels, which takes a few
bytes per parameter.
"""

import math
from typing import Literal

from fedlearn.es.layout import ParameterLayout
from fedlearn.es.shaping import UTILITY_RESOLUTION
from fedlearn.es.sums.estimate import MAX_UTILITY, exact_width

Exchange = Literal["auto", "replay", "sum"]

SIGN_S = 0.15e-9
"""Processor time for one sign of noise on one thread, in seconds, measured by `benchmarks/kernels/exchange.py`."""

PRODUCT_S = 0.006e-9
"""Processor time for one parameter of one member on one thread, in seconds, measured by the same benchmark."""

CODING_S = 4e-9
"""Processor time to encode and decode one parameter of a sum, in seconds, measured by the same benchmark."""

LINE_BYTES_PER_S = 1.25e6
"""Assumed speed of a volunteer's network line in each direction (10 Mbit/s)."""

SUM_SLICE_S = 0.5
"""Seconds of trials between two Results with a sum, which is as long as the model, however few its members are."""

LARGEST_SUM_BYTES = 32 * 2**20
"""The size of the largest sum that fits into a message, in bytes."""


def replay_s(layout: ParameterLayout, rank: int, n_members: int) -> float:
    """Seconds that one thread takes to replay the gradient of `n_members` members."""
    signs = products = 0
    for tensor in layout.tensors:
        low_rank = rank if tensor.is_matrix else 0
        signs += low_rank * sum(tensor.sides) or tensor.size
        products += max(low_rank, 1) * tensor.size
    return n_members * (SIGN_S * signs + PRODUCT_S * products)


def sum_bytes(layout: ParameterLayout, rank: int, n_members: int) -> int:
    """The most bytes that the exact sum of `n_members` members can take."""
    return exact_width(n_members, rank) * layout.size + len(layout.row_lengths)


def likely_bytes(layout: ParameterLayout, rank: int, n_members: int) -> int:
    """The bytes that a sum takes if utilities have their usual deviation and no element exceeds five deviations."""
    greatest = 5.0 * UTILITY_RESOLUTION * math.sqrt(n_members * max(rank, 1))
    return sum_bytes(layout, 1, min(math.ceil(greatest / MAX_UTILITY), n_members * max(rank, 1)))


def sums_pay(
    layout: ParameterLayout, rank: int, *, n_members: int, n_volunteers: int, members_per_s: float = 0.0
) -> bool:
    """Whether a step of `n_members` members costs each of `n_volunteers` volunteers less by sum than by replay.

    With n members, V volunteers, `signs` and `products` of one member's noise, D parameters and sums of S(n) likely
    bytes, the seconds are

        replay: n * (SIGN_S * signs + PRODUCT_S * products) + n / LINE_BYTES_PER_S
        sum:    n / V * (signs and products as above) + D * CODING_S + (R * S(n / V) + S(n)) / LINE_BYTES_PER_S

    A utility takes one byte; losses travel either way. A step has R Results, one per `SUM_SLICE_S` of the time that all
    members take at `members_per_s` (0: unknown). The cost of replay grows with n, which grows with V; that of a sum
    does not.
    """
    own = -(-n_members // max(n_volunteers, 1))
    up_bytes, down_bytes = likely_bytes(layout, rank, own), likely_bytes(layout, rank, n_members)
    n_results = max(math.ceil(n_members / members_per_s / SUM_SLICE_S), 1) if members_per_s > 0.0 else 1
    replay = replay_s(layout, rank, n_members) + n_members / LINE_BYTES_PER_S
    line_s = (n_results * up_bytes + down_bytes) / LINE_BYTES_PER_S
    return replay_s(layout, rank, own) + layout.size * CODING_S + line_s < replay

"""Whether a step's gradient is replayed by everybody or summed by those whose members it is made of.

Both take the same step to the bit; they differ in what they cost. A replica that replays makes everybody's noise again,
one that is given a sum makes its own members' only, but the sum travels, a few bytes a parameter.
"""

import math
from typing import Literal

from fedlearn.es.estimate import MAX_UTILITY, exact_width
from fedlearn.es.layout import ParameterLayout
from fedlearn.es.shaping import UTILITY_RESOLUTION

Exchange = Literal["auto", "replay", "sum"]

SIGN_S = 0.15e-9
"""Processor time of a sign of noise,"""

PRODUCT_S = 0.006e-9
"""of a parameter of a member, made of such signs,"""

CODING_S = 4e-9
"""and of a parameter of a sum, encoded and decoded; all on one thread, by `benchmarks/exchange.py`."""

LINE_BYTES_PER_S = 1.25e6
"""Of a volunteer's line, each way: 10 Mbit/s."""

SUM_SLICE_S = 0.5
"""Trials between two Results that bring a sum: its bytes are those of the model, however few members it is of."""

LARGEST_SUM_BYTES = 32 * 2**20
"""What a message holds."""


def replay_s(layout: ParameterLayout, rank: int, n_members: int) -> float:
    """Processor time in which one thread makes the gradient of so many members again."""
    signs = products = 0
    for tensor in layout.tensors:
        low_rank = rank if tensor.is_matrix else 0
        signs += low_rank * sum(tensor.sides) or tensor.size
        products += max(low_rank, 1) * tensor.size
    return n_members * (SIGN_S * signs + PRODUCT_S * products)


def sum_bytes(layout: ParameterLayout, rank: int, n_members: int) -> int:
    """The most that the exact sum of so many members takes."""
    return exact_width(n_members, rank) * layout.size + len(layout.row_lengths)


def likely_bytes(layout: ParameterLayout, rank: int, n_members: int) -> int:
    """What it takes where utilities have the usual deviation, and no element is more than five of its own away."""
    greatest = 5.0 * UTILITY_RESOLUTION * math.sqrt(n_members * max(rank, 1))
    return sum_bytes(layout, 1, min(math.ceil(greatest / MAX_UTILITY), n_members * max(rank, 1)))


def sums_pay(
    layout: ParameterLayout, rank: int, *, n_members: int, n_volunteers: int, members_per_s: float = 0.0
) -> bool:
    """Whether a step of so many members costs each of so many volunteers less by sum than by replay.

    With n members, V volunteers, `signs` and `products` of a member's noise, and S(n) likely bytes of a sum, each
    spends

        replay: n * (SIGN_S * signs + PRODUCT_S * products) + n / LINE_BYTES_PER_S
        sum:    n / V * (signs and products as above) + D * CODING_S + (R * S(n / V) + S(n)) / LINE_BYTES_PER_S

    seconds: a utility is a byte; losses travel either way. The model has D parameters. R Results come in a step, one in
    `SUM_SLICE_S` of what all need at `members_per_s` together (0: not known). Replay grows with n, and n with V; a sum
    does not.
    """
    own = -(-n_members // max(n_volunteers, 1))
    up_bytes, down_bytes = likely_bytes(layout, rank, own), likely_bytes(layout, rank, n_members)
    n_results = max(math.ceil(n_members / members_per_s / SUM_SLICE_S), 1) if members_per_s > 0.0 else 1
    replay = replay_s(layout, rank, n_members) + n_members / LINE_BYTES_PER_S
    line_s = (n_results * up_bytes + down_bytes) / LINE_BYTES_PER_S
    return replay_s(layout, rank, own) + layout.size * CODING_S + line_s < replay

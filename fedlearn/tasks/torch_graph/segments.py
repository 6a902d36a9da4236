"""Segments of a program between which a backward pass keeps values; those inside are computed again when needed.

Source: Chen et al., "Training Deep Nets with Sublinear Memory Cost", arXiv 1604.06174.
"""

from bisect import bisect_left
from collections.abc import Mapping, Sequence
from itertools import accumulate, pairwise
from typing import NamedTuple

from fedlearn.tasks.torch_graph.steps import PreparedCall


class Segments(NamedTuple):
    """Consecutive calls, and what a backward pass through them takes."""

    calls: tuple[Sequence[PreparedCall], ...]
    n_bytes: int
    """Bytes of the values that are kept between segments, and of results and derivatives inside the largest."""


def segments_of(calls: Sequence[PreparedCall], n_bytes: Mapping[str, int], max_bytes: int) -> Segments:
    """The fewest segments, of a power of two, that take at most `max_bytes`; where none do, those that take least.

    `n_bytes` are the bytes of each result, by name. More segments compute more again: n of them all but an n-th.
    """
    kept = _kept_after(calls)
    made = [0, *accumulate(sum(n_bytes[name] for name in call.call.results) for call in calls)]
    best = _cut(calls, made, kept, n_bytes, 1)
    n_segments = 2
    while best.n_bytes > max_bytes and n_segments <= len(calls):
        best = min(best, _cut(calls, made, kept, n_bytes, n_segments), key=lambda found: found.n_bytes)
        n_segments *= 2
    return best


def _kept_after(calls: Sequence[PreparedCall]) -> list[frozenset[str]]:
    """The results of earlier calls that later ones read, before each call and at the end."""
    kept: set[str] = set()
    found = [frozenset(kept)]
    for call in calls:
        kept.update(call.call.results)
        kept.difference_update(call.last_read)
        found.append(frozenset(kept))
    return found


def _cut(
    calls: Sequence[PreparedCall],
    made: Sequence[int],
    kept: Sequence[frozenset[str]],
    n_bytes: Mapping[str, int],
    n_segments: int,
) -> Segments:
    """Segments of about equal bytes, cut where little is kept; `made` are the bytes of all results so far."""
    kept_bytes = [sum(n_bytes[name] for name in names) for names in kept]
    edges, share = [0], made[-1] / n_segments
    for number in range(1, n_segments):
        first, last = (bisect_left(made, (number + off) * share) for off in (-0.25, 0.25))
        possible = range(max(first, edges[-1] + 1), min(last + 1, len(calls)))
        off_by = {edge: (kept_bytes[edge], abs(made[edge] - number * share)) for edge in possible}
        if off_by:
            edges.append(min(off_by, key=off_by.__getitem__))
    edges.append(len(calls))
    between = frozenset[str]().union(*(kept[edge] for edge in edges[1:-1]))
    largest = max(made[right] - made[left] for left, right in pairwise(edges))
    return Segments(
        tuple(calls[left:right] for left, right in pairwise(edges)),
        sum(n_bytes[name] for name in between) + 2 * largest,
    )

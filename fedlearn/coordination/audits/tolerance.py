"""How far honest machines may be from one another: ten times the measured distance, by computation and precision.

A tolerance is no share of the signal: whatever is below it can be used to steer a run. Figures: docs/security.md;
measured by audits.py, graph_audits.py, gradient_audits.py and planting.py in benchmarks/trust.
"""

import msgspec
import numpy as np
from numpy.typing import NDArray

from fedlearn.es.layout import Float32Array
from fedlearn.es.perturbation import Perturbation
from fedlearn.es.shaping import bounded
from fedlearn.graphs.graph import Graph, GraphError
from fedlearn.tasks.invitation import Invitation
from fedlearn.tasks.torch_graph.sharing import unpacked

LEAST = 1e-7
"""Allowed on top, for losses that are almost zero."""


class Tolerance(msgspec.Struct, frozen=True):
    """Tolerances of results: for losses the root mean square of a group, for a sum its length."""

    share: float
    """Share of the standard deviation of the group's losses."""
    relative: float
    """Share of the greatest of the losses, in addition to `share`: covers rounding where members hardly differ."""
    sums: float
    """Share of the length of the server's own sum."""
    usual: float = 0.1
    """Share of the whole tolerance that honest machines stay below in the mean of many audits."""

    def allowed(self, own: Float32Array, group_size: int) -> NDArray[np.float64]:
        """The distance that is allowed for each group of these losses [n_members], as [groups]."""
        groups = bounded(own).reshape(-1, group_size)
        found = np.where(np.isfinite(groups), groups, 0.0).astype(np.float64)
        allowed: NDArray[np.float64] = (
            self.share * found.std(axis=1) + self.relative * np.abs(found).max(axis=1) + LEAST
        )
        return allowed


class Tolerances(msgspec.Struct, frozen=True):
    """The tolerances of a run."""

    losses: Tolerance
    """Tolerance where members are only measured."""
    summed: Tolerance
    """Tolerance where volunteers sum gradients, in which their losses have no part."""

    def of(self, perturbation: Perturbation) -> Tolerance:
        """The tolerance of trials with this noise."""
        if perturbation.local_steps is not None:
            return LOCAL_STEPS
        return self.summed if perturbation.is_summed else self.losses


LOOSE = Tolerance(share=0.1, relative=3e-5, sums=0.15)
"""Tolerance where little is known: a user's own code, and models in which a last digit may flip a choice."""

FLOATS = Tolerances(
    losses=Tolerance(share=1e-3, relative=1.5e-6, sums=0.02), summed=Tolerance(share=1e-3, relative=1e-4, sums=0.02)
)
"""Tolerances of float32 models: honest losses differed by 1.3e-7 of themselves and 1.5e-4 of the spread, sums by 0.0024
of their length."""

BYTES = Tolerances(losses=LOOSE, summed=Tolerance(share=0.1, relative=5e-4, sums=0.15, usual=0.3))
"""Tolerances of int8 models, where a last digit may flip a byte: honest losses differed by 0.04 of the spread, and sums
by 0.066 of their length, so that a factor of ten is impossible, and the mean of many audits tells honest machines from
others."""

LOCAL_STEPS = Tolerance(share=0.5, relative=0.05, sums=0.3, usual=0.3)
"""Tolerance of a few local steps, each of which adds to a difference in a last digit: after 4 honest sums differed by
0.1 of their length, after 8 by 0.18. Losses on the way have no part in a sum, and differed by 0.13 of the spread."""

ANYTHING = Tolerances(losses=LOOSE, summed=Tolerance(share=0.1, relative=0.01, sums=0.15))
"""Tolerances where little is known: honest losses beside a sum, in which they have no part, differed by 6e-4 in
bfloat16."""

_CHOICES = ("argmax", "argmin", "argsort", "ceil", "floor", "floor_divide", "remainder", "round", "sign", "topk")
"""Operators whose results jump where a last digit differs."""

_COARSE = ("float16", "bfloat16")


def tolerances_of(invitation: Invitation) -> Tolerances:
    """The tolerances of a run, by its kind and precision."""
    match invitation.kind:
        case "rnn":
            return BYTES if invitation.options.get("precision") == "int8" else FLOATS
        case "graph":
            return _of_graph(invitation.attachment)
        case _:
            return ANYTHING


def _of_graph(attachment: bytes) -> Tolerances:
    try:
        graph = unpacked(attachment).graph
    except GraphError:
        return ANYTHING
    return ANYTHING if _is_coarse(graph) else FLOATS


def _is_coarse(graph: Graph) -> bool:
    """Whether a difference in a last digit may become a large one."""
    has_choice = any(call.operator.split(".")[0] in _CHOICES for call in graph.calls)
    dtypes = {array.dtype for array in graph.given} | {form.dtype for form in graph.forms}
    return has_choice or any(dtype in _COARSE for dtype in dtypes)

"""Joins what the seats of a crew sum, each over its own tensors, into the Result of the whole."""

from collections.abc import Callable, Sequence
from functools import cached_property
from typing import final

import numpy as np

from fedlearn.es.layout import ParameterLayout
from fedlearn.es.sums.estimate import CodedEstimate, Dither, encode_estimate
from fedlearn.es.sums.parts import check_part, join_parts, shared_rows
from fedlearn.es.trials import Float32Array, TrialResults, Trials


@final
class PartSums:
    """The parts into which a crew divides a model, as far as their sums are concerned."""

    def __init__(self, whole: ParameterLayout, layouts: Callable[[], Sequence[ParameterLayout]], *, seed: int) -> None:
        """`layouts` gives those of the seats' parts, and is called when the first sum has come; `seed` is the run's."""
        self._whole, self._of_parts, self._seed = whole, layouts, seed

    @cached_property
    def _layouts(self) -> Sequence[ParameterLayout]:
        return self._of_parts()

    def complaint(self, stage: int, estimate: CodedEstimate) -> str:
        """Describes why an estimate is not the sum of a stage; empty where it is one, or is left out."""
        try:
            if estimate.is_there:
                check_part(self._layouts[stage], estimate, shared_rows(self._layouts))
        except ValueError as error:
            return str(error)
        return ""

    def joined(self, trials: Trials, losses: Float32Array, sums: Sequence[CodedEstimate]) -> TrialResults:
        """The results of the whole model, of which each seat has summed its part.

        If a seat has left its sum out, as a number in it was not finite, no loss counts.

        Raises:
            ValueError: the sums are not those of the parts.
        """
        if not all(estimate.is_there for estimate in sums):
            nothing = encode_estimate(self._whole, np.zeros(self._whole.size, dtype=np.int64))
            return TrialResults(np.full_like(losses, np.inf), nothing)
        dither = Dither(self._seed, trials.step, trials.first_member, bits=trials.perturbation.sum_bits)
        return TrialResults(losses, join_parts(self._whole, list(zip(self._layouts, sums, strict=True)), dither))

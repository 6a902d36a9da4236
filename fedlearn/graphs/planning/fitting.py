"""Cuts the vocabulary of a model that does not fit in whole tensors into as few shards as the machines need."""

from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Self, final

from msgspec import Struct

from fedlearn.graphs.graph import Graph, GraphError
from fedlearn.graphs.planning.crews import LacksMemory, Machine, PlannedCrews
from fedlearn.graphs.planning.parts import ModelCosts, Needs
from fedlearn.graphs.shards import rows_of, sharded

MAX_SHARDS = 12
"""The most shards, as many as a crew can have seats; more would cross the cuts without making any part smaller."""


class Cutting(Struct, frozen=True, eq=False):
    """A model whose vocabulary is cut into a number of shards."""

    n_shards: int
    graph: Graph
    model: ModelCosts

    @classmethod
    def of(cls, graph: Graph, n_shards: int, whole: frozenset[str] = frozenset()) -> Self:
        """Cuts the vocabulary of a graph.

        Raises:
            GraphError: the model has no vocabulary that can be cut into these shards, or its tensor is to stay `whole`.
        """
        cut = sharded(graph, n_shards)
        if torn := {rows.tensor for rows in map(rows_of, (array.name for array in cut.learned)) if rows.end} & whole:
            raise GraphError(f"shards: expected a tensor that may be cut, got {min(torn)}, whose step needs all of it")
        return cls(n_shards, cut, ModelCosts.of(cut))


@final
class Cuttings:
    """One model with its vocabulary in more and more shards, each cutting made once."""

    def __init__(self, graph: Graph, *, least: int = 1, whole: frozenset[str] = frozenset()) -> None:
        """Begins with the vocabulary in `least` shards; the tensors in `whole` are never cut.

        Raises:
            GraphError: the model has no vocabulary that can be cut into these.
        """
        self._graph, self._whole = graph, whole
        self._made = [Cutting.of(graph, least, whole)]
        self._is_all = False

    @property
    def first(self) -> Cutting:
        """The cutting with the fewest shards."""
        return self._made[0]

    def __iter__(self) -> Iterator[Cutting]:
        yield from tuple(self._made)
        while (following := self._following()) is not None:
            yield following

    def _following(self) -> Cutting | None:
        """The cutting with one shard more; None where there is no other."""
        n_shards = self._made[-1].n_shards + 1
        if self._is_all or n_shards > MAX_SHARDS:
            return None
        try:
            self._made.append(Cutting.of(self._graph, n_shards, self._whole))
        except GraphError:
            self._is_all = True
            return None
        return self._made[-1]


Divide = Callable[[ModelCosts, Sequence[Machine], Needs], PlannedCrews]
"""How machines share a model: `plan` or `divide` of the planner."""


def fitting(
    divide: Divide, cuttings: Iterable[Cutting], machines: Sequence[Machine], needs: Needs
) -> tuple[Cutting, PlannedCrews]:
    """The first cutting that the machines can hold, and its division.

    Raises:
        LacksMemory: the machines can hold none of them; the message says what is missing for the last one.
        PlanError: there are more machines for one crew than pieces, or than `MAX_MACHINES`.
    """
    refusal: LacksMemory | None = None
    for cutting in cuttings:
        try:
            return cutting, divide(cutting.model, machines, needs)
        except LacksMemory as error:
            refusal = error
    assert refusal is not None, "no model to divide"
    raise refusal

"""Models by their pieces, and machines, in round numbers."""

from collections.abc import Sequence

from fedlearn.graphs.pieces import Piece
from fedlearn.graphs.planning.crews import Machine
from fedlearn.graphs.planning.parts import ModelCosts, Needs

NEEDS = Needs(parameter_bytes=10, members=2)


def model_of(
    work: Sequence[float],
    sent: Sequence[int],
    *,
    size: int = 100,
    tensors: Sequence[tuple[str, ...]] = (),
    alive: Sequence[int] = (),
) -> ModelCosts:
    """A piece for each amount of work; tensors `t0`, `t1`, ... of `size` numbers, one a piece, unless named."""
    named = tensors or [(f"t{number}",) for number in range(len(work))]
    within = alive or [0] * len(work)
    pieces = [Piece(range(n, n + 1), named[n], work[n], sent[n], within[n]) for n in range(len(work))]
    return ModelCosts(pieces, {name: size for names in named for name in names}, {})


def machine(name: str, memory: float, *, line: float = 1e9, speed: float = 1.0) -> Machine:
    return Machine(name, memory, line, speed)

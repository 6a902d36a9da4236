import msgspec
import numpy as np
import pytest

from fedlearn.es.perturbation import Perturbation
from fedlearn.es.trials import Trials
from fedlearn.graphs.graph import GraphError

torch = pytest.importorskip("torch")

from fedlearn.tasks.limits import UNBOUNDED  # noqa: E402
from fedlearn.tasks.torch_graph.part import GraphPart  # noqa: E402
from tests.tasks.torch_graph.shared import CUTS, N_PIECES, attachment, task, weights  # noqa: E402

SEED = 5
TRIALS = Trials(step=3, perturbation=Perturbation(0.05, 1), group_size=8, first_member=16, n_members=8)


def part(place: int, cuts: tuple[int, ...] = CUTS, *, max_bytes: int = UNBOUNDED) -> GraphPart:
    """With its own tensors of the weights."""
    made = GraphPart(attachment(), cuts, place, seed=SEED, device="cpu", max_bytes=max_bytes)
    tensors = made.whole.split(weights())
    made.load(np.concatenate([tensors[tensor.name].reshape(-1) for tensor in made.layout.tensors]))
    return made


def losses(cuts: tuple[int, ...], trials: Trials) -> bytes:
    """Of members that go through all parts."""
    values: dict[str, np.ndarray] = {}
    for place in range(len(cuts) + 1):
        values = dict(part(place, cuts).members(task().data, trials, values, threads=1))
    (found,) = values.values()
    return found.tobytes()


def test_parts_together_give_what_one_gives() -> None:
    assert losses(CUTS, TRIALS) == losses((), TRIALS)
    assert losses(tuple(range(1, N_PIECES)), TRIALS) == losses((), TRIALS)


@pytest.mark.parametrize("change", [{"step": 4}, {"first_member": 24}])
def test_another_group_and_another_step_have_other_rows_and_noise(change: dict[str, int]) -> None:
    assert losses(CUTS, msgspec.structs.replace(TRIALS, **change)) != losses(CUTS, TRIALS)


def test_rows_are_those_of_the_group_whichever_members_come() -> None:
    first = part(0)
    later = msgspec.structs.replace(TRIALS, first_member=20, n_members=4)
    without = [first.unperturbed(task().data, trials, {}, threads=1) for trials in (TRIALS, later)]
    assert {name: array.tobytes() for name, array in without[0].items()} == {
        name: array.tobytes() for name, array in without[1].items()
    }


def test_each_part_holds_its_tensors_and_says_what_goes_on() -> None:
    parts = [part(place) for place in range(3)]
    assert sum(p.layout.size for p in parts) == weights().size == parts[0].whole.size
    assert parts[0].receives == {}
    assert [list(p.receives) for p in parts[1:]] == [list(p.gives) for p in parts[:2]]
    assert len(parts[1].receives) == 2, "what skips the layers is passed on"
    assert all(p.member_bytes() >= 4 * p.layout.size for p in parts)


@pytest.mark.parametrize("place", [3, 2**62])
def test_a_place_behind_the_cuts_is_refused(place: int) -> None:
    with pytest.raises(GraphError, match=f"seat: expected a place from 0 to 2, got {place}"):
        part(place)


@pytest.mark.parametrize("cuts", [(2**62,), (3, 2), (2, 2), (0,), tuple(range(1, 256))])
def test_cuts_where_the_graph_has_none_are_refused(cuts: tuple[int, ...]) -> None:
    with pytest.raises(GraphError, match="cuts: expected ascending numbers from 1 to 4"):
        part(0, cuts)


def test_a_part_beyond_the_memory_is_refused() -> None:
    with pytest.raises(GraphError, match="expected tensors of at most"):
        part(0, max_bytes=1000)

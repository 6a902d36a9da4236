import msgspec
import numpy as np
import pytest

from fedlearn.es.perturbation import Perturbation
from fedlearn.es.sums.estimate import CodedEstimate, Dither, decode_estimate
from fedlearn.es.sums.parts import join_parts
from fedlearn.es.trials import Trials
from fedlearn.graphs.graph import GraphError
from fedlearn.tasks.parts.objective import Values

torch = pytest.importorskip("torch")

from torch import nn  # noqa: E402

from fedlearn.tasks.limits import SUM_BYTES, UNBOUNDED  # noqa: E402
from fedlearn.tasks.torch.supervised import supervised  # noqa: E402
from fedlearn.tasks.torch_graph.part import GraphPart  # noqa: E402
from fedlearn.tasks.user.task_objective import TaskObjective  # noqa: E402
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


def dropping_part() -> GraphPart:
    """Of a network that drops, with rows that are all alike."""
    data = {"x": np.ones((64, 4), dtype=np.float32)}
    model = nn.Sequential(nn.Linear(4, 8), nn.Dropout(0.5), nn.Linear(8, 1))
    with torch.random.fork_rng([]):
        torch.manual_seed(0)
        shared = supervised(model, lambda m, rows: m(rows["x"]).square().mean(), data, batch_size=4).as_graph()
    made = GraphPart(shared, (), 0, seed=SEED, device="cpu", max_bytes=UNBOUNDED)
    made.load(np.linspace(-1.0, 1.0, made.layout.size, dtype=np.float32))
    return made


def test_what_a_part_draws_is_its_groups() -> None:
    made, data = dropping_part(), {"x": np.ones((64, 4), dtype=np.float32)}

    def losses_of(first_member: int, n_members: int = 2) -> list[float]:
        trials = msgspec.structs.replace(TRIALS, first_member=first_member, n_members=n_members)
        (whole,) = made.unperturbed(data, trials, {}, threads=1).values()
        (found,) = made.members(data, trials, {}, threads=1).values()
        return [float(whole), *found.tolist()]

    first = losses_of(16, 8)
    assert losses_of(20) == pytest.approx([first[0], *first[5:7]], rel=1e-5)
    assert losses_of(24)[0] != pytest.approx(first[0], rel=1e-3)
    assert made.member_bytes() >= 4 * (4 * 8 + made.layout.size)


def test_each_part_holds_its_tensors_and_says_what_goes_on() -> None:
    parts = [part(place) for place in range(3)]
    assert sum(p.layout.size for p in parts) == weights().size == parts[0].whole.size
    assert parts[0].receives == {}
    assert [list(p.receives) for p in parts[1:]] == [list(p.gives) for p in parts[:2]]
    assert len(parts[1].receives) == 2, "what skips the layers is passed on"
    assert all(p.member_bytes() >= 4 * p.layout.size for p in parts)


NOTHING = Perturbation(1.0, 1, space="nothing", unit_bits=20)
GRADIENTS = Trials(step=3, perturbation=NOTHING, group_size=1, first_member=16, n_members=3)


def gradients(cuts: tuple[int, ...], trials: Trials = GRADIENTS) -> tuple[bytes, bytes, bytes]:
    """The losses of members that go through all parts and back, and the sum of all parts, as bytes."""
    parts, data = [part(place, cuts) for place in range(len(cuts) + 1)], task().data
    received: list[Values] = [{}]
    for each in parts[:-1]:
        received.append(each.forward(data, trials, received[-1], threads=1))
    cotangents: Values = {}
    sums = []
    for each, its in zip(reversed(parts), reversed(received), strict=True):
        found = each.backward(data, trials, its, cotangents, threads=1)
        assert found.is_finite
        if not cotangents:
            (lost,) = found.given.values()
        cotangents = found.cotangents
        sums.append((each.layout, each.encoded(found.total, trials)))
    dither = Dither(SEED, 3, 16, bits=8)
    joined = join_parts(parts[0].whole, sums, dither)
    return lost.tobytes(), joined.numbers.tobytes(), joined.shifts.tobytes()


def test_parts_together_sum_the_gradients_that_one_sums() -> None:
    alone = gradients(())
    assert gradients(CUTS) == gradients(tuple(range(1, N_PIECES))) == alone
    losses, numbers, shifts = alone
    objective = TaskObjective(task(), seed=SEED)
    own = objective.gradient_sum(weights(), task().data, GRADIENTS, threads=1)
    np.testing.assert_allclose(np.frombuffer(losses, np.float32), own.losses, rtol=1e-6)
    found = CodedEstimate(np.frombuffer(numbers, np.int8), np.frombuffer(shifts, np.uint8))
    whole, expected = objective.layout, decode_estimate(objective.layout, own.estimate)
    assert np.abs(decode_estimate(whole, found) - expected).max() <= 2 ** int(own.estimate.shifts.max())
    assert np.abs(expected).max() > 2**12


def test_members_without_noise_have_rows_of_their_own_or_those_of_passes() -> None:
    one = msgspec.structs.replace(GRADIENTS, n_members=1)
    later = msgspec.structs.replace(GRADIENTS, first_member=18, n_members=1)
    first = part(0)
    three, _ = first.forward(task().data, GRADIENTS, {}, threads=1).values()
    last, _ = first.forward(task().data, later, {}, threads=1).values()
    assert three[2].tobytes() == last[0].tobytes() != three[0].tobytes()
    passes = msgspec.structs.replace(one, perturbation=msgspec.structs.replace(NOTHING, pass_members=20))
    assert gradients(CUTS, passes) == gradients((), passes) != gradients((), one)


def test_a_derivative_that_is_not_finite_is_told() -> None:
    last = part(0, ())
    last.load(np.full(last.layout.size, np.inf, dtype=np.float32))
    assert not last.backward(task().data, GRADIENTS, {}, {}, threads=1).is_finite


def test_the_memory_of_the_way_back_grows_with_what_the_part_computes() -> None:
    whole, first = part(0, ()), part(0)
    assert first.backward_bytes < whole.backward_bytes
    assert whole.backward_bytes > whole.member_bytes() + SUM_BYTES * whole.layout.size


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

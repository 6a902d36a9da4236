"""Replicas of parts take the steps of the whole one, to the bit."""

from collections.abc import Mapping

import msgspec
import numpy as np
import pytest

from fedlearn.es.digest import run_digest, tensor_digests
from fedlearn.es.layout import Float32Array, ParameterLayout
from fedlearn.es.noise import member_noise, perturbed
from fedlearn.es.optimizers import Adam, AnyOptimizer, Sgd
from fedlearn.es.perturbation import Perturbation
from fedlearn.es.replica import Replica, genesis
from fedlearn.es.schedules import Schedule
from fedlearn.es.shaping import Shaping
from fedlearn.es.strategy import Strategy, ask, tell
from fedlearn.es.sums.estimate import encode_estimate, encode_exactly
from fedlearn.es.sums.exact_sum import complaint_of, exact_sum
from fedlearn.es.trials import Trials
from fedlearn.es.update import Update
from tests.es.parts import N_GROUPS, PARTS, SEED, WHOLE, Encode, assert_equal_to_the_bit, pieces, row_masks, seated

GROUP_SIZE = 8
N_STEPS = 20
WEIGHTS = np.random.default_rng(1).standard_normal(WHOLE.size).astype(np.float32)
ADAM, MOMENTUM = Adam(0.01, 0.9, 0.99), Sgd(0.01, 0.9)


def new_whole(*, keeps_start: bool = False) -> Replica:
    start = genesis(WHOLE, WEIGHTS, keeps_start=keeps_start, threads=1)
    return Replica(WHOLE, start, seed=SEED, row_masks=row_masks, threads=1)


def update_of(step: int, *, optimizer: AnyOptimizer = ADAM, rank: int = 1, antithetic: bool = False) -> Update:
    return Update(
        step=step,
        block=b"",
        spans=((8 * step, 8), (2**40, 24)),
        utilities=np.random.default_rng(step).integers(-127, 128, 32).astype(np.int8),
        rank=rank,
        group_size=GROUP_SIZE,
        gradient_scale=-1e-4,
        optimizer=optimizer,
        antithetic=antithetic,
        weight_decay=0.1,
        decay_towards="start" if step % 2 else "zero",
        elapsed_s=0.0,
        shaping_scale=1.0,
    )


def assert_seats_equal(whole: Replica, seats: Mapping[str, Replica]) -> None:
    """In weights, slots, numbers and digests."""
    assert whole.digests([seat.layout for seat in seats.values()]) == [seat.digest for seat in seats.values()]
    for seat in seats.values():
        assert (seat.step, seat.numbers, seat.slots.keys()) == (whole.step, whole.numbers, whole.slots.keys())
        assert_equal_to_the_bit(seat.weights, pieces(whole.layout, seat.layout, whole.weights))
        for name, slot in seat.slots.items():
            assert_equal_to_the_bit(slot, pieces(whole.layout, seat.layout, whole.slots[name]))


def losses_of_seats(seats: Mapping[str, Replica], trials: Trials) -> Float32Array:
    """What the members of a crew report: the mean square of all that they are made of, each number by its holder."""
    sums = np.zeros(trials.n_members)
    for name in ("root", "leaf", "shard", "stem"):
        seat = seats[name]
        tensors, noise = seat.layout.split(seat.weights), member_noise(seat.layout, trials, seed=SEED)
        for piece, of_piece in zip(seat.layout.tensors, noise, strict=True):
            if name == "stem" or piece.name != "embedding":
                for member in range(trials.n_members):
                    sums[member] += float(np.square(perturbed(tensors[piece.name], of_piece, member)).sum())
    return (sums / WHOLE.size).astype(np.float32)


def whole_weights_of(seats: Mapping[str, Replica]) -> Float32Array:
    """What all seats hold together, put in its places."""
    weights = np.full(WHOLE.size, np.nan, dtype=np.float32)
    for seat in seats.values():
        for name, tensor in seat.layout.split(seat.weights).items():
            (piece,) = (piece for piece in seat.layout.tensors if piece.name == name)
            WHOLE.split(weights)[name][piece.first_row :][: len(tensor)] = tensor
    return weights


@pytest.mark.parametrize(
    ("exchange", "rank", "optimizer"), [("replay", 1, ADAM), ("sum", 2, MOMENTUM), ("sum", 0, ADAM)]
)
def test_a_crew_takes_the_steps_of_one_that_holds_all(exchange: str, rank: int, optimizer: AnyOptimizer) -> None:
    strategy = Strategy(
        Perturbation(0.05, rank, antithetic=True),
        GROUP_SIZE,
        N_GROUPS * GROUP_SIZE,
        optimizer,
        "centered-ranks",
        weight_decay=0.05,
        schedule=Schedule("cosine", "constant", 5, N_STEPS),
    )
    whole, last = new_whole(), None
    seats = {name: seated(whole, part) for name, part in PARTS.items()}
    for step in range(N_STEPS):
        population = ask(strategy, step, last)
        trials = Trials(step, population.perturbation, GROUP_SIZE, 2**40 + 32 * step, population.limit)
        losses = losses_of_seats(seats, trials)
        spans = ((trials.first_member, trials.n_members),)
        last = tell(strategy, population, block=b"", spans=spans, losses=losses, duration_s=1.0)
        if exchange == "sum" and step > 0:
            coded = encode_exactly(WHOLE, whole.replayed(last))
            last = msgspec.structs.replace(last, utilities=last.utilities[:0], estimate=coded)
        for replica in (whole, *seats.values()):
            replica.apply(last)
        assert_seats_equal(whole, seats)
    assert np.square(whole.weights).sum() < np.square(WEIGHTS).sum()
    assert_equal_to_the_bit(whole_weights_of(seats), whole.weights)


def test_the_digests_of_tensors_on_seats_make_up_the_digest_of_the_run() -> None:
    whole = new_whole()
    names = [["embedding", "inner", "start"], ["bias", "kernel", "constant", "embedding"], ["head", "head_bias"]]
    seats = [seated(whole, WHOLE.part(of_seat)) for of_seat in names]
    for replica in (whole, *seats):
        replica.apply(msgspec.structs.replace(update_of(0), decay_towards="zero"))
    found: dict[int, bytes] = {}
    for seat in seats:
        digests = tensor_digests(seat.layout, seat.weights, seat.slots, threads=1)
        for number, digest in zip(seat.layout.numbers, digests, strict=True):
            assert found.setdefault(number, digest) == digest
    assert run_digest([found[number] for number in range(8)], seats[0].numbers) == whole.digest


@pytest.mark.usefixtures("isa")
@pytest.mark.parametrize("antithetic", [False, True])
@pytest.mark.parametrize("rank", [0, 1, 2])
@pytest.mark.parametrize("optimizer", [ADAM, MOMENTUM, Sgd(0.01, 0.0)])
def test_parts_take_the_steps_of_the_whole(optimizer: AnyOptimizer, rank: int, antithetic: bool) -> None:
    whole = new_whole(keeps_start=True)
    seats = {name: seated(whole, part) for name, part in PARTS.items()}
    for step in range(4):
        update = update_of(step, optimizer=optimizer, rank=rank, antithetic=antithetic)
        for replica in (whole, *seats.values()):
            replica.apply(update)
    assert_seats_equal(whole, seats)


def test_a_tied_tensor_stays_equal_on_all_its_seats_without_traffic() -> None:
    whole = new_whole()
    seats = {name: seated(whole, PARTS[name]) for name in ("root", "stem", "leaf")}
    for step in range(5):
        for replica in (whole, *seats.values()):
            replica.apply(msgspec.structs.replace(update_of(step), decay_towards="zero"))
    tied = {name: seat.layout.split(seat.weights)["embedding"] for name, seat in seats.items()}
    assert_equal_to_the_bit(tied["stem"], tied["leaf"])
    assert_equal_to_the_bit(tied["stem"][:128], tied["root"])
    assert not np.array_equal(tied["stem"], WHOLE.split(WEIGHTS)["embedding"])


@pytest.mark.parametrize("encode", [encode_exactly, encode_estimate])
def test_a_seat_takes_its_slice_of_an_update_that_has_a_sum(encode: Encode) -> None:
    whole = new_whole()
    seats = {name: seated(whole, part) for name, part in PARTS.items()}
    everything = seated(whole, WHOLE.part([tensor.name for tensor in WHOLE.tensors]))
    update = msgspec.structs.replace(update_of(0, optimizer=MOMENTUM), decay_towards="zero")
    coded = encode(WHOLE, whole.replayed(update) * np.arange(1, WHOLE.size + 1))
    summed = msgspec.structs.replace(update, utilities=update.utilities[:0], estimate=coded)
    for replica in (whole, everything, *seats.values()):
        replica.apply(summed)
    assert_seats_equal(whole, seats)
    assert everything.digest == whole.digest


def test_a_part_that_knows_no_whole_refuses_a_sum_of_it() -> None:
    whole = new_whole()
    part = PARTS["stem"]
    alone = Replica(part, whole.snapshot(part), seed=SEED, row_masks=row_masks, threads=1)
    update = update_of(0)
    summed = msgspec.structs.replace(update, estimate=encode_exactly(WHOLE, whole.replayed(update)))
    with pytest.raises(ValueError, match="codes: expected one a row"):
        alone.apply(summed)


def test_a_seat_sums_its_part_of_what_its_members_tell() -> None:
    perturbation = Perturbation(0.1, 2)
    trials = Trials(0, perturbation, GROUP_SIZE, 0, 32, Shaping("normalized", 0.5))
    losses = np.random.default_rng(3).standard_normal(32).astype(np.float32)
    whole = new_whole()
    for part in PARTS.values():
        seat = seated(whole, part)
        coded = exact_sum(seat, trials, b"", losses)
        update = msgspec.structs.replace(
            update_of(0, rank=2), spans=((0, 32),), utilities=Shaping("normalized", 0.5).utilities(losses, GROUP_SIZE)
        )
        sums = pieces(WHOLE, part, whole.replayed(update).astype(np.float32)).astype(np.int64)
        np.testing.assert_array_equal(seat.replayed(update), sums)
        assert msgspec.structs.astuple(coded)[0].tobytes() == encode_exactly(part, sums).numbers.tobytes()
        assert complaint_of(sums, update.utilities, part, perturbation) == ""


def test_a_seat_that_joins_later_goes_on_from_its_part_of_a_snapshot() -> None:
    whole = new_whole(keeps_start=True)
    for step in range(6):
        whole.apply(update_of(step))
    seats = {name: seated(whole, part) for name, part in PARTS.items()}
    assert_seats_equal(whole, seats)
    snapshot = whole.snapshot(PARTS["shard"])
    assert (snapshot.step, snapshot.digest) == (6, seats["shard"].digest)
    assert {name: slot.size for name, slot in snapshot.slots.items()} == dict.fromkeys(
        ("first_moment", "second_moment", "start"), 129 * 41
    )
    for step in range(6, 9):
        for replica in (whole, *seats.values()):
            replica.apply(update_of(step))
    assert_seats_equal(whole, seats)


def test_a_part_of_a_seat_is_cut_as_from_the_whole() -> None:
    whole = new_whole()
    whole.apply(update_of(0, optimizer=MOMENTUM))
    leaf, part = seated(whole, PARTS["leaf"]), WHOLE.part(["head"], {"head": (200, 50)})
    found, expected = leaf.snapshot(part), whole.snapshot(part)
    assert found.digest == expected.digest
    assert_equal_to_the_bit(found.weights, expected.weights)
    with pytest.raises(ValueError, match="part: expected tensors of the layout, got inner"):
        leaf.snapshot(PARTS["root"])


def test_the_snapshot_of_a_part_shares_nothing_with_the_replica() -> None:
    whole = new_whole()
    snapshot = whole.snapshot(PARTS["stem"])
    before = snapshot.weights.copy()
    whole.apply(update_of(0, optimizer=MOMENTUM))
    assert_equal_to_the_bit(snapshot.weights, before)


def test_a_wrong_bit_of_a_shard_is_seen_in_its_own_digest_only() -> None:
    whole = new_whole()
    seats = {name: seated(whole, part) for name, part in PARTS.items()}
    seats["shard"].weights[-1] += 1
    parts: list[ParameterLayout] = [seat.layout for seat in seats.values()]
    equal = [own == seat.digest for own, seat in zip(whole.digests(parts), seats.values(), strict=True)]
    assert equal == [True, True, True, False]


def test_a_seat_without_tensors_follows_the_run() -> None:
    whole = new_whole()
    empty = seated(whole, WHOLE.part([]))
    update = update_of(0)
    coded = encode_exactly(WHOLE, whole.replayed(update))
    for given in (update, msgspec.structs.replace(update_of(1), decay_towards="zero", estimate=coded)):
        for replica in (whole, empty):
            replica.apply(msgspec.structs.replace(given, decay_towards="zero"))
    assert_seats_equal(whole, {"empty": empty})


def test_a_seat_without_masked_tensors_needs_no_data() -> None:
    def nothing(update: Update) -> None:
        raise AssertionError(f"block of step {update.step} was asked for")

    whole, part = new_whole(), PARTS["shard"]
    seat = Replica(part, whole.snapshot(part), seed=SEED, row_masks=nothing, threads=1, whole=WHOLE)
    for replica in (whole, seat):
        replica.apply(update_of(0))
    assert_seats_equal(whole, {"shard": seat})

import numpy as np
import pytest
from blake3 import blake3

from fedlearn.es.digest import part_digests, run_digest, tensor_digests
from fedlearn.es.layout import Float32Array, ParameterLayout, TensorSpec

LAYOUT = ParameterLayout((TensorSpec("matrix", (4, 3)), TensorSpec("vector", (5,)), TensorSpec("number", ())))
WEIGHTS = np.linspace(-1, 1, 18, dtype=np.float32)
SLOTS = {"first": WEIGHTS * 2, "second": WEIGHTS**2}
NUMBERS = {"beta1_power": 0.9, "beta2_power": 0.999}


def digests(weights: Float32Array = WEIGHTS, slots: dict[str, Float32Array] = SLOTS, *, threads: int = 1) -> list[str]:
    return [digest.hex() for digest in tensor_digests(LAYOUT, weights, slots, threads=threads)]


def with_flipped_bit(array: Float32Array, place: int) -> Float32Array:
    words = array.view(np.uint32).copy()
    words[place] ^= 1
    flipped: Float32Array = words.view(np.float32)
    return flipped


def test_digests_are_the_known_ones() -> None:
    tensors = tensor_digests(LAYOUT, WEIGHTS, SLOTS, threads=1)
    assert tensors[0].hex() == "5b31f6fbaf8cc4b6a21f01de762d2b06"
    assert run_digest(tensors, NUMBERS).hex() == "2b8c3725066f7a36"
    assert run_digest([], {}).hex() == "af1349b9f5f9a1a6"


def test_a_tensors_digest_is_that_of_its_weights_and_then_of_its_slots_by_name() -> None:
    intervals = [slice(0, 12), slice(12, 17), slice(17, 18)]
    expected = [
        blake3(b"".join(array[interval].tobytes() for array in (WEIGHTS, SLOTS["first"], SLOTS["second"])))
        for interval in intervals
    ]
    assert digests() == [digest.digest(16).hex() for digest in expected]


def test_the_runs_digest_is_that_of_the_tensors_and_then_of_the_numbers_by_name() -> None:
    tensors = [b"a" * 16, b"b" * 16]
    content = b"".join(tensors) + np.array([0.9, 0.999]).tobytes()
    assert run_digest(tensors, NUMBERS) == blake3(content).digest(8)


@pytest.mark.parametrize(("place", "tensor"), [(0, 0), (11, 0), (12, 1), (16, 1), (17, 2)])
@pytest.mark.parametrize("array", ["weights", "first", "second"])
def test_a_changed_bit_changes_the_digest_of_its_tensor_and_no_other(array: str, place: int, tensor: int) -> None:
    weights = with_flipped_bit(WEIGHTS, place) if array == "weights" else WEIGHTS
    slots = {name: with_flipped_bit(slot, place) if name == array else slot for name, slot in SLOTS.items()}
    changed = [was != now for was, now in zip(digests(), digests(weights, slots), strict=True)]
    assert changed == [number == tensor for number in range(3)]


@pytest.mark.parametrize("name", list(NUMBERS))
def test_the_last_bit_of_a_number_changes_the_runs_digest(name: str) -> None:
    nudged = NUMBERS | {name: float(np.nextafter(NUMBERS[name], 1.0))}
    assert run_digest([bytes(16)], nudged) != run_digest([bytes(16)], NUMBERS)


def test_any_tensor_and_their_order_count_in_the_runs_digest() -> None:
    one, other = b"a" * 16, b"b" * 16
    assert len({run_digest(tensors, {}) for tensors in ([one, other], [other, one], [one], [other], [])}) == 5


def test_the_order_in_which_slots_and_numbers_were_made_does_not_count() -> None:
    assert digests(slots=dict(reversed(SLOTS.items()))) == digests()
    assert run_digest([], dict(reversed(NUMBERS.items()))) == run_digest([], NUMBERS)


def test_two_slots_that_change_places_change_the_digest() -> None:
    assert digests(slots={"first": SLOTS["second"], "second": SLOTS["first"]}) != digests()


def test_a_slot_of_zeros_is_not_the_same_as_none() -> None:
    assert digests(slots={"first": np.zeros_like(WEIGHTS)}) != digests(slots={})


def test_bytes_in_another_order_in_memory_have_the_same_digest() -> None:
    assert digests(WEIGHTS.astype(">f4"), {name: slot.astype(">f4") for name, slot in SLOTS.items()}) == digests()


@pytest.mark.parametrize("threads", [0, 2, 5])
def test_threads_do_not_change_the_digest_of_a_large_tensor(threads: int) -> None:
    layout = ParameterLayout((TensorSpec("small", (1000,)), TensorSpec("large", (1500, 1000))))
    weights = np.random.default_rng(0).standard_normal(layout.size).astype(np.float32)
    slots = {"momentum_buffer": weights[::-1].copy()}
    one = tensor_digests(layout, weights, slots, threads=1)
    assert tensor_digests(layout, weights, slots, threads=threads) == one


def test_a_parts_digest_is_that_of_the_digests_of_its_own_pieces() -> None:
    part = LAYOUT.part(["matrix", "number"], {"matrix": (1, 2)})
    places = [slice(3, 9), slice(17, 18)]
    hashed = [
        blake3(b"".join(array[place].tobytes() for array in (WEIGHTS, SLOTS["first"], SLOTS["second"]))).digest(16)
        for place in places
    ]
    found = part_digests(LAYOUT, [part], WEIGHTS, SLOTS, NUMBERS, threads=1)
    assert found == [run_digest(hashed, NUMBERS)]
    assert found[0].hex() == "42aa630df298953f"


def test_parts_that_share_tensors_have_the_digests_that_each_has_alone() -> None:
    parts = [LAYOUT.part(["matrix", "vector"]), LAYOUT, LAYOUT.part(["vector"]), LAYOUT.part([])]
    together = part_digests(LAYOUT, parts, WEIGHTS, SLOTS, NUMBERS, threads=1)
    assert together == [part_digests(LAYOUT, [part], WEIGHTS, SLOTS, NUMBERS, threads=1)[0] for part in parts]
    assert together[1] == run_digest(tensor_digests(LAYOUT, WEIGHTS, SLOTS, threads=1), NUMBERS)
    assert len(set(together)) == 4

"""Which places for a cut are looked at where there are many."""

from fedlearn.graphs.planning.parts import ModelCosts, held_by, parts_of
from tests.graphs.models import NEEDS, model_of


def test_all_places_of_few_pieces_are_looked_at() -> None:
    parts = parts_of(model_of([1, 2, 3], [10, 20, 30]), NEEDS, max_places=4)
    assert parts.places == (0, 1, 2, 3)
    assert parts.work.tolist() == [0, 1, 3, 6]
    assert parts.sent.tolist() == [0, 10, 20, 0]


def test_each_stretch_keeps_the_place_that_sends_least() -> None:
    sent = [100 - number % 10 for number in range(100)]
    parts = parts_of(model_of([1] * 100, sent), NEEDS, max_places=12)
    assert len(parts.places) <= 12
    assert {sent[place - 1] for place in parts.places[2:-1]} == {91}


def test_stretches_are_of_equal_work_and_memory() -> None:
    pieces = model_of([9] * 10 + [0.001] * 10, [8] * 20).pieces
    model = ModelCosts(pieces, {f"t{number}": 1 if number < 10 else 900 for number in range(20)}, {})
    places = parts_of(model, NEEDS, max_places=12).places
    assert len([place for place in places if place < 10]) >= 4, "where the work is"
    assert len([place for place in places if place > 10]) >= 4, "where the tensors are"


def test_tensors_of_a_part_stand_once_in_the_order_in_which_they_are_read() -> None:
    model = model_of([1, 1, 1], [8, 8, 4], tensors=[("b", "a"), ("a",), ("c", "b")])
    assert held_by(model, 0, 3) == ("b", "a", "c")
    assert held_by(model, 1, 3) == ("a", "c", "b")

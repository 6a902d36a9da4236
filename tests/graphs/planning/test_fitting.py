"""Vocabularies that are cut because no whole tensor fits."""

import pytest

from fedlearn.graphs.graph import Graph, GraphError
from fedlearn.graphs.planning.crews import LacksMemory, Machine, PlanError
from fedlearn.graphs.planning.fitting import MAX_SHARDS, Cutting, Cuttings, fitting
from fedlearn.graphs.planning.parts import ModelCosts, Needs
from fedlearn.graphs.planning.planner import MAX_MACHINES, divide, plan
from tests.graphs.language import language
from tests.graphs.models import machine

NEEDS = Needs(parameter_bytes=10, members=1)
SIZE, WIDTH = 120, 4
ROW = 10 * WIDTH
"""Bytes of a row of the head, or of the embedding."""


def need_of(graph: Graph) -> float:
    """The memory that one machine needs for all of it."""
    return float(plan(ModelCosts.of(graph), [machine("all", 1e12)], NEEDS).crews[0].seats[0].need_bytes)


def headed() -> Graph:
    return language(size=SIZE, bias=False)


def head_bytes(n_shards: int) -> float:
    """What the largest part of the head needs, by a machine of its own."""
    model = Cutting.of(headed(), n_shards).model
    pieces = [piece for piece in model.pieces if piece.tensors[0].startswith("head")]
    alone = [ModelCosts([piece], model.learned, {}) for piece in pieces]
    return max(float(plan(each, [machine("a", 1e12)], NEEDS).crews[0].seats[0].need_bytes) for each in alone)


def alike(count: int, memory: float) -> list[Machine]:
    return [machine(f"m{number}", memory) for number in range(count)]


def test_what_fits_in_whole_tensors_is_not_cut() -> None:
    enough = [machine("a", need_of(headed()))]
    cutting, found = fitting(plan, Cuttings(headed()), enough, NEEDS)
    assert (cutting.n_shards, cutting.graph, len(found.crews)) == (1, headed(), 1)


@pytest.mark.parametrize("n_shards", [2, 3, 5])
def test_head_is_cut_into_as_few_shards_as_fit(n_shards: int) -> None:
    least = head_bytes(n_shards)
    assert least < head_bytes(n_shards - 1)
    # The embedding, which is not tied to the head, stays whole.
    machines = [machine("embedding", SIZE * ROW + 1e3), *alike(6, least)]
    cutting, found = fitting(plan, Cuttings(headed()), machines, NEEDS)
    assert cutting.n_shards == n_shards
    tensors = [name for seat in found.crews[0].seats for name in seat.tensors]
    assert sorted(tensors) == sorted(array.name for array in cutting.graph.learned)


def test_more_shards_than_machines_fit_unlike_ones() -> None:
    machines = [machine("large", 0.57 * need_of(headed())), machine("small", head_bytes(4))]
    cutting, found = fitting(plan, Cuttings(headed()), machines, NEEDS)
    assert cutting.n_shards == 4
    assert [seat.machine for seat in found.crews[0].seats] == ["large", "small"]


def test_tied_embedding_is_cut_as_well() -> None:
    tied = language(size=SIZE, weight="embedding", bias=False)
    cutting, found = fitting(plan, Cuttings(tied), alike(6, 0.6 * need_of(tied)), NEEDS)
    assert cutting.n_shards > 1
    assert {name for seat in found.crews[0].seats for name in seat.tensors} >= {"embedding[0:60]"}


def test_cut_that_is_wanted_is_the_least() -> None:
    assert fitting(plan, Cuttings(headed(), least=3), alike(1, 1e12), NEEDS)[0].n_shards == 3
    assert Cuttings(headed(), least=3).first.n_shards == 3


def test_what_no_cut_makes_fit_is_refused_with_what_is_missing_of_the_finest() -> None:
    with pytest.raises(LacksMemory, match=r"holds embedding to embedding, which take .* are missing there"):
        fitting(plan, Cuttings(headed()), alike(6, SIZE * ROW / 2), NEEDS)
    assert [cutting.n_shards for cutting in Cuttings(headed())] == list(range(1, MAX_SHARDS + 1))


def test_without_a_vocabulary_nothing_is_cut() -> None:
    smoothed = language(smoothing=0.1)
    assert [cutting.n_shards for cutting in Cuttings(smoothed)] == [1]
    with pytest.raises(LacksMemory):
        fitting(plan, Cuttings(smoothed), alike(4, 100.0), NEEDS)
    with pytest.raises(GraphError, match="smoothed labels"):
        Cuttings(smoothed, least=2)


def test_cuttings_are_made_once() -> None:
    cuttings = Cuttings(language())
    assert [cutting.n_shards for cutting in cuttings] == [1, 2, 3, 4, 5], "two rows a shard"
    assert list(map(id, cuttings)) == list(map(id, cuttings))


def test_crew_in_order_is_divided_into_as_few_shards_as_fit() -> None:
    least = head_bytes(2)
    machines = [machine("embedding", SIZE * ROW + 1e3), *alike(2, 1.1 * least)]
    cutting, found = fitting(divide, Cuttings(headed()), machines, NEEDS)
    assert cutting.n_shards == 2
    assert [seat.tensors[-1] for seat in found.crews[0].seats] == ["body", "head.weight[0:60]", "head.weight[60:120]"]
    with pytest.raises(LacksMemory, match="missing there"):
        fitting(divide, Cuttings(headed()), alike(3, SIZE * ROW / 2), NEEDS)


def test_more_machines_than_pieces_do_not_make_shards() -> None:
    with pytest.raises(PlanError, match="expected at most 3 for one crew of this model, got 4"):
        fitting(divide, Cuttings(headed()), alike(4, 1e12), NEEDS)


def test_the_largest_of_many_machines_decide_whether_a_model_can_be_held() -> None:
    model, small = ModelCosts.of(headed()), alike(MAX_MACHINES, 10.0)
    with pytest.raises(LacksMemory):
        plan(model, small, NEEDS)
    assert plan(model, [*small, machine("large", need_of(headed()))], NEEDS).crews

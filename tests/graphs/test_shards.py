"""A vocabulary in shards, as a graph."""

from itertools import pairwise

import pytest
from msgspec.structs import replace

from fedlearn.graphs.checks import check
from fedlearn.graphs.graph import Argument, Graph, GraphError, Value
from fedlearn.graphs.pieces import pieces, stages_of
from fedlearn.graphs.shards import NOISE_ROWS, Rows, rows_of, sharded
from tests.graphs.language import SIZE, TOKENS, WIDTH, language


def tensors_of(graph: Graph) -> list[str]:
    return [array.name for array in graph.learned]


def test_one_shard_is_the_graph_as_it_is() -> None:
    graph = language()
    assert sharded(graph, 1) is graph


@pytest.mark.parametrize("n_shards", [2, 3])
def test_each_shard_is_a_piece_with_its_own_rows(n_shards: int) -> None:
    graph = sharded(language(), n_shards)
    check(graph)
    bounds = [SIZE * number // n_shards for number in range(n_shards + 1)]
    spans = [f"[{first}:{end}]" for first, end in pairwise(bounds)]
    assert [piece.tensors for piece in pieces(graph)][2:] == [
        (f"head.weight{span}", f"head.bias{span}") for span in spans
    ]
    assert tensors_of(graph)[2:] == [f"head.weight{s}" for s in spans] + [f"head.bias{s}" for s in spans]


def test_a_shard_hands_on_eight_bytes_a_token_beside_what_it_was_given() -> None:
    cut = pieces(sharded(language(), 3))
    hidden = 4 * TOKENS * WIDTH
    assert [piece.sent_bytes for piece in cut[1:]] == [hidden, hidden + 8 * TOKENS, hidden + 8 * TOKENS, 4]


def test_a_tied_embedding_is_cut_as_the_head_is() -> None:
    graph = sharded(language(weight="embedding", bias=False), 2)
    check(graph)
    assert [piece.tensors for piece in pieces(graph)] == [
        ("embedding[0:5]",), ("embedding[5:10]",), ("body",), ("embedding[0:5]",), ("embedding[5:10]",),
    ]  # fmt: skip
    assert tensors_of(graph) == ["embedding[0:5]", "embedding[5:10]", "body"]
    assert [[array.name for array in stage.learned] for stage in stages_of(graph, [1, 4])] == [
        ["embedding[0:5]"], ["embedding[0:5]", "embedding[5:10]", "body"], ["embedding[5:10]"],
    ]  # fmt: skip


def test_large_vocabularies_are_cut_where_noise_is_fast() -> None:
    graph = sharded(language(size=1000), 3)
    assert [rows_of(name) for name in tensors_of(graph) if "weight" in name] == [
        Rows("head.weight", 0, 2 * NOISE_ROWS),
        Rows("head.weight", 2 * NOISE_ROWS, 4 * NOISE_ROWS),
        Rows("head.weight", 4 * NOISE_ROWS, 1000),
    ]


def test_names_of_shards_are_read_again() -> None:
    assert rows_of(Rows("a.b", 3, 9).name) == Rows("a.b", 3, 9)
    assert (rows_of("a.b"), rows_of("a.b").name) == (Rows("a.b"), "a.b")
    assert Rows("a", 3, 9).count == 6


@pytest.mark.parametrize(
    ("graph", "reason"),
    [
        (language(smoothing=0.1), "smoothed labels"),
        (replace(language(), calls=language().calls[:-1], outputs=("flat",), forms=language().forms[:-1]), "got 0 of"),
        (replace(language(), outputs=("loss", "logits")), "logits are what the graph gives"),
        (replace(language(), forms=()), "expected the forms of its results"),
    ],
)
def test_what_is_no_head_is_refused(graph: Graph, reason: str) -> None:
    with pytest.raises(GraphError, match=reason):
        sharded(graph, 2)


def changed(place: int, operator: str, *arguments: Argument) -> Graph:
    """A graph with another call at a place."""
    graph = language()
    calls = list(graph.calls)
    calls[place] = replace(calls[place], operator=operator, arguments=arguments)
    return replace(graph, calls=tuple(calls))


@pytest.mark.parametrize(
    ("graph", "reason"),
    [
        (changed(3, "matmul.default", Value("hidden"), Value("body")), "got one of the results of matmul.default"),
        (changed(4, "tanh.default", Value("logits")), "got one of the results of tanh.default"),
        (changed(1, "index_select.default", Value("head.weight"), 0, Value("words")), "index_select.default reads"),
    ],
)
def test_a_head_that_others_read_is_refused(graph: Graph, reason: str) -> None:
    with pytest.raises(GraphError, match=reason):
        sharded(graph, 2)


def test_too_many_shards_are_refused() -> None:
    with pytest.raises(GraphError, match="shards: expected at most 5 of a vocabulary of 10, got 6"):
        sharded(language(), 6)

import numpy as np

from fedlearn.es.layout import ParameterLayout, TensorSpec

LAYOUT = ParameterLayout(
    (
        TensorSpec("matrix", (3, 5), scale=2.0, mask_column=4),
        TensorSpec("vector", (7,)),
        TensorSpec("row", (1, 4)),
        TensorSpec("cube", (2, 2, 2)),
    )
)


def test_tensors_lie_one_after_the_other_without_gaps() -> None:
    assert LAYOUT.offsets == (0, 15, 22, 26)
    assert LAYOUT.size == 34


def test_split_gives_views_in_their_shapes() -> None:
    flat = np.arange(34, dtype=np.float32)
    parts = LAYOUT.split(flat)
    assert {name: part.shape for name, part in parts.items()} == {
        "matrix": (3, 5),
        "vector": (7,),
        "row": (1, 4),
        "cube": (2, 2, 2),
    }
    assert [float(part.reshape(-1)[0]) for part in parts.values()] == [0, 15, 22, 26]
    parts["vector"][:] = -1
    assert (flat[15:22] == -1).all()


def test_matrices_and_kernels_take_low_rank_noise_and_vectors_do_not() -> None:
    assert LAYOUT.table(3).tolist() == [
        [0, 3, 5, 3, 4],
        [15, 1, 7, 0, -1],
        [22, 1, 4, 0, -1],
        [26, 2, 4, 3, -1],
    ]


def test_a_kernel_has_a_row_for_each_place_along_its_first_side() -> None:
    assert TensorSpec("kernel", (8, 3, 5, 5)).sides == (8, 75)
    assert TensorSpec("depthwise", (8, 1, 1)).sides == (1, 8)
    assert ParameterLayout((TensorSpec("kernel", (2, 2, 2)),)).row_lengths.tolist() == [4, 4]


def test_full_rank_gives_every_tensor_a_sign_an_element() -> None:
    assert LAYOUT.table(0)[:, 3].tolist() == [0, 0, 0, 0]


def test_neighbours_of_one_scale_and_kind_are_one_stretch() -> None:
    assert LAYOUT.stretches(apart=True) == [
        ((2.0, True), slice(0, 15)),
        ((1.0, False), slice(15, 26)),
        ((1.0, True), slice(26, 34)),
    ]


def test_matrices_are_stretches_of_their_own_only_where_they_are_apart() -> None:
    assert LAYOUT.stretches(apart=False) == [((2.0, False), slice(0, 15)), ((1.0, False), slice(15, 34))]


def test_tensors_with_hidden_matrices_have_intervals_of_their_own() -> None:
    specs = (
        TensorSpec("a", (4, 2), n_hidden=2),
        TensorSpec("vector", (3,)),
        TensorSpec("slow", (2, 2), scale=0.5, n_hidden=1),
        TensorSpec("kernel", (2, 3, 1), n_hidden=1),
        TensorSpec("turned", (2, 9), n_hidden=-3),
    )
    assert [(spec.name, spec.hidden_sides, interval) for spec, interval in ParameterLayout(specs).hidden] == [
        ("a", (2, 2), slice(0, 8)),
        ("slow", (2, 2), slice(11, 15)),
        ("kernel", (2, 3), slice(15, 21)),
        ("turned", (3, 2), slice(21, 39)),
    ]
    assert ParameterLayout(specs).stretches(apart=False, with_hidden=False) == [((1.0, False), slice(8, 11))]
    assert ParameterLayout(specs).stretches(apart=False)[0] == ((1.0, False), slice(0, 11))


def test_a_table_of_one_rank_is_not_that_of_another() -> None:
    assert LAYOUT.table(2)[:, 3].tolist() == [2, 0, 0, 2]
    assert LAYOUT.table(1)[:, 3].tolist() == [1, 0, 0, 1]
    assert LAYOUT.table(2)[:, 3].tolist() == [2, 0, 0, 2]


def test_a_model_without_tensors_is_empty() -> None:
    assert ParameterLayout(()).size == 0
    assert not ParameterLayout(()).stretches(apart=True)

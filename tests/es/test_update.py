import msgspec
import numpy as np

from fedlearn.es.optimizers import Adam
from fedlearn.es.sums.estimate import CodedEstimate
from fedlearn.es.update import Update, elapsed_s_after

UPDATE = Update(
    step=3,
    block=b"",
    spans=((0, 8), (24, 4)),
    utilities=np.zeros(12, dtype=np.int8),
    rank=1,
    group_size=4,
    gradient_scale=-0.001,
    optimizer=Adam(0.01),
    antithetic=False,
    weight_decay=0.0,
    decay_towards="zero",
    elapsed_s=7.5,
    shaping_scale=0.1,
)


def test_members_are_those_of_all_spans() -> None:
    assert UPDATE.n_members == 12
    assert msgspec.structs.replace(UPDATE, spans=()).n_members == 0


def test_an_update_with_an_estimate_is_summed() -> None:
    estimate = CodedEstimate(np.zeros(5, dtype=np.int8), np.zeros(5, dtype=np.uint8))
    assert not UPDATE.is_summed
    assert msgspec.structs.replace(UPDATE, estimate=estimate).is_summed


def test_a_run_begins_with_no_time_behind_it() -> None:
    assert elapsed_s_after(None) == 0.0
    assert elapsed_s_after(UPDATE) == 7.5

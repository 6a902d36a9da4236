import numpy as np
import pytest

from fedlearn.es.snapshot import Snapshot
from fedlearn.es.sums.estimate import CodedEstimate
from fedlearn.es.update import Update
from fedlearn.tasks.blocks import MAX_BLOCK_BYTES, cut, encode_block
from fedlearn.tasks.invitation import Invitation
from fedlearn.tasks.limits import MAX_PARAMETERS
from fedlearn.wire.encoding.codec import encode
from fedlearn.wire.limits import DEFAULT_MAX_SNAPSHOT_BYTES, max_message_bytes, message_limit_s, result_limit_bytes
from fedlearn.wire.messages import DataBlock, Goodbye, Message, Result, Welcome
from fedlearn.wire.states import MessageType

LARGEST = CodedEstimate(np.zeros(2**24, np.int8), np.zeros(2**24, np.uint8))


def max_bytes(message_type: MessageType) -> int:
    return max_message_bytes(message_type, max_snapshot_bytes=1000)


def test_a_million_losses_and_an_estimate_of_sixteen_million_parameters_fit() -> None:
    result = Result(2**62, 2**62, np.zeros(2**20, np.float32), bytes(8), LARGEST)
    assert len(encode(result)) <= max_bytes(Result)


def test_sixteen_million_utilities_in_many_spans_fit(examples: dict[MessageType, Message]) -> None:
    spans = tuple((2**40 + first, 64) for first in range(0, 2**24, 64))
    values = {name: getattr(examples[Update], name) for name in Update.__struct_fields__}
    update = Update(**(values | {"spans": spans, "utilities": np.zeros(2**24, np.int8)}))
    assert len(encode(update)) <= max_bytes(Update)


def test_the_estimate_of_sixteen_million_parameters_fits(examples: dict[MessageType, Message]) -> None:
    values = {name: getattr(examples[Update], name) for name in Update.__struct_fields__}
    update = Update(**(values | {"utilities": np.zeros(0, np.int8), "estimate": LARGEST}))
    assert len(encode(update)) <= max_bytes(Update)


def test_the_largest_block_that_is_cut_fits() -> None:
    (largest,) = cut({"pixels": np.zeros((MAX_BLOCK_BYTES // 2**20, 2**20), np.uint8)})
    assert len(encode(DataBlock(bytes(16), encode_block(largest)))) <= max_bytes(DataBlock)


def test_a_graph_with_frozen_arrays_of_sixty_megabytes_fits() -> None:
    welcome = Welcome("7", Invitation("graph", 1, {}, {}, bytes(60 * 2**20)))
    assert len(encode(welcome)) <= max_bytes(Welcome)


def test_a_snapshot_holds_weights_a_start_and_two_moments_of_the_largest_model() -> None:
    one_array = 4 * MAX_PARAMETERS
    assert one_array < 2**32  # of a bin in msgpack
    assert 4 * one_array + 4096 <= DEFAULT_MAX_SNAPSHOT_BYTES


def test_longest_reason_fits() -> None:
    assert len(encode(Goodbye("\U0001f642" * 1000))) <= max_bytes(Goodbye)


def test_snapshot_limit_is_the_callers() -> None:
    assert max_bytes(Snapshot) == 1000


def test_time_grows_with_the_size() -> None:
    assert message_limit_s(0) == 10.0
    assert message_limit_s(10 * 2**20) == pytest.approx(310.0)


def test_the_results_of_a_lease_fit_and_not_much_more() -> None:
    losses, estimate = np.zeros(1000, np.float32), CodedEstimate(np.zeros(5000, np.int8), np.zeros(70, np.uint8))
    length = len(encode(Result(2**62, 2**62, losses, bytes(8), estimate)))
    limit = result_limit_bytes(1000, estimate_bytes=5070)
    assert length <= limit <= length + 2**12
    assert len(encode(Result(2**62, 2**62, losses, bytes(8)))) <= result_limit_bytes(1000, estimate_bytes=0)

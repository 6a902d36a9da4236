from pathlib import Path

import msgspec
import numpy as np
import pytest

from fedlearn.es.snapshot import Snapshot
from fedlearn.es.update import Update
from fedlearn.runs.history import rebuilt_at
from fedlearn.server.training import recent as module
from fedlearn.server.training.parts import ReplicaParts
from fedlearn.server.training.recent import RecentUpdates, ReplicaMessages
from fedlearn.wire.encoding.parcel import pack
from tests.run_folders import bytes_of, created, fit_task, task_config, update_of

LARGE = 10**6


def digest_of(step: int) -> bytes:
    return step.to_bytes(8, "little")


@pytest.fixture
def updates(tmp_path: Path) -> list[Update]:
    run = created(task_config(tmp_path), fit_task())
    return [update_of(run, step) for step in range(5, 15)]


def filled(updates: list[Update], weights_bytes: int = LARGE) -> RecentUpdates:
    recent = RecentUpdates()
    for update in updates:
        recent.add(update, digest_of(update.step), weights_bytes=weights_bytes)
    return recent


def steps_since(recent: RecentUpdates, step: int) -> list[int] | None:
    found = recent.since(step, digest_of(step))
    return None if found is None else [message.step for message, _ in found if isinstance(message, Update)]


def test_updates_since_a_step_come_in_order_with_the_parcels_that_all_were_sent(updates: list[Update]) -> None:
    recent = RecentUpdates()
    parcels = [recent.add(update, digest_of(update.step), weights_bytes=LARGE) for update in updates]
    found = recent.since(12, digest_of(12))
    assert found == list(zip(updates, parcels, strict=True))[7:]
    assert [bytes_of(parcel) for parcel in parcels] == [bytes_of(pack(update)) for update in updates]
    assert steps_since(recent, 5) == list(range(5, 15))


def test_other_weights_and_steps_that_are_not_kept_are_not_known(updates: list[Update]) -> None:
    recent = filled(updates)
    assert recent.since(12, b"otherwis") is None
    assert [steps_since(recent, step) for step in (4, 15, 2**63 - 1)] == [None, None, None]
    assert RecentUpdates().since(0, digest_of(0)) is None


def test_no_more_is_kept_than_the_weights_have_bytes(updates: list[Update]) -> None:
    size = pack(updates[0]).length_bytes
    assert {pack(update).length_bytes for update in updates} == {size}
    recent = filled(updates, weights_bytes=3 * size)
    assert steps_since(recent, 13) == [13, 14]
    assert steps_since(recent, 12) is None
    assert steps_since(filled(updates, weights_bytes=size), 14) is None


def test_memory_is_bounded_for_weights_of_any_size(updates: list[Update], monkeypatch: pytest.MonkeyPatch) -> None:
    wide = [msgspec.structs.replace(update, utilities=np.zeros(5000, np.int8)) for update in updates]
    monkeypatch.setattr(module, "MAX_BYTES", 2 * 2 * 5000 + 5000)
    recent = filled(wide, weights_bytes=10**12)
    assert steps_since(recent, 13) == [13, 14]
    assert steps_since(recent, 12) is None


def test_update_of_another_step_than_the_next_begins_anew(updates: list[Update]) -> None:
    recent = filled([*updates[:4], *updates[6:]])
    assert [steps_since(recent, step) for step in (5, 8, 10, 11)] == [None, None, None, [11, 12, 13, 14]]


def test_snapshot_is_packed_once_for_each_state_of_a_step(tmp_path: Path) -> None:
    run = created(task_config(tmp_path), fit_task())
    holding = rebuilt_at(run).holding
    messages, digest = ReplicaMessages(holding), holding.replica.digest
    first = messages.snapshot(digest)
    assert messages.snapshot(digest) is first
    snapshot = holding.replica.snapshot()
    other = msgspec.structs.replace(snapshot, weights=snapshot.weights + 1.0, digest=b"")
    found, _ = messages.snapshot(holding.load(other))
    assert isinstance(found, Snapshot)
    assert (found.step, found.digest) == (snapshot.step, holding.replica.digest) != (snapshot.step, digest)


def test_zeros_of_a_slot_do_not_travel(tmp_path: Path) -> None:
    holding = rebuilt_at(created(task_config(tmp_path), fit_task())).holding
    layout = holding.replica.layout
    zeros = np.zeros(layout.size, np.float32)
    holding.load(msgspec.structs.replace(holding.replica.snapshot(), slots={"first_moment": zeros}))
    whole = {"first_moment": list(range(len(layout.tensors)))}
    for found, parcel in (
        ReplicaMessages(holding).snapshot(holding.replica.digest),
        ReplicaParts(holding).message(tuple(tensor.name for tensor in layout.tensors)),
    ):
        assert isinstance(found, Snapshot)
        assert (found.zeros, found.slots["first_moment"].size) == (whole, 0)
        assert parcel is not None
        assert bytes_of(parcel) == bytes_of(pack(found))

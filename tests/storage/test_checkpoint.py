from pathlib import Path

import msgspec
import numpy as np
import pytest
import safetensors.numpy
from safetensors import safe_open

from fedlearn.es.layout import ParameterLayout
from fedlearn.es.snapshot import START, Snapshot
from fedlearn.storage.checkpoint import (
    KEPT_CHECKPOINTS,
    Context,
    _checksum,
    latest_checkpoint,
    load_metadata,
    read_checkpoint,
    save_checkpoint,
    write_checkpoint,
)
from fedlearn.storage.durable import StorageError
from fedlearn.storage.named_tensors import write_tensors
from fedlearn.storage.runs import RunFolder, create_run
from fedlearn.wire.encoding.codec import encode
from tests.storage.journals import layout_text, update_of


def snapshot_of(step: int) -> Snapshot:
    values = np.array([0.1, -0.0, 1e-45, np.inf, -3e38], np.float32)
    return Snapshot(
        step=step,
        digest=bytes(range(8)),
        weights=values,
        slots={"first_moment": values[::-1], "second_moment": values * values[0]},
        numbers={"beta1_power": 0.9**1000, "beta2_power": 0.1 + 0.2},
    )


LAYOUT = layout_text(("matrix", (2, 2)), ("vector", (1,)))
CONTEXT = Context(LAYOUT, "{}", '{"name":"7"}')


def save(run: RunFolder, step: int) -> Path:
    return save_checkpoint(run, snapshot_of(step), update_of(step - 1, members=4), CONTEXT)


@pytest.fixture
def run(tmp_path: Path) -> RunFolder:
    run = create_run(tmp_path)
    write_checkpoint(run.genesis, snapshot_of(0), None, CONTEXT)
    return run


def test_checkpoint_reads_back_to_the_bit(run: RunFolder) -> None:
    assert encode(read_checkpoint(save(run, 12)).snapshot) == encode(snapshot_of(12))


def test_other_programs_find_tensors_and_settings(run: RunFolder) -> None:
    write_checkpoint(run.genesis, snapshot_of(3), None, Context(LAYOUT, '{"seed":1}', "{}"))
    tensors, weights = safetensors.numpy.load_file(run.genesis), snapshot_of(3).weights
    slots = ["optimizer/first_moment", "optimizer/second_moment"]
    assert {name: tensor.shape for name, tensor in tensors.items()} == {
        "matrix": (2, 2),
        "vector": (1,),
        **dict.fromkeys(slots, (5,)),
    }
    assert tensors["matrix"].tobytes() + tensors["vector"].tobytes() == weights.tobytes()
    assert tensors[slots[0]].tobytes() == weights[::-1].tobytes()
    with safe_open(run.genesis, framework="numpy") as file:
        metadata = file.metadata()
    assert (metadata["step"], metadata["digest"]) == ("3", "0001020304050607")
    assert (metadata["layout"], metadata["config"]) == (LAYOUT, '{"seed":1}')
    assert metadata["numbers"] == '{"beta1_power":"0x1.fee7413dac341p-153","beta2_power":"0x1.3333333333334p-2"}'


def test_a_snapshot_without_slots_and_numbers_reads_back(run: RunFolder) -> None:
    bare = Snapshot(3, bytes(8), np.ones(5, np.float32), {}, {})
    write_checkpoint(run.genesis, bare, None, CONTEXT)
    assert encode(read_checkpoint(run.genesis).snapshot) == encode(bare)


def test_zeros_of_slots_and_first_weights_take_no_place(run: RunFolder) -> None:
    values = np.array([1.0, 2.0, 3.0, 4.0, 5.0], np.float32)
    slots = {START: values.copy(), "first_moment": values, "second_moment": np.array([0, 0, 0, 0, 5], np.float32)}
    write_checkpoint(run.genesis, Snapshot(3, bytes(8), values, slots, {}), None, CONTEXT)
    stored = safetensors.numpy.load_file(run.genesis)
    assert {name: tensor.size for name, tensor in stored.items() if name.startswith("optimizer/")} == {
        "optimizer/first_moment": 5,
        "optimizer/second_moment": 1,
    }
    found = read_checkpoint(run.genesis).snapshot.whole_slots(msgspec.json.decode(LAYOUT, type=ParameterLayout))
    assert {name: slot.tolist() for name, slot in found.items()} == {name: s.tolist() for name, s in slots.items()}


@pytest.mark.parametrize(
    "zeros", ["{}", '{"second_moment":[1]}', '{"second_moment":[0,1]}', '{"third":[]}', '{"second_moment":0}']
)
def test_what_is_left_out_must_be_of_the_layout(run: RunFolder, zeros: str) -> None:
    values = np.ones(5, np.float32)
    slots = {"second_moment": np.array([0, 0, 0, 0, 5], np.float32)}
    write_checkpoint(run.genesis, Snapshot(3, bytes(8), values, slots, {}), None, CONTEXT)
    with safe_open(run.genesis, framework="numpy") as file:
        metadata = {**file.metadata(), "zeros": zeros}
    del metadata["checksum"]
    slots = {"second_moment": slots["second_moment"][4:]}
    metadata["checksum"] = _checksum(metadata, values, slots)
    write_tensors(run.genesis, msgspec.json.decode(LAYOUT, type=ParameterLayout), values, metadata, slots=slots)
    with pytest.raises(StorageError, match="expected a checkpoint of this version of fedlearn: "):
        read_checkpoint(run.genesis)


def test_configuration_and_layout_are_read_back(run: RunFolder) -> None:
    write_checkpoint(run.genesis, snapshot_of(3), None, Context(LAYOUT, '{"seed":1}', "{}"))
    assert load_metadata(run.genesis, "config") == '{"seed":1}'
    assert load_metadata(run.genesis, "layout") == LAYOUT


def test_configuration_of_another_file_is_refused(run: RunFolder) -> None:
    safetensors.numpy.save_file({"weights": np.zeros(2, np.float32)}, run.genesis)
    with pytest.raises(StorageError, match="expected a checkpoint of fedlearn"):
        load_metadata(run.genesis, "config")


def test_last_checkpoints_are_kept_and_genesis_too(run: RunFolder) -> None:
    (run.checkpoints / "000000000001.safetensors.partial").touch()
    paths = [save(run, step) for step in (8, 9, 10, 11, 100)]
    assert sorted(run.checkpoints.iterdir()) == paths[-KEPT_CHECKPOINTS:]
    assert read_checkpoint(run.genesis).snapshot.step == 0


def test_latest_is_the_highest_step(run: RunFolder) -> None:
    for step in (9, 10):
        save(run, step)
    checkpoint, problems = latest_checkpoint(run)
    assert (checkpoint.step, problems) == (10, {})
    assert latest_checkpoint(run, until=9)[0].step == 9
    assert latest_checkpoint(run, until=8)[0].path == run.genesis


def test_latest_of_a_young_run_is_genesis(run: RunFolder) -> None:
    checkpoint, problems = latest_checkpoint(run)
    assert (checkpoint.step, problems) == (0, {})


def test_damaged_newest_is_reported_and_the_one_before_is_used(run: RunFolder) -> None:
    save(run, 1)
    newest = save(run, 2)
    whole = newest.read_bytes()
    for size in range(len(whole)):
        newest.write_bytes(whole[:size])
        checkpoint, problems = latest_checkpoint(run)
        assert (checkpoint.step, [*problems]) == (1, [newest])
        assert str(newest) in problems[newest]


def test_any_flipped_bit_is_noticed(run: RunFolder) -> None:
    path = save(run, 1)
    assert read_checkpoint(path).snapshot.step == 1
    whole = path.read_bytes()
    unnoticed = []
    for bit in range(8 * len(whole)):
        damaged = bytearray(whole)
        damaged[bit // 8] ^= 1 << bit % 8
        path.write_bytes(damaged)
        try:
            snapshot = read_checkpoint(path).snapshot
        except StorageError:
            continue
        if encode(snapshot) != encode(snapshot_of(1)):
            unnoticed.append(bit)
    assert unnoticed == []


def test_run_without_a_readable_checkpoint_is_refused(run: RunFolder) -> None:
    save(run, 1).write_bytes(b"")
    run.genesis.unlink()
    with pytest.raises(StorageError, match=r"expected a readable checkpoint.*000000000001.*genesis"):
        latest_checkpoint(run)


def test_foreign_safetensors_file_is_refused(run: RunFolder) -> None:
    run.genesis.write_bytes(safetensors.numpy.save({"weights": np.zeros(2, np.float32)}))
    with pytest.raises(StorageError, match="expected a checkpoint of this version of fedlearn"):
        read_checkpoint(run.genesis)


def test_checkpoint_has_the_last_update_without_its_members(run: RunFolder) -> None:
    last = read_checkpoint(save(run, 5)).last
    assert last is not None
    assert (last.step, last.n_members, last.utilities.size) == (4, 0, 0)
    assert (last.elapsed_s, last.shaping_scale) == (update_of(4).elapsed_s, update_of(4).shaping_scale)
    assert read_checkpoint(run.genesis).last is None


def test_checkpoint_says_of_which_run_it_is(run: RunFolder) -> None:
    assert read_checkpoint(save(run, 5)).origin == load_metadata(run.genesis, "origin") == '{"name":"7"}'


def test_failed_write_keeps_the_older_checkpoints(run: RunFolder, monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(_: int) -> None:
        raise OSError(28, "No space left on device")

    paths = [save(run, step) for step in (1, 2, 3)]
    monkeypatch.setattr("os.fsync", fail)
    with pytest.raises(StorageError, match="No space left"):
        save(run, 4)
    assert sorted(run.checkpoints.iterdir()) == paths

"""Files of anybody's making: what reads them gives what is in them, or raises a StorageError."""

import tempfile
from contextlib import suppress
from pathlib import Path
from typing import Any

import msgspec
import numpy as np
import pytest
import safetensors.numpy
from hypothesis import example, given
from hypothesis import strategies as st
from numpy.typing import NDArray

from fedlearn.coordination.people.credit import Earned
from fedlearn.es.update import Update
from fedlearn.storage import checkpoint as checkpoint_module
from fedlearn.storage.aside import Aside
from fedlearn.storage.checkpoint import read_checkpoint
from fedlearn.storage.durable import StorageError
from fedlearn.storage.journal.cutting import cut_lines
from fedlearn.storage.journal.journal import read_records, stretches_of
from fedlearn.storage.journal.records import record_of
from fedlearn.storage.journal.segment import HEADER_BYTES
from fedlearn.storage.logs.lines import read_lines
from fedlearn.storage.logs.metrics import StepMetrics, read_last_metrics
from fedlearn.storage.origin import load_origin
from fedlearn.storage.runs import RunFolder
from fedlearn.wire.encoding.codec import encode
from tests.steps import step_metrics
from tests.storage.journals import digest_of, layout_text, open_journal, update_of

STEP = 7


def valid_segment(folder: Path) -> bytes:
    with open_journal(folder, STEP) as journal:
        for step in range(STEP, STEP + 3):
            journal.append(update_of(step), digest_of(step))
    return journal.path.read_bytes()


with tempfile.TemporaryDirectory() as _folder:
    VALID = valid_segment(Path(_folder) / "journal")

UPDATE = encode(update_of(STEP))
HEAD = STEP.to_bytes(8, "little") + bytes(8) + UPDATE[:16]
"""How a step's payload begins."""

altered = st.builds(
    lambda at, gone, put: VALID[:at] + put + VALID[at + gone :],
    st.integers(0, len(VALID)),
    st.integers(0, 300),
    st.binary(max_size=100),
)
"""A segment with a piece that is taken out, and another put in."""

payloads = st.one_of(st.binary(max_size=60), st.binary(max_size=60).map(lambda tail: HEAD + tail))
crafted = st.lists(payloads).map(lambda found: VALID[:HEADER_BYTES] + b"".join(map(record_of, found)))
"""A segment of records with good checksums, and whatever in them."""


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """One for all examples."""
    return tmp_path_factory.mktemp("hostile")


@given(content=st.one_of(st.binary(max_size=300), altered, crafted))
def test_segment_gives_steps_in_turn_or_says_what_is_wrong(folder: Path, content: bytes) -> None:
    path = folder / "journal" / f"{STEP:012d}"
    path.parent.mkdir(exist_ok=True)
    path.write_bytes(content)
    found, problems = list[Update](), list[str]()
    with suppress(StorageError):
        found.extend(record.update for record in read_records(path.parent, start=STEP, problems=problems))
    assert [update.step for update in found] == list(range(STEP, STEP + len(found)))
    with suppress(StorageError):
        stretches_of(path.parent, problems)


def metadata_of(step: int) -> dict[str, str]:
    layout = layout_text(("vector", (2,)))
    return {"step": str(step), "digest": "00" * 8, "numbers": "{}", "last": UPDATE.hex(), "origin": "{}"} | {
        "layout": layout
    }


values = st.one_of(
    st.none(),
    st.text(max_size=20),
    st.sampled_from(["0x1p99999", '{"a":"0x1p99999"}', '{"a":"nan"}', '{"a":1}', "-1", "9" * 30, "zz", "ff" * 300]),
)
arrays = st.dictionaries(
    st.sampled_from(["vector", "optimizer/first_moment", "other"]),
    st.sampled_from([np.ones(2, np.float32), np.zeros((2, 2)), np.zeros(0, np.int8), np.zeros(3, np.float16)]),
)
GOOD = {"vector": np.ones(2, np.float32)}


@example(altered={"numbers": '{"a":"0x1p99999"}'}, tensors=GOOD)
@example(altered={"layout": layout_text(("vector", (10**15,)))}, tensors=GOOD)
@example(altered={"layout": layout_text(("vector", (-1, -2)))}, tensors=GOOD)
@example(altered={}, tensors={**GOOD, "optimizer/first_moment": np.zeros(10**5, np.float32)})
@given(altered=st.dictionaries(st.sampled_from(sorted(metadata_of(0))), values, max_size=2), tensors=arrays)
def test_checkpoint_with_a_good_checksum_and_anything_in_it_is_read_or_refused(
    folder: Path, altered: dict[str, str | None], tensors: dict[str, NDArray[Any]]
) -> None:
    path = folder / "crafted.safetensors"
    metadata = {key: value for key, value in {**metadata_of(3), **altered}.items() if value is not None}
    slots = {name.removeprefix("optimizer/"): array for name, array in tensors.items() if name.startswith("optimizer/")}
    checksum = checkpoint_module._checksum(metadata, GOOD["vector"], slots)
    path.write_bytes(safetensors.numpy.save(tensors, {**metadata, "checksum": checksum}))
    with suppress(StorageError):
        found = read_checkpoint(path)
        assert found.step == int(metadata["step"])
        assert found.snapshot.weights.tobytes() == tensors["vector"].tobytes()
        assert {slot.shape for slot in found.snapshot.slots.values()} <= {(2,)}


@given(content=st.binary(max_size=200))
def test_checkpoint_and_origin_of_any_bytes_are_refused(folder: Path, content: bytes) -> None:
    run = RunFolder(folder)
    for path in (run.genesis, run.origin):
        path.write_bytes(content)
    with pytest.raises(StorageError, match="expected a checkpoint"):
        read_checkpoint(run.genesis)
    with pytest.raises(StorageError, match="restore it from a copy"):
        load_origin(run)


DEEP = b"[" * 100_000
"""Deeper than any decoder goes: Python 3.13 allows it 10,000 levels, those before it 1,000."""


def test_identity_that_is_nested_deeply_is_damaged(tmp_path: Path) -> None:
    run = RunFolder(tmp_path)
    run.origin.write_bytes(b'{"other":' + DEEP)
    with pytest.raises(StorageError, match="recursion depth"):
        load_origin(run)


def test_lines_that_are_nested_deeply_are_passed_over(tmp_path: Path) -> None:
    path = tmp_path / "lines"
    path.write_bytes(b'{"other":' + DEEP + b"\n" + msgspec.json.encode(Earned()) + b"\n")
    assert list(read_lines(path, Earned)) == [Earned()]
    assert read_last_metrics(path, 2) == []


def test_lines_with_a_name_that_is_no_text_are_passed_over(tmp_path: Path) -> None:
    path = tmp_path / "metrics.jsonl"
    good = step_metrics(1, shown={"name": 1.0})
    line = msgspec.json.encode(good)
    path.write_bytes(line.replace(b"name", b"nam\xe5") + b"\n" + line + b"\n")
    assert list(read_lines(path, StepMetrics)) == [good]
    assert read_last_metrics(path, 2) == [good]


def test_line_that_is_nested_deeply_is_cut_with_the_steps_from_there_on(tmp_path: Path) -> None:
    path = tmp_path / "metrics.jsonl"
    path.write_bytes(b'{"step":1}\n{"other":' + DEEP + b"\n")
    cut_lines(path, 2, Aside(tmp_path))
    assert path.read_bytes() == b'{"step":1}\n'

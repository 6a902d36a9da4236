from pathlib import Path

import msgspec
import numpy as np
import pytest
from blake3 import blake3

from fedlearn.es.snapshot import Snapshot
from fedlearn.storage.checkpoint import Context, write_checkpoint
from fedlearn.storage.durable import StorageError
from fedlearn.storage.origin import Origin, check_files, check_same_run, load_origin, to_text
from fedlearn.storage.runs import RunFolder, create_run
from tests.storage.journals import layout_text

TEXT_HASH = blake3(b"text").hexdigest(16)

ORIGIN = Origin(
    step=3, digest="00ff" * 4, settings={"seed": 1, "sigma": 0.1, "antithetic": False}, files={"text": TEXT_HASH}
)


@pytest.fixture
def run(tmp_path: Path) -> RunFolder:
    run = create_run(tmp_path)
    run.origin.write_text(to_text(ORIGIN))
    (run.data / "text").write_bytes(b"text")
    snapshot = Snapshot(3, bytes(8), np.zeros(2, np.float32), {}, {})
    write_checkpoint(run.genesis, snapshot, None, Context(layout_text(("vector", (2,))), "{}", to_text(ORIGIN)))
    return run


def test_origin_reads_back(run: RunFolder) -> None:
    assert load_origin(run) == (ORIGIN, ())


@pytest.mark.parametrize(
    "changes",
    [
        {"step": 4},
        {"digest": "00fe" * 4},
        {"settings": {**ORIGIN.settings, "seed": 2}},
        {"files": {"text": "0" * 32}},
        {"files": {"other": TEXT_HASH}},
    ],
)
def test_identity_follows_from_all_of_it_and_not_from_its_order(changes: dict[str, object]) -> None:
    assert msgspec.structs.replace(ORIGIN, **changes).identity != ORIGIN.identity
    turned = msgspec.structs.replace(ORIGIN, settings=dict(reversed(ORIGIN.settings.items())))
    assert turned.identity == ORIGIN.identity


@pytest.mark.parametrize("content", [None, b"", b"{", b"\xff", to_text(ORIGIN).replace("0.1", "0.2").encode()])
def test_origin_that_is_damaged_is_read_from_genesis_and_told(run: RunFolder, content: bytes | None) -> None:
    if content is None:
        run.origin.unlink()
    else:
        run.origin.write_bytes(content)
    origin, (notice,) = load_origin(run)
    assert origin == ORIGIN
    assert notice.startswith(f"skipped: {run.origin}: expected ")
    assert "; restore it from a copy; read from" in notice
    assert "Errno" not in notice
    assert f"read from {run.genesis} in its place" in notice


def test_run_without_any_origin_is_refused_with_the_remedy(run: RunFolder) -> None:
    run.origin.unlink()
    run.genesis.unlink()
    with pytest.raises(StorageError, match=r"origin\.json: expected .*restore it from a copy; a run of an older"):
        load_origin(run)


def test_file_that_is_not_the_one_the_run_was_begun_with_is_named(run: RunFolder) -> None:
    check_files(run, ORIGIN)
    (run.data / "text").write_bytes(b"tect")
    with pytest.raises(StorageError, match=r"data/text: expected the file that the run was begun with .*restore it"):
        check_files(run, ORIGIN)
    (run.data / "text").unlink()
    with pytest.raises(StorageError, match=r"data/text: expected a file that the run was begun with: No such file"):
        check_files(run, ORIGIN)


def test_checkpoint_of_another_run_is_refused_with_both_names(run: RunFolder) -> None:
    check_same_run(ORIGIN, to_text(ORIGIN), run.genesis)
    other = msgspec.structs.replace(ORIGIN, step=0)
    names = rf"\({ORIGIN.identity.hex()}\), got one of another \({other.identity.hex()}\)"
    with pytest.raises(StorageError, match=rf"genesis.*: expected a checkpoint of this run {names}; move it out"):
        check_same_run(ORIGIN, to_text(other), run.genesis)

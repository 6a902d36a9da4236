"""Coverage-guided fuzzing of what reads a run's folder: no content of a file may end otherwise than in a result, or in
an error that is shown as one sentence.

pip install atheris
python fuzz/files.py --minutes 5

The first byte of a case says which file the rest is the content of. Where a checksum stands before the content, the
rest is also tried as what the checksum covers.
"""

import argparse
import json
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path

import numpy as np
import safetensors.numpy
from fuzzer import add_arguments, fuzz, instrumented

sys.path[:0] = [str(Path(__file__).parents[1])]

INSTRUMENTED = ["fedlearn.storage", "fedlearn.config", "fedlearn.wire", "fedlearn.tasks.blocks"]

with instrumented(INSTRUMENTED):
    from fedlearn.config import Schema
    from fedlearn.config.sources import load_config
    from fedlearn.coordination.people.credit import Entry
    from fedlearn.es.optimizers import Adam
    from fedlearn.es.update import Update
    from fedlearn.runs.run import load_run_config
    from fedlearn.storage import checkpoint
    from fedlearn.storage.credentials import load_identity as load_key
    from fedlearn.storage.credentials import read_allowed, read_token
    from fedlearn.storage.durable import StorageError
    from fedlearn.storage.journal.journal import read_records, stretches_of
    from fedlearn.storage.journal.records import record_of
    from fedlearn.storage.journal.segment import Header, create_segment, encode_step
    from fedlearn.storage.logs.lines import read_lines
    from fedlearn.storage.logs.metrics import read_last_metrics
    from fedlearn.storage.origin import load_origin
    from fedlearn.storage.runs import RunFolder
    from fedlearn.tasks.blocks import NO_BLOCK, decode_block, encode_block
    from fedlearn.tasks.user.task_options import TaskOptions
    from fedlearn.text.tokenizers.tokenizer import tokenizer_from_json
    from tests.run_folders import created, fit_task, task_config

MEMORY_MB = 384
"""Megabytes that the process may take, with the fuzzer's own and what was imported."""

EXPECTED = (StorageError, ValueError)
"""Commands show these as one sentence; what Python's own codecs say counts as none."""

FOLDER = Path(tempfile.mkdtemp(prefix="fedlearn-files-"))
RUN: RunFolder = created(task_config(FOLDER), fit_task()).folder
SEGMENT = RUN.journal / "000000000000"
CHECKPOINT = FOLDER / "checkpoint.safetensors"
FILE = FOLDER / "file"
HEADER = Header(bytes(16), 0, bytes(8))
RUN.journal.mkdir(exist_ok=True)
load_key(RUN.local_identity)
EMPTY = create_segment(RUN.journal, HEADER).read_bytes()
SCHEMA = Schema(TaskOptions)
METADATA = {"layout": '{"tensors":[{"name":"vector","shape":[2]}]}'}
"""Metadata of a checkpoint whose tensors are those of its layout."""


def journal(data: bytes) -> None:
    SEGMENT.write_bytes(data)
    stretches_of(RUN.journal, [])
    for record in read_records(RUN.journal, start=0):
        _ = record.update


def records(data: bytes) -> None:
    """Whole ones, of any content."""
    journal(EMPTY + record_of(data))


def whole_checkpoint(data: bytes) -> None:
    """Reads a checkpoint whose checksum is right."""
    names = ("step", "digest", "numbers", "last", "layout", "config", "identity")
    texts = data.decode("latin-1").split("\n")
    metadata = {**METADATA, **dict(zip(names, texts, strict=False))}
    tensor = np.zeros(2, np.float32)
    metadata["checksum"] = checkpoint._checksum(metadata, tensor, {})
    read_checkpoint(safetensors.numpy.save({"vector": tensor}, metadata))


def read_checkpoint(data: bytes) -> None:
    CHECKPOINT.write_bytes(data)
    found = checkpoint.read_checkpoint(CHECKPOINT)
    checkpoint.load_metadata(CHECKPOINT, "config")
    assert found.step >= 0


def config(data: bytes) -> None:
    RUN.config.write_bytes(data)
    load_run_config(RUN)


def settings(data: bytes) -> None:
    load_config(SCHEMA, ("fedlearn.toml", data.decode("utf-8", "replace")), {}, {})


def origin(data: bytes) -> None:
    RUN.origin.write_bytes(data)
    load_origin(RUN)


def of_file(read: Callable[[Path], object]) -> Callable[[bytes], None]:
    def read_it(data: bytes) -> None:
        FILE.write_bytes(data)
        read(FILE)

    return read_it


READERS: list[Callable[[bytes], object]] = [
    journal,
    records,
    read_checkpoint,
    whole_checkpoint,
    config,
    settings,
    origin,
    of_file(lambda path: read_last_metrics(path, 3)),
    of_file(lambda path: list(read_lines(path, Entry))),
    of_file(lambda path: read_allowed(str(path))),
    of_file(lambda path: read_token(str(path), {})),
    of_file(load_key),
    decode_block,
    lambda data: tokenizer_from_json(data.decode("utf-8", "replace")),
]


def try_one(data: bytes) -> None:
    """One case. Raises whatever must not be raised."""
    if not data:
        return
    try:
        READERS[data[0] % len(READERS)](data[1:])
    except EXPECTED as error:
        if isinstance(error, UnicodeError):
            raise


def seeds() -> list[bytes]:
    """Files as they should be."""
    genesis = RUN.genesis.read_bytes()
    update = Update(0, NO_BLOCK, ((0, 8),), np.zeros(8, np.int8), 1, 4, 0.1, Adam(0.01), True, 0.0, "zero", 0.0, 1.0)
    step = encode_step(update, bytes(8))
    found = checkpoint.read_checkpoint(RUN.genesis)
    whole = ["0", "00" * 8, json.dumps({"power": (0.5).hex()}), "", METADATA["layout"], "{}", found.origin]
    metrics = b'{"step":1,"loss":0.5,"shown":{},"members":8,"work_per_s":1.0,"volunteers":1,"bytes_in":1,"bytes_out":1,'
    metrics += b'"digest":"00","time":1.0}\n{"step":2'
    entry = b'{"first_step":0,"step":1,"earned":{}}\n'
    contents = [
        EMPTY + step,
        step[12:],
        genesis,
        "\n".join(whole).encode(),
        RUN.config.read_bytes(),
        b'sigma = 0.1\n[run]\nsteps = 5\ntask = "fit.py:task"\n',
        RUN.origin.read_bytes(),
        metrics,
        entry,
        b"00" * 32 + b"  # Ada\n",
        b"open sesame open sesame\n",
        RUN.local_identity.read_bytes(),
        encode_block({"tokens": np.arange(3, dtype=np.uint16)}),
        b'{"kind":"bytes"}',
    ]
    deep = b'{"step":' + b"[" * 2000
    return [bytes([n]) + content for n, whole in enumerate(contents) for content in (whole, deep, b"x=" + deep[8:])]


def main() -> None:
    """Fuzzes for a while; the fuzzer ends the process."""
    parser = argparse.ArgumentParser(description="Coverage-guided fuzzing of files.")
    add_arguments(parser, minutes=5.0, length=4096)
    fuzz(try_one, seeds(), parser.parse_args(), memory_mb=MEMORY_MB)


if __name__ == "__main__":
    main()

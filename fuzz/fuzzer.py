"""Runs atheris, a fuzzer that follows coverage, on something that reads bytes; see `frames.py` and `files.py`."""

import argparse
import resource
import sys
import tempfile
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager, nullcontext
from importlib.machinery import PathFinder
from pathlib import Path
from typing import Any

try:
    import atheris
except ImportError:  # it is no dependency
    atheris = None


def instrumented(modules: list[str]) -> AbstractContextManager[Any]:
    """What is imported of these within is followed, where atheris is there.

    It does not follow what comes through an editable installation's own loader, so Python's is asked first.
    """
    sys.path[:0] = [str(Path(__file__).parents[1])]
    sys.meta_path.insert(0, PathFinder)
    return atheris.instrument_imports(include=modules) if atheris else nullcontext()


def add_arguments(parser: argparse.ArgumentParser, *, minutes: float, length: int) -> None:
    """How long, on what cases, and whether on the first ones alone."""
    parser.add_argument("--minutes", type=float, default=minutes, metavar="NUMBER")
    parser.add_argument("--cases", type=int, default=-1, metavar="N", help="end after so many, if that is earlier")
    parser.add_argument("--length", type=int, default=length, metavar="BYTES", help="of a case at most")
    parser.add_argument("--corpus", default="", metavar="FOLDER", help="kept between runs (default: a new one)")
    parser.add_argument("--only-seeds", action="store_true", help="run the first cases as they are, and end")


def fuzz(
    try_one: Callable[[bytes], None], seeds: Sequence[bytes], options: argparse.Namespace, *, memory_mb: int
) -> None:
    """Tries the seeds, or what comes of them for a while, at whose end the fuzzer ends the process."""
    script = Path(sys.argv[0]).stem
    if options.only_seeds:
        for case in seeds:
            try_one(case)
        print(f"{len(seeds)} seeds")
        return
    if atheris is None:
        remedy = "install it with: pip install atheris"
        sys.exit(f"fuzz/{script}.py: needs atheris, a fuzzer that follows coverage; {remedy}")
    resource.setrlimit(resource.RLIMIT_DATA, (4 * memory_mb * 2**20,) * 2)
    corpus = Path(options.corpus or tempfile.mkdtemp(prefix=f"fedlearn-{script}-"))
    corpus.mkdir(parents=True, exist_ok=True)
    for number, case in enumerate(seeds):
        (corpus / f"seed-{number:04}").write_bytes(case)
    limits = [f"-max_total_time={60 * options.minutes:.0f}", f"-runs={options.cases}", f"-max_len={options.length}"]
    limits += [f"-rss_limit_mb={memory_mb}"]
    atheris.Setup([sys.argv[0], *limits, "-print_final_stats=1", str(corpus)], try_one)
    atheris.Fuzz()

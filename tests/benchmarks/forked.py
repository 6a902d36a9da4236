"""Programs that run in a process that is forked from one in which the large libraries are imported already."""

import importlib
import multiprocessing
import os
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path

_CONTEXT = multiprocessing.get_context("forkserver")
_CONTEXT.set_forkserver_preload(["numpy", "torch", "torch._dynamo", "sklearn.datasets"])  # those that are installed


def run_main(
    module: str, *arguments: str, folder: Path, said: Path, environ: Mapping[str, str], limit_s: float
) -> "subprocess.CompletedProcess[str]":
    """Runs the function `main` of a module, with arguments, as `python -m` does; what it prints goes through `said`."""
    out, err = said / "out", said / "err"
    process = _CONTEXT.Process(target=_main, args=(module, arguments, folder, out, err, dict(environ)))
    process.start()
    process.join(limit_s)
    if process.exitcode is None:
        process.kill()
        raise subprocess.TimeoutExpired(module, limit_s, out.read_bytes(), err.read_bytes())
    return subprocess.CompletedProcess([module, *arguments], process.exitcode, out.read_text(), err.read_text())


def _main(
    module: str, arguments: tuple[str, ...], folder: Path, out: Path, err: Path, environ: Mapping[str, str]
) -> None:
    for path, stream in ((out, sys.stdout), (err, sys.stderr)):
        descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC)
        os.dup2(descriptor, stream.fileno())
        os.close(descriptor)
    os.environ.update(environ)
    os.chdir(folder)
    sys.argv = [module, *arguments]
    sys.exit(importlib.import_module(module).main())

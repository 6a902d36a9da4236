"""What a text that does not fit into memory costs: time to prepare it, and memory of a server and its volunteer.

The text is made here, of lines of random words. Server and volunteer are processes of their own, whose memory is looked
at while they prepare the text and take some steps over several of its blocks.
"""

import argparse
import random
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import msgspec
import psutil
from measure import Machine, describe_machine, print_report

LOOK_S = 0.02
"""Between two looks at the processes."""

WORDS = 5000
REPEATED_BYTES = 2**24
LIMIT_S = 3600.0
SETTINGS = (
    "--hidden-size 16 --population-limit 256 --group-size 16 --sigma 0.02 --learning-rate 0.01 --time-per-step 60 "
    "--volunteers 1 --threads 1 --port 0 --new-tokens-interval 2 --sample-time 1 --audit 0.5"
)


class Peak(msgspec.Struct):
    """The most that a process held, in MiB."""

    name: str
    resident: float = 0.0
    """Its own memory and what of mapped files was in memory with it."""
    own: float = 0.0
    """Without the files."""


class Report(msgspec.Struct, frozen=True):
    """What is printed with `--json`."""

    benchmark: str
    machine: Machine
    text_mb: float
    tokenizer: str
    steps: int
    prepared_s: float
    """From the start of the process to the line that says the run is there."""
    processor_s: float
    """Of the server in this time, which a busy machine stretches less."""
    mb_per_s: float
    peaks: list[Peak]


def main() -> int:
    """Runs the benchmark; gives the exit code."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--megabytes", type=int, default=200, metavar="N", help="of text (default: 200)")
    parser.add_argument("--tokenizer", choices=("chars", "bytes", "bpe"), default="chars")
    parser.add_argument("--documents", choices=("stream", "lines"), default="stream")
    parser.add_argument("--steps", type=int, default=20, metavar="N", help="of training (default: 20)")
    parser.add_argument("--folder", metavar="FOLDER", help="where text and run are kept meanwhile (default: temporary)")
    parser.add_argument("--json", action="store_true", help="print one JSON object")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory(dir=options.folder) as folder:
        text = Path(folder) / "text.txt"
        write_text(text, options.megabytes * 10**6)
        report = measure(text, options)
    print_report(report, lambda: table(report), as_json=options.json)
    return 0


def write_text(path: Path, n_bytes: int) -> None:
    """Lines of random words, about 60 bytes each, the same for each size; a long text repeats them."""
    choices = random.Random(1)
    letters = "etaoinshrdlucmfwygpbvk"
    words = ["".join(choices.choices(letters, k=choices.randint(1, 10))) for _ in range(WORDS)]
    lines = (" ".join(choices.choices(words, k=10)) for _ in range(min(n_bytes, REPEATED_BYTES) // 60 + 1))
    repeated = "\n".join(lines).encode() + b"\n"
    with open(path, "wb") as file:
        while (missing := n_bytes - file.tell()) > 0:
            file.write(repeated[:missing])


def measure(text: Path, options: argparse.Namespace) -> Report:
    """A run from its beginning to its last step."""
    command = [sys.executable, "-m", "fedlearn", "serve", "--data", str(text), "--runs", str(text.parent / "runs")]
    command += ["--tokenizer", options.tokenizer, "--documents", options.documents, "--steps", str(options.steps)]
    log = text.parent / "log"
    began = time.perf_counter()
    with open(log, "wb") as output, subprocess.Popen([*command, *SETTINGS.split()], stdout=output) as process:
        prepared_s, processor_s, peaks = watch(process, log, began)
    if process.returncode:
        raise RuntimeError(f"expected a run that ends, got exit code {process.returncode}: {log.read_text()[-500:]}")
    size = text.stat().st_size / 1e6
    return Report(
        benchmark="large_text",
        machine=describe_machine(),
        text_mb=size,
        tokenizer=options.tokenizer,
        steps=options.steps,
        prepared_s=prepared_s,
        processor_s=processor_s,
        mb_per_s=size / prepared_s,
        peaks=peaks,
    )


def watch(process: subprocess.Popen[bytes], log: Path, began: float) -> tuple[float, float, list[Peak]]:
    """Seconds until the run is there, by the clock and of the processor, and what both processes held at most."""
    server, volunteer = Peak("server"), Peak("volunteer")
    prepared_s = processor_s = 0.0
    while process.poll() is None:
        look(server, process.pid)
        for child in children(process.pid):
            look(volunteer, child)
        if not prepared_s and log.stat().st_size:
            prepared_s, times = time.perf_counter() - began, psutil.Process(process.pid).cpu_times()
            processor_s = times.user + times.system
        if time.perf_counter() - began > LIMIT_S:
            process.kill()
        time.sleep(LOOK_S)
    return prepared_s, processor_s, [server, volunteer]


def children(process: int) -> list[int]:
    """The processes that a process started."""
    try:
        return [child.pid for child in psutil.Process(process).children(recursive=True)]
    except psutil.NoSuchProcess:
        return []


def look(peak: Peak, process: int) -> None:
    """Takes note of what a process holds now; one that is gone holds nothing."""
    try:
        memory = psutil.Process(process).memory_info()
    except psutil.NoSuchProcess:
        return
    peak.resident = max(peak.resident, memory.rss / 2**20)
    peak.own = max(peak.own, (memory.rss - getattr(memory, "shared", 0)) / 2**20)


def table(report: Report) -> str:
    """For people."""
    lines = [f"{report.text_mb:,.0f} MB of text, {report.tokenizer}: a run in {report.prepared_s:.1f} s, "]
    lines[0] += f"{report.processor_s:.1f} s of the processor, {report.mb_per_s:.1f} MB/s; {report.steps} steps"
    lines += [
        f"{peak.name:10} at most {peak.resident:6.0f} MiB resident, {peak.own:6.0f} its own" for peak in report.peaks
    ]
    return "\n".join(lines)


if __name__ == "__main__":
    sys.exit(main())

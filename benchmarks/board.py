"""What the board costs: time until its page can be used with a long history, and what viewers take from training.

The page is fetched, and opened in Chromium where Playwright and it are there, each time from a board that was just
started. Viewers are streams of events on this machine, whose own work counts as theirs: on machines of their own they
take less.
"""

import argparse
import asyncio
import os
import re
import shutil
import signal
import subprocess
import sys
import tempfile
import time
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from importlib.util import find_spec
from multiprocessing import get_context
from pathlib import Path

import psutil
from measure import describe_machine, ratio, spread

from es_core import usable_processors
from fedlearn.storage.logs.lines import LineLog
from fedlearn.storage.logs.metrics import StepMetrics, read_last_metrics
from fedlearn.storage.runs import RunFolder

RUNS = "runs"
CHROMIUM = shutil.which("chromium") or shutil.which("chromium-browser") or shutil.which("google-chrome")
SETTLE_S = 1.5
"""After viewers came or went, before members are counted."""


def main() -> int:
    """Runs the benchmark; gives the exit code."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--steps", type=int, default=100_000, help="of the history that the page shows")
    parser.add_argument("--opens", type=int, default=5, help="times that the page is opened, a board each")
    parser.add_argument("--viewers", type=int, default=100)
    parser.add_argument("--rounds", type=int, default=10, help="turns with viewers, and as many without")
    parser.add_argument("--seconds", type=float, default=5.0, help="of a turn")
    options = parser.parse_args()
    print(describe_machine())
    with tempfile.TemporaryDirectory() as folder:
        measure_page(Path(folder), n_steps=options.steps, n_opens=options.opens)
    with tempfile.TemporaryDirectory() as folder:
        measure_viewers(Path(folder), n_viewers=options.viewers, rounds=options.rounds, turn_s=options.seconds)
    return 0


def measure_page(folder: Path, *, n_steps: int, n_opens: int) -> None:
    """Opens the page of a board that was just started, again and again."""
    with serving(folder, "--steps", "1", "--volunteers", "1") as server:
        server.wait()
    write_history(RunFolder(folder / RUNS / "1"), n_steps)
    ways = [by_fetching, *([in_browser] if find_spec("playwright") and CHROMIUM else [])]
    found: dict[str, list[float]] = {}
    for way in ways * n_opens:
        with board_of(folder) as (address, _):
            for name, seconds in way(address).items():
                found.setdefault(name, []).append(seconds)
    print(f"page with {n_steps} steps of history, seconds since it was asked for, median [quartiles]:")
    for name, values in found.items():
        print(f"  {name}: {spread(values).show(2)}")


def in_browser(address: str) -> dict[str, float]:
    """Seconds until the page can be used, until its curve is drawn, and the same when it is opened again."""
    from playwright.sync_api import sync_playwright

    found: dict[str, float] = {}
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=CHROMIUM, args=["--no-sandbox"])
        for name in ("first viewer", "second viewer"):
            page = browser.new_page(viewport={"width": 1280, "height": 900})
            page.goto(address)
            while not (marks := page.evaluate("() => performance.getEntriesByName('curve').map((m) => m.startTime)")):
                page.wait_for_timeout(20)
            interactive = page.evaluate("() => performance.getEntriesByName('interactive')[0].startTime")
            found[f"{name}, controls work"] = interactive / 1000
            found[f"{name}, curve drawn"] = marks[0] / 1000
            page.close()
        browser.close()
    return found


def by_fetching(address: str) -> dict[str, float]:
    """Seconds for the page and its history, without a browser."""
    found: dict[str, float] = {}
    for path in ("", "api/runs", "api/runs/1/history", "api/runs/1/history"):
        begun = time.perf_counter()
        with urllib.request.urlopen(address + path) as answer:
            size = len(answer.read())
        again = ", again" if any(name.startswith(f"/{path} ") for name in found) else ""
        found[f"/{path} ({size // 1024} kB{again})"] = time.perf_counter() - begun
    return found


def write_history(folder: RunFolder, n_steps: int) -> None:
    """As a server would have left it."""
    (last,) = read_last_metrics(folder.metrics)
    folder.metrics.unlink()
    log = LineLog(folder.metrics)
    for step in range(n_steps):
        bits = 2.0 + 3.0 / (1.0 + step / 1000) + 0.1 * ((step * 7919) % 100) / 100
        changes = {"step": step, "loss": bits * 0.69, "shown": {"bits_per_character": bits}, "elapsed_s": step * 0.1}
        log.append(StepMetrics(**{**{name: getattr(last, name) for name in last.__struct_fields__}, **changes}))
    log.close()


def measure_viewers(folder: Path, *, n_viewers: int, rounds: int, turn_s: float) -> None:
    """Members a second of a real server with viewers and without, in turns."""
    with serving(folder) as server, board_of(folder) as (address, board):
        metrics = RunFolder(folder / RUNS / "1").metrics
        while len(read_last_metrics(metrics, 50)) < 50 and server.poll() is None:
            time.sleep(0.2)
        paces: dict[int, list[float]] = {0: [], n_viewers: []}
        shares: dict[int, list[float]] = {0: [], n_viewers: []}
        for turn in range(rounds):
            for n in (0, n_viewers) if turn % 2 == 0 else (n_viewers, 0):
                with watching(address, n):
                    time.sleep(SETTLE_S)
                    begun, before = time.perf_counter(), board.cpu_times()
                    paces[n].append(members_per_s(metrics, turn_s))
                    taken = sum(board.cpu_times()[:2]) - sum(before[:2])
                    shares[n].append(100 * taken / (time.perf_counter() - begun) / usable_processors())
    for n, pace in paces.items():
        share = spread(shares[n]).show(2)
        print(f"{n} viewers: {spread(pace).show(0)} members/s; the board takes {share} % of the processors")
    print(f"ratio, round by round: {ratio(paces[n_viewers], paces[0]).show(3)}")


def members_per_s(metrics: Path, seconds: float) -> float:
    """Of the steps that end within these seconds."""
    first = read_last_metrics(metrics)[0]
    time.sleep(seconds)
    lines = [line for line in read_last_metrics(metrics, 100_000) if line.step > first.step]
    return sum(line.members for line in lines) / (lines[-1].time - first.time)


@contextmanager
def watching(address: str, n_viewers: int) -> Iterator[None]:
    """So many streams are read by a process of their own."""
    if n_viewers == 0:
        yield
        return
    viewers = get_context("spawn").Process(target=watch, args=(address, n_viewers), daemon=True)
    viewers.start()
    try:
        while f"fedlearn_viewers {n_viewers}\n" not in text_at(address + "metrics"):
            if not viewers.is_alive():
                raise RuntimeError(f"expected {n_viewers} viewers, their process ended")
            time.sleep(0.2)
        yield
    finally:
        viewers.terminate()
        viewers.join()


def text_at(address: str) -> str:
    """What is fetched from there."""
    with urllib.request.urlopen(address) as answer:
        return str(answer.read().decode())


def watch(address: str, n_viewers: int) -> None:
    """Reads streams until it is ended."""
    os.nice(19)
    host, port = re.findall(r"//(.*):(\d+)/", address)[0]

    async def read() -> None:
        reader, writer = await asyncio.open_connection(host, int(port))
        writer.write(f"GET /api/events?runs=1 HTTP/1.1\r\nHost: {host}:{port}\r\n\r\n".encode())
        while await reader.read(65536):
            pass

    async def read_all() -> None:
        await asyncio.gather(*(read() for _ in range(n_viewers)))

    asyncio.run(read_all())


@contextmanager
def serving(folder: Path, *flags: str) -> Iterator["subprocess.Popen[str]"]:
    """A server of a small run, with its runs in the folder."""
    usual = ["--port", "0", "--runs", RUNS, "--sample-time", "0", "--hidden-size", "32", "--threads", "1"]
    with started("serve", *usual, *flags, folder=folder) as server:
        yield server


@contextmanager
def started(*arguments: str, folder: Path) -> Iterator["subprocess.Popen[str]"]:
    """A process of ours, ended at the end."""
    command, environment = [sys.executable, "-m", "fedlearn", *arguments], {**os.environ, "FEDLEARN_BOARD": "0"}
    with open(folder / f"{arguments[0]}.log", "w") as log:
        process = subprocess.Popen(command, cwd=folder, env=environment, stdout=log, stderr=log, text=True)
    try:
        yield process
    finally:
        process.send_signal(signal.SIGINT)
        try:
            process.wait(timeout=30)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()


@contextmanager
def board_of(folder: Path) -> Iterator[tuple[str, psutil.Process]]:
    """A board: its address, and its process."""
    (folder / RUNS).mkdir(exist_ok=True)
    with started("board", "--runs", RUNS, "--port", "0", folder=folder) as board:
        while board.poll() is None:
            if found := re.search(r"http://\S+/", (folder / "board.log").read_text()):
                yield found.group(), psutil.Process(board.pid)
                return
            time.sleep(0.05)
        raise RuntimeError((folder / "board.log").read_text())


if __name__ == "__main__":
    sys.exit(main())

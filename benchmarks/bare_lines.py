"""The least that a server in Python pays for a volunteer and step: a bare epoll loop, which looks at nothing.

One process sends every line as many bytes as an Update and an Assignment have, and reads as many as a Result has; a
child of it is all the other ends. What `benchmarks/swarm.py` finds on top of this is fedlearn's.
"""

import argparse
import os
import select
import socket
import sys
import time
from pathlib import Path

import msgspec
from measure import Machine, Spread, describe_machine, print_report, spread

from fedlearn.server.connection_policy import ConnectionPolicy

DOWN, UP = bytes(320), bytes(190)
"""Of a tiny model: an Update of a few spans with an Assignment, and a Result of 16 losses."""

ROUNDS = 5
_PIECE = 65536


class Report(msgspec.Struct, frozen=True):
    """What is printed with `--json`."""

    benchmark: str
    machine: Machine
    lines: int
    us_each: Spread
    """Processor time of the server's side for a line and step."""


def polled(lines: list[socket.socket]) -> tuple[select.epoll, dict[int, socket.socket]]:
    """What tells of bytes on these lines."""
    epoll, by_number = select.epoll(), {line.fileno(): line for line in lines}
    for number in by_number:
        epoll.register(number, select.EPOLLIN)
    return epoll, by_number


def answer(lines: list[socket.socket], n_answers: int) -> None:
    """Answers whatever comes, so many times."""
    epoll, by_number = polled(lines)
    while n_answers > 0:
        for number, _ in epoll.poll():
            by_number[number].recv(_PIECE)
            by_number[number].send(UP)
            n_answers -= 1


def serve(lines: list[socket.socket], steps: int) -> float:
    """Sends to all and hears all, so many times; gives microseconds of processor time for a line and step."""
    epoll, by_number = polled(lines)
    began = time.process_time()
    for _ in range(steps):
        for line in lines:
            line.send(DOWN)
        n_heard = 0
        while n_heard < len(lines):
            for number, _ in epoll.poll():
                by_number[number].recv(_PIECE)
                n_heard += 1
    return 1e6 * (time.process_time() - began) / steps / len(lines)


def measure(n_lines: int, steps: int) -> float:
    """The two ends of so many lines, and what one of them pays."""
    with socket.create_server(("127.0.0.1", 0), backlog=n_lines) as listening:
        theirs = [socket.create_connection(listening.getsockname()) for _ in range(n_lines)]
        ours = [listening.accept()[0] for _ in range(n_lines)]
    child = os.fork()
    if child == 0:
        answer(theirs, n_lines * steps)
        os._exit(0)
    try:
        return serve(ours, steps)
    finally:
        os.waitpid(child, 0)
        for line in (*ours, *theirs):
            line.close()


def main() -> int:
    """Runs the benchmark; gives the exit code."""
    parser = argparse.ArgumentParser(description="The least that a server in Python pays for a volunteer and step.")
    parser.add_argument("--json", action="store_true", help="print one JSON object")
    parser.add_argument("--lines", type=int, default=500, metavar="N", help="default: 500")
    parser.add_argument("--steps", type=int, default=100, metavar="N", help="of each round (default: 100)")
    options = parser.parse_args()
    ConnectionPolicy()  # which lets this process open as many files as the system grants
    us_each = spread([measure(options.lines, options.steps) for _ in range(ROUNDS)])
    report = Report(Path(__file__).stem, describe_machine(), options.lines, us_each)
    words = f"{report.machine.processor}; {options.lines} lines: {us_each.show(1)} us of processor a line and step"
    print_report(report, lambda: words, as_json=options.json)
    return 0


if __name__ == "__main__":
    sys.exit(main())

"""The seeds of cases that are drawn at random, as the command line of a script has them."""

import argparse
import time
from collections.abc import Iterator


def chosen_options(description: str, *, cases: int) -> argparse.Namespace:
    """What the command line says of how many cases are tried, from which seed, and for how long."""
    parser = argparse.ArgumentParser(description=description)
    parser.add_argument("--cases", type=int, default=cases, metavar="N")
    parser.add_argument("--seed", type=int, default=1, metavar="N", help="of the first case; the others follow by one")
    parser.add_argument("--minutes", type=float, default=0.0, metavar="NUMBER", help="stop earlier, after so long")
    return parser.parse_args()


def seeds_of(options: argparse.Namespace) -> Iterator[int]:
    """The seed of each case, until there were enough or the time is over."""
    began = time.monotonic()
    for seed in range(options.seed, options.seed + options.cases):
        yield seed
        if 0.0 < 60.0 * options.minutes <= time.monotonic() - began:
            return

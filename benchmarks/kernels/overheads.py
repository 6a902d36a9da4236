"""What surrounds the training costs: callbacks, what viewers are shown, the terminal, the import; and a small search.

Each figure is the median of several rounds, in turn with the others. Times are the processor's, since these pieces of
work are shorter than a busy machine's other turns; the disk's are not among them.
"""

import io
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from itertools import count
from pathlib import Path

import msgspec
import numpy as np
from numpy.typing import NDArray

import fedlearn
from benchmarks.measure import Spread, alternate, parser_of, print_tables, spread
from fedlearn.callback import Begun, Callback, Callbacks
from fedlearn.coordination.people.credit import Ledger
from fedlearn.coordination.people.reputation import Reputation
from fedlearn.coordination.people.roster import Phase, Volunteer
from fedlearn.coordination.plan import RunPlan, Status
from fedlearn.coordination.status import RunStatus, run_status
from fedlearn.es.layout import ParameterLayout, TensorSpec
from fedlearn.storage.logs.metrics import StepMetrics
from fedlearn.storage.status import write_status
from fedlearn.tasks.invitation import Invitation
from fedlearn.terminal import Terminal

RESULTS = Path(__file__).parents[1] / "results" / "overheads.json"

N_CALLBACKS = 5
TURN_S = 0.02
DIMENSIONS = 10
IMPORT = "import time; began = time.process_time(); import fedlearn; print(time.process_time() - began)"

PLAN = RunPlan(
    run="1",
    invitation=Invitation("rnn", 1, {}, {}),
    layout=ParameterLayout((TensorSpec("vector", (1000,)),)),
    blocks=(b"",),
    steps_per_block=0,
    time_per_step=1.0,
    checkpoint_time=60.0,
    steps=1000,
)
METRICS = StepMetrics(
    step=7,
    loss=2.5,
    shown={"bits_per_character": 3.6},
    members=64,
    work_per_s=1e6,
    volunteers=4,
    bytes_in=1000,
    bytes_out=1000,
    digest="0123456789abcdef",
    time=0.0,
)


class Cost(msgspec.Struct, frozen=True):
    """Of the processor's time."""

    what: str
    ms: Spread


class Search(msgspec.Struct, frozen=True):
    """What `fedlearn.minimize` came to with its usual settings."""

    function: str
    steps: int
    evaluations: int
    start_loss: float
    loss: float


class TerminalStream(io.StringIO):
    """Takes what is written for a terminal."""

    def isatty(self) -> bool:
        return True

    def write(self, text: str) -> int:
        return len(text)


def main() -> int:
    """Runs the benchmark; gives the exit code."""
    parser = parser_of(__doc__)
    parser.add_argument("--volunteers", type=int, default=1000, metavar="N", help="in a status (default: 1000)")
    parser.add_argument("--rounds", type=int, default=15, metavar="N", help="of measurement (default: 15)")
    parser.add_argument("--steps", type=int, nargs="+", default=[100, 300, 1000], metavar="N", help="of each search")
    parser.add_argument("--save", action="store_true", help=f"also write {RESULTS.parent.name}/{RESULTS.name}")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        contestants = contestants_of(options.volunteers, Path(folder))
        measured = alternate(contestants, rounds=options.rounds, turn_s=TURN_S, clock=time.process_time)
    measured["importing fedlearn"] = [import_s() for _ in range(options.rounds)]
    costs = [Cost(what, spread([1000.0 * one for one in seconds])) for what, seconds in measured.items()]
    searches = [search(name, function, steps) for name, function in FUNCTIONS.items() for steps in options.steps]
    if options.save:
        saved = {"volunteers": options.volunteers, "costs": costs, "searches": searches}
        RESULTS.write_bytes(msgspec.json.format(msgspec.json.encode(saved), indent=1) + b"\n")
    facts = {"volunteers": options.volunteers, "dimensions": DIMENSIONS}
    print_tables("overheads", as_json=options.json, facts=facts, costs=costs, searches=searches)
    return 0


def contestants_of(n_volunteers: int, folder: Path) -> dict[str, Callable[[], object]]:
    """What is measured in this process."""
    callbacks = Callbacks([Callback() for _ in range(N_CALLBACKS)])
    many, few = volunteers_of(n_volunteers), status_of(volunteers_of(4))
    status, time_s = status_of(many), count(0.0, 1.0)
    terminal = Terminal(stream=TerminalStream(), clock=lambda: next(time_s))  # each look is due
    terminal.on_begin(Begun("1", folder=None, unit="tokens", step=0, n_parameters=1000, settings={}))
    for step in range(100):
        terminal.on_step(msgspec.structs.replace(METRICS, step=step, shown={"bits_per_character": 4.0 - 0.01 * step}))
    return {
        f"{N_CALLBACKS} callbacks hear of a step": lambda: callbacks.on_step(METRICS),
        f"a status of {n_volunteers} volunteers, gathered": lambda: status_of(many),
        f"a status of {n_volunteers} volunteers, written": lambda: write_status(folder / "status.json", status),
        "the terminal's block, drawn": lambda: terminal.on_status(few),
    }


def volunteers_of(number: int) -> list[Volunteer]:
    """Who are at work."""
    volunteers = [Volunteer(peer) for peer in range(number)]
    for volunteer in volunteers:
        volunteer.name, volunteer.phase = f"volunteer {volunteer.peer}", Phase.READY
        volunteer.standing = Reputation(f"{volunteer.peer:064x}", name=volunteer.name)
    return volunteers


def status_of(volunteers: list[Volunteer]) -> RunStatus:
    """What viewers are shown."""
    standing = Status(step=7, volunteers=len(volunteers), step_left_s=1.0, run_left_s=60.0)
    ledger = Ledger(0, 0.0, work_per_member=1)
    return run_status(PLAN, standing, volunteers, None, ledger, members_per_s=1e3)


def import_s() -> float:
    """Seconds that a new interpreter takes to import fedlearn."""
    return float(subprocess.run([sys.executable, "-c", IMPORT], capture_output=True, check=True).stdout)


def sphere(x: NDArray[np.float32]) -> float:
    """Least at 3."""
    return float(((x - 3.0) ** 2).sum())


def rosenbrock(x: NDArray[np.float32]) -> float:
    """Least at 1, along a curved valley."""
    return float((100.0 * (x[1:] - x[:-1] ** 2) ** 2 + (1.0 - x[:-1]) ** 2).sum())


FUNCTIONS = {"sphere": sphere, "Rosenbrock": rosenbrock}


def search(name: str, function: Callable[[NDArray[np.float32]], float], steps: int) -> Search:
    """From zero, in ten dimensions."""
    start = np.zeros(DIMENSIONS, dtype=np.float32)
    found = fedlearn.minimize(function, start, steps=steps)
    return Search(name, steps, found.nfev, function(start), found.fun)


if __name__ == "__main__":
    sys.exit(main())

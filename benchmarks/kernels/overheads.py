"""What callbacks, and the status that viewers are shown, cost a server.

Each figure is the median of several rounds, in turn with the others. Times are the processor's, since these pieces of
work are shorter than a busy machine's other turns; the disk's are not among them.
"""

import tempfile
import time
from collections.abc import Callable
from pathlib import Path

import msgspec

from benchmarks.measure import Spread, alternate, parser_of, print_tables, spread
from fedlearn.callback import Callback, Callbacks
from fedlearn.coordination.people.credit import Ledger
from fedlearn.coordination.people.reputation import Reputation
from fedlearn.coordination.people.roster import Phase, Roster, Volunteer
from fedlearn.coordination.status import RunStatus, run_status
from fedlearn.coordination.steps.plan import RunPlan, Status
from fedlearn.es.layout import ParameterLayout, TensorSpec
from fedlearn.storage.logs.metrics import StepMetrics
from fedlearn.storage.status import write_status
from fedlearn.tasks.invitation import Invitation

N_CALLBACKS = 5
TURN_S = 0.02

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
    """Processor time of one piece of work."""

    what: str
    ms: Spread


def main() -> int:
    """Runs the benchmark; gives the exit code."""
    parser = parser_of(__doc__)
    parser.add_argument("--volunteers", type=int, default=1000, metavar="N", help="in a status (default: 1000)")
    parser.add_argument("--rounds", type=int, default=15, metavar="N", help="of measurement (default: 15)")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        contestants = contestants_of(options.volunteers, Path(folder))
        measured = alternate(contestants, rounds=options.rounds, turn_s=TURN_S, clock=time.process_time)
    costs = [Cost(what, spread([1000.0 * one for one in seconds])) for what, seconds in measured.items()]
    print_tables("overheads", as_json=options.json, facts={"volunteers": options.volunteers}, costs=costs)
    return 0


def contestants_of(n_volunteers: int, folder: Path) -> dict[str, Callable[[], object]]:
    """What is measured in this process."""
    callbacks = Callbacks([Callback() for _ in range(N_CALLBACKS)])
    many = volunteers_of(n_volunteers)
    status = status_of(many)
    return {
        f"{N_CALLBACKS} callbacks hear of a step": lambda: callbacks.on_step(METRICS),
        f"a status of {n_volunteers} volunteers, gathered": lambda: status_of(many),
        f"a status of {n_volunteers} volunteers, written": lambda: write_status(folder / "status.json", status),
    }


def volunteers_of(number: int) -> list[Volunteer]:
    """Volunteers that are at work."""
    volunteers = [Volunteer(peer) for peer in range(number)]
    for volunteer in volunteers:
        volunteer.name, volunteer.phase = f"volunteer {volunteer.peer}", Phase.READY
        volunteer.reputation = Reputation(f"{volunteer.peer:064x}", name=volunteer.name)
    return volunteers


def status_of(volunteers: list[Volunteer]) -> RunStatus:
    """What viewers are shown."""
    status = Status(step=7, volunteers=len(volunteers), step_left_s=1.0, run_left_s=60.0)
    ledger = Ledger(0, 0.0, work_per_member=1)
    return run_status(PLAN, status, Roster({v.peer: v for v in volunteers}), None, ledger, members_per_s=1e3)


if __name__ == "__main__":
    raise SystemExit(main())

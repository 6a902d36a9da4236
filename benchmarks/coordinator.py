"""What a coordinator costs by how many volunteers it has: a Result, the end of a step, a joiner, a look at the clock.

Everything is in memory and of one thread: messages are values that no wire carried, and nobody computes a loss. Held
to: a Result costs the same with ten volunteers and with thousands.
"""

import argparse
import sys
import time
from collections.abc import Sequence
from pathlib import Path
from typing import final

import msgspec
import numpy as np
from measure import Machine, Spread, describe_machine, print_report, spread

from fedlearn.coordination.coordinator import Coordinator
from fedlearn.coordination.effects import ApplyUpdate, Send, ServerEffect
from fedlearn.coordination.plan import RunPlan
from fedlearn.coordination.steps.step_source import LocalSteps
from fedlearn.es.layout import ParameterLayout, TensorSpec
from fedlearn.es.optimizers import Adam
from fedlearn.es.perturbation import Perturbation
from fedlearn.es.strategy import Strategy
from fedlearn.tasks.blocks import NO_BLOCK
from fedlearn.tasks.invitation import Invitation
from fedlearn.wire.messages import PROTOCOL_VERSION, Assignment, Challenge, Hello, Proof, Ready, Result
from fedlearn.wire.proof import NONCE_BYTES, Credentials, Identity, prove

GROUP_SIZE = 16
DIGEST = bytes(8)


class Cost(msgspec.Struct, frozen=True):
    """With so many volunteers, each of which sends one Result a step."""

    volunteers: int
    result_us: Spread
    """Each, but for the last one of a step."""
    end_us: Spread
    """A volunteer's share of the end of a step: the last Result, the Update, everybody's next Assignment."""
    join_us: float
    """Hello and Ready, the mean of all."""
    tick_us: Spread


class Report(msgspec.Struct, frozen=True):
    """What is printed with `--json`."""

    benchmark: str
    machine: Machine
    steps: int
    group_size: int
    costs: list[Cost]


@final
class Crowd:
    """A coordinator whose volunteers are all ready, in an open step of a group for each."""

    def __init__(self, n_volunteers: int) -> None:
        strategy = Strategy(
            perturbation=Perturbation(sigma=0.01, rank=1),
            group_size=GROUP_SIZE,
            population_limit=n_volunteers * GROUP_SIZE,
            optimizer=Adam(0.01),
            fitness_shaping="normalized",
        )
        plan = RunPlan(
            run="1",
            invitation=Invitation("rnn", 1, {}, {}),
            layout=ParameterLayout((TensorSpec("weights", (64, 64)),)),
            blocks=(NO_BLOCK,),
            steps_per_block=0,
            time_per_step=1e6,
            checkpoint_time=1e6,
            steps=0,
        )
        self._losses = np.random.default_rng(1).random(GROUP_SIZE * n_volunteers, dtype=np.float32)
        self._now = 0.0
        self._n_volunteers = n_volunteers
        self._assignments: dict[int, Assignment] = {}
        self.coordinator = Coordinator(plan, LocalSteps(plan, strategy), step=0, last=None, digest=DIGEST, now=0.0)
        volunteer = Credentials(Identity.of_seed(bytes(32)))
        key, nonce = volunteer.identity.public_key, bytes(NONCE_BYTES)
        hello = Hello(PROTOCOL_VERSION, "volunteer", 1, key, nonce)
        proof = prove(volunteer, hello, Challenge(nonce, needs_token=False), b"")
        began = time.thread_time()
        for peer in range(n_volunteers):
            self.coordinator.connected(peer, self._now, nonce=nonce)
            self._receive(peer, hello)
            self._receive(peer, proof)
            self._receive(peer, Ready(0, DIGEST))
        self.join_s = (time.thread_time() - began) / n_volunteers
        self.step()  # the first volunteer's alone, since the others came later

    def step(self) -> tuple[float, float]:
        """Lets everybody send a Result; seconds of one of them, and of the end of the step."""
        assignments, self._assignments = self._assignments, {}
        results = [(peer, self._result_of(assignment)) for peer, assignment in assignments.items()]
        began = time.thread_time()
        for peer, result in results[:-1]:
            self._receive(peer, result)
        all_but_one = time.thread_time()
        self._receive(*results[-1])
        ended = time.thread_time()
        assert len(self._assignments) == self._n_volunteers, "expected everybody to take part in the next step"
        return (all_but_one - began) / max(len(results) - 1, 1), ended - all_but_one

    def tick(self) -> float:
        """Seconds of a look at the clock."""
        began = time.thread_time()
        self.coordinator.tick(self._now)
        return time.thread_time() - began

    def _result_of(self, assignment: Assignment) -> Result:
        losses = self._losses[: assignment.quota]
        return Result(assignment.step, assignment.first_member, losses, DIGEST)

    def _receive(self, peer: int, message: Hello | Proof | Ready | Result) -> None:
        self._now += 1e-6
        self._follow(self.coordinator.received(peer, message, self._now))

    def _follow(self, effects: Sequence[ServerEffect]) -> None:
        for effect in effects:
            match effect:
                case Send(peer, Assignment() as assignment):
                    self._assignments[peer] = assignment
                case ApplyUpdate():
                    self._follow(self.coordinator.applied(DIGEST, self._now))


def measure(n_volunteers: int, n_steps: int) -> Cost:
    """The costs with so many volunteers."""
    crowd = Crowd(n_volunteers)
    crowd.step()
    steps = [crowd.step() for _ in range(n_steps)]
    ticks = [crowd.tick() for _ in range(n_steps)]

    def microseconds(seconds: Sequence[float], share: float = 1.0) -> Spread:
        return spread([s * share * 1e6 for s in seconds])

    return Cost(
        volunteers=n_volunteers,
        result_us=microseconds([result for result, _ in steps]),
        end_us=microseconds([end for _, end in steps], 1 / n_volunteers),
        join_us=crowd.join_s * 1e6,
        tick_us=microseconds(ticks),
    )


def main() -> int:
    """Runs the benchmark; gives the exit code."""
    parser = argparse.ArgumentParser(description="What a coordinator costs by how many volunteers it has.")
    parser.add_argument("--json", action="store_true", help="print one JSON object")
    parser.add_argument(
        "--volunteers", type=int, nargs="+", default=[10, 100, 1000, 4000], metavar="N", help="2 or more, in turn"
    )
    parser.add_argument("--steps", type=int, default=20, metavar="N", help="of each number (default: 20)")
    options = parser.parse_args()
    if min(options.volunteers) < 2:
        parser.error(f"--volunteers: expected 2 or more, got {min(options.volunteers)}")
    report = Report(
        benchmark=Path(__file__).stem,
        machine=describe_machine(),
        steps=options.steps,
        group_size=GROUP_SIZE,
        costs=[measure(n, options.steps) for n in options.volunteers],
    )
    print_report(report, lambda: table(report), as_json=options.json)
    return 0


def table(report: Report) -> str:
    """The report for people: medians, with quartiles in brackets."""
    lines = [
        f"{report.machine.processor}; {report.steps} steps, a group of {report.group_size} for each volunteer; in us",
        f"  {'volunteers':>10} {'a Result':>24} {'end of a step, each':>24} {'joining':>8} {'a look at the clock':>24}",
    ]
    lines += [
        f"  {cost.volunteers:10} {cost.result_us.show(2):>24} {cost.end_us.show(2):>24} {cost.join_us:8.1f} "
        f"{cost.tick_us.show(2):>24}"
        for cost in report.costs
    ]
    return "\n".join(lines)


if __name__ == "__main__":
    sys.exit(main())

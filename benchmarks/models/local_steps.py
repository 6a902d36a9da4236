"""Local steps of several volunteers: the loss after as many steps, by how many lie between two exchanges, and by the
bits of a parameter in what is exchanged.

Volunteers, server and all messages are in one process, and time stands still, so that nobody is late. A volunteer's
bytes are those that it sends. Beside them PyTorch's Adam takes as many steps of as many rows in one process, with the
rate that falls in the second half of the run; it would send four bytes a parameter and step. The loss is that of rows
that nobody has seen, in bits per character.

With `--missing` each volunteer is, with that probability, gone before it has done anything of what it was asked for,
and another one comes for the next exchange.

With `--mbit` time is virtual: a gradient takes 30 ms, a step 4 ms, and lines as long as they are slow. Volunteers then
exchange each step, or take as many by themselves as the run chooses. The first three losses are those after a quarter,
half and three quarters of the seconds, while the rate is still high.
"""

import itertools
import math
import random
import sys
import tempfile
from collections.abc import Mapping
from pathlib import Path

import msgspec

from benchmarks.measure import parser_of, print_tables, use_processors
from benchmarks.models.own_model import backprop
from benchmarks.models.subjects import BATCH_SIZE, Subject, gpt, judged, new_model
from fedlearn.config import ConfigError
from fedlearn.library.training import configured
from fedlearn.runs.creation import create
from fedlearn.server.training.trainer import Trainer
from fedlearn.simulation.costs import Costs, LinkSpeeds
from fedlearn.simulation.swarm import Swarm
from fedlearn.simulation.timed_swarm import TimedSwarm
from fedlearn.storage.journal.journal import read_journal

try:
    import torch
except ImportError:
    sys.exit("local_steps.py needs PyTorch: pip install 'fedlearn[torch]'")

LOCAL_STEPS = [1, 10, 30, 100]

TICK_S = 1e-6
"""Seconds that pass whenever somebody looks at the clock."""


class Row(msgspec.Struct, frozen=True):
    """What one run reached."""

    learner: str
    volunteers: int
    missing: float
    """The share of volunteers that an exchange lacks."""
    local_steps: int
    sum_bits: int
    """Bits of a parameter in a sum."""
    exchanges: int
    megabytes: float
    """What a volunteer sends."""
    loss: float


class TimedRow(msgspec.Struct, frozen=True):
    """What one run in virtual time reached."""

    volunteers: int
    mbit: float
    """Megabits a second of each volunteer's line, up; twice as many down."""
    local_steps: str
    seconds: float
    exchanges: int
    gradients: int
    last_local_steps: int
    megabytes: float
    losses: list[float]
    loss: float


COSTS = Costs(member_s=0.03, step_s=0.004, take_s=0.002, close_s=0.002)
LATENCY_S = 0.03


def over_lines(
    subject: Subject, mbit: float, n_local: int, *, volunteers: int, seconds: float, seed: int, **settings: str | float
) -> TimedRow:
    """Volunteers of fedlearn on lines of so many megabits per second, for some virtual seconds."""
    with tempfile.TemporaryDirectory() as folder:
        given: dict[str, str | float] = {"measure": "gradients", "local_steps": n_local, "population_limit": 1}
        given |= {
            "max_population": 64,
            "time_per_step": 120.0,
            "duration": seconds,
            **settings,
            "runs": folder,
            "seed": seed,
            "audit": 0.0,
        }
        given |= {"volunteers": volunteers, "threads": 1, "sample_time": 0.0}
        kind, task, config = configured(subject.task, given, always={})
        trainer, _ = Trainer.open(create(kind, config, task))
        lines = LinkSpeeds(up_mbit=mbit, down_mbit=2.0 * mbit, latency_s=LATENCY_S)
        swarm = TimedSwarm(trainer, volunteers, costs=COSTS, lines=lines)
        losses = []
        for until in (seconds / 4, seconds / 2, 3 * seconds / 4, math.inf):
            while swarm.now() < until and swarm.advance():
                pass
            subject.task.load(trainer.replica.weights)
            losses.append(judged(subject, subject.task.model)[0])
        trainer.close()
        (*_, last) = read_journal(swarm.folder.journal)
    return TimedRow(
        volunteers=volunteers,
        mbit=mbit,
        local_steps="by the lines" if n_local == 0 else str(n_local),
        seconds=seconds,
        exchanges=len(swarm.metrics),
        gradients=sum(metrics.members for metrics in swarm.metrics),
        last_local_steps=last.group_size,
        megabytes=1e-6 * swarm.traffic()[0] / volunteers,
        loss=losses.pop(),
        losses=losses,
    )


def adam(subject: Subject, rate: float, *, volunteers: int, n_steps: int, seed: int) -> Row:
    """PyTorch's Adam with the rows of all volunteers in each step."""
    model = new_model(subject, seed)
    optimizer = torch.optim.Adam(model.parameters(), lr=rate)
    schedule = torch.optim.lr_scheduler.LambdaLR(optimizer, lambda step: min(2.0 * (1.0 - step / n_steps), 1.0))
    training = backprop(subject, model, [optimizer], volunteers * BATCH_SIZE, seed)
    for _ in range(n_steps):
        next(training)
        schedule.step()
    megabytes = 4e-6 * n_steps * subject.task.layout.size
    return Row(f"Adam, {rate:g}", volunteers, 0.0, 1, 32, n_steps, megabytes, judged(subject, model)[0])


def together(
    subject: Subject,
    n_local: int,
    sum_bits: int,
    *,
    volunteers: int,
    missing: float,
    n_steps: int,
    seed: int,
    settings: Mapping[str, str | float],
) -> Row:
    """Volunteers of fedlearn that exchange what they learned after `n_local` steps each."""
    exchanges = n_steps // n_local
    with tempfile.TemporaryDirectory() as folder:
        given: dict[str, str | float] = {"measure": "gradients", "local_steps": n_local, "sum_bits": sum_bits}
        # Each volunteer computes one gradient for a step, whether all exchange it or each takes it alone.
        given |= {"population_limit": volunteers if n_local == 1 else 1, "max_population": volunteers}
        given |= {"time_per_step": 1e4, "steps": exchanges, **settings, "runs": folder, "seed": seed, "audit": 0.0}
        given |= {"volunteers": volunteers, "threads": 1, "sample_time": 0.0}
        kind, task, config = configured(subject.task, given, always={})
        trainer, _ = Trainer.open(create(kind, config, task))
        ticks = itertools.count()
        swarm = Swarm(trainer, lambda: TICK_S * next(ticks))
        for number in range(volunteers):
            swarm.join(f"volunteer {number}", threads=1)
        come_and_go(swarm, missing, random.Random(seed))
        bytes_in, _ = swarm.traffic()
        subject.task.load(trainer.replica.weights)
        trainer.close()
    megabytes, (loss, _) = 1e-6 * bytes_in / volunteers, judged(subject, subject.task.model)
    return Row("fedlearn", volunteers, missing, n_local, sum_bits, exchanges, megabytes, loss)


def come_and_go(swarm: Swarm, missing: float, draws: random.Random) -> None:
    """Goes on to the end of the run; of each step but the first some volunteers are missing."""
    while swarm.trainer.replica.step == 0:
        swarm.advance()
    while swarm.reason is None:
        step, asked = swarm.trainer.replica.step, list(swarm.participants.values())
        gone = [participant for participant in asked if draws.random() < missing]
        # While nobody computes, whoever comes in their place is ready for the next step.
        for participant in asked:
            participant.is_stalled = True
        for number, participant in enumerate(gone):
            swarm.kill(participant)
            swarm.join(f"newcomer {number} of step {step}", threads=1)
        while gone and swarm.advance():
            pass
        for participant in asked:
            participant.is_stalled = False
        while swarm.reason is None and swarm.trainer.replica.step == step and swarm.advance():
            pass


def main() -> int:
    """Runs the benchmark; gives the exit code."""
    parser = parser_of(__doc__)
    parser.add_argument("--text", type=Path, required=True, help="a text to learn from")
    parser.add_argument("--steps", type=int, default=800, help="of each volunteer (default: 800)")
    parser.add_argument("--volunteers", type=int, nargs="+", default=[4], help="(default: 4)")
    parser.add_argument("--missing", type=float, nargs="+", default=[0.0], help="share of volunteers (default: 0)")
    parser.add_argument("--local-steps", type=int, nargs="+", default=LOCAL_STEPS, help="(default: 1 10 30 100)")
    parser.add_argument("--sum-bits", type=int, nargs="+", default=[8, 4], help="of a parameter (default: 8 4)")
    parser.add_argument("--rates", type=float, nargs="*", default=[0.003, 0.006], help="of Adam")
    parser.add_argument("--seeds", type=int, nargs="+", default=[1], help="(default: 1)")
    parser.add_argument("--mbit", type=float, nargs="+", default=[], help="of lines, in virtual time")
    parser.add_argument("--seconds", type=float, default=20.0, help="of virtual time (default: 20)")
    parser.add_argument("--set", nargs="*", default=[], metavar="KEY=VALUE", help="settings of fedlearn's runs")
    options = parser.parse_args()
    use_processors(1)
    settings = dict(pair.split("=", 1) for pair in options.set)
    subject = gpt(options.text.read_bytes())
    if options.mbit:
        if options.local_steps == LOCAL_STEPS:
            options.local_steps = [1, 0]
        runs = itertools.product(options.volunteers, options.mbit, options.local_steps, options.seeds)
        timed = [
            over_lines(subject, mbit, n, volunteers=v, seconds=options.seconds, seed=seed, **settings)
            for v, mbit, n, seed in runs
        ]
        print_tables("local_steps", as_json=options.json, lines=timed)
        return 0
    rows = []
    for volunteers in options.volunteers:
        for seed in options.seeds:
            sizes = {"volunteers": volunteers, "n_steps": options.steps, "seed": seed}
            rows += [adam(subject, rate, **sizes) for rate in options.rates]
            for n_local, bits, missing in itertools.product(options.local_steps, options.sum_bits, options.missing):
                try:
                    rows.append(together(subject, n_local, bits, missing=missing, **sizes, settings=settings))
                except ConfigError as error:
                    parser.error(str(error))
    print_tables("local_steps", as_json=options.json, rows=rows)
    return 0


if __name__ == "__main__":
    sys.exit(main())

"""How much sooner more volunteers reach a loss, on lines as people have them at home, in virtual time.

Every trial of every volunteer is run on this machine, once, so a run learns as it would. Its seconds are virtual: a
trial takes what it takes one core of this machine, a message what its bytes and the line take. Volunteers have a core
each and all join at second 0; the server has two, and no audits.

Population, rate and the rest are what a run of that size chooses, without an end; `--set` gives others. Tinyshakespeare
(https://github.com/karpathy/char-rnn, data/tinyshakespeare/input.txt) unless told otherwise.
"""

import argparse
import sys
import tempfile
from collections.abc import Callable, Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import msgspec

from benchmarks.measure import describe_machine
from benchmarks.text.core_costs import core_costs
from benchmarks.text.learner import Look
from benchmarks.text.learning import TINYSHAKESPEARE
from benchmarks.text.rnn_run import SCHEMA, RnnRun, config_of, create_run
from benchmarks.text.volunteers_results import Case, Cell, Report, Values, seconds_to, table
from fedlearn.config import ConfigError
from fedlearn.server.training.trainer import Trainer
from fedlearn.simulation.costs import Costs, LinkSpeeds
from fedlearn.simulation.timed_swarm import TimedSwarm

SPACES: dict[str, Values] = {
    "weights": {},
    "activations": {"perturb": "activations", "head": "closed-form", "context": 8},
}
"""What each changes in the default configuration."""

FIXED: Values = {"volunteers": 0, "threads": 1, "audit": 0.0, "checkpoint_time": 1e9, "sample_time": 0.0}
FIRST_LOOK, LOOKS = 1e4, 1.1
"""Trial-tokens before the first look at validation after the start, and the factor to each other."""


class Limits(msgspec.Struct, frozen=True):
    """What a run may spend before its target."""

    trial_tokens: float
    seconds: float
    """Virtual ones."""


def main() -> int:
    """Runs the benchmark; gives the exit code."""
    parser = _parser()
    options = parser.parse_args()
    n_sizes = len(options.hidden_sizes)
    if len(options.targets) != n_sizes or len(options.trial_tokens_per_s) not in (0, n_sizes):
        parser.error("--targets, --trial-tokens-per-s: expected a value for each of --hidden-sizes")
    options.settings = dict(options.settings)
    if "data" not in options.settings and TINYSHAKESPEARE.exists():
        options.settings["data"] = str(TINYSHAKESPEARE)
    elif "data" not in options.settings:
        print(f"tinyshakespeare is absent, expected at {TINYSHAKESPEARE}; python-docs took its place", file=sys.stderr)
    try:
        report = compare(options)
    except (ConfigError, ValueError) as error:
        print(f"volunteers.py: {error}", file=sys.stderr)
        return 1
    print(msgspec.json.encode(report).decode() if options.json else table(report))
    return 0


def compare(options: argparse.Namespace) -> Report:
    """All runs."""
    text = Path(options.settings.get("data", "python-docs")).name
    report = Report("volunteers", text, describe_machine(), [])
    limits = Limits(options.tokens, options.seconds)
    for case in cases(options):
        for n_volunteers in options.volunteers:
            cell = measure(case, n_volunteers, limits)
            report.cells.append(cell)
            if not options.json:
                last = cell.looks[-1]
                end = f"{last.validation_bits_per_character:.3f} bits/character after {last.seconds:.1f} s"
                print(f"{case.name}, {n_volunteers} volunteers: {end}", file=sys.stderr, flush=True)
    return report


def cases(options: argparse.Namespace) -> Iterator[Case]:
    """All that is to be run with each number of volunteers."""
    speeds = options.trial_tokens_per_s or [0.0] * len(options.hidden_sizes)
    for hidden_size, target, speed in zip(options.hidden_sizes, options.targets, speeds, strict=True):
        for space in options.spaces:
            for exchange in options.exchange if space == "weights" else ["sum"]:
                given = {**SPACES[space], **FIXED, "hidden_size": hidden_size, **options.settings}
                given |= {"exchange": exchange} if space == "weights" else {}
                settings, costs, per_member = settle(given, speed)
                yield Case(
                    space=space,
                    exchange=exchange,
                    hidden_size=hidden_size,
                    target=target,
                    lines=LinkSpeeds(
                        options.up_mbit, options.down_mbit, 1e-3 * options.latency_ms, options.server_mbit
                    ),
                    costs=costs,
                    trial_tokens_per_s=per_member / costs.member_s,
                    settings=settings,
                )


def settle(given: Values, trial_tokens_per_s: float) -> tuple[Values, Costs, int]:
    """All settings with what a run chooses itself, what it costs a core, and the trial-tokens of a member.

    A speed that is given, not 0, replaces the measured one.
    """
    with tempfile.TemporaryDirectory() as folder:
        config = config_of({**given, "runs": folder})
        run = create_run(config)
        costs, per_member = core_costs(run), run.objective.work_per_member
    if trial_tokens_per_s:
        costs = msgspec.structs.replace(costs, member_s=per_member / trial_tokens_per_s)
    chosen = {key: run.config.get(key) for key in SCHEMA.fields if run.config.get(key) != config.get(key)}
    return {**given, **chosen}, costs, per_member


def measure(case: Case, n_volunteers: int, limits: Limits) -> Cell:
    """What a run of so many volunteers comes to."""
    with tempfile.TemporaryDirectory() as folder:
        run = create_run(config_of({**case.settings, "runs": folder}))
        with closing(Trainer.open(run.run)[0]) as trainer:
            swarm = TimedSwarm(trainer, n_volunteers, costs=case.costs, lines=case.lines)
            looks = learn(swarm, trainer, run, case.target, limits)
    half = swarm.metrics[len(swarm.metrics) // 2 :]
    # From the end of the first of them to that of the last one.
    passed_s = max(half[-1].elapsed_s - half[0].elapsed_s, 1e-9)
    members, n_steps = sum(metrics.members for metrics in half[1:]), max(len(half) - 1, 1)
    up, down = (sum(getattr(metrics, name) for metrics in half[1:]) for name in ("bytes_in", "bytes_out"))
    return Cell(
        case=_told(case),
        volunteers=n_volunteers,
        looks=looks,
        seconds=seconds_to(case.target, looks),
        step_s=passed_s / n_steps,
        members=members / n_steps,
        evaluating=members * case.costs.member_s / passed_s / n_volunteers,
        up_bytes_per_s=up / passed_s / n_volunteers,
        down_bytes_per_s=down / passed_s / n_volunteers,
    )


def learn(swarm: TimedSwarm, trainer: Trainer, run: RnnRun, target: float, limits: Limits) -> list[Look]:
    """Lets the swarm go on to the target or a limit; looks at validation ever more rarely."""
    looks: list[Look] = []
    trial_tokens, next_look = 0, FIRST_LOOK
    while swarm.advance():
        trial_tokens += swarm.metrics[-1].members * run.objective.work_per_member
        is_over = trial_tokens >= limits.trial_tokens or swarm.now() >= limits.seconds
        if trial_tokens < next_look and not is_over:
            continue
        next_look = LOOKS * trial_tokens
        bits = run.bits_per_character(trainer.replica.weights, run.dataset.validation)
        looks.append(Look(swarm.now(), len(swarm.metrics), trial_tokens, bits))
        if is_over or bits <= target:
            break
    return looks


def _told(case: Case) -> Case:
    """The case with the name of its text alone: nobody else has the folder."""
    named = {"data": Path(str(case.settings["data"])).name} if "data" in case.settings else {}
    return msgspec.structs.replace(case, settings=case.settings | named)


def _setting(text: str) -> tuple[str, str]:
    name, equals, value = text.partition("=")
    if not equals:
        raise ValueError(f"expected NAME=VALUE, got {text}")
    return name.replace("-", "_"), value


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(description="How much sooner more volunteers reach a loss, in virtual time.")

    def add(flag: str, kind: Callable[[str], Any], default: Any, what: str, **others: Any) -> None:  # noqa: ANN401
        parser.add_argument(flag, type=kind, default=default, help=what, **others)

    add("--volunteers", int, [1, 2, 4, 8, 16, 64], "in turn", nargs="+", metavar="N")
    add("--hidden-sizes", int, [64, 256], "of the networks (default: 64 256)", nargs="+", metavar="H")
    add("--targets", float, [2.7, 2.4], "bits per character, one for each size", nargs="+", metavar="BITS")
    add("--spaces", str, list(SPACES), "where the noise goes", nargs="+", choices=list(SPACES))
    ways = ["replay", "sum"]
    add("--exchange", str, ways, "with noise on weights", nargs="+", choices=ways)
    add("--tokens", float, 1e9, "trial-tokens that a run may take (default: 1e9)", metavar="N")
    add("--seconds", float, 1e5, "virtual seconds that it may take (default: 1e5)", metavar="S")
    add("--up-mbit", float, 10.0, "from a volunteer (default: 10)", metavar="MBIT")
    add("--down-mbit", float, 50.0, "to a volunteer (default: 50)", metavar="MBIT")
    add("--latency-ms", float, 50.0, "of each message, in either direction (default: 50)", metavar="MS")
    add("--server-mbit", float, 1000.0, "in each direction at the server (default: 1000)", metavar="MBIT")
    speeds = "of one core, for each size; measured unless given"
    add("--trial-tokens-per-s", float, [], speeds, nargs="+", metavar="N")
    parser.add_argument(
        "--set",
        dest="settings",
        type=_setting,
        nargs="+",
        default=[],
        metavar="NAME=VALUE",
        help="settings of the runs",
    )
    parser.add_argument("--json", action="store_true", help="print one JSON object")
    return parser


if __name__ == "__main__":
    sys.exit(main())

"""The parts of a step's processor time when server and volunteer share one core, as in `learning.py`.

Probes stand around functions of the product while a run takes its steps. Each counts the thread's processor time
without that of probes inside it, so the parts add up to the step. `--runs` chooses the disk that the journal is on.
"""

import pkgutil
import sys
import tempfile
import time
from collections.abc import Callable
from contextlib import ExitStack
from functools import wraps
from statistics import fmean
from typing import Any, final
from unittest.mock import patch

import msgspec

from benchmarks.measure import SETTINGS, Spread, parser_of, print_tables, spread
from benchmarks.text.in_process import InProcess
from benchmarks.text.rnn_run import SCHEMA, RnnRun, config_of, create_run, flat
from fedlearn.config import ConfigError, add_config_flags
from fedlearn.storage.durable import StorageError

WARM_UP_STEPS = 20
TRIALS = "trials"
REST = "all else"

PROBES: dict[str, tuple[str, ...]] = {
    TRIALS: (
        "es_core.rnn_activation_gradient",
        "es_core.rnn_member_losses",
        "es_core.rnn_head_gradient",
    ),
    "windows": ("fedlearn.tasks.rnn.objective.cut_windows",),
    "gradient estimate from noise": ("es_core.estimate_gradient",),
    "optimizer, both replicas": ("fedlearn.es.replica.Replica.apply",),
    "Muon's hidden matrices, both replicas": ("es_core.muon_step",),
    "digest, both replicas": ("fedlearn.es.replica.tensor_digests",),
    "sums: encode": (
        "fedlearn.tasks.rnn.objective.encode_estimate",
        "fedlearn.coordination.leases.open_step.encode_estimate",
        "fedlearn.es.sums.exact_sum.encode_exactly",
        "fedlearn.coordination.leases.open_step.encode_exactly",
    ),
    "sums: decode": ("fedlearn.es.replica.decode_estimate", "fedlearn.coordination.leases.lease.decode_estimate"),
    "sums: add and clip": ("fedlearn.es.sums.clipping.Clipping.total",),
    "messages: encode, frames, CRC": ("fedlearn.wire.connection.pack", "fedlearn.server.training.recent.pack"),
    "messages: CRC, decode": ("fedlearn.wire.connection.Connection.receive_data",),
    "messages: queue": ("fedlearn.wire.connection.Connection.send", "fedlearn.wire.connection.Connection.data_to_send"),
    "limits of what a server asks": (
        "fedlearn.client.lending.budget.MemoryBudget.check_trials",
        "fedlearn.client.lending.budget.MemoryBudget.check_update",
    ),
    "tell": ("fedlearn.coordination.steps.closing.tell",),
    "ask": ("fedlearn.coordination.steps.step_source.OwnSteps.open",),
    "divergence": ("fedlearn.coordination.steps.divergence.DivergenceWatch.took",),
    "journal: encode, write": ("fedlearn.storage.journal.journal.Journal.append",),
    "metrics line": ("fedlearn.server.training.trainer.Trainer.record",),
    "status for viewers": ("fedlearn.simulation.swarm.Swarm._tell_status",),
    "audits, of few steps": ("fedlearn.server.training.trainer.Trainer.audit",),
}
"""The functions of each part, by the name under which they are called."""


class Share(msgspec.Struct, frozen=True):
    """One part of a step."""

    name: str
    ms: Spread
    mean_ms: float
    """Mean over all steps: a part that few steps have has a median of 0."""


@final
class _Probes:
    """Seconds by part, of the step that is being taken."""

    def __init__(self) -> None:
        self.seconds = dict.fromkeys([*PROBES, REST], 0.0)
        self._stack = [REST]
        self._since = time.thread_time()

    def switch(self) -> None:
        """Counts what passed since the last switch."""
        now = time.thread_time()
        self.seconds[self._stack[-1]] += now - self._since
        self._since = now

    def around(self, part: str, function: Callable[..., Any]) -> Callable[..., Any]:
        """The function, counted to the part."""

        @wraps(function)
        def probed(*arguments: object, **named: object) -> object:
            self.switch()
            self._stack.append(part)
            try:
                return function(*arguments, **named)
            finally:
                self.switch()
                self._stack.pop()

        return probed

    def taken(self) -> dict[str, float]:
        """The seconds of the step that is over."""
        self.switch()
        seconds, self.seconds = self.seconds, dict.fromkeys(self.seconds, 0.0)
        return seconds


def measure_in_process(run: RnnRun, steps: int) -> list[Share]:
    """The parts of so many steps of a new run."""
    probes = _Probes()
    with ExitStack() as patched:
        for part, names in PROBES.items():
            for name in names:
                function = pkgutil.resolve_name(name)
                patched.enter_context(patch(name, probes.around(part, function)))
        seconds = _taken(run, steps, probes)
    return [
        Share(part, spread([1e3 * step[part] for step in seconds]), 1e3 * fmean(step[part] for step in seconds))
        for part in seconds[0]
        if any(step[part] for step in seconds)
    ]


def _taken(run: RnnRun, steps: int, probes: _Probes) -> list[dict[str, float]]:
    learner = InProcess(run, time.perf_counter)
    seconds = []
    try:
        for _ in range(WARM_UP_STEPS + steps):
            learner.advance(0.0)
            seconds.append(probes.taken())
    finally:
        learner.close()
    return seconds[WARM_UP_STEPS:]


def main() -> int:
    """Runs the benchmark; gives the exit code."""
    parser = parser_of(__doc__)
    parser.add_argument("--n-steps", type=int, default=100, metavar="N", help="that are measured (default: 100)")
    parser.add_argument("--chosen", action="store_true", help="settings as a run chooses them, where no flag says any")
    add_config_flags(parser, SCHEMA)
    options = parser.parse_args()
    try:
        with tempfile.TemporaryDirectory(dir=vars(options).get("runs")) as folder:
            config = config_of(({} if options.chosen else SETTINGS) | vars(options))
            # Other threads' time would be counted by no probe.
            run = create_run(config.replace({"runs": folder, "threads": 1}))
            parts = measure_in_process(run, options.n_steps)
    except (ConfigError, StorageError, ValueError) as error:
        print(f"step.py: {error}", file=sys.stderr)
        return 1
    beside = sum(part.ms.median for part in parts if part.name != TRIALS)
    facts = {key: flat(run.config)[key] for key in ("hidden_size", "population_limit", "group_size", "context")}
    print_tables("step", as_json=options.json, facts={**facts, "medians but trials, ms": beside}, parts=parts)
    return 0


if __name__ == "__main__":
    sys.exit(main())

"""Trials after which a run that knows only numbers is as good as one with the settings of earlier versions.

Each task is learned twice, by one volunteer in one process with the server, the journal and all messages: for some
seconds of a processor by earlier settings, and then by what a run chooses now, until it is as good. Steps had a fifth
of a second of trials, and four groups at least, losses were of 32 rows, and policies had noise and rates of their own.
Runs have no end. What counts are rows, texts or episodes of all trials, since a trial of 8 rows is cheaper than one of
32. Models of one's own are judged by rows that nobody has seen, in nats, those of text in bits per character; language
models by the share of wrong answers, policies by minus their return in ten episodes. A trial of a language model is a
text that it writes, and what a run measures now is the gradient of how likely that is.
"""

import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path

import msgspec

from benchmarks.measure import Stopwatch, parser_of, print_tables, use_processors
from fedlearn.es.layout import Float32Array
from fedlearn.tasks.task import ROWS_BY_LOSSES, Setting, Task

try:
    import torch
    from torch import nn
except ImportError:
    sys.exit("losses_only.py needs PyTorch: pip install 'fedlearn[torch]'")

import fedlearn
from benchmarks.models.own_model import Alone, any_subject
from benchmarks.models.subjects import judged

OF_NUMBERS = ("mlp", "cnn", "mixer", "regression", "ages", "prices")
OF_TEXT = ("lstm", "gpt")
POLICIES = ("CartPole-v1", "Pendulum-v1", "InvertedPendulum-v5")
SUMS = "sums"

EARLIER_GROWTH = 16
"""What a population may grow to, as a multiple of what a step had in earlier versions."""

EARLIER_POLICY: Mapping[str, Setting] = {
    "optimizer": "adam",
    "sigma": 1.0,
    "learning_rate": 0.3,
    "max_learning_rate": 0.0,
    "group_size": 16,
    "population_limit": 64,
    "max_population": 0,
    "antithetic": False,
    "rank": 1,
    "fitness_shaping": "normalized",
    "restarts": 0,
}
"""How policies were learned."""

BETWEEN_LOOKS = 1.1
"""The factor by which all trials grow from one look to the next."""


class Run(msgspec.Struct, frozen=True):
    """A task, its settings, and how bad weights are."""

    task: Task
    settings: Mapping[str, Setting]
    loss: Callable[[Float32Array], float]


class Row(msgspec.Struct, frozen=True):
    """What one task needs."""

    task: str
    seed: int
    unit: str
    earlier: int
    """All trials after which the earlier settings are first as good as in the end, in this unit."""
    loss: float
    """How good that is."""
    now: int | None
    """Those after which a run is as good now; nothing where it never is in as many as earlier in all."""
    share: float | None


def model(name: str, text: bytes, *, is_earlier: bool) -> Run:
    """A model of one's own."""
    subject = any_subject(name, text)
    task = subject.task
    task.batch_size_by_losses = 0 if is_earlier else ROWS_BY_LOSSES
    settings: Mapping[str, Setting] = {"measure": "losses"}
    if is_earlier:
        settings = {**settings, **earlier_population(task, settings), "learning_rate": 0.01}

    def loss(weights: Float32Array) -> float:
        task.load(weights)
        return judged(subject, task.model)[0]

    return Run(task, settings, loss)


def sums(*, is_earlier: bool) -> Run:
    """A language model that is tuned by whether its sums are right."""
    from benchmarks.tasks import fine_tuning

    prompts, n = fine_tuning.PROMPTS, fine_tuning.N_TRAINING
    task = fedlearn.reward(
        fine_tuning.pretrained(0.25, 1),
        fine_tuning.exact,
        prompts[:n],
        tokenizer=fine_tuning.Letters(),
        new_tokens=3,
        held_out=prompts[n:],
    )
    settings: Mapping[str, Setting] = {"measure": "losses"} if is_earlier else {}
    if is_earlier:
        settings = {**settings, **earlier_population(task, settings)}
    return Run(task, settings, lambda weights: 1.0 - task.evaluate(weights, threads=1)["reward"])


def policy(name: str, *, is_earlier: bool) -> Run:
    """A module of 16 hidden units that acts in an environment."""
    from gymnasium import make
    from gymnasium.spaces import flatdim

    env = make(name)
    torch.manual_seed(0)
    inputs, outputs = flatdim(env.observation_space), flatdim(env.action_space)
    module = nn.Sequential(nn.Linear(inputs, 16), nn.Tanh(), nn.Linear(16, outputs))
    task = fedlearn.environment(name, module, normalize="once" if is_earlier else "running")
    settings = EARLIER_POLICY if is_earlier else {}
    return Run(task, settings, lambda weights: -task.evaluate(weights, threads=1)["return"])


def run_of(name: str, text: bytes, *, is_earlier: bool) -> Run:
    """The task of that name, new, with its settings."""
    if name == SUMS:
        return sums(is_earlier=is_earlier)
    return policy(name, is_earlier=is_earlier) if name in POLICIES else model(name, text, is_earlier=is_earlier)


def earlier_population(task: Task, settings: Mapping[str, Setting]) -> Mapping[str, Setting]:
    """The members of a step in earlier versions."""
    with tempfile.TemporaryDirectory() as folder:
        alone = Alone(task, time.process_time, settings, folder)
        members = alone.trainer.run.config.strategy.max_population // EARLIER_GROWTH
        alone.trainer.close()
    return {"population_limit": members, "max_population": members}


def course(run: Run, watch: Stopwatch, seed: int) -> Iterator[tuple[int, Float32Array]]:
    """All trials and the weights after each step of the run; the watch stands still between two steps."""
    with tempfile.TemporaryDirectory() as folder:
        alone = Alone(run.task, watch.seconds, {**run.settings, "seed": seed}, folder)
        try:
            work = 0
            watch.start()
            while alone.advance():
                watch.stop()
                work += alone.swarm.metrics[-1].work
                yield work, alone.trainer.replica.weights
                watch.start()
        finally:
            alone.trainer.close()


def compared(name: str, text: bytes, seconds: float, seed: int) -> Row:
    """The trials that earlier settings have in so many seconds, and those that are as good now."""
    run, watch = run_of(name, text, is_earlier=True), Stopwatch(time.process_time)
    looks = list(looked(run, watch, seed, lambda _: watch.seconds() >= seconds))
    most, loss = looks[-1]
    earlier = next(work for work, found in looks if found <= loss)
    run, watch = run_of(name, text, is_earlier=False), Stopwatch(time.process_time)
    for work, found in looked(run, watch, seed, lambda work: work >= most):
        if found <= loss:
            return Row(name, seed, run.task.unit, earlier, loss, work, work / earlier)
    return Row(name, seed, run.task.unit, earlier, loss, None, None)


def looked(run: Run, watch: Stopwatch, seed: int, is_last: Callable[[int], bool]) -> Iterator[tuple[int, float]]:
    """All trials and the loss at each look, up to a last one."""
    next_look = 0.0
    for work, weights in course(run, watch, seed):
        if work >= next_look or is_last(work):
            yield work, run.loss(weights)
            next_look = BETWEEN_LOOKS * work
        if is_last(work):
            return


def main() -> int:
    """Runs the benchmark; gives the exit code."""
    tasks = [*OF_NUMBERS, *OF_TEXT, SUMS, *POLICIES]
    parser = parser_of(__doc__)
    parser.add_argument("--tasks", nargs="+", default=["mlp", "cnn", SUMS, POLICIES[0]], choices=tasks)
    parser.add_argument("--text", type=Path, help=f"a text, for {', '.join(OF_TEXT)}")
    parser.add_argument("--seconds", type=float, default=15.0, help="of the earlier settings (default: 15)")
    parser.add_argument("--seeds", type=int, nargs="+", default=[1], help="(default: 1)")
    options = parser.parse_args()
    use_processors(1)
    torch.set_num_threads(1)
    if options.text is None and (missing := [name for name in options.tasks if name in OF_TEXT]):
        parser.error(f"--text: expected a text for {', '.join(missing)}, got none")
    text = options.text.read_bytes() if options.text else b""
    rows = [compared(name, text, options.seconds, seed) for name in options.tasks for seed in options.seeds]
    print_tables("losses_only", as_json=options.json, rows=rows)
    return 0


if __name__ == "__main__":
    sys.exit(main())

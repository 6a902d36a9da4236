"""The parts of a step with one volunteer, each measured alone and on one thread."""

import asyncio
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from itertools import count
from pathlib import Path
from typing import Literal

import msgspec
import numpy as np
from loopback import measure_exchanges
from measure import Spread, alternate, spread
from rnn_run import RnnRun, create_run

import es_core
from fedlearn.config import RunConfig
from fedlearn.es.strategy import ask, tell
from fedlearn.es.sums.clipping import Clipping
from fedlearn.es.sums.estimate import NO_ESTIMATE, decode_estimate, encode_estimate
from fedlearn.es.trials import TrialResults, Trials
from fedlearn.es.update import Update
from fedlearn.server.training.trainer import Trainer
from fedlearn.simulation.swarm import Swarm
from fedlearn.storage.journal.journal import Journal, read_journal
from fedlearn.storage.journal.segment import Header
from fedlearn.storage.logs.lines import LineLog
from fedlearn.storage.logs.metrics import StepMetrics
from fedlearn.tasks.blocks import Columns
from fedlearn.tasks.holding import Holding
from fedlearn.tasks.rnn.examiner import BITS
from fedlearn.tasks.strategy import strategy_of
from fedlearn.text.windows import cut_windows
from fedlearn.wire.messages import Assignment, Result

Kind = Literal["evaluation", "estimate", "else"]


class Part(msgspec.Struct, frozen=True):
    """One part of a step, on one thread."""

    name: str
    kind: Kind
    in_turn: int
    """How often the volunteer waits for it in a step; what only the server's replica does is not waited for."""
    ms: Spread


class Contents(msgspec.Struct, frozen=True, eq=False):
    """A run in mid-training, and what its current step consists of."""

    run: RnnRun
    swarm: Swarm
    holding: Holding
    """On one thread, where the run stands."""
    trials: Trials
    update: Update
    result: Result
    assignment: Assignment


def prepare(config: RunConfig) -> Contents:
    """Trains two steps, then evaluates the population of the third."""
    run = create_run(config)
    trainer, _ = Trainer.open(run.run)
    swarm = Swarm(trainer, time.perf_counter)
    swarm.join("benchmark", threads=1)
    while len(swarm.metrics) < 2:
        swarm.advance()
    last = list(read_journal(run.run.folder.journal))[1]
    holding = run.run.holding(threads=1)
    holding.load(trainer.replica.snapshot())
    group_size, limit = config.strategy.group_size, config.strategy.population_limit
    n_members = limit // group_size * group_size
    trials = Trials(holding.replica.step, strategy_of(config).perturbation, group_size, 0, n_members)
    results = holding.evaluate(trials, last.block)
    assignment = Assignment(
        step=trials.step + 1,
        block=last.block,
        perturbation=trials.perturbation,
        group_size=group_size,
        first_member=0,
        quota=n_members,
        time_left_s=config.strategy.time_per_step,
    )
    update = tell_step(config, last, trials, results)
    result = Result(trials.step, 0, results.losses, holding.replica.digest, results.estimate)
    return Contents(run, swarm, holding, trials, update, result, assignment)


def tell_step(config: RunConfig, last: Update, trials: Trials, results: TrialResults) -> Update:
    """What the server makes of the results of all members."""
    strategy = strategy_of(config)
    population = ask(strategy, trials.step, last)
    return tell(
        strategy,
        population,
        block=last.block,
        spans=((0, trials.n_members),),
        losses=results.losses,
        duration_s=0.0,
        estimate=results.estimate,
    )


def parts_of(contents: Contents, folder: Path) -> dict[tuple[str, Kind, int], Callable[[], object]]:
    """A call for each part: (name, kind, how often the volunteer waits for it)."""
    run, holding, update, trials = contents.run, contents.holding, contents.update, contents.trials
    objective, replica, block = run.objective, holding.replica, holding.block(update.block)
    link = next(iter(contents.swarm.participants.values())).link
    memberless = msgspec.structs.replace(update, spans=(), utilities=np.zeros(0, dtype=np.int8), estimate=NO_ESTIMATE)
    results = TrialResults(contents.result.losses, contents.result.estimate)
    journal = Journal.open(folder / "journal", Header(bytes(16), 0, replica.digest))
    steps, seconds = count(), count()
    metrics = LineLog(folder / "metrics.jsonl")
    line = line_of(trials, replica.digest)

    def cut() -> None:
        seed = run.config.run.seed
        cut_windows(
            block["tokens"], objective.window, seed=seed, step=trials.step, first_group=0, n_groups=trials.n_groups
        )

    def take_optimizer_step() -> None:
        replica.apply(msgspec.structs.replace(memberless, step=replica.step))

    def send_result() -> None:
        link.client.send(contents.result)
        link.to_server(float(next(seconds)))  # as often as a server takes it

    def send_update() -> None:
        link.server.send(update)
        link.server.send(contents.assignment)
        link.to_client(0.0)

    return {
        ("evaluation, with windows", "evaluation", 1): lambda: holding.evaluate(trials, update.block),
        **(sum_parts(contents) if update.is_summed else replay_parts(contents, block)),
        ("windows", "else", 1): cut,
        ("Result: encode, frames, CRC, decode", "else", 1): send_result,
        ("shaping: tell", "else", 1): lambda: tell_step(run.config, update, trials, results),
        ("journal: append and sync", "else", 1): lambda: journal.append(
            msgspec.structs.replace(update, step=next(steps)), bytes(8)
        ),
        ("Update, Assignment: encode to decode", "else", 1): send_update,
        ("optimizer, volunteer", "else", 1): take_optimizer_step,
        ("optimizer, server", "else", 0): take_optimizer_step,
        ("digest, volunteer", "else", 1): lambda: replica.digest,
        ("digest, server", "else", 0): lambda: replica.digest,
        ("metrics line", "else", 0): lambda: metrics.append(line),
    }


def replay_parts(contents: Contents, block: Columns) -> dict[tuple[str, Kind, int], Callable[[], object]]:
    """What replicas compute of a step without a sum."""
    objective, update = contents.run.objective, contents.update
    estimate = estimate_of(contents, block)
    return {
        ("gradient estimate, volunteer", "estimate", 1): estimate,
        ("gradient estimate, server", "estimate", 0): estimate,
        ("row masks, volunteer", "else", 1): lambda: objective.row_masks(update, block),
        ("row masks, server", "else", 0): lambda: objective.row_masks(update, block),
    }


def sum_parts(contents: Contents) -> dict[tuple[str, Kind, int], Callable[[], object]]:
    """What is done with the sum of a step."""
    layout, coded = contents.run.objective.layout, contents.update.estimate
    numbers, clipping = decode_estimate(layout, coded).astype(np.int64), Clipping()
    n_groups = contents.trials.n_groups
    return {
        ("sum: encode, volunteer", "else", 1): lambda: encode_estimate(layout, numbers),
        ("sum: add, clip, server", "else", 1): lambda: clipping.total([(numbers, n_groups)], layout.size),
        ("sum: encode, server", "else", 1): lambda: encode_estimate(layout, numbers),
        ("sum: decode, server", "else", 1): lambda: decode_estimate(layout, coded),
        ("sum: decode, volunteer", "else", 1): lambda: decode_estimate(layout, coded),
    }


def estimate_of(contents: Contents, block: Columns) -> Callable[[], object]:
    """The call that finds the gradient estimate of the Update."""
    objective, update = contents.run.objective, contents.update
    return partial(
        es_core.estimate_gradient,
        objective.layout.table(update.rank),
        objective.layout.size,
        seed=contents.run.config.run.seed,
        step=update.step,
        group_size=update.group_size,
        spans=list(update.spans),
        utilities=update.utilities,
        row_masks=objective.row_masks(update, block),
        threads=1,
    )


def line_of(trials: Trials, digest: bytes) -> StepMetrics:
    """A line of metrics of the usual length."""
    return StepMetrics(
        step=0,
        loss=1.0,
        shown={BITS: 1.0},
        members=trials.n_members,
        work_per_s=1e6,
        volunteers=1,
        bytes_in=0,
        bytes_out=0,
        digest=digest.hex(),
        time=time.time(),
    )


def measure_thread_hops(rounds: int) -> list[float]:
    """Seconds from an event loop to a worker thread and back."""

    async def hop() -> list[float]:
        seconds = []
        with ThreadPoolExecutor(max_workers=1) as pool:
            for _ in range(rounds + 1):
                started = time.perf_counter()
                await asyncio.get_running_loop().run_in_executor(pool, int)
                seconds.append(time.perf_counter() - started)
        return seconds[1:]

    return asyncio.run(hop())


def measure_parts(contents: Contents, folder: Path, rounds: int) -> list[Part]:
    """All parts, in the order in which a step needs them."""
    calls = parts_of(contents, folder)
    seconds = alternate({name: call for (name, _, _), call in calls.items()}, rounds=rounds)
    # Windows are cut inside the evaluation, and stand for themselves in the list; what disturbed only them is no part.
    cutting = min(seconds["windows"])
    seconds["evaluation, with windows"] = [whole - cutting for whole in seconds["evaluation, with windows"]]
    parts = [
        Part(name.removesuffix(", with windows"), kind, in_turn, milliseconds(seconds[name]))
        for name, kind, in_turn in calls
    ]
    exchanges = measure_exchanges(*message_bytes(contents), rounds=rounds)
    parts.append(Part("sockets and event loops, there and back", "else", 1, milliseconds(exchanges)))
    parts.append(Part("to a thread and back", "else", 2, milliseconds(measure_thread_hops(rounds))))
    return parts


def message_bytes(contents: Contents) -> tuple[int, int]:
    """Bytes of one step's messages, to the server and to the volunteer."""
    link = next(iter(contents.swarm.participants.values())).link
    link.client.send(contents.result)
    link.server.send(contents.update)
    link.server.send(contents.assignment)
    up, down = link.client.data_to_send(), link.server.data_to_send()
    return len(up), len(down)


def milliseconds(seconds: list[float]) -> Spread:
    """The spread of these in ms."""
    return spread([s * 1e3 for s in seconds])

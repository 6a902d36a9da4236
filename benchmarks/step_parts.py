"""The parts of a step with one volunteer, each measured alone and on one thread."""

import asyncio
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from itertools import count
from pathlib import Path
from typing import Literal

import msgspec
import numpy as np
from loopback import measure_exchanges
from measure import Spread, alternate, spread

import es_core
from fedlearn.app.run import Run, create, strategy_of
from fedlearn.app.swarm import Swarm
from fedlearn.app.trainer import Trainer
from fedlearn.config import RunConfig
from fedlearn.es.strategy import ask, tell
from fedlearn.es.update import Update
from fedlearn.objectives.base import Trials
from fedlearn.storage.journal import Journal, read_journal
from fedlearn.storage.metrics import StepMetrics, append_metrics
from fedlearn.text.windows import WindowShape, cut_windows
from fedlearn.wire.messages import Assignment, Result

Kind = Literal["evaluation", "estimate", "else"]


class Part(msgspec.Struct, frozen=True):
    """One part of a step, on one thread."""

    name: str
    kind: Kind
    in_turn: int
    """How often the volunteer waits for it in a step; what only the server's replica does is not waited for."""
    ms: Spread


class Contents(msgspec.Struct, frozen=True):
    """A run in mid-training, and what its current step consists of."""

    run: Run
    trainer: Trainer
    swarm: Swarm
    trials: Trials
    update: Update
    result: Result
    assignment: Assignment


def prepare(config: RunConfig) -> Contents:
    """Trains two steps, then evaluates the population of the third."""
    run = create(config)
    trainer, _ = Trainer.open(run)
    swarm = Swarm(trainer, time.perf_counter)
    swarm.join("benchmark", threads=1)
    while len(swarm.metrics) < 2:
        swarm.advance()
    update = list(read_journal(run.folder.journal))[1]
    n_members = config.population_limit // config.group_size * config.group_size
    trials = Trials(trainer.replica.step, strategy_of(config).perturbation, config.group_size, 0, n_members)
    losses = run.objective.member_losses(trainer.replica.weights, run.block(update.block), trials, threads=1)
    update = tell_step(config, update, trials, losses)
    assignment = Assignment(
        step=trials.step + 1,
        block=update.block,
        perturbation=trials.perturbation,
        group_size=config.group_size,
        first_member=0,
        quota=n_members,
        time_left_s=config.time_per_step,
    )
    result = Result(trials.step, 0, losses, trainer.replica.digest)
    return Contents(run, trainer, swarm, trials, update, result, assignment)


def tell_step(config: RunConfig, last: Update, trials: Trials, losses: np.ndarray) -> Update:
    """What the server makes of the losses of all members."""
    strategy = strategy_of(config)
    population = ask(strategy, trials.step, last)
    return tell(strategy, population, block=last.block, spans=((0, trials.n_members),), losses=losses, duration_s=0.0)


def parts_of(contents: Contents, folder: Path) -> dict[tuple[str, Kind, int], Callable[[], object]]:
    """A call for each part: (name, kind, how often the volunteer waits for it)."""
    run, trainer, update, trials = contents.run, contents.trainer, contents.update, contents.trials
    config, replica, block = run.config, trainer.replica, run.block(contents.update.block)
    link = next(iter(contents.swarm.members.values())).link
    masks = run.objective.row_masks(update, block)
    table = run.objective.layout.table(update.rank)
    memberless = msgspec.structs.replace(update, spans=(), utilities=np.zeros(0, dtype=np.int8))
    journal = Journal.open(folder / "journal")
    steps = count()
    line = StepMetrics(
        step=0,
        loss=1.0,
        bits_per_character=1.0,
        members=trials.n_members,
        trial_tokens_per_s=1e6,
        volunteers=1,
        bytes_in=0,
        bytes_out=0,
        digest=replica.digest.hex(),
        time=time.time(),
    )

    def evaluate() -> None:
        run.objective.member_losses(replica.weights, block, trials, threads=1)

    def cut() -> None:
        shape = WindowShape(config.batch_size, config.context, config.sequence_length)
        n_groups = trials.n_members // trials.group_size
        cut_windows(block, shape, seed=config.seed, step=trials.step, first_group=0, n_groups=n_groups)

    def estimate() -> None:
        es_core.estimate_gradient(
            table,
            run.objective.layout.size,
            seed=config.seed,
            step=update.step,
            group_size=update.group_size,
            spans=list(update.spans),
            utilities=update.utilities,
            row_masks=masks,
            threads=1,
        )

    def send_result() -> None:
        link.client.send(contents.result)
        link.to_server(0.0)

    def send_update() -> None:
        link.server.send(update)
        link.server.send(contents.assignment)
        link.to_client(0.0)

    return {
        ("evaluation, with windows", "evaluation", 1): evaluate,
        ("gradient estimate, volunteer", "estimate", 1): estimate,
        ("gradient estimate, server", "estimate", 0): estimate,
        ("windows", "else", 1): cut,
        ("Result: encode, frames, CRC, decode", "else", 1): send_result,
        ("shaping: tell", "else", 1): lambda: tell_step(config, update, trials, contents.result.losses),
        ("journal: append and sync", "else", 1): lambda: journal.append(
            msgspec.structs.replace(update, step=next(steps))
        ),
        ("Update, Assignment: encode to decode", "else", 1): send_update,
        ("row masks, volunteer", "else", 1): lambda: run.objective.row_masks(update, block),
        ("row masks, server", "else", 0): lambda: run.objective.row_masks(update, block),
        ("optimizer, volunteer", "else", 1): lambda: replica.apply(
            msgspec.structs.replace(memberless, step=replica.step), threads=1
        ),
        ("optimizer, server", "else", 0): lambda: replica.apply(
            msgspec.structs.replace(memberless, step=replica.step), threads=1
        ),
        ("digest, volunteer", "else", 1): lambda: replica.digest,
        ("digest, server", "else", 0): lambda: replica.digest,
        ("metrics line", "else", 0): lambda: append_metrics(folder / "metrics.jsonl", line),
    }


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
    # Windows are cut inside the evaluation, and stand for themselves in the list.
    pairs = zip(seconds["evaluation, with windows"], seconds["windows"], strict=True)
    seconds["evaluation, with windows"] = [whole - cutting for whole, cutting in pairs]
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
    link = next(iter(contents.swarm.members.values())).link
    link.client.send(contents.result)
    link.server.send(contents.update)
    link.server.send(contents.assignment)
    up, down = link.client.data_to_send(), link.server.data_to_send()
    return len(up), len(down)


def milliseconds(seconds: list[float]) -> Spread:
    """The spread of these in ms."""
    return spread([s * 1e3 for s in seconds])

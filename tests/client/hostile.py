"""What a hostile server may say: absurd sizes in each field, one at a time."""

from collections.abc import Callable, Mapping
from typing import NamedTuple

import msgspec
import numpy as np

from fedlearn.es.optimizers import Adam
from fedlearn.es.perturbation import Perturbation
from fedlearn.es.snapshot import Snapshot
from fedlearn.es.update import Update
from fedlearn.tasks.blocks import block_name, encode_block
from fedlearn.tasks.invitation import Invitation, Option
from fedlearn.tasks.rnn.objective import RnnObjective
from fedlearn.wire.messages import Assignment, DataBlock, Hello, Message, Proof, Ready, Start, Welcome
from tests.identities import CHALLENGE

OPTIONS: Mapping[str, Option] = {
    "vocab_size": 8,
    "hidden_size": 4,
    "n_layers": 1,
    "context": 2,
    "sequence_length": 4,
    "batch_size": 1,
    "embedding_scale": 1.0,
    "precision": "float32",
    "cell": "tanh",
}
TOKENS = {"tokens": np.arange(400_000, dtype=np.uint16) % 8}
BLOCK = DataBlock(block_name(TOKENS), encode_block(TOKENS))
ASSIGNMENT = Assignment(0, BLOCK.block, Perturbation(0.1, 1), 8, 0, 64, 60.0)
UPDATE = Update(
    0, BLOCK.block, ((0, 2),), np.array([5, -5], dtype=np.int8), 1, 2, -0.1, Adam(0.01), False, 0.0, "zero", 0.0, 1.0
)
FAR = 2**62


class Attack(NamedTuple):
    """What is said after Hello, and what once the client is ready; how the client's Goodbye begins."""

    opening: list[Message]
    order: list[Message]
    answer: str


def opening(**options: Option) -> list[Message]:
    """What leads to Ready at step 0, of a model with these options."""
    described = {**OPTIONS, **options}
    objective = RnnObjective.from_options(described, 1)
    weights = np.zeros(objective.layout.size if objective.layout.size < 10**7 else 1, dtype=np.float32)
    return [
        Welcome("1", Invitation("rnn", 1, described, {})),
        BLOCK,
        Snapshot(0, digest_of(objective, weights), weights, {}, {}),
    ]


def digest_of(objective: RnnObjective, weights: np.ndarray[tuple[int, ...], np.dtype[np.float32]]) -> bytes:
    from fedlearn.es.replica import genesis

    return genesis(objective.layout, weights).digest if weights.size == objective.layout.size else bytes(8)


def order(**changes: object) -> list[Message]:
    return [msgspec.structs.replace(ASSIGNMENT, **changes)]


def step(**changes: object) -> list[Message]:
    return [msgspec.structs.replace(UPDATE, **changes)]


def many_columns() -> DataBlock:
    """A block that is all names."""
    header = b"{" + b",".join(b'"%d":{"dtype":"U8","shape":[0],"data_offsets":[0,0]}' % n for n in range(10**5)) + b"}"
    return DataBlock(bytes(16), len(header).to_bytes(8, "little") + header)


ATTACKS: Mapping[str, Callable[[], Attack]] = {
    "hidden size": lambda: Attack(opening(hidden_size=2**16, n_layers=16)[:1], [], "memory: "),
    "vocabulary": lambda: Attack(opening(vocab_size=2**16, hidden_size=2**12)[:1], [], "memory: "),
    "control matrices": lambda: Attack(
        opening(vocab_size=2**12, hidden_size=2**14, control_variates=True)[:1], [], "memory: "
    ),
    "start": lambda: Attack([*opening(hidden_size=2**14)[:1], Start(bytes(8), 0, 0, keeps_start=True)], [], "memory: "),
    "names of columns": lambda: Attack([*opening()[:1], many_columns()], [], "block: "),
    "block": lambda: Attack([*opening()[:1], DataBlock(bytes(16), bytes(40 * 2**20))], [], "memory: "),
    "batch": lambda: Attack(opening(batch_size=2**16, context=2**16, sequence_length=2**16), order(), "memory: "),
    "batch of an Update": lambda: Attack(
        opening(batch_size=2**16, context=2**16, sequence_length=2**16), step(), "memory: "
    ),
    "group size": lambda: Attack(opening(), order(group_size=FAR, quota=FAR), "trials: "),
    "group size within a Result": lambda: Attack(
        opening(sequence_length=2**10, hidden_size=64), order(group_size=2**20, quota=2**20), "memory: "
    ),
    "members without end": lambda: Attack(opening(), order(first_member=2**63 - 1), "trials: "),
    "step": lambda: Attack([*opening()], order(step=FAR), ""),
    "rank": lambda: Attack(opening(), order(perturbation=Perturbation(0.1, 2**40)), "memory: "),
    "rank beyond every integer": lambda: Attack(opening(), order(perturbation=Perturbation(0.1, 2**63)), "memory: "),
    "rank below zero": lambda: Attack(opening(), order(perturbation=Perturbation(0.1, -1)), "trials: "),
    "quota that is no group": lambda: Attack(opening(), order(group_size=64, quota=1), "trials: "),
    "members of an Update": lambda: Attack(opening(), step(spans=((0, FAR),)), "work: "),
    "negative members of an Update": lambda: Attack(opening(), step(spans=((0, -FAR),)), "spans: "),
    "rank of an Update": lambda: Attack(opening(), step(rank=2**50), "work: "),
    "negative rank of an Update": lambda: Attack(opening(), step(rank=-1), "tensors: "),
    "groups of an Update": lambda: Attack(
        opening(vocab_size=2**15),
        step(spans=((0, 2**20),), utilities=np.ones(2**20, dtype=np.int8), group_size=1),
        "memory: ",
    ),
    "group size of an Update": lambda: Attack(opening(), step(group_size=0), "spans: "),
    "step of an Update": lambda: Attack(opening(), step(step=2**63), "step: "),
}


def answers(attack: Attack, message: Message) -> list[Message]:
    """What the server says to a message of the client's."""
    if isinstance(message, Hello):
        return [CHALLENGE]
    if isinstance(message, Proof):
        return attack.opening
    return attack.order if isinstance(message, Ready) else []

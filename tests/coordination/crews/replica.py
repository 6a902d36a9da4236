"""A replica of three tensors without weights: what holds it, what divides it, and what is right of it."""

from collections.abc import Sequence
from hashlib import sha256
from typing import final

import msgspec
import numpy as np

from fedlearn.coordination.audits.audit import Claim, Finding, Verdict
from fedlearn.coordination.crews.crew_plan import CrewPlan, StageSpec, Tensors
from fedlearn.coordination.people.roster import Held
from fedlearn.coordination.steps.report import StepReport
from fedlearn.es.digest import DIGEST_BYTES
from fedlearn.es.snapshot import Snapshot
from fedlearn.es.update import Update
from fedlearn.server.training.recent import Outgoing
from fedlearn.storage.logs.metrics import StepMetrics, StepTraffic
from fedlearn.tasks.parts.activations import ActivationCodec
from fedlearn.wire.encoding.parcel import Parcel, pack
from fedlearn.wire.messages import DataBlock

WHOLE: Tensors = ("a", "b", "c")
N_SEATS = 3
REPLICA_BYTES = 100
MEMORY = 50
MEMBER_BYTES = 4
WINDOW = 5
HONEST, TAINTED = 0.0, 1e6
"""Losses of members that went through right weights only, and of others."""


def digest_of(step: int, tensors: Tensors = WHOLE) -> bytes:
    """What right weights of these tensors have before a step."""
    return sha256(f"{step} {tensors}".encode()).digest()[:DIGEST_BYTES]


@final
class ThreeStages:
    """A planner: a tensor each."""

    wire: ActivationCodec = "float32"

    def __init__(self) -> None:
        self.shards = 1

    def fits(self, stage: StageSpec, memory_bytes: int) -> bool:
        return stage.need_bytes <= memory_bytes

    def draft(self, memories: Sequence[int], *, fewer: bool = False) -> CrewPlan | None:
        able = tuple(number for number, memory in enumerate(memories) if memory >= MEMORY)
        if fewer and 2 <= len(able) < N_SEATS:
            halves = ("a", "b"), ("c",)
            stages = tuple(StageSpec(names, MEMORY, MEMBER_BYTES * (2 - n), 0, 3) for n, names in enumerate(halves, 1))
            return CrewPlan((2,), self.shards, stages, able, WINDOW)
        if len(able) < N_SEATS:
            return None
        sent = [MEMBER_BYTES, MEMBER_BYTES, 0]
        stages = tuple(StageSpec((name,), MEMORY, n_bytes, 0, 3) for name, n_bytes in zip(WHOLE, sent, strict=True))
        return CrewPlan((1, 2), self.shards, stages, able[:N_SEATS], WINDOW)

    def lack(self, memories: Sequence[int]) -> str:
        return f"{N_SEATS - len(memories)} more are needed"


@final
class Trainer:
    """Keeps a journal of a replica without weights."""

    def __init__(self) -> None:
        self.step = 0
        self.journal: list[Update] = []
        self.losses: list[float | None] = []
        self.relayed: list[dict[str, tuple[int, int, int]]] = []
        self.parts = self

    def weights_messages(self, *, may_replay: bool) -> list[Outgoing]:
        del may_replay
        return [self.message(WHOLE)]

    def missed(self, held: Held) -> list[Outgoing] | None:
        del held
        return None

    def data_block(self, name: bytes) -> Outgoing:
        block = DataBlock(name, b"")
        return block, pack(block)

    def append(self, update: Update) -> Parcel:
        assert update.step == len(self.journal)
        self.journal.append(update)
        return pack(update)

    def apply(self, update: Update) -> bytes:
        assert update.step == self.step
        self.step += 1
        return digest_of(self.step)

    def audit(self, claim: Claim) -> tuple[Finding, Verdict]:
        trials, reputation = claim.trials, claim.reputation
        members = (trials.first_member, trials.n_members)
        return Finding.TRUE, Verdict(trials.step, *members, reputation.identity, reputation.name, 0.0)

    def record_verdict(self, verdict: Verdict) -> None:
        raise AssertionError(f"nobody lies here: {verdict}")

    def record_credit(self, entry: object) -> None:
        del entry

    def save_checkpoint(self) -> None:
        return None

    def ending(self, reason: str) -> str:
        return reason

    def record(self, report: StepReport, traffic: StepTraffic) -> StepMetrics:
        self.relayed.append(traffic.relayed)
        self.losses.append(report.loss)
        return StepMetrics(
            **msgspec.structs.asdict(report), shown={}, work_per_s=0.0, bytes_in=0, bytes_out=0, digest="", time=0.0
        )

    def message(self, tensors: Tensors) -> Outgoing:
        snapshot = Snapshot(self.step, digest_of(self.step, tensors), np.zeros(1, np.float32), {}, {})
        return snapshot, pack(snapshot)

    def digests(self, parts: Sequence[Tensors]) -> tuple[int, dict[Tensors, bytes]]:
        return self.step, {tensors: digest_of(self.step, tensors) for tensors in parts}

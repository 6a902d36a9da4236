"""Volunteers that answer without computing: a process full of them, of whom one keeps a replica for all."""

import asyncio
import struct
import time
from collections.abc import Callable
from pathlib import Path
from typing import cast, final

import msgspec
import numpy as np

from fedlearn.coordination.work.slices import SLICE_S
from fedlearn.es.snapshot import Snapshot
from fedlearn.es.sums.estimate import encode_exactly
from fedlearn.es.update import Update
from fedlearn.storage.task_file import load_task
from fedlearn.tasks.holding import Holding
from fedlearn.tasks.registry import find_kind
from fedlearn.wire.encoding.codec import decode
from fedlearn.wire.encoding.frames import HEADER_BYTES
from fedlearn.wire.encoding.parcel import pack
from fedlearn.wire.messages import (
    PROTOCOL_VERSION,
    Assignment,
    Challenge,
    Farewell,
    Hello,
    Message,
    Ready,
    Result,
    Start,
    Welcome,
)
from fedlearn.wire.proof import NONCE_BYTES, Credentials, Identity, prove

GROUP_SIZE = 16

CREDENTIALS = Credentials(Identity.of_seed(bytes(32)))
"""The credentials of all volunteers: one person may have any number of machines."""

_ASSIGNMENT, _SNAPSHOT, _START, _CHALLENGE, _UPDATE, _FAREWELL = 19, 17, 22, 23, 32, 21
_LEADERS: dict[int, type[msgspec.Struct]] = {16: Welcome, 17: Snapshot, 22: Start, 32: Update}


@final
class Crowd:
    """All volunteers: what they know of the run, and when steps ended."""

    def __init__(self, task: Path, *, member_s: float = 0.0) -> None:
        self.member_s = member_s
        """What a member takes each of them."""
        self.n_members = 0
        """Members that counted."""
        self.task = load_task(f"{task}:task")
        self.holding: Holding | None = None
        self.digests: dict[int, bytes] = {}
        """Digests of the replica, by the step that it stood before."""
        self.ended_at: list[float] = []
        self.lights: list[Light] = []
        self.n_ready = 0
        self.n_lost = 0
        self.farewells: list[str] = []
        self._losses = np.random.default_rng(1).random(1 << 16, dtype=np.float32)
        self._equal = np.ones_like(self._losses)
        self._waiting: dict[int, list[Callable[[bytes], None]]] = {}

    def take(self, message: Message) -> None:
        """What the first volunteer is told goes for all."""
        match message:
            case Welcome(_, invitation):
                objective = find_kind(invitation.kind).join(invitation, self.task, device="cpu")
                self.holding = Holding(objective, seed=invitation.seed, threads=1)
            case Start() if self.holding is not None:
                self._stand(message.first_step, self.holding.begin(message.first_step, keeps_start=message.keeps_start))
            case Snapshot() if self.holding is not None:
                self._stand(message.step, self.holding.load(message))
            case Update() if self.holding is not None:
                self.ended_at.append(time.perf_counter())
                self.n_members += message.n_members
                self._stand(message.step + 1, self.holding.apply(message))

    def at(self, step: int, then: Callable[[bytes], None]) -> None:
        """Calls back with the digest, at once where the replica has been there."""
        if (digest := self.digests.get(step)) is not None:
            then(digest)
        else:
            self._waiting.setdefault(step, []).append(then)

    def result(self, assignment: Assignment, digest: bytes, *, n_done: int, n_members: int) -> Result:
        """The Result of so many members after those that are done, with losses that nobody computed."""
        first, busy_s = assignment.first_member + n_done, (n_done + n_members) * self.member_s
        if assignment.shaping is None or self.holding is None:
            return Result(assignment.step, first, self._losses[:n_members], digest, busy_s=busy_s)
        # Of equal losses the sum is known without the noise: nothing.
        nothing = np.zeros(self.holding.objective.layout.size, np.int32)
        estimate = encode_exactly(self.holding.objective.layout, nothing)
        return Result(assignment.step, first, self._equal[:n_members], digest, estimate, busy_s)

    def _stand(self, step: int, digest: bytes) -> None:
        self.digests[step] = digest
        for then in self._waiting.pop(step, ()):
            then(digest)


@final
class Light(asyncio.Protocol):
    """A volunteer that reads no more of a frame than it must."""

    def __init__(self, crowd: Crowd) -> None:
        self._crowd = crowd
        self._leads = not crowd.lights
        self._buffer = b""
        self._chunks: list[bytes] = []
        self._computing: asyncio.TimerHandle | None = None
        self._assignment: Assignment | None = None
        crowd.lights.append(self)

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        assert isinstance(transport, asyncio.Transport)
        self._transport = transport
        self._hello = Hello(
            PROTOCOL_VERSION, f"light {len(self._crowd.lights)}", 1, CREDENTIALS.identity.public_key, bytes(NONCE_BYTES)
        )
        self.send(self._hello)

    def connection_lost(self, _: Exception | None) -> None:
        self._crowd.n_lost += 1

    def send(self, message: Message) -> None:
        self._transport.write(pack(message).frame(0))

    def data_received(self, data: bytes) -> None:
        buffer, at = self._buffer + data, 0
        while len(buffer) - at >= HEADER_BYTES:
            chunk, n_chunks, length = struct.unpack_from("<III", buffer, at + 8)
            end = at + HEADER_BYTES + length
            if len(buffer) < end:
                break
            payload = buffer[at + HEADER_BYTES : end]
            if n_chunks > 1:
                self._chunks = [*(self._chunks if chunk else ()), payload]
                payload = b"".join(self._chunks)
            if chunk + 1 == n_chunks:
                self._take(buffer[at + 3], payload)
            at = end
        self._buffer = buffer[at:]

    def _take(self, tag: int, payload: bytes) -> None:
        if self._leads and (kind := _LEADERS.get(tag)) is not None:
            self._crowd.take(cast(Message, decode(payload, kind)))
        if tag == _CHALLENGE:
            self.send(prove(CREDENTIALS, self._hello, decode(payload, Challenge), b""))
        elif tag == _ASSIGNMENT:
            assignment = decode(payload, Assignment)
            began = asyncio.get_running_loop().time()
            self._stop_computing()
            self._assignment = assignment
            self._crowd.at(assignment.step, lambda digest: self._compute(assignment, digest, began=began, n_done=0))
        elif tag == _UPDATE:
            self._stop_computing()
        elif tag == _FAREWELL:
            self._crowd.farewells.append(decode(payload, Farewell).reason)
        elif tag == _SNAPSHOT:
            snapshot = decode(payload, Snapshot)
            self._be_ready(snapshot.step, snapshot.digest)
        elif tag == _START:
            start = decode(payload, Start)
            self._crowd.at(start.step, lambda digest: self._be_ready(start.step, digest))

    def _compute(self, assignment: Assignment, digest: bytes, *, began: float, n_done: int) -> None:
        """Sends what a slice of its time gives, once that is over."""
        if assignment is not self._assignment:
            return
        n_members = assignment.quota - n_done
        if self._crowd.member_s > 0.0:
            n_members = min(n_members, max(int(SLICE_S / self._crowd.member_s) // GROUP_SIZE, 1) * GROUP_SIZE)

        def tell() -> None:
            self.send(self._crowd.result(assignment, digest, n_done=n_done, n_members=n_members))
            if n_done + n_members < assignment.quota:
                self._compute(assignment, digest, began=began, n_done=n_done + n_members)

        if self._crowd.member_s > 0.0:
            done_at = began + (n_done + n_members) * self._crowd.member_s
            self._computing = asyncio.get_running_loop().call_at(done_at, tell)
        else:
            tell()

    def _stop_computing(self) -> None:
        self._assignment = None
        if self._computing is not None:
            self._computing.cancel()

    def _be_ready(self, step: int, digest: bytes) -> None:
        self.send(Ready(step, digest))
        self._crowd.n_ready += 1

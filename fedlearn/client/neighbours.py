"""The connections of a seat to its neighbours in a crew: it is called by the previous seat, and calls the next one.

Only seats that the server has named are accepted, and any error here costs one connection: the server then replaces it.
"""

import asyncio
import secrets
import time
from collections.abc import Callable
from typing import final

from fedlearn.coordination.work.work import Heard, LineEvent, Linked, Unlinked
from fedlearn.net.channel import Channel
from fedlearn.net.dialing import dial_directly
from fedlearn.net.direct import LineAddress, Listening
from fedlearn.net.silence import why_silent
from fedlearn.net.stream import Stream
from fedlearn.net.tcp import TcpStream
from fedlearn.wire.connection import Connection
from fedlearn.wire.errors import LocalProtocolError
from fedlearn.wire.introduction import Called, Caller, Ends
from fedlearn.wire.limits import activations_limit_bytes
from fedlearn.wire.messages import Activations, Farewell, Message, Neighbours, NextSeat, Signature
from fedlearn.wire.proof import NONCE_BYTES, Identity

REACH_S = 5.0
"""Seconds within which the next seat must be reached; otherwise activations go through the server."""

RETRY_S = 0.2
"""Seconds between two calls: the next seat may hear of its neighbours a little later."""

MAX_CALLERS = 4
"""The most callers at a time that have not signed yet: one seat calls, and nobody else should."""

MAX_QUEUED_BYTES = 256 * 1024 * 1024
"""Bytes of activations that may wait because the next seat does not take them."""


@final
class NeighbourLines:
    """The direct connections during one conversation with a server, with TLS if that has it."""

    def __init__(
        self,
        identity: Identity,
        address: LineAddress,
        on_event: Callable[[LineEvent], None],
        *,
        name: str,
        has_tls: bool,
    ) -> None:
        self._identity, self._name, self._has_tls = identity, name, has_tls
        self._address, self._on_event = address, on_event
        self._listening: Listening | None = None
        self._neighbours = Neighbours(0, None, None)
        self._n_callers = 0
        self._calling: asyncio.Task[None] | None = None
        self._answering: set[asyncio.Task[None]] = set()
        self._to_next: Channel | None = None
        self._from_before: Channel | None = None

    async def listen(self) -> int:
        """Begins to listen; gives the port.

        Raises:
            OSError: the system refuses.
        """
        self._listening = await self._address.listen(self._accept, has_tls=self._has_tls)
        return self._listening.port

    def link(self, neighbours: Neighbours) -> None:
        """Sets these neighbours from now on; connections to others end."""
        self._end()
        self._neighbours = neighbours
        if neighbours.next is not None:
            self._calling = asyncio.create_task(self._call(neighbours, neighbours.next))

    def forward(self, activations: Activations) -> None:
        """Sends to the next seat, or cotangents to the one before, if that is connected."""
        channel = self._from_before if activations.backward else self._to_next
        if channel is not None:
            try:
                channel.send(activations)
            except LocalProtocolError as error:
                channel.drop(str(error))

    def close(self) -> None:
        """Closes all connections."""
        self._end()
        if self._listening is not None:
            self._listening.close()

    def _end(self) -> None:
        self._neighbours = Neighbours(0, None, None)
        self._to_next = self._from_before = None
        for task in [*self._answering, *([self._calling] if self._calling is not None else [])]:
            task.cancel()

    # ---- the seat before calls

    async def _accept(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        stream, answering = TcpStream(reader, writer), asyncio.current_task()
        assert answering is not None
        if self._neighbours.before is None or self._n_callers >= MAX_CALLERS:
            stream.abort()
            return
        self._answering.add(answering)
        self._n_callers += 1
        try:
            await self._answer(stream)
        except asyncio.CancelledError:
            return  # asyncio would report it as an error of the connection
        finally:
            self._answering.discard(answering)
            stream.abort()

    async def _answer(self, stream: Stream) -> None:
        """Receives from one caller, if it is the previous seat, until the connection ends."""
        before, listening = self._neighbours.before, self._listening
        assert before is not None, "answered without a neighbour"
        assert listening is not None, "answered without listening"
        ends = Ends(self._neighbours.line, before.public_key, self._identity.public_key, listening.binding)
        called = Called(self._identity, ends, nonce=secrets.token_bytes(NONCE_BYTES))
        largest = activations_limit_bytes(before)
        connection = Connection("next seat", now=time.monotonic(), activations_bytes=largest)
        channel = Channel(connection, stream, max_queued_bytes=MAX_QUEUED_BYTES)
        is_known = False

        def receive(message: Message) -> None:
            nonlocal is_known
            if isinstance(message, Activations):
                if self._from_before is channel:
                    self._on_event(Heard(message))
                return
            for answer in called.received(message):
                channel.send(answer)
            if isinstance(message, Signature):
                is_known = True
                self._n_callers -= 1
                self._from_before = channel

        def check() -> None:
            if not is_known:
                channel.drop("it did not sign")

        limit = asyncio.get_running_loop().call_later(REACH_S, check)
        try:
            reason = await channel.run(receive)
        finally:
            limit.cancel()
            self._n_callers -= not is_known
        if self._from_before is channel:
            self._from_before = None
            self._on_event(Unlinked(f"the line from the seat before ended: {reason}", is_next=False))

    # ---- the next seat is called

    async def _call(self, neighbours: Neighbours, seat: NextSeat) -> None:
        """Calls until the next seat answers, and stays connected."""
        where, until, reason = f"{seat.host}:{seat.port}", time.monotonic() + REACH_S, ""
        while (left_s := until - time.monotonic()) > 0 and not reason:
            try:
                reader, writer, binding = await asyncio.wait_for(
                    dial_directly(seat.host, seat.port, has_tls=self._has_tls), left_s
                )
            except OSError as error:
                why = f"nobody answers at {where}: {why_silent(error, where)}"
            else:
                ends = Ends(neighbours.line, self._identity.public_key, seat.public_key, binding)
                why, is_linked = await self._converse(TcpStream(reader, writer), ends, left_s)
                reason = f"the line to {where} ended: {why}" if is_linked else ""
            await asyncio.sleep(0 if reason else RETRY_S)
        self._to_next = None
        self._on_event(Unlinked(reason or f"the next seat is not reached: {why}", is_next=True))

    async def _converse(self, stream: Stream, ends: Ends, limit_s: float) -> tuple[str, bool]:
        """Holds a conversation; gives the reason of its end, and whether the next seat was there."""
        caller = Caller(self._identity, ends, name=self._name, nonce=secrets.token_bytes(NONCE_BYTES))
        channel = Channel(Connection("seat before", now=time.monotonic()), stream, max_queued_bytes=MAX_QUEUED_BYTES)
        parting = ""

        def receive(message: Message) -> None:
            nonlocal parting
            if isinstance(message, Activations):
                self._on_event(Heard(message))
                return
            if isinstance(message, Farewell):
                parting = message.reason
            if (signature := caller.received(message)) is not None:
                channel.send(signature)
                self._to_next = channel
                self._on_event(Linked())

        def check() -> None:
            if self._to_next is not channel:
                channel.drop("it did not sign")

        channel.send(caller.hello)
        limit = asyncio.get_running_loop().call_later(limit_s, check)
        try:
            reason = await channel.run(receive)
        finally:
            limit.cancel()
            stream.abort()
        return parting or reason, self._to_next is channel

"""Orders to a run by a person who holds the board's token."""

import asyncio
import hmac
import time
from typing import Annotated, Literal

import msgspec
from msgspec import Meta
from starlette.exceptions import HTTPException
from starlette.requests import Request as Asked

from fedlearn.coordination.people.rate_limit import RateLimit
from fedlearn.runs.status_file import live_status
from fedlearn.storage import orders
from fedlearn.storage.runs import RunFolder
from fedlearn.web.guards import network

ANSWER_S = 15.0
"""Seconds to wait for an answer: a server looks for orders once a second, and some wait for the open step to end."""

INTERVAL_S = 0.1
GUESSES_PER_MINUTE = 10
"""Wrong tokens a minute of one address."""

BY = "the board"
"""Name of the board as the giver of an order, which the server's terminal shows."""

Text = Annotated[str, Meta(min_length=1, max_length=256)]


class Given(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """An order as the page sends it."""

    order: Literal["pause", "go-on", "checkpoint", "send-away", "set", "finish"]
    who: Text = "-"
    key: Text = "-"
    value: Annotated[str, Meta(max_length=256)] = ""

    def written(self) -> orders.Order:
        """The order as it is sent to the server."""
        match self.order:
            case "pause":
                return orders.Pause(BY)
            case "go-on":
                return orders.GoOn(BY)
            case "checkpoint":
                return orders.WriteCheckpoint(BY)
            case "send-away":
                return orders.SendAway(BY, self.who)
            case "set":
                return orders.Set(BY, self.key, self.value)
            case "finish":
                return orders.Finish(BY)


class OperatorAccess:
    """Authenticates requests by the token."""

    def __init__(self, token: str) -> None:
        self._token = token.encode()
        self._guesses = RateLimit(GUESSES_PER_MINUTE)

    def check(self, asked: Asked) -> None:
        """Checks the token of a request.

        Raises:
            HTTPException: the request has no valid token, or follows too many of these.
        """
        given = asked.headers.get("authorization", "").encode(errors="replace")
        if self._token and hmac.compare_digest(given, b"Bearer " + self._token):
            return
        if not self._guesses.take(network(asked.scope), time.monotonic()):
            raise HTTPException(429, "too many wrong tokens; try again in a minute")
        raise HTTPException(403, "expected the board's token, which stands in the address that it printed")


async def carry_out(folder: RunFolder, given: Given) -> str:
    """Gives the order, and waits for the server's answer.

    Raises:
        ValueError: the order has a text that no server takes.
        StorageError: the folder cannot be written.
    """
    if await asyncio.to_thread(live_status, folder) is None:
        return "No server has this run just now."
    file = await asyncio.to_thread(orders.give, folder.orders, given.written())
    try:
        async with asyncio.timeout(ANSWER_S):
            while (answer := orders.answer_to(file)) is None:
                await asyncio.sleep(INTERVAL_S)
    except TimeoutError:
        is_taken = orders.is_taken(file)
        return "The server has it, and is still at it." if is_taken else "The server did not take it."
    finally:
        orders.withdraw(file)
    return answer.text

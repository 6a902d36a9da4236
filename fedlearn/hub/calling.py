"""The addresses at which devices say what they do: verbs that operators call, and logs that owners share."""

from collections.abc import AsyncIterator, Callable
from functools import partial
from typing import Any, final

import msgspec
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route
from starlette.types import ASGIApp

from fedlearn.board.app import body_of, json_of
from fedlearn.hub.bodies import SaidLines, VerbAnswer, as_number, read_body
from fedlearn.hub.calls import VerbCalls
from fedlearn.hub.device_logs import DeviceLogs
from fedlearn.hub.devices import Devices

MAX_ANSWER_BYTES = 256 * 1024
"""The most bytes of a device's answer as JSON, in which a byte may take six."""


@final
class Calling:
    """Answers requests about verbs and logs of devices; a stream of a log is `placed` among the hub's other ones."""

    def __init__(self, devices: Devices, placed: Callable[[Request, AsyncIterator[bytes]], ASGIApp]) -> None:
        self._devices, self._placed = devices, placed
        self.calls, self._logs = VerbCalls(), DeviceLogs()

    @property
    def routes(self) -> list[Route]:
        """Its addresses."""
        get, post, device = partial(Route, methods=["GET"]), partial(Route, methods=["POST"]), "/api/devices/{id}"
        call = f"{device}/calls/{{call}}"
        log = f"{device}/log"
        return [
            post(f"{device}/verbs/{{verb}}", self.ask),
            get(call, self.show),
            post(call, self.answer),
            post(log, self.said),
            get(log, self.log),
        ]

    def forget(self, device: int) -> None:
        """Forgets what was asked of a device, and what it said: its number is another's now."""
        self.calls.forget(device)
        self._logs.forget(device)

    async def said(self, asked: Request) -> Response:
        """Takes lines of a device's log."""
        lines = read_body(await body_of(asked, max_bytes=MAX_ANSWER_BYTES), SaidLines).lines
        self._logs.add(self._devices.get(as_number(asked.path_params["id"], "device")).device_id, lines)
        return json_of({"message": "Lines taken"})

    async def log(self, asked: Request) -> ASGIApp:
        """Sends the log of a device whose owner shares it; with `follow`, also lines as they come."""
        number = self._devices.get(as_number(asked.path_params["id"], "device")).device_id
        is_followed = "follow" in asked.query_params
        return self._placed(asked, self._logs.follow(number, lambda: not (is_followed and self._devices.has(number))))

    async def ask(self, asked: Request) -> Response:
        """Asks a device to call a verb, whose arguments are the body."""
        arguments = read_body(await body_of(asked), dict[str, Any])
        device = self._devices.get(as_number(asked.path_params["id"], "device"))
        call = self.calls.add(device, asked.path_params["verb"], arguments)
        self._devices.wake()
        return json_of({"message": f"Device {device.device_id} is asked", "call_id": call.call_id}, status=201)

    async def show(self, asked: Request) -> Response:
        """Shows a call, and what came of it."""
        return json_of(msgspec.to_builtins(self.calls.get(*self._numbers(asked))))

    async def answer(self, asked: Request) -> Response:
        """Takes a device's answer to a call."""
        answer = read_body(await body_of(asked, max_bytes=MAX_ANSWER_BYTES), VerbAnswer)
        self.calls.answer(*self._numbers(asked), answer)
        return json_of({"message": "Answer taken"})

    def _numbers(self, asked: Request) -> tuple[int, int]:
        device = as_number(asked.path_params["id"], "device")
        return self._devices.get(device).device_id, as_number(asked.path_params["call"], "call")

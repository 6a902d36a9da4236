"""The addresses at which operators call verbs of devices, and devices answer."""

from functools import partial
from typing import Any, final

import msgspec
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from fedlearn.board.app import body_of, json_of
from fedlearn.hub.bodies import VerbAnswer, as_number, read_body
from fedlearn.hub.calls import VerbCalls
from fedlearn.hub.devices import Devices

MAX_ANSWER_BYTES = 256 * 1024
"""The most bytes of a device's answer as JSON, in which a byte may take six."""


@final
class Calling:
    """Answers requests about verbs."""

    def __init__(self, devices: Devices, calls: VerbCalls) -> None:
        self._devices, self._calls = devices, calls

    @property
    def routes(self) -> list[Route]:
        """Its addresses."""
        get, post, device = partial(Route, methods=["GET"]), partial(Route, methods=["POST"]), "/api/devices/{id}"
        call = f"{device}/calls/{{call}}"
        return [post(f"{device}/verbs/{{verb}}", self.ask), get(call, self.show), post(call, self.answer)]

    async def ask(self, asked: Request) -> Response:
        """Asks a device to call a verb, whose arguments are the body."""
        arguments = read_body(await body_of(asked), dict[str, Any])
        device = self._devices.get(as_number(asked.path_params["id"], "device"))
        call = self._calls.add(device, asked.path_params["verb"], arguments)
        self._devices.wake()
        return json_of({"message": f"Device {device.device_id} is asked", "call_id": call.call_id}, status=201)

    async def show(self, asked: Request) -> Response:
        """Shows a call, and what came of it."""
        return json_of(msgspec.to_builtins(self._calls.get(*self._numbers(asked))))

    async def answer(self, asked: Request) -> Response:
        """Takes a device's answer to a call."""
        answer = read_body(await body_of(asked, max_bytes=MAX_ANSWER_BYTES), VerbAnswer)
        self._calls.answer(*self._numbers(asked), answer)
        return json_of({"message": "Answer taken"})

    def _numbers(self, asked: Request) -> tuple[int, int]:
        device = as_number(asked.path_params["id"], "device")
        return self._devices.get(device).device_id, as_number(asked.path_params["call"], "call")

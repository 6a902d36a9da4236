"""Calls of devices' verbs: asked for by an operator, fetched by a device with its work, and answered by it."""

from collections import deque
from typing import Any, Literal, final

import msgspec

from fedlearn.client.hub_line import AskedVerb
from fedlearn.hub.bodies import RefusedError, VerbAnswer
from fedlearn.hub.devices import Device

MAX_WAITING = 16
"""The most calls that a device has not answered."""

MAX_KEPT = 64
"""The number of last calls of a device that are kept."""


class VerbCall(msgspec.Struct, kw_only=True):
    """One call of a verb."""

    call_id: int
    verb: str
    arguments: dict[str, Any]
    state: Literal["waiting", "running", "done", "refused"] = "waiting"
    code: int | None = None
    """The verb's exit code."""
    output: str = ""
    """What it printed, or why it was refused."""

    @property
    def asked(self) -> AskedVerb:
        """What the device is told of it."""
        return AskedVerb(self.call_id, self.verb, self.arguments)


@final
class VerbCalls:
    """The calls of all devices, by the number of the device. A device that registers anew has none."""

    def __init__(self) -> None:
        self._calls: dict[int, deque[VerbCall]] = {}
        self._n_calls = 0

    def add(self, device: Device, verb: str, arguments: dict[str, Any]) -> VerbCall:
        """Asks a device to call a verb.

        Raises:
            RefusedError: it has no such verb, or has too much to do.
        """
        if verb not in device.asked.verbs:
            known = ", ".join(device.asked.verbs) or "none; its owner names a folder of them with join --verbs"
            raise RefusedError(
                404, f"verb: expected one that device {device.device_id} has, got {verb[:64]!r}: {known}"
            )
        calls = self._calls.setdefault(device.device_id, deque(maxlen=MAX_KEPT))
        if sum(call.state in ("waiting", "running") for call in calls) >= MAX_WAITING:
            raise RefusedError(
                409, f"verb: expected at most {MAX_WAITING} calls that wait, and so many do; wait for one"
            )
        self._n_calls += 1
        calls.append(VerbCall(call_id=self._n_calls, verb=verb, arguments=arguments))
        return calls[-1]

    def take(self, device: int) -> list[VerbCall]:
        """The calls that a device has not been told; it has been now."""
        waiting = [call for call in self._calls.get(device, ()) if call.state == "waiting"]
        for call in waiting:
            call.state = "running"
        return waiting

    def get(self, device: int, number: int) -> VerbCall:
        """A call of a device.

        Raises:
            RefusedError: there is none of this number.
        """
        for call in self._calls.get(device, ()):
            if call.call_id == number:
                return call
        raise RefusedError(404, f"call {number}: device {device} has none of this number; the last {MAX_KEPT} are kept")

    def answer(self, device: int, number: int, answer: VerbAnswer) -> None:
        """Takes a device's answer.

        Raises:
            RefusedError: the device was asked no such thing, or has answered.
        """
        if (call := self.get(device, number)).state != "running":
            raise RefusedError(409, f"call {number}: expected one that runs, it is {call.state}")
        call.state = "refused" if answer.code is None else "done"
        call.code, call.output = answer.code, answer.output

    def forget(self, device: int) -> None:
        """Forgets the calls of a device that is gone."""
        self._calls.pop(device, None)

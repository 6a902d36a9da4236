"""The registered devices, and the job that each works for. Nobody connects to a device: it asks."""

import asyncio
from collections.abc import Sequence
from typing import final

import msgspec

from fedlearn.hub.bodies import RefusedError, Registration

FORGET_S = 90.0
"""Seconds without a request after which a device counts as gone; a live one asks about every 20 s."""

MAX_DEVICES = 10_000


class Device(msgspec.Struct, kw_only=True):
    """A registered device."""

    device_id: int
    asked: Registration
    address: str
    """The address that its request came from."""
    seen: float
    job_id: int | None
    """The job that it works for; None: it has no job at present."""


@final
class Devices:
    """All registered devices. A hub that is restarted knows none, and the devices register again by themselves."""

    def __init__(self) -> None:
        self._devices: dict[int, Device] = {}
        self._changed = asyncio.Event()

    def register(self, asked: Registration, *, address: str, now: float) -> Device:
        """Registers a device.

        Raises:
            RefusedError: there are too many, or another device has its number.
        """
        self.forget(now)
        if len(self._devices) >= MAX_DEVICES:
            raise RefusedError(409, f"devices: expected at most {MAX_DEVICES}, and so many are registered")
        number = asked.port or self._free_number()
        if number in self._devices:
            raise RefusedError(409, f"port: device {number} is registered already; unregister it, or take another port")
        device = Device(device_id=number, asked=asked, address=address, seen=now, job_id=asked.job_id)
        self._devices[number] = device
        self.wake()
        return device

    def unregister(self, number: int) -> None:
        """Removes a device.

        Raises:
            RefusedError: it is not registered.
        """
        self.get(number)
        del self._devices[number]
        self.wake()

    def get(self, number: int) -> Device:
        """The device with this number.

        Raises:
            RefusedError: it is not registered.
        """
        if (device := self._devices.get(number)) is None:
            raise RefusedError(404, f"device {number}: none with this number is registered; register it first")
        return device

    def has(self, number: int) -> bool:
        """Whether a device with this number is registered."""
        return number in self._devices

    def forget(self, now: float) -> None:
        """Removes the devices that have been silent for too long."""
        self._devices = {k: device for k, device in self._devices.items() if now - device.seen < FORGET_S}

    def all(self) -> list[Device]:
        """The devices in the order of their numbers."""
        return [self._devices[number] for number in sorted(self._devices)]

    def of(self, job_id: int) -> list[Device]:
        """The devices that work for a job."""
        return [device for device in self.all() if device.job_id == job_id]

    def give_idle_to(self, job_id: int, *, most: int) -> None:
        """Gives the job to at most so many devices that registered for no job in particular and are idle."""
        idle = [device for device in self.all() if device.job_id is None]
        for device in idle[: max(most, 0)]:
            device.job_id = job_id
        self.wake()

    def give_to(self, job_id: int, numbers: Sequence[int]) -> None:
        """Gives the job to these devices, and takes it from all others that registered for no job in particular.

        Raises:
            RefusedError: one is not registered, or works for another job; then nothing is given.
        """
        chosen = [self.get(number) for number in numbers]
        for device in chosen:
            if device.job_id not in (None, job_id):
                raise RefusedError(
                    409, f"devices: expected idle ones, device {device.device_id} works for job {device.job_id}"
                )
        self.free(job_id)
        for device in chosen:
            device.job_id = job_id
        self.wake()

    def free(self, job_id: int) -> None:
        """Takes the job, which has ended, from devices that registered for no job in particular."""
        for device in self.of(job_id):
            device.job_id = device.asked.job_id
        self.wake()

    def wake(self) -> None:
        """Wakes all requests that wait for a change."""
        self._changed.set()
        self._changed = asyncio.Event()

    async def wait(self, timeout_s: float, closing: asyncio.Event) -> None:
        """Waits until something changes or the server closes, at most for this time."""
        waiting = [asyncio.ensure_future(event.wait()) for event in (self._changed, closing)]
        try:
            await asyncio.wait(waiting, timeout=timeout_s, return_when=asyncio.FIRST_COMPLETED)
        finally:
            for each in waiting:
                each.cancel()

    def _free_number(self) -> int:
        number = 1
        while number in self._devices:
            number += 1
        return number

import asyncio

import pytest

from fedlearn.hub.bodies import RefusedError, Registration
from fedlearn.hub.devices import FORGET_S, Device, Devices

ADA = Registration(name="ada")


def register(devices: Devices, asked: Registration = ADA, address: str = "10.0.0.1", now: float = 0.0) -> Device:
    return devices.register(asked, address=address, now=now)


def test_devices_are_counted_from_one_and_numbers_are_used_again(devices: Devices) -> None:
    assert [register(devices).device_id for _ in range(3)] == [1, 2, 3]
    devices.unregister(2)
    assert register(devices).device_id == 2


def test_a_device_is_known_by_the_port_that_it_names(devices: Devices) -> None:
    device = register(devices, Registration(ip="10.0.0.9", port=5001, job_id=1))
    assert (device.device_id, device.job_id) == (5001, 1)
    devices.unregister(5001)
    with pytest.raises(RefusedError, match="device 5001: none") as refused:
        devices.unregister(5001)
    assert refused.value.status == 404


def test_a_port_is_registered_once(devices: Devices) -> None:
    asked = Registration(port=5001)
    register(devices, asked)
    for other, address in ((asked, "10.0.0.1"), (asked, "10.0.0.2"), (Registration(port=5001, name="eve"), "10.0.0.1")):
        with pytest.raises(RefusedError, match="device 5001 is registered already") as refused:
            register(devices, other, address)
        assert refused.value.status == 409
    devices.unregister(5001)
    register(devices, asked)


def test_who_is_silent_is_forgotten(devices: Devices) -> None:
    register(devices)
    devices.forget(FORGET_S - 1)
    assert len(devices.all()) == 1
    devices.forget(FORGET_S)
    assert devices.all() == []


def test_devices_are_bounded(devices: Devices, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("fedlearn.hub.devices.MAX_DEVICES", 2)
    for _ in range(2):
        register(devices)
    with pytest.raises(RefusedError, match="at most 2"):
        register(devices)
    assert register(devices, now=FORGET_S).device_id == 1  # the others are forgotten by then


def test_only_the_idle_are_given_to_a_job_and_they_are_free_after_it(devices: Devices) -> None:
    for asked in (ADA, Registration(job_id=2), ADA, ADA):
        register(devices, asked)
    devices.give_idle_to(1, most=-1)
    assert devices.of(1) == []
    devices.give_idle_to(1, most=2)
    assert [device.device_id for device in devices.of(1)] == [1, 3]
    devices.free(1)
    devices.free(2)
    assert [device.job_id for device in devices.all()] == [None, 2, None, None]


def test_whoever_waits_is_woken_by_a_change(devices: Devices) -> None:
    async def woken() -> bool:
        waiting = asyncio.create_task(devices.wait(60.0, asyncio.Event()))
        await asyncio.sleep(0)
        register(devices)
        await asyncio.wait_for(waiting, 5.0)
        await devices.wait(0.001, asyncio.Event())
        return True

    assert asyncio.run(woken())

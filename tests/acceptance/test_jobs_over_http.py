"""What users type at a hub: the job with layers, its devices, its events and its log."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple
from urllib.request import urlopen

import pytest
from safetensors.numpy import load

from tests.acceptance.hubs import Place, Reader, devices_of, hub_in, skip_without
from tests.patience import LIMIT_S

skip_without("torch", "sklearn", "starlette")

JOB: dict[str, Any] = {
    "model_config": {"layer_sizes": [784, 128, 64, 10]},
    "dataset_config": {
        "name": "MNIST",
        "batch_size": 256,
        "val_batch_size": 1000,
        "normalize": {"mean": [0.1307], "std": [0.3081]},
    },
}
SMALLER: dict[str, Any] = {
    "model_config": {"layer_sizes": [784, 32, 10]},
    "dataset_config": {**JOB["dataset_config"], "batch_size": 72},
}
"""A layer for each of two devices, and few rows a trial: enough for digits of 8 x 8."""


class Done(NamedTuple):
    """A job that was trained, and what was seen of it."""

    place: Place
    seen: list[str]
    events: Reader
    log: Reader
    shared: dict[str, list[str]]
    """Names of the tensors that each device held while it trained."""
    devices: list[str]


def trained(place: Place, body: dict[str, Any], training: dict[str, Any], *, is_plain: bool = False) -> Done:
    assert place.curl("POST", "/api/jobs", body).status == 201
    seen = [place.job()["status"]]
    with devices_of(place, "ada", "bob", job=1, is_plain=is_plain) as devices:
        assert len(place.curl("POST", "/api/network/initialize/1").content["devices"]) == 2
        seen.append(place.job()["status"])
        events, log = Reader(f"{place.url}/api/jobs/1/events"), Reader(f"{place.url}/api/jobs/1/log?follow=1")
        begun = place.curl("POST", "/api/network/train/1", training)
        assert (begun.status, begun.content["epochs"]) == (200, training["epochs"])
        assert place.curl("POST", "/api/network/train/1", training).status == 409
        seen.append(place.job()["status"])
        job = place.wait(lambda job: all(device["layers"] for device in job["devices"]))
        shared = {device["name"]: device["layers"] for device in job["devices"]}
        place.wait(lambda job: job["status"] == "completed")
        log.end()
        seen.append(place.wait(lambda job: "accuracy" in job["validation"])["status"])
        said = [device.communicate(timeout=LIMIT_S)[0] for device in devices]
        assert [device.returncode for device in devices] == [0, 0], said
    return Done(place, seen, events, log, shared, said)


@pytest.fixture(scope="module")
def done(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Done]:
    with hub_in(tmp_path_factory.mktemp("hub")) as place:
        yield trained(place, SMALLER, {"epochs": 1, "learning_rate": 0.04})


def test_a_job_goes_through_its_statuses_and_learns(done: Done) -> None:
    assert done.seen == ["created", "initialized", "training", "completed"]
    reached = done.events.events()["epoch_stats"][-1]["accuracy"]
    print(f"accuracy {reached:.3f} after 20 steps")
    assert reached >= 0.8  # 0.88 in 20 steps; the long tests below have as many as nine in ten need


def test_each_device_holds_a_layer_and_the_other_none_of_it(done: Done) -> None:
    assert sorted(done.shared) == ["ada", "bob"]
    assert sorted(done.shared.values()) == [["0.weight", "0.bias"], ["2.weight", "2.bias"]]


def test_both_devices_worked_as_one_crew_and_left_when_their_job_ended(done: Done) -> None:
    for said in done.devices:
        assert "job 1 has ended" in said
        assert "all 20 steps are done" in said
        assert "credited with" in said
    assert {line["volunteers"] for line in done.events.events()["training_data"]} == {2}
    assert done.place.curl("GET", "/api/devices").content == []


def test_events_are_of_three_kinds_and_come_as_it_trains(done: Done) -> None:
    found = done.events.events()
    assert set(found) == {"timing_stats", "training_data", "epoch_stats"}
    assert [line["step"] for line in found["training_data"]] == list(range(20))
    assert found["training_data"][-1]["loss"] < found["training_data"][0]["loss"]
    assert {line["epoch"] for line in found["epoch_stats"]} == {1}
    assert found["epoch_stats"][-1]["validation"]["loss"] < 1.0
    assert len(found["timing_stats"]) > 3
    assert done.events.seconds > 1.0


def test_the_log_is_live_and_says_rate_bits_and_device(done: Done) -> None:
    log = "\n".join(done.log.end())
    for said in (
        "learning rate: 0.04",
        "quantization: 8 bits",
        "device: ",
        "in place of 784",
        "crew 1 (",
        "completed",
    ):
        assert said in log, log
    assert done.log.seconds > 1.0
    assert done.place.log() == log + "\n"


def test_the_model_is_downloaded_and_the_board_shows_the_run(done: Done) -> None:
    with urlopen(f"{done.place.url}/api/jobs/1/model", timeout=60) as response:
        tensors = load(response.read())
    assert any(tensor.size == 64 * 32 for tensor in tensors.values()), {k: v.shape for k, v in tensors.items()}
    assert done.place.curl("GET", "/api/runs").content[0]["step"] == 20
    assert "Learning" in done.place.curl("GET", "/").content


def test_without_a_token_only_this_machine_under_its_own_name_is_answered(done: Done) -> None:
    place = done.place
    token = (place.folder / "hub-token").read_text().strip()
    far = {"Host": "hub.example.org"}
    for method, path in (("GET", "/api/jobs"), ("POST", "/api/network/train/1"), ("GET", "/api/jobs/1/events")):
        refused = place.curl(method, path, {} if method == "POST" else None, far)
        assert (refused.status, list(refused.content)) == (401, ["error"])
    assert place.curl("GET", "/api/jobs", headers={"Authorization": f"Bearer {token}"}).status == 200
    assert place.curl("GET", "/api/jobs").status == 200


def test_a_second_training_and_a_job_that_is_not_there_are_refused(done: Done) -> None:
    assert done.place.curl("POST", "/api/network/train/1", {"epochs": 1}).status == 409
    assert done.place.curl("GET", "/api/jobs/7").status == 404


@pytest.mark.long
@pytest.mark.parametrize(
    ("body", "training"),
    [(JOB, {"epochs": 10, "learning_rate": 0.1}), (SMALLER, {"epochs": 3, "learning_rate": 0.03})],
    ids=["as written", "smaller"],
)
def test_a_job_that_two_devices_share_reaches_nine_in_ten(
    tmp_path: Path, body: dict[str, Any], training: dict[str, Any]
) -> None:
    with hub_in(tmp_path) as place:
        done = trained(place, body, training, is_plain=body is JOB)
        assert done.seen == ["created", "initialized", "training", "completed"]
        reached = done.events.events()["epoch_stats"][-1]["accuracy"]
        print(f"accuracy {reached:.3f}")
        assert reached >= 0.9
